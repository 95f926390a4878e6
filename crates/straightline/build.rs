//! Compresses the line tables of the released program: they are three quarters of it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Backtraces and debuggers read compressed sections as well.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}

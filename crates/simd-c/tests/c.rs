//! Tests that the header matches the source, and that a C program with the header and the library
//! works.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use straightline_simd::Level;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn header() -> PathBuf {
    Path::new(ROOT).join("include/straightline_simd.h")
}

/// If `STRAIGHTLINE_BLESS` is set, the test writes the header.
#[test]
fn the_header_is_current() {
    let config = cbindgen::Config::from_file(Path::new(ROOT).join("cbindgen.toml")).expect("cbindgen.toml");
    let source = Path::new(ROOT).join("src/lib.rs");
    let mut fresh = Vec::new();
    let builder = cbindgen::Builder::new().with_config(config).with_src(source);
    builder.generate().expect("a header").write(&mut fresh);
    if env::var_os("STRAIGHTLINE_BLESS").is_some() {
        fs::write(header(), &fresh).expect("the header can be written");
    }
    let fresh = String::from_utf8(fresh).expect("text");
    let kept = fs::read_to_string(header()).expect("the header");
    assert!(kept == fresh, "the header is outdated: run this test with STRAIGHTLINE_BLESS=1");
}

/// Returns the static library built together with this test: the newest one in the same folder.
fn library() -> PathBuf {
    let exe = env::current_exe().expect("this test");
    let dir = exe.parent().expect("its folder");
    let ours = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libstraightline_simd_c") && name.ends_with(".a")
    };
    let found = fs::read_dir(dir).expect("its folder").filter_map(Result::ok).map(|entry| entry.path());
    found
        .filter(|path| ours(path))
        .max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok())
        .expect("the static library beside the test")
}

fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_program_in_c_calls_every_set() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("kernels");
    let mut compile = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-I"])
        .arg(Path::new(ROOT).join("include"));
    compile.arg(Path::new(ROOT).join("tests/kernels.c")).arg(library()).arg("-o").arg(&program);
    // Libraries that Rust's standard library needs (`rustc --print native-static-libs`).
    compile.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]);
    succeeded(&compile.output().expect("a C compiler (Debian: gcc), which `cargo xtask test` installs"));
    let said = succeeded(&Command::new(&program).output().expect("the program"));
    let ours: Vec<_> = Level::supported().map(Level::name).collect();
    assert_eq!(said.lines().collect::<Vec<_>>(), ours);
}

//! The smallest possible switch with DPDK's vhost library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::measure::wait_ready;
use crate::proc::{self, Proc};

/// Compiles the switch for this machine, into a folder.
pub(super) fn build(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let flags = output_of(Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]))
        .context("no libdpdk to compile against: install it (Debian: dpdk-dev)")?;
    let program = folder.join("rte_patch");
    // Another run may execute the program now.
    let new = folder.join(format!("rte_patch-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/linux/rte_patch.c");
    let mut compile = Command::new("cc");
    // The last `-march` option takes effect. DPDK's own option is for the oldest machine that DPDK
    // supports.
    compile.args(["-O3", "-Wall", "-Wextra", "-o"]).arg(&new).arg(source).args(flags.split_whitespace());
    output_of(compile.arg("-march=native"))?;
    fs::rename(&new, &program)?;
    Ok(program)
}

/// Starts the switch between the sockets `a` and `b`, on the CPU that our switch gets.
pub(super) fn start(lab: &Lab, program: &Path) -> Result<Proc> {
    let (_, cpu) = two_cpus()?;
    let mut command = Command::new(program);
    // These options share no memory with other processes, and leave no files behind.
    command.args(["--lcores", &format!("0@{cpu}"), "--no-pci", "--no-telemetry", "--in-memory", "-m", "256", "--"]);
    command.arg(lab.socket("a")).arg(lab.socket("b"));
    let mut proc = Proc::start("rte_patch", command, &lab.log("switch"))?;
    wait_ready(&mut proc)?;
    Ok(proc)
}

fn output_of(command: &mut Command) -> Result<String> {
    let (code, out, err) = proc::run(command, Duration::from_secs(60))?;
    if code != Some(0) {
        bail!("{:?} ended with {code:?}: {}", command.get_program(), err.trim());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn it_compiles_where_its_library_is() {
        if output_of(Command::new("pkg-config").args(["--exists", "libdpdk"])).is_err() {
            // `cargo xtask test` counts this line. `println!` would be captured.
            let _ = writeln!(std::io::stdout(), "\nskipped it_compiles_where_its_library_is: libdpdk is not installed");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let program = build(folder.path()).expect("it compiles");
        assert!(program.is_file() && fs::read_dir(folder.path()).expect("a folder").count() == 1);
    }
}

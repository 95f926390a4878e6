//! The smallest possible switch with DPDK's vhost library.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::measure::{compile, output_of, wait_ready};
use crate::proc::Proc;

/// Compiles the switch for this machine, into a folder.
pub(crate) fn build(folder: &Path) -> Result<PathBuf> {
    let flags = output_of(Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]))
        .context("no libdpdk to compile against: install it (Debian: dpdk-dev)")?;
    compile(folder, "linux/rte_patch.c", &flags)
}

/// Starts the switch between the sockets `a` and `b`, on the CPU that our switch gets.
pub(super) fn start(lab: &Lab, program: &Path) -> Result<Proc> {
    let a = lab.socket("a");
    let b = lab.socket("b");
    start_by(Command::new(program), lab, &[], &[&a.to_string_lossy(), &b.to_string_lossy()])
}

/// Starts the switch between the socket `a` and DPDK's driver for AF_XDP at an interface. `command`
/// runs the switch's program, for example in a network namespace.
pub(crate) fn start_at_interface(command: Command, lab: &Lab, interface: &str) -> Result<Proc> {
    let device = format!("net_af_xdp0,iface={interface}");
    start_by(command, lab, &["--vdev", &device], &[&lab.socket("a").to_string_lossy()])
}

fn start_by(mut command: Command, lab: &Lab, more: &[&str], args: &[&str]) -> Result<Proc> {
    let (_, cpu) = two_cpus()?;
    // These options share no memory with other processes, and leave no files behind.
    command.args(["--lcores", &format!("0@{cpu}"), "--no-pci", "--no-telemetry", "--in-memory", "-m", "256"]);
    command.args(more).arg("--").args(args);
    let mut proc = Proc::start("rte_patch", command, &lab.log("switch"))?;
    wait_ready(&mut proc)?;
    Ok(proc)
}

#[cfg(test)]
mod tests {
    use std::fs;
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

//! A network namespace for one trial. All interfaces of the trial are in it, so the machine's own
//! network stays as it is.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use crate::measure::output_of;

/// A network namespace. Dropping it removes it, as soon as no process is in it.
pub(super) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace. Its interfaces send nothing by themselves.
    pub(super) fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("slm{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        output_of(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Self { name };
        namespace.sh("cd /proc/sys/net/ipv6/conf; echo 1 > all/disable_ipv6; echo 1 > default/disable_ipv6")?;
        Ok(namespace)
    }

    /// Returns a command that runs `program` in the namespace.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a shell script that must succeed.
    pub(super) fn sh(&self, script: &str) -> Result<String> {
        output_of(self.command("sh").args(["-ec", script]))
    }

    /// Makes a veth pair whose ends are up.
    pub(super) fn veth(&self, one: &str, other: &str) -> Result<()> {
        let up = format!("ip link set {one} up; ip link set {other} up");
        self.sh(&format!("ip link add {one} type veth peer name {other}; {up}"))?;
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // If this fails, an empty namespace with the id of this process in its name remains.
        let _ = output_of(Command::new("ip").args(["netns", "del", &self.name]));
    }
}

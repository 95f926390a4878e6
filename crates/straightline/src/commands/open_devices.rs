//! `straightline open-devices`: the opener process, which `straightline run` starts.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use straightline_switch::opener;

/// Returns the command that starts this program as an opener process.
pub(crate) fn command() -> Command {
    this_program("open-devices")
}

/// Serves the switch until it ends.
pub(crate) fn execute() -> anyhow::Result<()> {
    outlive_signals()?;
    opener::serve()
}

/// Returns the command that starts this program with this argument, as a helper process.
pub(super) fn this_program(argument: &str) -> Command {
    // This path leads to the running program even if another file has its name by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("straightline").arg(argument);
    command
}

/// Makes a helper process ignore the signals that end a switch.
///
/// A signal to the process group or to the service goes to all processes. The switch stops in order,
/// and helper processes end after it: by the end of their sockets, also if the switch is killed.
pub(super) fn outlive_signals() -> anyhow::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::default()).context("cannot set up signal handlers")?;
    }
    Ok(())
}

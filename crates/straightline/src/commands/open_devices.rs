//! `straightline open-devices`: the opener process, which `straightline run` starts.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use straightline_switch::opener;

/// Returns the command that starts this program as an opener process.
pub(crate) fn command() -> Command {
    // This path leads to the running program even if another file has its name by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("straightline").arg("open-devices");
    command
}

/// Serves the switch until it ends.
pub(crate) fn execute() -> anyhow::Result<()> {
    // A signal to the process group or to the service goes to both processes. The switch stops in
    // order, and this process ends after it. It ends by the end of its socket, also if the switch
    // is killed.
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::default()).context("cannot set up signal handlers")?;
    }
    opener::serve()
}

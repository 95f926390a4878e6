//! `straightline make-sockets`: the process that makes sockets for other users, which
//! `straightline run` starts.

use std::process::Command;

use straightline_switch::socket_maker;

use super::open_devices;

/// Returns the command that starts this program as the process that makes sockets.
pub(crate) fn command() -> Command {
    open_devices::this_program("make-sockets")
}

/// Serves the switch until it ends.
pub(crate) fn execute() -> anyhow::Result<()> {
    open_devices::outlive_signals()?;
    socket_maker::serve()
}

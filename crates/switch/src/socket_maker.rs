//! The process that makes sockets for a switch that has given up the privileges to give them to
//! other users.
//!
//! It is this program once more, as the opener process is ([`crate::opener`]), and a process of its
//! own: none has privileges over the network and over files, and no slow interface delays a socket.
//! It keeps CAP_CHOWN and CAP_FOWNER, and is confined by a sandbox of its own
//! (`sandbox/socket_maker.rs`). It changes and removes no other files than those that it has made. It
//! ends with the switch.

use std::io;
use std::os::fd::AsFd;
use std::process::Command;

use anyhow::{Context, anyhow};
use caps::CapsHashSet;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use straightline_graph::Clock;
use straightline_port::HelperError;
use straightline_port::socket_file::{self, maker};

use crate::config::Config;
use crate::config::Needs;
use crate::opener::{sandbox, spawn};
use crate::sandbox::folders;
use crate::sandbox::socket_maker::{CAPABILITIES, enter};

/// Starts the process if a socket of this configuration is for another user or group. From then on it
/// makes all sockets of this process. Without a sandbox, the switch keeps its privileges and makes
/// its sockets itself.
///
/// `command` starts this program again, with arguments that make it call [`serve`]. Call this
/// function before the sandbox is entered.
///
/// # Errors
/// The process cannot be started, or cannot enter its sandbox.
pub fn start(config: &Config, command: Command, clock: &Clock) -> anyhow::Result<()> {
    if !Needs::of(config).gives_away || config.switch.sandbox.mechanisms.is_empty() {
        return Ok(());
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("cannot make a socket for the process that makes sockets")?;
    spawn(command, theirs, &CapsHashSet::from(CAPABILITIES)).context("cannot start the process that makes sockets")?;
    let maker =
        maker::SocketMaker::begin(ours, folders(config), sandbox(config), clock.clone()).map_err(
            |error| match error {
                HelperError::CannotBegin(why) => anyhow!(why),
                other => anyhow!("the process that makes sockets does not start: {other}"),
            },
        )?;
    let process = maker.process();
    let kept = if process.capabilities.is_empty() { "none".to_owned() } else { process.capabilities.join(", ") };
    tracing::info!(pid = process.pid, "started the process that makes sockets; capabilities: {kept}");
    socket_file::use_maker(maker);
    Ok(())
}

/// Serves the switch as the process that makes its sockets. Standard input is the socket to the
/// switch. Returns when the switch has ended.
///
/// # Errors
/// Standard input is no such socket.
pub fn serve() -> anyhow::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned().context("cannot use standard input")?;
    let server = maker::MakerServer::receive(socket)
        .context("standard input is no socket of a switch; only `straightline run` starts this command")?;
    match enter(server.folders(), server.sandbox()) {
        Ok(process) => server.serve(process),
        // The switch reports it.
        Err(why) => server.refuse(why),
    }
    Ok(())
}

//! The opener process: it opens network interfaces for a switch that has given up the privileges
//! for that.
//!
//! It is this program once more, started by [`start`] before the sandbox is entered. It keeps the
//! capabilities that the configured kinds of port take, and only those, and it is confined by a
//! sandbox of its own (`sandbox/opener.rs`). It opens the interfaces that the configuration named
//! at the start, and no others. It ends with the switch.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use caps::errors::CapsError;
use caps::{CapSet, CapsHashSet};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use straightline_graph::Clock;
use straightline_port::device::{DeviceRequest, Devices, Direct, Helper, HelperServer};
use straightline_port::{HelperError, HelperSandbox};

use crate::config::Config;
use crate::sandbox::opener::{enter, needed_by_all};

/// Starts the opener process for this configuration. Returns `None` if the switch needs none: it
/// has no interface to open, or no sandbox and so keeps its privileges.
///
/// `command` starts this program again, with arguments that make it call [`serve`]. Call this
/// function before the sandbox is entered, and pass the result to [`Switch::start_with`].
///
/// [`Switch::start_with`]: crate::Switch::start_with
///
/// # Errors
/// The process cannot be started, or cannot enter its sandbox.
pub fn start(config: &Config, mut command: Command, clock: &Clock) -> anyhow::Result<Option<Arc<Devices>>> {
    let requests = requests(config);
    if requests.is_empty() || config.switch.sandbox.mechanisms.is_empty() {
        return Ok(None);
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("cannot make a socket for the opener process")?;
    // The process holds no folder, so file systems can be unmounted.
    command.current_dir("/");
    spawn(command, theirs, &needed_by_all(&requests)).context("cannot start the opener process")?;
    let helper = Helper::begin(ours, requests, sandbox(config), clock.clone()).map_err(|error| match error {
        HelperError::CannotBegin(why) => anyhow!(why),
        other => anyhow!("the opener process does not start: {other}"),
    })?;
    let process = helper.process();
    let kept = if process.capabilities.is_empty() { "none".to_owned() } else { process.capabilities.join(", ") };
    tracing::info!(pid = process.pid, "started the opener process; capabilities: {kept}");
    Ok(Some(Devices::by_clock(Arc::new(helper), clock.clone()).context("cannot prepare to open interfaces")?))
}

/// Serves the switch as its opener process. Standard input is the socket to the switch. Returns
/// when the switch has ended.
///
/// # Errors
/// Standard input is no such socket, or the sandbox cannot be entered.
pub fn serve() -> anyhow::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned().context("cannot use standard input")?;
    let server = HelperServer::receive(socket)
        .context("standard input is no socket of a switch; only `straightline run` starts this command")?;
    let direct = Direct::knowing(server.requests());
    match enter(server.requests(), server.sandbox()) {
        Ok(process) => server.serve(process, &direct),
        // The switch reports it.
        Err(why) => server.refuse(why),
    }
    Ok(())
}

/// Returns the interfaces of a configuration, each once.
pub(crate) fn requests(config: &Config) -> Vec<DeviceRequest> {
    let mut requests = Vec::new();
    for request in config.ports.iter().filter_map(|port| port.kind.device(port.mtu, port.mac)) {
        if !requests.contains(&request) {
            requests.push(request);
        }
    }
    requests
}

/// Returns the sandbox that a helper process is to enter.
pub(crate) fn sandbox(config: &Config) -> HelperSandbox {
    let sandbox = &config.switch.sandbox;
    HelperSandbox {
        mechanisms: sandbox.mechanisms.iter().map(|mechanism| mechanism.as_str().to_owned()).collect(),
        required: sandbox.required,
    }
}

/// Starts the process with this socket as its standard input, and hands these capabilities on as
/// far as we have them. (A program with capabilities of its file gets these by itself, and root
/// gets all.)
pub(crate) fn spawn(mut command: Command, socket: OwnedFd, capabilities: &CapsHashSet) -> io::Result<()> {
    command.stdin(Stdio::from(socket)).stdout(Stdio::null());
    let before = caps::read(None, CapSet::Inheritable).map_err(other)?;
    hand_on(capabilities).map_err(other)?;
    let spawned = command.spawn();
    caps::clear(None, CapSet::Ambient).and_then(|()| caps::set(None, CapSet::Inheritable, &before)).map_err(other)?;
    // The process ends when it finds its socket closed. Nothing waits for it.
    spawned.map(drop)
}

/// Makes a program that is executed inherit these capabilities.
fn hand_on(capabilities: &CapsHashSet) -> Result<(), CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let handed: CapsHashSet = capabilities.intersection(&permitted).copied().collect();
    caps::set(None, CapSet::Inheritable, &handed)?;
    caps::clear(None, CapSet::Ambient)?;
    handed.iter().try_for_each(|&capability| caps::raise(None, CapSet::Ambient, capability))
}

fn other(error: CapsError) -> io::Error {
    io::Error::other(error.to_string())
}

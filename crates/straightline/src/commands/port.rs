//! `straightline port`: one port of a running switch, as a backend program by QEMU's conventions
//! (docs/interop/vhost-user.rst, "Backend program conventions"). It runs in the foreground, prints
//! a message if it fails, and ends on SIGTERM.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::getpeername;
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use signal_hook::consts::{SIGINT, SIGTERM};
use straightline_api::{self as api, PortRequest};
use straightline_graph::Permissions;
use straightline_port::Listener;

use crate::cli::Port;
use crate::output;

/// Output of `--print-capabilities` (QEMU's docs/interop/vhost-user.json,
/// `VHostUserBackendCapabilities`). A network backend has no fields besides its type.
const CAPABILITIES: &str = "{\"type\": \"net\"}\n";

/// Socket of the frontend.
enum Socket {
    /// This command creates the socket file, and removes it at the end.
    Made(Listener),
    /// Inherited from the parent process.
    Given(OwnedFd),
}

pub(crate) fn execute(args: &Port) -> anyhow::Result<()> {
    // Cites vhost-user-conventions-7.
    if args.print_capabilities {
        return output::answer(CAPABILITIES);
    }
    // Signal handlers are set up first, so that even an early signal is not lost.
    let (mut signalled, write) = UnixStream::pair().context("cannot set up signal handlers")?;
    // Cites vhost-user-conventions-4.
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?).context("cannot set up signal handlers")?;
    }
    let (socket, label) = match (&args.socket_path, args.fd) {
        // Cites vhost-user-conventions-2.
        (Some(path), _) => (Socket::Made(Listener::bind(path, &Permissions::default())?), path.clone()),
        (None, fd) => {
            let fd = fd.context("no socket: use --socket-path PATH or --fd N")?;
            // Cites vhost-user-conventions-6.
            let socket = inherited(fd)
                .with_context(|| format!("--fd {fd} is not usable: give a Unix socket that listens or is connected"))?;
            (Socket::Given(socket), PathBuf::from(format!("fd {fd}")))
        }
    };
    let name = args.name.clone().unwrap_or_else(|| format!("port-{}", std::process::id()));
    let join = args.join.clone().context("no bridge: use --join BRIDGE")?;
    let is_own = matches!(socket, Socket::Made(_));
    let request = PortRequest { name, join, socket: label.display().to_string(), is_own, groups: args.groups.clone() };
    let fd = match &socket {
        Socket::Made(listener) => listener.socket().as_fd(),
        Socket::Given(fd) => fd.as_fd(),
    };
    let port = api::add_port(&args.api, &request, fd)?;
    // From here on the switch alone holds a socket that listens. A copy of ours would outlive the
    // switch for a moment, and a frontend that connects again at once would reach nobody.
    //
    // This process also holds an inherited connection, so it can poll for the connection's end. It
    // reads nothing from the connection.
    let (file, connection) = match socket {
        Socket::Made(listener) => (listener.into_file(), None),
        Socket::Given(fd) if socket_acceptconn(&fd)? => (None, None),
        Socket::Given(fd) => (None, Some(fd)),
    };
    loop {
        // Cites vhost-user-conventions-3.
        let mut fds = vec![PollFd::new(&signalled, PollFlags::IN), PollFd::new(&port, PollFlags::IN)];
        fds.extend(connection.as_ref().map(|fd| PollFd::new(fd, PollFlags::RDHUP)));
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error).context("cannot wait for events"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            // The signal's number does not matter. Reading it clears the event.
            let _ = signalled.read(&mut [0; 8]);
            break;
        }
        if ready[1] {
            anyhow::bail!("the switch has ended, or has removed the port");
        }
        if ready.get(2) == Some(&true) {
            break;
        }
    }
    // The file goes first, so that the frontend cannot connect again when its connection ends.
    drop(file);
    port.end()?;
    Ok(())
}

/// Returns an owned handle on an inherited descriptor.
fn inherited(fd: i32) -> anyhow::Result<OwnedFd> {
    let ourselves = pidfd_open(getpid(), PidfdFlags::empty()).context("cannot open this process's own descriptors")?;
    let socket = pidfd_getfd(&ourselves, fd, PidfdGetfdFlags::empty()).context("no such descriptor")?;
    if !socket_acceptconn(&socket).context("not a socket")? {
        getpeername(&socket).context("the socket is neither listening nor connected")?;
    }
    Ok(socket)
}

//! `straightline port`: one port of a running switch, as QEMU's conventions for backend programs want it
//! (docs/interop/vhost-user.rst, "Backend program conventions"): in the foreground, with a message where it fails, gone
//! with SIGTERM.

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
use straightline_port::{Listener, Permissions};
use straightline_switch::api::{self, PortWish};

use crate::cli::Port;
use crate::output;

/// What `--print-capabilities` prints (QEMU's docs/interop/vhost-user.json, `VHostUserBackendCapabilities`): a network
/// backend has nothing to add to its type.
const CAPABILITIES: &str = "{\"type\": \"net\"}\n";

/// Where the frontend is.
enum Socket {
    /// We made it; its file goes with us.
    Made(Listener),
    /// It was handed to us.
    Given(OwnedFd),
}

pub(crate) fn execute(args: &Port) -> anyhow::Result<()> {
    if args.print_capabilities {
        return output::answer(CAPABILITIES);
    }
    // From here on a signal is noted, however early it comes.
    let (mut signalled, write) = UnixStream::pair().context("cannot handle signals")?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?).context("cannot handle signals")?;
    }
    let (socket, label) = match (&args.socket_path, args.fd) {
        (Some(path), _) => (Socket::Made(Listener::bind(path, &Permissions::default())?), path.clone()),
        (None, fd) => {
            let fd = fd.context("neither --socket-path nor --fd")?;
            let socket = inherited(fd).with_context(|| format!("--fd {fd}"))?;
            (Socket::Given(socket), PathBuf::from(format!("fd {fd}")))
        }
    };
    let name = args.name.clone().unwrap_or_else(|| format!("port-{}", std::process::id()));
    let join = args.join.clone().context("--join is missing")?;
    let wish = PortWish { name, join, socket: label.display().to_string() };
    let fd = match &socket {
        Socket::Made(listener) => listener.socket().as_fd(),
        Socket::Given(fd) => fd.as_fd(),
    };
    let lease = api::lease(&args.api, &wish, fd)?;
    // A connection that was handed over is ours as well: its end shows here. Nothing is read from it.
    let connection = match &socket {
        Socket::Given(fd) if !socket_acceptconn(fd)? => Some(fd),
        _ => None,
    };
    loop {
        let mut fds = vec![PollFd::new(&signalled, PollFlags::IN), PollFd::new(&lease, PollFlags::IN)];
        fds.extend(connection.map(|fd| PollFd::new(fd, PollFlags::RDHUP)));
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error).context("poll"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            // What it is does not matter; it is taken so that nothing is left unread.
            let _ = signalled.read(&mut [0; 8]);
            break;
        }
        if ready[1] {
            anyhow::bail!("the switch has ended, or taken the port away");
        }
        if ready.get(2) == Some(&true) {
            break;
        }
    }
    lease.end()?;
    Ok(())
}

/// A descriptor that we were started with, by its number: a handle of our own on it.
fn inherited(fd: i32) -> anyhow::Result<OwnedFd> {
    let ourselves = pidfd_open(getpid(), PidfdFlags::empty()).context("cannot look at our own descriptors")?;
    let socket = pidfd_getfd(&ourselves, fd, PidfdGetfdFlags::empty()).context("no such descriptor")?;
    if !socket_acceptconn(&socket).context("no socket")? {
        getpeername(&socket).context("it neither listens nor is it connected")?;
    }
    Ok(socket)
}

//! Descriptors that a frontend sent to kick us or to be called by, of kinds that cannot hold a worker up.
//!
//! Kicks are eventfds. Calls are eventfds too, or UNIX stream sockets, which User Mode Linux sends. Others are refused. A
//! file can block whatever it is told. The kernel reads and writes pipes, and reads sockets, under a lock; whoever
//! shares one keeps that lock for as long as the memory that it reads into or writes from is not there (a userfaultfd), and
//! no flag helps whoever wants it next. A write into a UNIX stream socket takes no such lock.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SendFlags, SocketType, send};

use crate::signal::signal;

/// What a guest is called by.
#[derive(Clone, Debug)]
pub(crate) enum Notifier {
    /// Signalled, which never waits.
    Event(Arc<OwnedFd>),
    /// Whether to block is said with each call.
    Socket(Arc<OwnedFd>),
}

impl Notifier {
    /// Looks at what it is.
    pub(crate) fn new(fd: Arc<OwnedFd>) -> io::Result<Self> {
        if is_eventfd(&fd)? {
            // Signals need it not; a write does, where there are no signals.
            fcntl_setfl(&*fd, fcntl_getfl(&*fd)? | OFlags::NONBLOCK)?;
            return Ok(Notifier::Event(fd));
        }
        let is_socket = FileType::from_raw_mode(fstat(&*fd)?.st_mode) == FileType::Socket;
        if is_socket && socket_domain(&*fd)? == AddressFamily::UNIX && socket_type(&*fd)? == SocketType::STREAM {
            return Ok(Notifier::Socket(fd));
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no eventfd and no UNIX stream socket"))
    }

    /// Notifies the other side.
    pub(crate) fn ring(&self) {
        // What is full has its notification already; what is closed has nobody left to tell.
        match self {
            Notifier::Event(fd) => signal(fd.as_fd()),
            Notifier::Socket(fd) => drop(send(fd, &1_u64.to_ne_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)),
        }
    }
}

/// Whether it is an eventfd: an anonymous inode whose name says so.
pub(crate) fn is_eventfd(fd: &OwnedFd) -> io::Result<bool> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(std::fs::read_link(path)?.as_os_str() == "anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::UdpSocket;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn what_can_hold_up_whoever_rings_is_no_notifier() {
        let refused = |what: &str, fd: OwnedFd| {
            let error = Notifier::new(Arc::new(fd)).expect_err(what);
            assert_eq!(error.to_string(), "it is no eventfd and no UNIX stream socket", "{what}");
        };
        let (reader, writer) = io::pipe().expect("a pipe");
        refused("a pipe's end to read", reader.into());
        refused("a pipe's end to write", writer.into());
        refused("a datagram socket", UnixDatagram::unbound().expect("a socket").into());
        refused("an Internet socket", UdpSocket::bind("127.0.0.1:0").expect("a socket").into());
        refused("a file", std::fs::File::open("/proc/self/stat").expect("a file").into());
        refused("a device", std::fs::File::open("/dev/null").expect("a device").into());
    }

    #[test]
    fn what_rings() {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        Notifier::new(Arc::clone(&event)).expect("an eventfd").ring();
        let mut bytes = [0; 8];
        rustix::io::read(&*event, &mut bytes).expect("it was rung");
        assert_eq!(u64::from_ne_bytes(bytes), 1);

        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let socket = Notifier::new(Arc::new(ours.into())).expect("User Mode Linux's");
        socket.ring();
        theirs.read_exact(&mut bytes).expect("it was rung");
        assert_eq!(u64::from_ne_bytes(bytes), 1);
        // Full, though it blocks: nobody waits.
        (0..100_000).for_each(|_| socket.ring());
    }
}

//! The process at the other end of a socket.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A process, recorded when it made the connection or began to listen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id; `None` if the process has none in our PID namespace.
    pub pid: Option<u32>,
    /// Its effective user id.
    pub uid: u32,
}

/// Returns the process connected to a Unix socket (`SO_PEERCRED`, unix(7)).
///
/// `rustix` has this call too, but its result cannot hold a process id of 0. The kernel returns 0
/// for a process outside our PID namespace, such as one in another container.
///
/// # Errors
/// The socket has no connection, or the system refuses.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let size = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(io::Error::other)?;
    let mut len = size;
    // SAFETY: the descriptor is open for as long as it is borrowed. `found` and `len` are ours
    // alone and writable. `len` is the size of `found`, and the kernel writes no more than that.
    // Each bit pattern is a valid `ucred`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast::<libc::c_void>(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if len != size {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let pid = u32::try_from(found.pid).ok().filter(|pid| *pid != 0);
    // A socket without a connection has -1 for both ids.
    if pid.is_none() && found.uid == u32::MAX {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(Peer { pid, uid: found.uid })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn both_ends_are_known() {
        let (a, b) = UnixStream::pair().unwrap();
        let us = Peer { pid: Some(std::process::id()), uid: rustix::process::geteuid().as_raw() };
        assert_eq!(peer(a.as_fd()).unwrap(), us);
        assert_eq!(peer(b.as_fd()).unwrap(), us);
    }

    #[test]
    fn a_descriptor_that_is_not_connected_has_no_peer() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::open(folder.path()).unwrap();
        assert!(peer(file.as_fd()).is_err());
        assert!(peer(std::os::unix::net::UnixDatagram::unbound().unwrap().as_fd()).is_err());
    }
}

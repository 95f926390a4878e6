//! Descriptors that clients send beside their bytes (`SCM_RIGHTS`), refused by the kernel.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Whether a sender may send descriptors to this socket (asm-generic/socket.h, Linux 6.16). The
/// libc crate does not know it yet.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Makes the kernel refuse descriptors to this Unix socket, and to all sockets that are accepted
/// from it when it listens later. Returns false if this kernel cannot.
pub(super) fn refuse(socket: impl AsFd) -> io::Result<bool> {
    let off: libc::c_int = 0;
    #[expect(clippy::cast_possible_truncation, reason = "the size of an integer")]
    let size = size_of_val(&off) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the pointer and the size are those of `off`, which outlives the call.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const off).cast(), size) };
    match (done, io::Error::last_os_error()) {
        (0, _) => Ok(true),
        (_, error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        (_, error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::unix::net::UnixStream;

    use rustix::io::Errno;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    #[test]
    fn a_descriptor_is_refused_before_anybody_has_it() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let send = |flags| {
            let fds = [ours.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
            sendmsg(&ours, &[IoSlice::new(b"x")], &mut beside, flags)
        };
        assert_eq!(send(SendFlags::empty()), Ok(1));
        if !refuse(&theirs).unwrap() {
            return;
        }
        for flags in [SendFlags::empty(), SendFlags::OOB] {
            assert_eq!(send(flags), Err(Errno::PERM), "{flags:?}");
        }
    }
}

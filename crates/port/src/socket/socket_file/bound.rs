//! Whether a socket of this machine is bound to a file, as the kernel's table of UNIX sockets says.
//!
//! The table answers without a right to connect, which a socket of another user does not give us.
//! It has the sockets of this network namespace only.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use az::SaturatingAs;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NlasIterator};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Stat, major, minor};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};
use straightline_graph::Clock;

/// The type of requests and answers (`SOCK_DIAG_BY_FAMILY` in Linux's `sock_diag.h`).
const BY_FAMILY: u16 = 20;

/// The facts that an answer is to have: the socket's name, and its file
/// (`UDIAG_SHOW_NAME | UDIAG_SHOW_VFS` in `unix_diag.h`).
const NAME_AND_FILE: u32 = 1 | 2;

/// The attribute with the name (`UNIX_DIAG_NAME`).
const NAME: u16 = 0;

/// The attribute with the file's inode and device (`UNIX_DIAG_VFS`).
const FILE: u16 = 1;

/// The state of a connected socket (`TCP_ESTABLISHED`).
const CONNECTED: u8 = 1;

/// Bytes of a request: `nlmsghdr` and `unix_diag_req`.
const REQUEST_BYTES: usize = 16 + 24;

/// Bytes of the longest part of an answer. The kernel sends at most 32 KiB.
const MOST_BYTES: usize = 64 << 10;

/// Time that the kernel may take. It answers within the call that asks.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns whether a socket is bound to the file with this `stat`, which is named `name` in its
/// folder. Connections that a listener accepted are none: they outlive it.
///
/// # Errors
/// The kernel has no such table (`CONFIG_UNIX_DIAG`), or does not answer.
pub(super) fn is_bound(stat: &Stat, name: &[u8]) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    send(&socket, &request(), SendFlags::empty())?;
    // Paths are also looked at before a switch and its clock exist.
    find(&socket, stat, name, &Clock::real())
}

/// Looks for the file in the answer to a request.
fn find(socket: &OwnedFd, stat: &Stat, name: &[u8], clock: &Clock) -> io::Result<bool> {
    let until = clock.now() + PATIENCE;
    let mut buffer = vec![0; MOST_BYTES];
    let mut is_bound = false;
    loop {
        let length = match recv(socket, &mut *buffer, RecvFlags::TRUNC) {
            Ok((read, whole)) if whole <= read => read,
            Ok((_, whole)) => return Err(io::Error::other(format!("a message of {whole} bytes"))),
            Err(Errno::AGAIN | Errno::INTR) => {
                if until <= clock.now() {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not answer"));
                }
                // A signal ends the wait too.
                let _ = clock.poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(until));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let Ok(message) = NetlinkBuffer::new_checked(rest) {
            match libc::c_int::from(message.message_type()) {
                libc::NLMSG_DONE => return Ok(is_bound),
                libc::NLMSG_ERROR => {
                    let code = message.payload().first_chunk().map_or(0, |&code| i32::from_ne_bytes(code));
                    return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                }
                _ => is_bound |= is_of(message.payload(), stat, name),
            }
            // The next message begins at a multiple of 4.
            let end = message.length().saturating_as::<usize>().next_multiple_of(4);
            rest = rest.get(end..).unwrap_or_default();
        }
    }
}

/// Returns the question for all UNIX sockets, in any state.
fn request() -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    let length = REQUEST_BYTES.saturating_as::<u32>();
    // `nlmsghdr`: length, type, flags, sequence number, port.
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    // `unix_diag_req`: family, protocol, padding, states, inode, shown facts, cookie.
    request[16] = u8::try_from(libc::AF_UNIX).unwrap_or_default();
    request[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    request[28..32].copy_from_slice(&NAME_AND_FILE.to_ne_bytes());
    request
}

/// Returns whether an answer is about a socket that is bound to this file.
fn is_of(answer: &[u8], stat: &Stat, name: &[u8]) -> bool {
    // `unix_diag_msg`: family, type, state, padding, inode of the socket, cookie.
    let Some(([_, kind, state, ..], attributes)) = answer.split_first_chunk::<16>() else { return false };
    // A socket that a listener accepted has the listener's name and file.
    if *state == CONNECTED && libc::c_int::from(*kind) != libc::SOCK_DGRAM {
        return false;
    }
    let mut has_inode = false;
    let mut has_device = false;
    let mut has_name = false;
    for attribute in NlasIterator::new(attributes).map_while(Result::ok) {
        let value = attribute.value();
        match attribute.kind() {
            NAME => {
                let path = value.split(|&byte| byte == 0).next().unwrap_or_default();
                has_name = path.rsplit(|&byte| byte == b'/').next() == Some(name);
            }
            FILE => {
                let word = |at| value.get(at..at + 4)?.first_chunk().map(|&bytes| u32::from_ne_bytes(bytes));
                // The kernel cuts the inode to 32 bits.
                has_inode = word(0).is_some_and(|inode| u64::from(inode) == stat.st_ino & u64::from(u32::MAX));
                // The kernel's own form of a device number (`MKDEV` in Linux's `kdev_t.h`).
                has_device = word(4) == Some(major(stat.st_dev) << 20 | minor(stat.st_dev));
            }
            _ => {}
        }
    }
    // Some file systems, such as btrfs, show another device to programs.
    has_inode && (has_device || has_name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::path::Path;

    use rustix::fs::stat;
    use straightline_testing::wait_until;

    use super::*;

    fn is_bound_at(path: &Path) -> bool {
        is_bound(&stat(path).unwrap(), path.file_name().unwrap().as_bytes()).unwrap()
    }

    #[test]
    fn the_table_knows_files_of_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        assert!(is_bound_at(&path));
        let connection = UnixStream::connect(&path).unwrap();
        let accepted = listener.accept().unwrap();
        let moved = folder.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        assert!(is_bound_at(&moved), "the name of the file does not matter");
        drop(listener);
        assert!(!is_bound_at(&moved), "an accepted connection is no listener");
        drop((connection, accepted));

        let datagram = UnixDatagram::bind(&path).unwrap();
        datagram.connect(&path).unwrap();
        assert!(is_bound_at(&path));
        assert!(!is_bound_at(&moved));
        drop(datagram);
        assert!(!is_bound_at(&path));
    }

    /// Answers that the kernel never sends are about no file.
    #[test]
    fn short_answers() {
        let stat = stat("/").unwrap();
        for length in 0..40 {
            assert!(!is_of(&vec![0; length], &stat, b""), "{length}");
        }
        let mut answer = vec![0; 16];
        answer.extend([6, 0, 1, 0, 7, 7, 0, 0]);
        assert!(!is_of(&answer, &stat, b""));
    }

    #[test]
    fn a_kernel_that_does_not_answer_is_waited_for_in_vain() {
        let (ours, _silent) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let clock = Clock::moved();
        let asks = std::thread::spawn({
            let clock = clock.clone();
            move || find(&ours.into(), &stat("/").unwrap(), b"", &clock).unwrap_err()
        });
        wait_until("the time of the kernel is over", || {
            clock.advance(PATIENCE);
            asks.is_finished()
        });
        assert_eq!(asks.join().unwrap().kind(), io::ErrorKind::TimedOut);
    }
}

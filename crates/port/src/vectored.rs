//! System calls that read and write packets in memory segments.
//!
//! A memory segment is no slice, because others may write its bytes at any time. So these calls
//! pass its address to the kernel, and no reference to the bytes is made.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use straightline_packet::MemorySegment;

/// The most memory segments of a packet's body that one call writes. A driver's large packet has
/// about 20. The kernel would take 1023, but needs memory for each call with more than 8.
pub(crate) const MAX_PIECES: usize = 63;

/// Reads a packet, or the part of it that `into` has space for. Returns the number of bytes read.
#[inline]
pub(crate) fn read(fd: BorrowedFd<'_>, into: MemorySegment<'_>) -> Result<u32, Errno> {
    // SAFETY: the descriptor is open for as long as it is borrowed. The kernel writes within the
    // segment, whose bytes are writable for all of its lifetime.
    let read = unsafe { libc::read(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len() as usize) };
    length(read)
}

/// Writes a packet: `front`, then the bytes of `body`, by one call. `body` has at most
/// [`MAX_PIECES`] segments.
#[inline]
pub(crate) fn write(fd: BorrowedFd<'_>, front: &[u8], body: &[MemorySegment<'_>]) -> Result<u32, Errno> {
    if body.is_empty() {
        // SAFETY: the descriptor is open for as long as it is borrowed, and so are the bytes.
        let written = unsafe { libc::write(fd.as_raw_fd(), front.as_ptr().cast(), front.len()) };
        return length(written);
    }
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_PIECES + 1];
    let Some(n) = fill(&mut pieces, front, body) else { return Err(Errno::MSGSIZE) };
    // SAFETY: the descriptor is open for as long as it is borrowed. `fill` has initialized `n`
    // pieces. Their bytes are readable for as long as `front` and the segments are borrowed. The
    // kernel only reads them; others may write the segments' bytes meanwhile.
    let written = unsafe { libc::writev(fd.as_raw_fd(), pieces.as_ptr().cast(), n) };
    length(written)
}

/// Writes a packet that lies in one memory segment.
pub(crate) fn write_segment(fd: BorrowedFd<'_>, packet: MemorySegment<'_>) -> Result<u32, Errno> {
    // SAFETY: the descriptor is open for as long as it is borrowed. The segment's bytes are
    // readable for all of its lifetime.
    length(unsafe { libc::write(fd.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len() as usize) })
}

/// Describes `front` and `body` to the kernel. Returns the number of pieces, or `None` if there is
/// no space for all of them.
#[inline]
fn fill(pieces: &mut [MaybeUninit<libc::iovec>], front: &[u8], body: &[MemorySegment<'_>]) -> Option<libc::c_int> {
    let (first, rest) = pieces.split_first_mut()?;
    first.write(libc::iovec { iov_base: front.as_ptr().cast_mut().cast(), iov_len: front.len() });
    for (piece, segment) in rest.get_mut(..body.len())?.iter_mut().zip(body) {
        piece.write(libc::iovec { iov_base: segment.as_mut_ptr().cast(), iov_len: segment.len() as usize });
    }
    libc::c_int::try_from(body.len() + 1).ok()
}

/// Returns the length that a system call returned, or its error.
#[inline]
fn length(returned: libc::ssize_t) -> Result<u32, Errno> {
    u32::try_from(returned).map_err(|_| last_error())
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
    use straightline_packet::Level;

    fn sockets() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).expect("sockets")
    }

    #[test]
    fn a_packet_is_written_in_order_from_all_its_pieces() {
        let (ours, theirs) = sockets();
        let pool = Pool::new(1 << 16).expect("mapped");
        for pieces in [0, 1, 2, MAX_PIECES] {
            let body: Vec<_> = (0..pieces).map(|at| pool.segment(at * 1000, 10).expect("in the pool")).collect();
            for (at, piece) in body.iter().enumerate() {
                piece.write(Level::Scalar, &[u8::try_from(at).expect("few"); 10]);
            }
            assert_eq!(write(ours.as_fd(), b"front", &body), Ok(5 + 10 * u32::try_from(pieces).expect("few")));
            let mut got = [0; 1000];
            let (n, _) = recv(&theirs, &mut got[..], RecvFlags::empty()).expect("it was sent");
            let expected: Vec<u8> = b"front"
                .iter()
                .copied()
                .chain((0..pieces).flat_map(|at| [u8::try_from(at).expect("few"); 10]))
                .collect();
            assert_eq!(&got[..n], expected);
        }
        let many = vec![pool.segment(0, 1).expect("in the pool"); MAX_PIECES + 1];
        assert_eq!(write(ours.as_fd(), b"front", &many), Err(Errno::MSGSIZE));
    }

    #[test]
    fn a_packet_is_read_into_a_segment() {
        let (ours, theirs) = sockets();
        let pool = Pool::new(4096).expect("mapped");
        let segment = pool.segment(100, 20).expect("in the pool");
        assert_eq!(read(ours.as_fd(), segment), Err(Errno::AGAIN));
        send(&theirs, &[7; 10], SendFlags::empty()).expect("sent");
        assert_eq!(read(ours.as_fd(), segment), Ok(10));
        let mut got = [0; 20];
        segment.read(Level::Scalar, &mut got);
        assert_eq!(got[..10], [7; 10]);
    }

    #[test]
    fn a_segment_that_is_not_mapped_any_more_is_an_error() {
        let (ours, _theirs) = sockets();
        let file = rustix::fs::memfd_create("vanished", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
        rustix::fs::ftruncate(&file, 4096).expect("memory");
        let region = straightline_virtio::memory::Region::map(file.as_fd(), 0, 4096, 0, 0).expect("mapped");
        let memory =
            straightline_virtio::memory::GuestMemory::new(vec![std::sync::Arc::new(region)]).expect("one region");
        let segment = memory.segment(0, 100, &mut 0).expect("in memory");
        rustix::fs::ftruncate(&file, 0).expect("truncated");
        assert_eq!(write(ours.as_fd(), b"front", &[segment]), Err(Errno::FAULT));
    }
}

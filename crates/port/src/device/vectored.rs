//! System calls that read and write packets in memory segments.
//!
//! A memory segment is no slice, because others may write its bytes at any time. So these calls
//! pass its address to the kernel, and no reference to the bytes is made.
//!
//! Calls for one packet go through `syscall(2)`. The C library's own functions are cancellation
//! points. In a program with threads these cost two atomic operations more.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use straightline_packet::{MemorySegment, PacketId, Turn};

/// The most memory segments of a packet's body that one call writes. A driver's large packet has
/// about 20. The kernel would take 1023, but needs memory for each call with more than 8.
pub(crate) const MAX_PIECES: usize = 63;

/// Reads a packet, or the part of it that `into` has space for. Returns the number of bytes read.
#[inline]
pub(crate) fn read(fd: BorrowedFd<'_>, into: MemorySegment<'_>) -> Result<u32, Errno> {
    // SAFETY: the descriptor is open for as long as it is borrowed. The kernel writes within the
    // segment, whose bytes are writable for all of its lifetime.
    let read = unsafe { libc::syscall(libc::SYS_read, number(fd), into.as_mut_ptr(), into.len() as usize) };
    length(read)
}

/// Writes a packet: `front`, then the bytes of `body`, by one call. `body` has at most
/// [`MAX_PIECES`] segments.
#[inline]
pub(crate) fn write(fd: BorrowedFd<'_>, front: &[u8], body: &[MemorySegment<'_>]) -> Result<u32, Errno> {
    if body.is_empty() {
        // SAFETY: the descriptor is open for as long as it is borrowed, and so are the bytes.
        let written = unsafe { libc::syscall(libc::SYS_write, number(fd), front.as_ptr(), front.len()) };
        return length(written);
    }
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_PIECES + 1];
    let Some(n) = fill(&mut pieces, front, body) else { return Err(Errno::MSGSIZE) };
    // SAFETY: the descriptor is open for as long as it is borrowed. `fill` has initialized `n`
    // pieces. Their bytes are readable for as long as `front` and the segments are borrowed. The
    // kernel only reads them; others may write the segments' bytes meanwhile.
    let written = unsafe { libc::syscall(libc::SYS_writev, number(fd), pieces.as_ptr(), n) };
    length(written)
}

/// Writes a packet that lies in one memory segment.
pub(crate) fn write_segment(fd: BorrowedFd<'_>, packet: MemorySegment<'_>) -> Result<u32, Errno> {
    // SAFETY: the descriptor is open for as long as it is borrowed. The segment's bytes are
    // readable for all of its lifetime.
    length(unsafe { libc::syscall(libc::SYS_write, number(fd), packet.as_mut_ptr(), packet.len() as usize) })
}

/// The most packets that [`receive`] and [`send`] pass by one call.
pub(crate) const MESSAGES: usize = 64;

/// A packet from a packet socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Message {
    /// Bytes stored, virtio-net header included.
    pub(crate) len: u32,
    /// The packet is longer than its space.
    pub(crate) truncated: bool,
    /// The VLAN tag that the kernel has taken out of the packet.
    pub(crate) tag: Option<[u8; 4]>,
}

/// The ancillary data of a packet (packet(7), PACKET_AUXDATA): as long as the kernel stores it.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    data: libc::tpacket_auxdata,
    padding: [u8; 4],
}

/// The data follows its header, and the whole is padded to a word (cmsg(3)).
const _: () = assert!(std::mem::offset_of!(Control, data) == size_of::<libc::cmsghdr>());
const _: () = assert!(size_of::<Control>().is_multiple_of(size_of::<usize>()));

/// Receives at most `max` packets from a packet socket, by one call. Packet `n` is stored in the
/// two segments of `space(n)`, one behind the other. Returns the number of packets.
pub(crate) fn receive<'p>(
    fd: BorrowedFd<'_>,
    max: usize,
    mut space: impl FnMut(usize) -> Option<[MemorySegment<'p>; 2]>,
    into: &mut [Message; MESSAGES],
) -> Result<usize, Errno> {
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES];
    let mut pieces = [const { [const { MaybeUninit::<libc::iovec>::uninit() }; 2] }; MESSAGES];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; MESSAGES];
    let mut count = 0;
    for (((header, pieces), control), n) in headers.iter_mut().zip(&mut pieces).zip(&mut controls).zip(0..max) {
        let Some(segments) = space(n) else { break };
        for (piece, segment) in pieces.iter_mut().zip(segments) {
            piece.write(libc::iovec { iov_base: segment.as_mut_ptr().cast(), iov_len: segment.len() as usize });
        }
        // If the kernel stores nothing, zeros are no ancillary data of any kind.
        *control = MaybeUninit::zeroed();
        let mut message = message(pieces.as_mut_ptr().cast(), pieces.len());
        message.msg_hdr.msg_control = control.as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = size_of::<Control>();
        header.write(message);
        count += 1;
    }
    // SAFETY: the descriptor is open for as long as it is borrowed. The first `count` headers are
    // initialized. They point to pieces and ancillary data that live for the call, and the pieces
    // to segments that are writable for longer. The call does not wait, so it needs no time.
    let received = unsafe {
        let count = libc::c_uint::try_from(count).unwrap_or(0);
        libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr().cast(), count, libc::MSG_DONTWAIT, std::ptr::null_mut())
    };
    let received = usize::try_from(received).map_err(|_| last_error())?.min(count);
    for ((header, control), into) in headers.iter().zip(&controls).zip(into.iter_mut()).take(received) {
        // SAFETY: both were initialized above, for more than `received` packets. The kernel stores
        // plain data there.
        let (header, control) = unsafe { (header.assume_init_ref(), control.assume_init_ref()) };
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        *into = Message { len: header.msg_len, truncated, tag: tag(control) };
    }
    Ok(received)
}

/// Returns the VLAN tag that the kernel has taken out of a packet.
fn tag(control: &Control) -> Option<[u8; 4]> {
    let Control { header, data, .. } = control;
    let is_ours = header.cmsg_level == libc::SOL_PACKET && header.cmsg_type == libc::PACKET_AUXDATA;
    if !is_ours || data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_protocol = data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if has_protocol { data.tp_vlan_tpid } else { VLAN };
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

/// The EtherType of a VLAN tag (IEEE 802.1Q).
const VLAN: u16 = 0x8100;

/// Sends the first packets of `ids` by one call, each from the `N` bytes in front of its head on.
/// Each has at most [`MAX_PIECES`] body segments. Returns the number of packets sent, at least 1.
pub(crate) fn send<const N: usize>(fd: BorrowedFd<'_>, turn: &Turn<'_>, ids: &[PacketId]) -> Result<usize, Errno> {
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES];
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; 4 * (MAX_PIECES + 1)];
    let mut free = &mut pieces[..];
    let mut count = 0;
    for (header, &id) in headers.iter_mut().zip(ids) {
        let front = turn.front_and_head::<N>(id);
        let body = turn.body(id);
        let Some((own, rest)) = std::mem::take(&mut free).split_at_mut_checked(body.len() + 1) else { break };
        if fill(own, front, body).is_none() {
            break;
        }
        header.write(message(own.as_mut_ptr().cast(), own.len()));
        free = rest;
        count += 1;
    }
    // SAFETY: the descriptor is open for as long as it is borrowed. The first `count` headers are
    // initialized, and they point to initialized pieces that live for the call. The pieces point to
    // slots, which the turn's borrow keeps unchanged, and to segments of the turn. The kernel only
    // reads them; others may write the segments' bytes meanwhile.
    let sent = unsafe {
        let count = libc::c_uint::try_from(count).unwrap_or(0);
        libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr().cast(), count, libc::MSG_DONTWAIT)
    };
    match usize::try_from(sent).map_err(|_| last_error())? {
        0 => Err(Errno::MSGSIZE),
        sent => Ok(sent.min(count)),
    }
}

/// Returns a message without address and ancillary data.
fn message(pieces: *mut libc::iovec, count: usize) -> libc::mmsghdr {
    // SAFETY: the structure is plain data, for which zeros are valid. It may have padding, which
    // has no name.
    let mut message: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_hdr.msg_iov = pieces;
    message.msg_hdr.msg_iovlen = count;
    message
}

/// Describes `front` and `body` to the kernel. Returns the number of pieces, or `None` if there is
/// no space for all of them.
#[inline]
fn fill(pieces: &mut [MaybeUninit<libc::iovec>], front: &[u8], body: &[MemorySegment<'_>]) -> Option<usize> {
    let (first, rest) = pieces.split_first_mut()?;
    first.write(libc::iovec { iov_base: front.as_ptr().cast_mut().cast(), iov_len: front.len() });
    for (piece, segment) in rest.get_mut(..body.len())?.iter_mut().zip(body) {
        piece.write(libc::iovec { iov_base: segment.as_mut_ptr().cast(), iov_len: segment.len() as usize });
    }
    Some(body.len() + 1)
}

/// Returns a descriptor as an argument of `syscall(2)`, which are words.
fn number(fd: BorrowedFd<'_>) -> libc::c_long {
    fd.as_raw_fd().into()
}

/// Returns the length that a system call returned, or its error.
#[inline]
fn length(returned: libc::c_long) -> Result<u32, Errno> {
    u32::try_from(returned).map_err(|_| last_error())
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
    use straightline_packet::Level;

    use super::*;
    use crate::device::pool::Pool;

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

//! Packets with a virtio-net header, as the kernel gives and takes them: by taps and by packet
//! sockets.
//!
//! The kernel is a driver and a device at once. Packets from it are checked as those of a guest's
//! driver. Packets for it are prepared as for a guest that takes the same offloads:
//!
//! | packet | way |
//! |---|---|
//! | the kernel takes it as it is | one system call, straight from the slot and the source's memory |
//! | its checksum must be finished | summed in a copy to the scratch memory, then one system call |
//! | it must be segmented | the same for each segment |
//! | its body has very many pieces | a copy, then one system call |
//!
//! # Known imperfection
//!
//! A frontend may truncate its guest's memory while the kernel copies a packet. Mostly the kernel
//! then refuses the packet. If another worker has just replaced the memory by zeros, the packet
//! goes out with zeros. Only a further copy could prevent that.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;
use straightline_graph::QueueCounters;
use straightline_packet::{
    BodyCursor, Checksum, GsoSegment, IgnorePoison, MAX_FRAME, MIN_FRAME, MemorySegment, Offload, PacketId, PortIndex,
    Reason, Segmenter, SourceQueueId, Turn,
};
use straightline_virtio::memory::fault;
use straightline_virtio::net_header::{LEN, NetHeader, Receiver};

use crate::device::link::DevicePortData;
use crate::device::pool::Pool;
use crate::device::vectored;

/// The source of packets from one queue.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) port: PortIndex,
    pub(crate) source: SourceQueueId,
    /// The offloads that the kernel may leave to us, as virtio features.
    pub(crate) features: u64,
    pub(crate) max_len: u32,
}

/// Accepts a packet of the kernel into the turn, or drops it. The packet is `frame` with `rest`
/// behind it.
pub(crate) fn accept<'t>(
    turn: &mut Turn<'t>,
    origin: Origin,
    header: &[u8; LEN],
    frame: MemorySegment<'t>,
    rest: Option<MemorySegment<'t>>,
) -> Option<PacketId> {
    let len = frame.len() + rest.map_or(0, MemorySegment::len);
    let refuse = |turn: &Turn<'t>, reason| {
        turn.count_drops(origin.port, reason, 1);
        None
    };
    let id = match (len, rest) {
        (0..MIN_FRAME, _) => return refuse(turn, Reason::Runt),
        (MIN_FRAME..=MAX_FRAME, None) => turn.accept(origin.port, origin.source, frame),
        (MIN_FRAME..=MAX_FRAME, Some(rest)) => {
            let mark = turn.mark();
            turn.stage(frame);
            turn.stage(rest);
            turn.accept_staged(origin.port, origin.source, mark, 0)
        }
        _ => return refuse(turn, Reason::TooBig),
    };
    let Some(id) = id else { return refuse(turn, Reason::NoBuffer) };
    let header = NetHeader::parse(header);
    match header.check(origin.features, turn, id) {
        Ok(offload) if offload.gso.is_some() || turn.fits(id, len, origin.max_len) => {
            let verified = Offload { checksum: Checksum::Verified, gso: None };
            turn.set_offload(id, if header.is_verified() { verified } else { offload });
            Some(id)
        }
        refused => {
            turn.disown(id);
            turn.drop_at(origin.port, &[id], refused.err().unwrap_or(Reason::TooBig));
            None
        }
    }
}

/// The way of a packet to the kernel.
pub(crate) enum Way {
    /// From the memory where it lies, without a copy.
    Direct,
    /// Copied first. With `finish`, its checksum is finished in the copy.
    Copied { finish: bool },
    /// Segmented, and each segment copied first.
    Segmented(Segmenter),
}

/// The packets of a batch that the kernel has taken.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    packets: u64,
    bytes: u64,
    body: u64,
}

impl Tally {
    /// Counts a packet with its body.
    #[inline]
    pub(crate) fn count(&mut self, len: u32, body: u32) {
        self.packets += 1;
        self.bytes += u64::from(len);
        self.body += u64::from(body);
    }
}

/// The reason why the kernel did not take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The packet is dropped for this reason.
    Dropped(Reason),
    /// A part of the packet's memory has vanished.
    Vanished,
    /// The interface has gone.
    Gone,
}

impl From<Errno> for Refused {
    #[cold]
    fn from(error: Errno) -> Self {
        match error {
            Errno::FAULT => Refused::Vanished,
            Errno::BADFD | Errno::NXIO | Errno::NODEV => Refused::Gone,
            // An administrator has set the interface down: a tap answers EIO, a socket ENETDOWN.
            Errno::IO | Errno::NETDOWN => Refused::Dropped(Reason::LinkDown),
            Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Refused::Dropped(Reason::NoBuffer),
            Errno::MSGSIZE => Refused::Dropped(Reason::TooBig),
            _ => Refused::Dropped(Reason::DeviceRefused),
        }
    }
}

/// Returns whether a batch may have packets whose memory has vanished. Then each must be asked.
pub(crate) fn may_have_vanished(turn: &Turn<'_>) -> bool {
    // The epoch is 0 until memory vanishes for the first time.
    fault::epoch() != 0 && turn.any_poisoned()
}

/// Counts the first of `rest` as dropped, or all of them if the interface has gone. Returns whether
/// it has gone.
#[cold]
pub(crate) fn refuse(port: &DevicePortData, turn: &mut Turn<'_>, rest: &[PacketId], refused: Refused) -> bool {
    match refused {
        Refused::Dropped(reason) => {
            turn.drop_at(port.index, &rest[..rest.len().min(1)], reason);
        }
        // The source of the packet is at fault, not this port.
        Refused::Vanished => rest.iter().take(1).for_each(|&id| turn.discard(id, Reason::MemoryFault)),
        Refused::Gone => {
            turn.drop_at(port.index, rest, Reason::LinkDown);
            port.report_fault();
        }
    }
    refused == Refused::Gone
}

/// The transmit side of a queue, whose packets have a header of `N` bytes. Several workers may use
/// it at the same time.
#[derive(Debug)]
pub(crate) struct Transmitter<const N: usize> {
    receiver: Receiver,
    /// Memory for one packet that is copied before it is written.
    scratch: Pool,
    /// Protects `scratch` and the queue's counters.
    state: Mutex<Box<GsoSegment>>,
}

impl<const N: usize> Transmitter<N> {
    /// Returns the transmit side for a kernel that takes these offloads.
    pub(crate) fn new(features: u64) -> io::Result<Self> {
        let scratch = Pool::new(MAX_FRAME as usize + LEN)?;
        Ok(Transmitter { receiver: Receiver::new(features), scratch, state: Mutex::default() })
    }

    /// Returns the way of a packet, or the reason to drop it.
    #[inline]
    pub(crate) fn way(&self, turn: &Turn<'_>, id: PacketId, max_len: u32) -> Result<Way, Reason> {
        let len = turn.len(id);
        let offload = turn.offload(id);
        let fits = |len: u32| turn.fits(id, len, max_len);
        match offload.gso {
            None if !fits(len) => return Err(Reason::TooBig),
            Some(gso) if !fits(u32::from(gso.header_len) + u32::from(gso.size)) => return Err(Reason::TooBig),
            Some(gso) if !self.receiver.takes(gso) => {
                return Segmenter::new(gso, len).map(Way::Segmented).ok_or(Reason::SegmentHeaders);
            }
            _ => {}
        }
        let finish = matches!(offload.checksum, Checksum::Partial { .. }) && !self.receiver.takes_partial();
        if finish || turn.body(id).len() > vectored::MAX_PIECES { Ok(Way::Copied { finish }) } else { Ok(Way::Direct) }
    }

    /// Returns the number of system calls that a GSO packet takes.
    pub(crate) fn sends(&self, turn: &Turn<'_>, id: PacketId) -> u32 {
        let is_taken = turn.offload(id).gso.is_some_and(|gso| self.receiver.takes(gso));
        if is_taken { 1 } else { turn.segments(id) }
    }

    /// Writes the header in front of a packet that goes as it is.
    #[inline]
    pub(crate) fn put_header(turn: &mut Turn<'_>, id: PacketId) {
        let offload = turn.offload(id);
        *turn.front_mut::<N>(id) = header(offload);
    }

    /// Sends a copy of a packet. If memory has vanished, the copy finds out.
    #[cold]
    pub(crate) fn send_copied<'t>(
        &'t self,
        fd: BorrowedFd<'_>,
        turn: &mut Turn<'t>,
        id: PacketId,
        finish: bool,
        tally: &mut Tally,
    ) -> Result<(), Refused> {
        let _state = self.lock();
        let len = turn.len(id);
        let body = turn.body_len(id);
        let mut offload = turn.offload(id);
        let space = self.space(len)?;
        if finish {
            offload.checksum = Checksum::Complete;
        }
        *turn.front_mut::<N>(id) = header(offload);
        self.copy_and_write(fd, turn, id, space, |turn, to| _ = turn.store::<N>(id, to, finish))?;
        tally.count(len, body);
        Ok(())
    }

    /// Sends the segments of a packet. If one is refused, the rest is dropped and counted for the
    /// same reason.
    #[cold]
    pub(crate) fn send_segmented<'t>(
        &'t self,
        fd: BorrowedFd<'_>,
        (port, turn): (&DevicePortData, &mut Turn<'t>),
        id: PacketId,
        mut plan: Segmenter,
        tally: &mut Tally,
    ) -> Result<(), Refused> {
        let mut segment = self.lock();
        let finish = !self.receiver.takes_partial();
        let mut from = BodyCursor::default();
        while plan.next(turn.head(id), &mut segment) {
            let checksum = if finish { Checksum::Complete } else { segment.checksum() };
            *segment.prefix_mut::<N>() = header(Offload { checksum, gso: None });
            let space = self.space(segment.len())?;
            let mut body = 0;
            let sent = self.copy_and_write(fd, turn, id, space, |turn, to| {
                body = turn.store_gso_segment::<N>(id, &segment, &mut from, to, finish);
            });
            if let Err(Refused::Dropped(reason)) = sent {
                port.drops.add(reason, plan.left().into());
            }
            sent?;
            tally.count(segment.len(), body);
        }
        Ok(())
    }

    /// Stores a packet, or a segment of it, by `store` and writes it.
    fn copy_and_write<'t>(
        &self,
        fd: BorrowedFd<'_>,
        turn: &mut Turn<'t>,
        id: PacketId,
        space: MemorySegment<'t>,
        store: impl FnOnce(&mut Turn<'t>, Range<usize>),
    ) -> Result<(), Refused> {
        let epoch = fault::epoch();
        let mark = turn.mark();
        turn.stage(space);
        store(turn, mark..mark + 1);
        turn.unstage(mark);
        if fault::epoch() != epoch && turn.poisoned(id) {
            return Err(Refused::Vanished);
        }
        vectored::write_segment(fd, space)?;
        Ok(())
    }

    /// Returns the scratch memory for a packet of `len` bytes with its header.
    fn space(&self, len: u32) -> Result<MemorySegment<'_>, Refused> {
        self.scratch.segment(0, len.saturating_add(narrow(N))).ok_or(Refused::Dropped(Reason::TooBig))
    }

    /// Adds a batch to the counters.
    pub(crate) fn count(&self, turn: &mut Turn<'_>, counters: Option<&Arc<QueueCounters>>, tally: &Tally) {
        turn.count_delivered(tally.body);
        if let Some(counters) = counters {
            let _state = self.lock();
            counters.tx.packets.add(tally.packets);
            counters.tx.bytes.add(tally.bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Box<GsoSegment>> {
        self.state.lock().ignore_poison()
    }
}

/// Returns the first `N` bytes of the header of a packet for the kernel. It has no use for verified
/// checksums.
#[inline]
fn header<const N: usize>(mut offload: Offload) -> [u8; N] {
    const { assert!(N <= LEN) };
    if offload.checksum == Checksum::Verified {
        offload.checksum = Checksum::Complete;
    }
    let bytes = NetHeader::for_receiver(offload, 0).to_bytes();
    bytes[..N].try_into().expect("N is at most the header's length")
}

#[expect(clippy::cast_possible_truncation, reason = "the length of a header")]
const fn narrow(n: usize) -> u32 {
    n as u32
}

//! Packets from the interface: out of the rx ring, into the turn.
//!
//! A burst of up to 64 descriptors takes two passes, so that cache lines arrive before they are
//! needed. The first reads the descriptors and prefetches the frames. The second copies the heads
//! into slots, and is compiled for each instruction set. Bodies stay in their frames, which go back
//! to the kernel at the end of the turn.

use straightline_graph::RingCounters;
use straightline_packet::{
    Batch, Kernels, MIN_FRAME, MemorySegment, Offload, PacketId, Reason, SourceQueueId, Turn, WithKernels, unfinished,
};
use straightline_wire::FrameLimit;

use super::queue::{Queue, QueueFault, RxHalf};
use super::rings::Desc;
use crate::device::link::DevicePortData;

/// Descriptors that are handled together.
const BURST: usize = 64;

/// The most frames of a packet. The kernel makes at most 17 fragments of a packet; a packet of 9216
/// bytes has 3.
const MOST_FRAMES: usize = 18;

/// Takes at most `max` packets of a queue. With `unfinished`, a checksum may be partial, although
/// the kernel does not say so.
pub(super) fn receive<'t>(
    queue: &'t Queue,
    port: &DevicePortData,
    counters: Option<&RingCounters>,
    unfinished: bool,
    turn: &mut Turn<'t>,
    into: &mut Batch,
    max: usize,
) {
    if queue.is_faulted() {
        port.report_fault();
        return;
    }
    queue.send_unsent();
    let mut rx = queue.lock_rx();
    let found = match rx.available() {
        Ok(0) => return,
        Ok(found) => found.min(u32::try_from(BURST).unwrap_or(0)),
        Err(fault) => return queue.fail(fault),
    };
    let source = turn.borrow_from(queue);
    let borrowed = turn.borrowed();
    let burst = ReceiveBurst { rx: &mut rx, found, queue, port, counters, unfinished, turn, source, into, max };
    let taken = burst.turn.level().run(burst);
    let mut result = rx.take(&queue.umem, taken);
    // If all packets fitted into slots, no memory is lent.
    if result.is_ok() && turn.borrowed() == borrowed {
        result = rx.give_back(&queue.umem);
        queue.wake_for_fill(&rx);
    }
    if let Err(fault) = result {
        queue.fail(fault);
    }
}

/// The descriptors of a burst on their way into the turn, compiled for each instruction set.
struct ReceiveBurst<'a, 't> {
    rx: &'a mut RxHalf,
    found: u32,
    queue: &'t Queue,
    port: &'a DevicePortData,
    counters: Option<&'a RingCounters>,
    unfinished: bool,
    turn: &'a mut Turn<'t>,
    source: SourceQueueId,
    into: &'a mut Batch,
    max: usize,
}

impl WithKernels for ReceiveBurst<'_, '_> {
    /// The number of descriptors that were taken.
    type Output = u32;

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) -> u32 {
        let ReceiveBurst { rx, mut found, queue, port, counters, unfinished, turn, source, into, max } = self;
        const NONE: Desc = Desc { addr: 0, len: 0, continued: false };
        let mut descs = [NONE; BURST];
        let mut segments: [Option<MemorySegment<'_>>; BURST] = [None; BURST];
        for (nth, (desc, segment)) in (0..found).zip(descs.iter_mut().zip(&mut segments)) {
            *desc = rx.peek(nth);
            if !rx.is_with_kernel(&queue.umem, desc.addr) {
                // The packets before it are received. It is the first of the next burst then.
                if nth == 0 {
                    queue.fail(QueueFault::Address(desc.addr));
                }
                found = nth;
                break;
            }
            *segment = queue.umem.segment(desc.addr, desc.len);
            if let Some(segment) = segment
                && turn.prefetches()
            {
                segment.prefetch_at(0);
                if segment.len() > 64 {
                    segment.prefetch_at(64);
                }
            }
        }
        let descs = &descs[..found as usize];
        let max_len = port.max_len();
        let mut at = 0;
        let mut packets = 0;
        let mut bytes = 0;
        while at < descs.len() && packets < max as u64 && turn.free_slots() > 0 {
            let (taken, packet) = if descs[at].continued || rx.skips {
                match take_fragments(rx, port, turn, source, (&descs[at..], &segments[at..]), max_len) {
                    Some(taken) => taken,
                    None => break,
                }
            } else {
                (1, take_whole(kernels, port, turn, source, segments[at], max_len).map(Some))
            };
            at += taken;
            match packet {
                Ok(Some(id)) if !turn.fits(id, turn.len(id), max_len) => turn.discard(id, Reason::TooBig),
                Ok(Some(id)) => {
                    if unfinished {
                        recognise_unfinished(turn, id);
                    }
                    packets += 1;
                    bytes += u64::from(turn.len(id));
                    into.push(id);
                }
                Ok(None) => {}
                Err(reason) => port.drops.add(reason, 1),
            }
        }
        if let Some(counters) = counters {
            counters.packets.add(packets);
            counters.bytes.add(bytes);
        }
        u32::try_from(at).unwrap_or(0)
    }
}

/// Takes a packet in one frame.
#[inline(always)]
fn take_whole<'t>(
    kernels: impl Kernels,
    port: &DevicePortData,
    turn: &mut Turn<'t>,
    source: SourceQueueId,
    segment: Option<MemorySegment<'t>>,
    max_len: u32,
) -> Result<PacketId, Reason> {
    let segment = segment.ok_or(Reason::BadAddress)?;
    check_len(segment.len(), max_len)?;
    turn.accept_by(kernels, port.index, source, segment).ok_or(Reason::NoBuffer)
}

/// Takes a packet in several frames, or the rest of a packet that is dropped. Returns the number of
/// its descriptors, and the packet if there is one. `None` if its last descriptor is not there yet.
#[cold]
fn take_fragments<'t>(
    rx: &mut RxHalf,
    port: &DevicePortData,
    turn: &mut Turn<'t>,
    source: SourceQueueId,
    (descs, segments): (&[Desc], &[Option<MemorySegment<'t>>]),
    max_len: u32,
) -> Option<(usize, Result<Option<PacketId>, Reason>)> {
    let continued = descs.iter().take_while(|desc| desc.continued).count();
    let is_whole = continued < descs.len();
    let count = descs.len().min(continued + 1);
    if rx.skips {
        rx.skips = !is_whole;
        return Some((count, Ok(None)));
    }
    if count > MOST_FRAMES {
        rx.skips = !is_whole;
        return Some((count, Err(Reason::LongChain)));
    }
    if !is_whole {
        return None;
    }
    let mark = turn.mark();
    let mut len = 0_u32;
    for segment in &segments[..count] {
        let Some(segment) = *segment else {
            turn.unstage(mark);
            return Some((count, Err(Reason::BadAddress)));
        };
        len = len.saturating_add(segment.len());
        turn.stage(segment);
    }
    if let Err(reason) = check_len(len, max_len) {
        turn.unstage(mark);
        return Some((count, Err(reason)));
    }
    Some((count, turn.accept_staged(port.index, source, mark, 0).map(Some).ok_or(Reason::NoBuffer)))
}

/// Checks the length of a packet whose head is not there yet. A second tag may make it longer than
/// `max_len`.
#[inline]
fn check_len(len: u32, max_len: u32) -> Result<(), Reason> {
    match len {
        0..MIN_FRAME => Err(Reason::Runt),
        _ if len > max_len + FrameLimit::SECOND_TAG => Err(Reason::TooBig),
        _ => Ok(()),
    }
}

/// Makes the checksum of a packet partial if its sender has not finished it.
///
/// A veth interface passes packets on with unfinished checksums and notes that beside them, where
/// AF_XDP does not see it.
#[inline(never)]
fn recognise_unfinished(turn: &mut Turn<'_>, id: PacketId) {
    if let Some(checksum) = unfinished(turn.head(id), turn.len(id)) {
        turn.set_offload(id, Offload { checksum, gso: None });
    }
}

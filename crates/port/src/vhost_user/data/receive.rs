//! Packets from the guest: out of its transmit rings, into the turn.
//!
//! A burst of up to 64 chains takes three passes, so that cache lines arrive before they are
//! needed:
//!
//! 1. find the heads in the available ring;
//! 2. read the first descriptor of each chain, and prefetch the buffer's first lines;
//! 3. read the virtio-net header and copy the packet's head into a slot.
//!
//! The third pass is compiled for each instruction set. The loop itself handles packets in one
//! buffer that request nothing, or only a checksum. All other packets are handled out of line.

use std::sync::atomic::Ordering;

use straightline_packet::{
    Batch, Kernels, MAX_FRAME, MIN_FRAME, MemorySegment, Offload, PacketId, Reason, SourceQueueId, Turn, WithKernels,
};
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::{BURST, Device, Direction, Fault, First, Ring, RingFault};
use straightline_wire::FrameLimit;

use super::HEADER;
use super::link::Link;
use super::queue::Queue;
use super::queue_state::QueueState;
use super::worker_queues::WorkerQueues;

/// The reason why a chain gives no packet.
enum NoPacket {
    /// The chain is dropped. Its packet may have come into the turn before that.
    Dropped(Reason, Option<PacketId>),
    Broken(RingFault),
}

/// Takes at most `max` chains from several rings, one after the other. Begins after the last ring
/// that had packets in the previous turn. So no ring is always last when slots are few.
pub(crate) fn receive_in_turns<'t>(
    worker: &WorkerQueues,
    pairs: &[usize],
    link: &'t Link,
    turn: &mut Turn<'t>,
    into: &mut Batch,
    max: usize,
) {
    let first = worker.first.load(Ordering::Relaxed);
    let mut left = max;
    for step in 0..pairs.len() {
        let at = (first + step) % pairs.len();
        let Some(queue) = link.rx(pairs[at]) else { continue };
        let taken = receive(queue, link, turn, into, left);
        if taken > 0 {
            worker.first.store((at + 1) % pairs.len(), Ordering::Relaxed);
        }
        left -= taken;
        if left == 0 || turn.free_slots() == 0 || !link.is_usable() {
            break;
        }
    }
}

/// Takes at most `max` chains of one ring and adds their packets to `into`. Returns the number of
/// chains.
pub(crate) fn receive<'t>(
    queue: &'t Queue,
    link: &'t Link,
    turn: &mut Turn<'t>,
    into: &mut Batch,
    max: usize,
) -> usize {
    // The port stops if the guest's memory has vanished. No zeros went out before: the delivery of
    // earlier packets has checked for vanished memory.
    if queue.has_vanished(&link.memory) {
        link.fail_vanished();
        return 0;
    }
    // Chains that the turn before gave back may not be marked in the dirty log.
    if !link.is_logged() {
        return 0;
    }
    let QueueState { ring, firsts, .. } = &mut *queue.lock();
    match ring {
        Ring::Split(ring) => receive_from(ring, firsts, queue, link, turn, into, max),
        Ring::Packed(ring) => receive_from(ring, firsts, queue, link, turn, into, max),
    }
}

fn receive_from<'t>(
    ring: &mut impl Device,
    firsts: &mut [First; BURST],
    queue: &'t Queue,
    link: &'t Link,
    turn: &mut Turn<'t>,
    into: &mut Batch,
    max: usize,
) -> usize {
    let wanted = max.min(BURST).min(turn.free_slots());
    let found = match ring.find(&mut firsts[..wanted]) {
        Ok(found) => found,
        Err(fault) => {
            link.fail(queue.name(), &fault);
            return 0;
        }
    };
    if found == 0 {
        return 0;
    }
    let source = turn.borrow_from(queue);
    let borrowed = turn.borrowed();
    turn.level().run(ReceiveBurst { ring, firsts: &firsts[..found], queue, link, turn, source, into });
    // If all packets of the burst fitted into slots, it borrowed no memory. Its chains are given
    // back at once.
    if turn.borrowed() == borrowed && !queue.waits() && !turn.keeps_buffers() {
        let taken = ring.outstanding();
        ring.give_back(taken);
    }
    found
}

/// The chains of a burst on their way into the turn, compiled for each instruction set.
struct ReceiveBurst<'a, 't, R> {
    ring: &'a mut R,
    firsts: &'a [First],
    queue: &'t Queue,
    link: &'t Link,
    turn: &'a mut Turn<'t>,
    source: SourceQueueId,
    into: &'a mut Batch,
}

impl<R: Device> WithKernels for ReceiveBurst<'_, '_, R> {
    type Output = ();

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) {
        let ReceiveBurst { ring, firsts, queue, link, turn, source, into } = self;
        let mut singles = [None; BURST];
        let looked = firsts.iter().zip(&mut singles);
        if turn.prefetches() {
            for (first, single) in looked {
                *single = ring.single(&link.memory, first, Direction::FromGuest);
                if let Some(segment) = single {
                    if link.reads_header {
                        segment.prefetch();
                    }
                    segment.prefetch_at(HEADER);
                    if segment.len() > HEADER + 64 {
                        segment.prefetch_at(HEADER + 64);
                    }
                }
            }
        } else {
            looked.for_each(|(first, single)| *single = ring.single(&link.memory, first, Direction::FromGuest));
        }
        // A guest may fill a ring before its frontend enables it. Its packets are taken and dropped
        // (vhost-user, "Ring states").
        // Cites vhost-user-ring-states-4.
        let refused = (!queue.enabled()).then_some(Reason::RingDisabled);
        let mut packets = 0;
        let mut bytes = 0;
        let mut taken = 0;
        for (first, single) in firsts.iter().zip(singles) {
            if turn.free_slots() == 0 {
                break;
            }
            // A header that is not needed is not read: its cache line stays with the guest.
            let header = single.and_then(|segment| if link.reads_header { segment.read12() } else { None });
            let plain = single.and_then(|segment| take_plain(kernels, link, turn, source, segment, header));
            let is_good = |id| {
                !header.is_some_and(|header| NetHeader::requests_offload(&header))
                    && turn.fits(id, turn.len(id), link.max_len)
            };
            let packet = match (plain, single) {
                (Some(id), _) if is_good(id) => Ok(id),
                (Some(id), _) => check_sum(link, turn, id, header),
                (None, Some(segment)) => take_single(link, turn, source, segment, header),
                (None, None) => take_chain(link, turn, source, ring, first),
            };
            match packet {
                Ok(id) => {
                    packets += 1;
                    bytes += u64::from(turn.len(id));
                    match refused {
                        None => into.push(id),
                        Some(reason) => turn.discard(id, reason),
                    }
                }
                Err(NoPacket::Dropped(..)) if packets > 0 => {
                    // Chains that stay in the ring must be the tail of those that were taken. A
                    // chain without a packet must not be among them, so it is left for the next
                    // burst, where it comes first.
                    break;
                }
                Err(NoPacket::Dropped(reason, Some(id))) => turn.drop_at(link.index, &[id], reason),
                Err(NoPacket::Dropped(reason, None)) => turn.count_drops(link.index, reason, 1),
                Err(NoPacket::Broken(fault)) => {
                    link.fail(queue.name(), &fault);
                    break;
                }
            }
            taken += 1;
        }
        ring.take_all(&firsts[..taken], |_| 0);
        queue.counters.rx.packets.add(packets);
        queue.counters.rx.bytes.add(bytes);
    }
}

/// Takes a packet in one buffer that is delivered as it is, or with the checksum that its header
/// asks for: the common cases. Returns `None`, with nothing done, for any other packet. The caller
/// checks the length of a frame with two tags.
#[inline(always)]
fn take_plain<'t>(
    kernels: impl Kernels,
    link: &Link,
    turn: &mut Turn<'t>,
    source: SourceQueueId,
    segment: MemorySegment<'t>,
    header: Option<[u8; LEN]>,
) -> Option<PacketId> {
    let (before, frame) = segment.split_at(HEADER);
    // Whether a frame has two tags is known when its head is here.
    let fits = before.len() == HEADER && (MIN_FRAME..=link.max_len + FrameLimit::SECOND_TAG).contains(&frame.len());
    if !fits || header.is_some_and(|header| NetHeader::requests_segmentation(&header)) {
        return None;
    }
    turn.accept_by(kernels, link.index, source, frame)
}

/// Out of line, so that the loop handles only packets that request nothing.
#[inline(never)]
fn check_sum(link: &Link, turn: &mut Turn<'_>, id: PacketId, header: Option<[u8; LEN]>) -> Result<PacketId, NoPacket> {
    check(link, turn, id, &header.unwrap_or_default())
}

/// Takes a packet in one buffer. Its header was read once, before.
#[cold]
fn take_single<'t>(
    link: &Link,
    turn: &mut Turn<'t>,
    source: SourceQueueId,
    segment: MemorySegment<'t>,
    header: Option<[u8; LEN]>,
) -> Result<PacketId, NoPacket> {
    if segment.len() < HEADER {
        return Err(dropped(Reason::ShortChain));
    }
    let frame = segment.split_at(HEADER).1;
    check_len(frame.len())?;
    let id = turn.accept(link.index, source, frame).ok_or(dropped(Reason::NoBuffer))?;
    check(link, turn, id, &header.unwrap_or_default())
}

/// Takes a packet in several buffers. The guest may split the header anywhere.
#[cold]
fn take_chain<'t>(
    link: &'t Link,
    turn: &mut Turn<'t>,
    source: SourceQueueId,
    ring: &mut impl Device,
    first: &First,
) -> Result<PacketId, NoPacket> {
    let mark = turn.mark();
    let chain = ring.chain(&link.memory, turn, first, Direction::FromGuest).map_err(|fault| match fault {
        Fault::Chain(fault) => dropped(fault.reason()),
        Fault::Ring(fault) => NoPacket::Broken(fault),
    })?;
    let mut header = [0; LEN];
    let mut got = 0;
    for segment in turn.staged(mark) {
        got += segment.read(turn.level(), &mut header[got..]);
        if got == LEN {
            break;
        }
    }
    let len = if got < LEN { Err(dropped(Reason::ShortChain)) } else { check_len(chain.len - HEADER) };
    if let Err(refused) = len {
        turn.unstage(mark);
        return Err(refused);
    }
    let id = turn.accept_staged(link.index, source, mark, HEADER).ok_or(dropped(Reason::NoBuffer))?;
    check(link, turn, id, &header)
}

/// Returns the outcome for a chain whose packet never came into the turn.
fn dropped(reason: Reason) -> NoPacket {
    NoPacket::Dropped(reason, None)
}

#[inline]
fn check_len(len: u32) -> Result<(), NoPacket> {
    match len {
        0..MIN_FRAME => Err(dropped(Reason::Runt)),
        MIN_FRAME..=MAX_FRAME => Ok(()),
        _ => Err(dropped(Reason::LongChain)),
    }
}

/// Checks what the header asks for, and whether the port may carry it.
#[inline]
fn check(link: &Link, turn: &mut Turn<'_>, id: PacketId, header: &[u8; LEN]) -> Result<PacketId, NoPacket> {
    // If no offload was negotiated, the header must be all zeros (virtio 1.2, 5.1.6.2). So the
    // header is not read.
    let offload =
        if link.reads_header { NetHeader::parse(header).check(link.acked, turn, id) } else { Ok(Offload::default()) };
    match offload {
        Ok(offload) if offload.gso.is_some() || turn.fits(id, turn.len(id), link.max_len) => {
            turn.set_offload(id, offload);
            Ok(id)
        }
        offload => {
            // The chain may not be taken, and the ring counts its packets by those in the turn.
            turn.disown(id);
            Err(NoPacket::Dropped(offload.err().unwrap_or(Reason::TooBig), Some(id)))
        }
    }
}

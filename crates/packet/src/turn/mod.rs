//! A worker's turn, from the first packet to the last notification.
//!
//! ```text
//! input ports    stage memory segments, accept packets      (borrow from source queues)
//! nodes          look at packets, change heads, discard     (Packets)
//! output ports   store packets into their buffers           (the one copy)
//! end            source queues get their buffers back; then guests are notified
//! ```
//!
//! Nothing that belongs to a turn outlives it: packets, bodies and borrowed memory carry its
//! lifetime.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

mod annotation;
mod arena;
mod changed;
mod departing;
mod drop_tally;
mod headers;
mod intake;
mod kept;
mod leave;
mod observe;
mod packets;
mod rcu;
#[cfg(test)]
mod rcu_loom;
mod step;
mod sync;
mod tags;
mod truncate;
mod watch;

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use az::SaturatingAs;
use straightline_simd::Kernels;

use crate::slot::{Disposition, HEAD, HEADROOM, SLOT_DATA, SetFacts, Slot};
use crate::{MAX_BATCH, MemorySegment, Offload, PacketId, PortIndex, Reason, SourceQueueId};
pub use arena::{Arena, BodyCount, Settings};
pub use changed::ChangedPackets;
pub use drop_tally::DropTally;
pub use headers::{MIN_HEADROOM, Outside, PrependError, StripError};
pub use intake::InputRules;
pub use kept::KeptPackets;
pub use observe::{Decision, NoteMark, Observer, ObserverId};
pub use packets::Packets;
pub use rcu::{Rcu, RcuCell, RcuReader};
pub use step::{Step, StepKind};
use watch::ServedCell;
pub use watch::{Served, TurnWatch};

/// A queue that takes part in a turn: the turn borrowed memory from it, or it has to notify its
/// guest. A virtqueue implements it.
pub trait AtTurnEnd: Send + Sync {
    /// Gives borrowed buffers back to the guest. The turn calls this after all copies, and after
    /// every destination has got its packets.
    fn give_back(&self, turn: &mut Turn<'_>, source: SourceQueueId);

    /// Notifies the guest, if it wants that. The turn calls this last.
    fn notify(&self);

    /// Returns whether the queue is poisoned: its memory has vanished since the turn began. Bytes
    /// copied from that memory must not be delivered.
    fn poisoned(&self) -> bool;

    /// Returns whether packets of this turn can be left in the queue: it still has their buffers,
    /// and [`Self::give_back`] keeps those of packets that are left.
    fn can_keep(&self) -> bool {
        false
    }

    /// Returns the port or node that the queue belongs to. The watchdog reports it if the turn
    /// stalls.
    fn served(&self) -> Served {
        Served::Nobody
    }
}

/// Descriptors that a turn follows before it accepts no more packets. Only chains of several
/// descriptors count.
const MAX_DESCRIPTORS: u32 = 8192;

type Parts<'a, 't> = (&'a mut [u8], &'a [MemorySegment<'t>], &'a [MemorySegment<'t>]);

/// One turn of a worker: its packets, and the memory that was borrowed for them.
///
/// The lifetime is the turn's own, so nothing that carries it can be kept.
///
/// A turn has all operations of its [`Packets`], which is the part that a node gets. It also has
/// the operations that accept packets, deliver them and end the turn.
pub struct Turn<'t> {
    packets: Packets<'t>,
    used: usize,
    /// Unused part of the memory of the two-copy mode.
    bounce_buffer: &'t mut [u8],
    sources: Vec<&'t dyn AtTurnEnd>,
    served: &'t ServedCell,
    /// Bytes of bodies that this turn accepts.
    body_limit: u32,
    /// Ports that a packet may be copied to.
    fan_out: u32,
    /// Rules for packets of the input that is received from.
    input: InputRules,
    /// Bytes of bodies, counted from the turn's begin, after which this input has none accepted.
    input_limit: u32,
    /// Bytes of bodies that stay in borrowed memory.
    borrowed: u32,
    /// Bytes of bodies that were copied into the bounce buffer.
    bounced: u32,
    /// Descriptors that were followed.
    descriptors: u32,
    /// GSO segments that may be made, for each port that makes them.
    gso_copies: u32,
    /// GSO segments that may be made.
    gso_segments: u32,
    /// Packets that are to stay in their source's ring.
    left: usize,
    /// Packets that went back to their source's ring at the end of the turn.
    returned: usize,
    bodies: BodyCount,
    round: u64,
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("packets", &self.used)
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

impl<'t> Deref for Turn<'t> {
    type Target = Packets<'t>;

    #[inline]
    fn deref(&self) -> &Packets<'t> {
        &self.packets
    }
}

impl<'t> DerefMut for Turn<'t> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Packets<'t> {
        &mut self.packets
    }
}

impl<'t> Turn<'t> {
    /// Returns the turn's packets, with the operations of nodes alone.
    #[inline]
    pub fn packets(&mut self) -> &mut Packets<'t> {
        &mut self.packets
    }
}

/// Operations of input ports. Memory segments are staged, and then accepted as a packet or
/// unstaged.
impl<'t> Turn<'t> {
    /// Returns the number of packets that this turn can still accept. It is 0 once the pool, the
    /// limit of bytes or the limit of descriptors is used up.
    #[inline]
    pub fn free_slots(&self) -> usize {
        let bodies = self.borrowed.saturating_add(self.bounced);
        if bodies >= self.input_limit || self.descriptors.saturating_add(self.gso_copies) >= MAX_DESCRIPTORS {
            0
        } else {
            self.packets.settings.max_packets.saturating_sub(self.used)
        }
    }

    /// Counts descriptors that were followed. Each is work for the turn, and a guest decides how
    /// many there are.
    #[inline]
    pub fn count_descriptors(&mut self, descriptors: u32) {
        self.descriptors = self.descriptors.saturating_add(descriptors);
    }

    /// Counts the GSO segments of a packet, in the limit of descriptors. If the input takes no packets
    /// back, they count once for each port that the packet may be copied to: each port segments it anew.
    #[inline]
    pub fn count_gso_segments(&mut self, segments: u32) {
        self.gso_segments = self.gso_segments.saturating_add(segments);
        let copies = if self.input.returns { 1 } else { self.fan_out };
        self.gso_copies = self.gso_copies.saturating_add(segments.saturating_mul(copies));
    }

    /// Returns the number of body bytes that lie in borrowed memory.
    pub fn borrowed(&self) -> u32 {
        self.borrowed
    }

    /// Records the port or node that the turn serves from here on, for a [`TurnWatch`].
    #[inline]
    pub fn serve(&self, served: Served) {
        self.served.set(served);
    }

    /// Records the port whose packets cost the turn most, for a [`TurnWatch`]. It stays until the
    /// next call.
    pub fn blame(&self, source: Served) {
        self.served.set_source(source);
    }

    /// Adds a source queue to the turn. At the end of the turn the queue gives its buffers back and
    /// notifies its guest.
    pub fn borrow_from(&mut self, source: &'t dyn AtTurnEnd) -> SourceQueueId {
        self.sources.push(source);
        SourceQueueId((self.sources.len() - 1).saturating_as::<u16>())
    }

    /// Adds a queue that packets were delivered to, unless the turn has it already: several outputs
    /// of a graph may deliver to one queue. At the end of the turn the queue notifies its guest once.
    pub fn notify_at_end(&mut self, queue: &'t dyn AtTurnEnd) {
        if !self.sources.iter().any(|&known| std::ptr::addr_eq(known, queue)) {
            self.sources.push(queue);
        }
    }

    /// Returns the index of the next staged segment.
    #[inline]
    pub fn mark(&self) -> usize {
        self.packets.segments.len()
    }

    /// Stages a memory segment.
    #[inline]
    pub fn stage(&mut self, segment: MemorySegment<'t>) {
        self.packets.segments.push(segment);
    }

    /// Returns the segments staged since `mark`.
    #[inline]
    pub fn staged(&self, mark: usize) -> &[MemorySegment<'t>] {
        self.packets.segments.get(mark..).unwrap_or_default()
    }

    /// Removes the segments staged since `mark`.
    #[inline]
    pub fn unstage(&mut self, mark: usize) {
        self.packets.segments.truncate(mark);
    }

    /// Makes a packet of the segments staged since `mark`, without their first `skip` bytes (a
    /// virtio-net header). The first [`HEAD`] bytes are copied into the slot; the other bytes stay
    /// in their segments and are the body.
    ///
    /// Returns `None` if the turn has no free slot. The segments are unstaged then.
    pub fn accept_staged(
        &mut self,
        port: PortIndex,
        source: SourceQueueId,
        mark: usize,
        skip: u32,
    ) -> Option<PacketId> {
        let mut first = mark;
        let mut skip = skip;
        while let Some(segment) = self.packets.segments.get_mut(first) {
            let rest = segment.split_at(skip).1;
            skip -= segment.len() - rest.len();
            *segment = rest;
            if !rest.is_empty() {
                break;
            }
            first += 1;
        }
        if self.used == MAX_BATCH {
            self.packets.segments.truncate(mark);
            return None;
        }
        let slot = &mut self.packets.slots[self.used];
        let mut head = 0;
        while let Some(segment) = self.packets.segments.get_mut(first) {
            let n = segment
                .read_frame(self.packets.settings.level, &mut slot.change().data[HEADROOM + head..HEADROOM + HEAD]);
            head += n;
            *segment = segment.split_at(narrow(n)).1;
            if !segment.is_empty() {
                break;
            }
            first += 1;
        }
        if first == self.packets.segments.len() {
            self.packets.segments.truncate(mark);
            first = mark;
        }
        let body = self.packets.segments[first..].iter().map(|s| s.len()).sum();
        Some(self.enter_slot(port, source, head, first, body))
    }

    /// Makes a packet of one segment. This is the common case, and nothing is staged for it.
    #[inline]
    pub fn accept(&mut self, port: PortIndex, source: SourceQueueId, bytes: MemorySegment<'t>) -> Option<PacketId> {
        self.accept_by(self.packets.settings.level, port, source, bytes)
    }

    /// Accepts as [`Self::accept`] does, by kernels that the caller was compiled for.
    #[inline(always)]
    pub fn accept_by(
        &mut self,
        kernels: impl Kernels,
        port: PortIndex,
        source: SourceQueueId,
        bytes: MemorySegment<'t>,
    ) -> Option<PacketId> {
        if self.used == MAX_BATCH {
            return None;
        }
        let slot = &mut self.packets.slots[self.used];
        let head = bytes.read_frame(kernels, &mut slot.change().data[HEADROOM..HEADROOM + HEAD]);
        let body = bytes.split_at(narrow(head)).1;
        let first = self.packets.segments.len();
        if !body.is_empty() {
            self.packets.segments.push(body);
        }
        Some(self.enter_slot(port, source, head, first, body.len()))
    }

    /// Makes a packet of at most [`HEAD`] bytes of the switch's own memory, as a generator does.
    /// Returns `None` if there are more, or if the turn has no free slot.
    pub fn accept_owned(&mut self, port: PortIndex, bytes: &[u8]) -> Option<PacketId> {
        if self.used == MAX_BATCH || bytes.len() > HEAD {
            return None;
        }
        self.packets.slots[self.used].change().data[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        Some(self.enter_slot(port, SourceQueueId::NONE, bytes.len(), self.packets.segments.len(), 0))
    }

    /// Fills the words of the next slot. The head is in place. The body has `body` bytes and
    /// consists of all segments from `first` on.
    #[inline(always)]
    fn enter_slot(&mut self, port: PortIndex, source: SourceQueueId, head: usize, first: usize, body: u32) -> PacketId {
        if body > 0 && self.packets.settings.two_copies && self.bounce_body(first, body) {
            self.bounced = self.bounced.saturating_add(body);
        } else {
            self.borrowed = self.borrowed.saturating_add(body);
        }
        let slot = &mut self.packets.slots[self.used];
        let bytes = slot.change();
        *bytes.start = const { narrow16(HEADROOM) };
        *bytes.head = narrow16(head);
        slot.port = port;
        slot.source = source;
        slot.first = narrow(first);
        slot.count = narrow(self.packets.segments.len() - first);
        slot.body = body;
        slot.disposition = Disposition::Sent;
        slot.offload = Offload::default();
        slot.facts = SetFacts::default();
        self.used += 1;
        PacketId::new(self.used - 1)
    }

    /// Makes the first copy of the two-copy mode: copies the body into the bounce buffer. Returns
    /// `false` if the buffer has too little space; the body then stays where it is. The buffer is
    /// sized for the turn's limit of bytes and for the one packet that may exceed it.
    fn bounce_body(&mut self, first: usize, body: u32) -> bool {
        let Some((space, rest)) = std::mem::take(&mut self.bounce_buffer).split_at_mut_checked(body as usize) else {
            return false;
        };
        self.bounce_buffer = rest;
        // SAFETY: the bytes were borrowed for all of 't. That borrow was split off and ends here,
        // so only the segment refers to the bytes until the next turn.
        let copy = unsafe { MemorySegment::new(space.as_mut_ptr(), body) };
        let mut rest = copy;
        for segment in &self.packets.segments[first..] {
            let n = rest.copy_from(self.packets.settings.level, *segment, None);
            rest = rest.split_at(n).1;
        }
        self.packets.segments.truncate(first);
        self.packets.segments.push(copy);
        self.bodies.copied += u64::from(body);
        true
    }
}

/// Operations of ports on packets that are in the turn.
impl<'t> Turn<'t> {
    /// Returns the source queue that the packet came from.
    #[inline]
    pub fn source(&self, id: PacketId) -> SourceQueueId {
        self.packets.slots[id.index()].source
    }

    /// Returns whether cache lines of buffers are prefetched.
    #[inline]
    pub fn prefetches(&self) -> bool {
        self.packets.settings.prefetch
    }

    /// Returns the number of the present round. A new round begins once a packet has moved, or once
    /// a destination has got free buffers. A packet that found no free buffer in this round need
    /// not be tried again before the next.
    #[inline]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Removes the last accepted packet from the counts of its source queue, because the packet is
    /// not valid.
    pub fn disown(&mut self, id: PacketId) {
        self.packets.slots[id.index()].source = SourceQueueId::NONE;
    }

    /// Marks the packet to be left in its source's ring, from which a later turn accepts it again
    /// (`full = "wait"`).
    pub fn leave(&mut self, id: PacketId) {
        let slot = &mut self.packets.slots[id.index()];
        self.left += usize::from(slot.disposition != Disposition::Left);
        slot.disposition = Disposition::Left;
    }

    /// Returns the number of descriptors followed so far. Only chains of several descriptors count.
    #[inline]
    pub fn descriptors(&self) -> u32 {
        self.descriptors
    }

    /// Returns the number of packets that are in their sources' rings again. It is valid after
    /// [`Self::end`].
    pub fn returned(&self) -> usize {
        self.returned
    }
}

/// Operations of output ports, and the end of the turn.
impl<'t> Turn<'t> {
    /// Returns the packet's body: the bytes behind the head.
    #[inline]
    pub fn body(&self, id: PacketId) -> &[MemorySegment<'t>] {
        let slot = &self.packets.slots[id.index()];
        &self.packets.segments[slot.first as usize..][..slot.count as usize]
    }

    /// Returns the `N` bytes in front of the head, for the destination's header. `N` is at most
    /// [`MIN_HEADROOM`], which is what prepended headers leave free.
    #[inline]
    pub fn front_mut<const N: usize>(&mut self, id: PacketId) -> &mut [u8; N] {
        const { assert!(N <= MIN_HEADROOM) };
        self.packets.slots[id.index()].front_mut()
    }

    /// Returns the `N` bytes in front of the head, and the head behind them. `N` is at most
    /// [`MIN_HEADROOM`].
    #[inline]
    pub fn front_and_head<const N: usize>(&self, id: PacketId) -> &[u8] {
        const { assert!(N <= MIN_HEADROOM) };
        let slot = &self.packets.slots[id.index()];
        let start = slot.start();
        &slot.data()[start - N..start + slot.head_len()]
    }

    /// Returns all that a copy needs: the `N` bytes in front of the head with the head, the body,
    /// and the segments staged at `to`.
    #[inline]
    pub(crate) fn parts<const N: usize>(&mut self, id: PacketId, to: Range<usize>) -> Parts<'_, 't> {
        const { assert!(N <= MIN_HEADROOM) };
        let slot = &mut self.packets.slots[id.index()];
        let body = &self.packets.segments[slot.first as usize..][..slot.count as usize];
        (slot.lend::<N>(), body, self.packets.segments.get(to).unwrap_or_default())
    }

    /// Returns the staged segments with these indexes.
    #[inline]
    pub fn staged_at(&self, indexes: Range<usize>) -> &[MemorySegment<'t>] {
        self.packets.segments.get(indexes).unwrap_or_default()
    }

    /// Returns whether the packet's source queue is poisoned: the memory that the packet was read
    /// from has vanished.
    pub fn poisoned(&self, id: PacketId) -> bool {
        let source = self.packets.slots[id.index()].source;
        self.sources.get(usize::from(source.0)).is_some_and(|l| l.poisoned())
    }

    /// Returns whether any source queue of this turn is poisoned.
    #[cold]
    pub fn any_poisoned(&self) -> bool {
        self.sources.iter().any(|source| source.poisoned())
    }

    /// Returns whether any packet of a source queue is to be left in its ring.
    pub fn leaves_any(&self, source: SourceQueueId) -> bool {
        self.left > 0
            && self.packets.slots[..self.used]
                .iter()
                .any(|slot| slot.source == source && slot.disposition == Disposition::Left)
    }

    /// Returns whether a packet before this one, of the same source queue, is to be left in its ring.
    /// Then this one comes again, too.
    pub fn leaves_earlier(&self, id: PacketId) -> bool {
        let source = self.source(id);
        let earlier = self.packets.slots[..self.used].iter().take(id.index());
        self.left > 0 && earlier.into_iter().any(|slot| slot.source == source && slot.disposition == Disposition::Left)
    }

    /// Rolls back the packets of a source queue that go back to its ring. Returns their number and
    /// their bytes, as the ring counted them.
    ///
    /// A ring has no gaps, so only the last packets that were accepted from it can go back. If one
    /// packet is left, all packets behind it go back with it, including packets that a node has
    /// dropped. They come again, and are counted then.
    ///
    /// A packet that is to be left cannot go back if a later one was sent: a node has changed the
    /// order. It is dropped as [`Reason::Node`].
    pub fn roll_back(&mut self, source: SourceQueueId) -> (usize, u64) {
        if self.left == 0 {
            return (0, 0);
        }
        let slots = &self.packets.slots[..self.used];
        let drops = self.packets.drops;
        let is_sent = |slot: &Slot| slot.source == source && slot.disposition == Disposition::Sent;
        let tail = slots.iter().rposition(is_sent).map_or(0, |last| last + 1);
        let mut packets = 0;
        let mut bytes = 0;
        for (at, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.source == source) {
            let goes_back = at >= tail && (packets > 0 || slot.disposition == Disposition::Left);
            packets += usize::from(goes_back);
            // The lengths are the ones that the ring counted at reception: nodes may have changed
            // the headers since.
            bytes += if goes_back { slot.received_len() } else { 0 };
            match (slot.disposition, drops.get(slot.port.index())) {
                (Disposition::Left, Some(drops)) if !goes_back => drops.add(Reason::Node, 1),
                (Disposition::Dropped(reason), Some(drops)) if goes_back => drops.roll_back(reason),
                _ => {}
            }
        }
        self.returned += packets;
        (packets, bytes)
    }

    /// Counts body bytes that were copied.
    #[inline]
    pub fn count_copied(&mut self, bytes: u32) {
        self.bodies.copied += u64::from(bytes);
    }

    /// Counts body bytes that a destination can see now.
    #[inline]
    pub fn count_delivered(&mut self, bytes: u64) {
        self.bodies.delivered += bytes;
    }

    /// Ends the turn: all source queues give their buffers back, then all notify their guests.
    /// [`Arena::turn`] calls this if its closure did not.
    pub fn end(&mut self) {
        let sources = std::mem::take(&mut self.sources);
        for (i, source) in sources.iter().enumerate() {
            self.serve(source.served());
            source.give_back(self, SourceQueueId(i.saturating_as::<u16>()));
        }
        for source in &sources {
            self.serve(source.served());
            source.notify();
        }
        self.sources = sources;
        self.sources.clear();
    }
}

#[expect(clippy::cast_possible_truncation, reason = "lengths within a turn: far below 4 GiB")]
#[inline]
const fn narrow(n: usize) -> u32 {
    debug_assert!(n <= u32::MAX as usize);
    n as u32
}

#[expect(clippy::cast_possible_truncation, reason = "lengths within a slot: below 1024")]
#[inline]
const fn narrow16(n: usize) -> u16 {
    debug_assert!(n <= SLOT_DATA);
    n as u16
}

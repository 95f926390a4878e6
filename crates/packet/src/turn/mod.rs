//! The worker's turn: packets are taken, led through the graph, delivered, and everything that was borrowed for
//! them is given back, all before it ends.

mod arena;
mod departing;
mod headers;
mod packets;
mod rcu;
#[cfg(test)]
mod rcu_loom;
mod sync;
mod watch;

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use straightline_simd::Kernels;

use crate::slot::{Disposition, HEAD, HEADROOM, SLOT_DATA, Slot};
use crate::{MAX_BATCH, MemorySegment, Offload, PacketId, PortIndex, Reason};
pub use arena::{Arena, BodyCount, Settings};
pub use headers::{MIN_HEADROOM, Outside, PrependError, StripError};
pub use packets::Packets;
pub use rcu::{Rcu, RcuCell, RcuReader};
use watch::ServedCell;
pub use watch::{Served, TurnWatch};

/// Something that lent memory to a turn, or that has to tell its guest about one: a virtqueue.
pub trait AtTurnEnd: Send + Sync {
    /// Gives back what was borrowed. Called after all copies of the turn, and after every destination has been
    /// given its packets.
    fn give_back(&self, turn: &mut Turn<'_>, source: SourceQueueId);

    /// Tells the other side, if it wants to be told. Called last.
    fn notify(&self);

    /// Whether its memory vanished meanwhile, so that what was copied from it is not to be delivered.
    fn poisoned(&self) -> bool;

    /// Whose it is, for a watch over turns that do not end.
    fn served(&self) -> Served {
        Served::Nobody
    }
}

/// One of the turn's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceQueueId(u16);

impl SourceQueueId {
    /// No source: the packet is wholly ours.
    pub const NONE: SourceQueueId = SourceQueueId(u16::MAX);
}

/// Descriptors of chains with more than one that a turn follows before it stops taking.
const MAX_DESCRIPTORS: u32 = 8192;

type Parts<'a, 't> = (&'a mut [u8], &'a [MemorySegment<'t>], &'a [MemorySegment<'t>]);

/// One turn of a worker: its packets, and what was borrowed for them.
///
/// The lifetime is the turn's own: nothing that carries it can be kept.
///
/// A turn has all operations of its [`Packets`], which are what a node gets, and those that take
/// packets in, deliver them and end the turn.
pub struct Turn<'t> {
    packets: Packets<'t>,
    used: usize,
    /// What is left of the two-copy mode's memory.
    bounce_buffer: &'t mut [u8],
    sources: Vec<&'t dyn AtTurnEnd>,
    rcu: &'t Rcu,
    served: &'t ServedCell,
    /// Bytes of bodies that this turn takes: its share, where a packet may be copied to many ports.
    body_limit: u32,
    fan_out: u32,
    /// Bytes of bodies in somebody else's memory, and those that were copied into ours at once.
    borrowed: u32,
    bounced: u32,
    descriptors: u32,
    left: usize,
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

/// Where packets come in: segments are staged, then accepted as a packet or taken back.
impl<'t> Turn<'t> {
    /// How many more packets this turn takes: 0 when its pool or its share of bytes is used up.
    #[inline]
    pub fn free_slots(&self) -> usize {
        let bodies = self.borrowed.saturating_add(self.bounced);
        if bodies >= self.body_limit || self.descriptors >= MAX_DESCRIPTORS { 0 } else { MAX_BATCH - self.used }
    }

    /// Counts descriptors that were followed: they too are a turn's work, and a guest decides how many there are.
    #[inline]
    pub fn count_descriptors(&mut self, descriptors: u32) {
        self.descriptors = self.descriptors.saturating_add(descriptors);
    }

    /// Counts the segments that a packet may be cut into, for each port that it may be copied to: each of them cuts it anew.
    #[inline]
    pub fn count_gso_segments(&mut self, segments: u32) {
        self.count_descriptors(segments.saturating_mul(self.fan_out));
    }

    /// Bytes of bodies that lie in somebody else's memory.
    pub fn borrowed(&self) -> u32 {
        self.borrowed
    }

    pub(super) fn rcu(&self) -> &Rcu {
        self.rcu
    }

    /// Notes whom the turn serves from here on, for a [`TurnWatch`].
    #[inline]
    pub fn serve(&self, served: Served) {
        self.served.set(served);
    }

    /// Enters a source into the turn; it is asked to take its memory back at the end, and to notify.
    pub fn borrow_from(&mut self, source: &'t dyn AtTurnEnd) -> SourceQueueId {
        self.sources.push(source);
        SourceQueueId(u16::try_from(self.sources.len() - 1).unwrap_or(u16::MAX))
    }

    /// Where the next staged segment will stand.
    #[inline]
    pub fn mark(&self) -> usize {
        self.packets.segments.len()
    }

    /// Adds a segment to those staged.
    #[inline]
    pub fn stage(&mut self, segment: MemorySegment<'t>) {
        self.packets.segments.push(segment);
    }

    /// The segments staged since `mark`.
    #[inline]
    pub fn staged(&self, mark: usize) -> &[MemorySegment<'t>] {
        self.packets.segments.get(mark..).unwrap_or_default()
    }

    /// Forgets the segments staged since `mark`.
    #[inline]
    pub fn unstage(&mut self, mark: usize) {
        self.packets.segments.truncate(mark);
    }

    /// Makes a packet of the segments staged since `mark`, past their first `skip` bytes (a virtio-net header).
    /// `None`, and nothing staged any more, when the turn is full.
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
            let n = segment.read_frame(self.packets.settings.level, &mut slot.data.0[HEADROOM + head..HEADROOM + HEAD]);
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

    /// Makes a packet of one segment: the common case, without staging.
    #[inline]
    pub fn accept(&mut self, port: PortIndex, source: SourceQueueId, bytes: MemorySegment<'t>) -> Option<PacketId> {
        self.accept_by(self.packets.settings.level, port, source, bytes)
    }

    /// The same by kernels that the caller was compiled for.
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
        let head = bytes.read_frame(kernels, &mut slot.data.0[HEADROOM..HEADROOM + HEAD]);
        let body = bytes.split_at(narrow(head)).1;
        let first = self.packets.segments.len();
        if !body.is_empty() {
            self.packets.segments.push(body);
        }
        Some(self.enter_slot(port, source, head, first, body.len()))
    }

    /// Makes a packet of bytes that are ours, as a generator does: at most [`HEAD`] of them.
    pub fn accept_owned(&mut self, port: PortIndex, bytes: &[u8]) -> Option<PacketId> {
        if self.used == MAX_BATCH || bytes.len() > HEAD {
            return None;
        }
        self.packets.slots[self.used].data.0[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        Some(self.enter_slot(port, SourceQueueId::NONE, bytes.len(), self.packets.segments.len(), 0))
    }

    /// Fills the next slot's words; its head is in place, its body is all segments from `first` on, `body` bytes.
    #[inline(always)]
    fn enter_slot(&mut self, port: PortIndex, source: SourceQueueId, head: usize, first: usize, body: u32) -> PacketId {
        if body > 0 && self.packets.settings.two_copies && self.bounce_body(first, body) {
            self.bounced = self.bounced.saturating_add(body);
        } else {
            self.borrowed = self.borrowed.saturating_add(body);
        }
        let slot = &mut self.packets.slots[self.used];
        slot.start = const { narrow16(HEADROOM) };
        slot.head = narrow16(head);
        slot.port = port;
        slot.source = source;
        slot.first = narrow(first);
        slot.count = narrow(self.packets.segments.len() - first);
        slot.body = body;
        slot.disposition = Disposition::Sent;
        slot.offload = Offload::default();
        self.used += 1;
        PacketId::new(self.used - 1)
    }

    /// The two-copy mode's first copy: the body moves into memory of ours. `false`, and it stays where it is, where
    /// there is too little: it is sized for a turn's limit of bytes and the one packet that may exceed it.
    fn bounce_body(&mut self, first: usize, body: u32) -> bool {
        let Some((room, rest)) = std::mem::take(&mut self.bounce_buffer).split_at_mut_checked(body as usize) else {
            return false;
        };
        self.bounce_buffer = rest;
        // SAFETY: the bytes were borrowed for all of 't, and that borrow was split off and ends here: nothing but
        // the segment refers to them until the next turn.
        let whole = unsafe { MemorySegment::new(room.as_mut_ptr(), body) };
        let mut rest = whole;
        for segment in &self.packets.segments[first..] {
            let n = rest.copy_from(self.packets.settings.level, *segment, None);
            rest = rest.split_at(n).1;
        }
        self.packets.segments.truncate(first);
        self.packets.segments.push(whole);
        self.bodies.copied += u64::from(body);
        true
    }
}

/// What a port does with packets besides.
impl<'t> Turn<'t> {
    /// The source that the packet came from.
    #[inline]
    pub fn source(&self, id: PacketId) -> SourceQueueId {
        self.packets.slots[id.index()].source
    }

    /// Whether lines of buffers are asked for before they are needed.
    #[inline]
    pub fn prefetches(&self) -> bool {
        self.packets.settings.prefetch
    }

    /// Since this round began nothing has moved, and nobody has heard of room: packets that found none in it wait for news.
    #[inline]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// What was accepted last turns out to be no packet: it is nobody's.
    pub fn disown(&mut self, id: PacketId) {
        self.packets.slots[id.index()].source = SourceQueueId::NONE;
    }

    /// Leaves the packet in its source's ring, to be taken again (`full = "wait"`).
    pub fn leave(&mut self, id: PacketId) {
        let slot = &mut self.packets.slots[id.index()];
        self.left += usize::from(slot.disposition != Disposition::Left);
        slot.disposition = Disposition::Left;
    }

    /// Descriptors followed so far.
    pub fn descriptors(&self) -> u32 {
        self.descriptors
    }

    /// How many packets, once the turn is at its end, are in their sources' rings again.
    pub fn returned(&self) -> usize {
        self.returned
    }
}

/// Where packets go out, and the end.
impl<'t> Turn<'t> {
    /// The packet's body: what the head does not hold.
    #[inline]
    pub fn body(&self, id: PacketId) -> &[MemorySegment<'t>] {
        let slot = &self.packets.slots[id.index()];
        &self.packets.segments[slot.first as usize..][..slot.count as usize]
    }

    /// The `N` bytes in front of the head, for a header that the destination wants there.
    #[inline]
    pub fn front_mut<const N: usize>(&mut self, id: PacketId) -> &mut [u8; N] {
        const { assert!(N <= HEADROOM) };
        let slot = &mut self.packets.slots[id.index()];
        let start = usize::from(slot.start);
        (&mut slot.data.0[start - N..start]).try_into().expect("the range has N bytes")
    }

    /// What a copy needs at once: the `N` bytes in front of the head together with the head, the body, and the
    /// segments staged at `to`.
    #[inline]
    pub(crate) fn parts<const N: usize>(&mut self, id: PacketId, to: Range<usize>) -> Parts<'_, 't> {
        const { assert!(N <= HEADROOM) };
        let slot = &mut self.packets.slots[id.index()];
        let body = &self.packets.segments[slot.first as usize..][..slot.count as usize];
        let end = usize::from(slot.start) + usize::from(slot.head);
        (&mut slot.data.0[usize::from(slot.start) - N..end], body, self.packets.segments.get(to).unwrap_or_default())
    }

    /// The segments staged at these places.
    #[inline]
    pub fn staged_at(&self, places: Range<usize>) -> &[MemorySegment<'t>] {
        self.packets.segments.get(places).unwrap_or_default()
    }

    /// Whether memory that the packet was read from has vanished since.
    pub fn poisoned(&self, id: PacketId) -> bool {
        let source = self.packets.slots[id.index()].source;
        self.sources.get(usize::from(source.0)).is_some_and(|l| l.poisoned())
    }

    /// Whether memory of any source of this turn has vanished.
    #[cold]
    pub fn any_poisoned(&self) -> bool {
        self.sources.iter().any(|source| source.poisoned())
    }

    /// Whether any of a source's packets is to be left in its ring.
    pub fn leaves_any(&self, source: SourceQueueId) -> bool {
        self.left > 0
            && self.packets.slots[..self.used]
                .iter()
                .any(|slot| slot.source == source && slot.disposition == Disposition::Left)
    }

    /// What a source finds in its ring again: how many packets, which are the last that were taken from it, and their bytes.
    ///
    /// A ring has no gaps. So with a packet that is left all behind it go back, those too that a node has dropped: they
    /// come again, and are counted then. What stands before one that was sent cannot go back: a node has
    /// changed the order, and that is why it is dropped.
    pub fn roll_back(&mut self, source: SourceQueueId) -> (usize, u64) {
        if self.left == 0 {
            return (0, 0);
        }
        let (slots, drops) = (&self.packets.slots[..self.used], self.packets.drops);
        let is_sent = |slot: &Slot| slot.source == source && slot.disposition == Disposition::Sent;
        let tail = slots.iter().rposition(is_sent).map_or(0, |last| last + 1);
        let (mut packets, mut bytes) = (0, 0);
        for (at, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.source == source) {
            let goes_back = at >= tail && (packets > 0 || slot.disposition == Disposition::Left);
            packets += usize::from(goes_back);
            // What the ring counted when they came in: nodes may have changed the headers since.
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

    /// Counts bytes of bodies that were copied.
    #[inline]
    pub fn count_copied(&mut self, bytes: u32) {
        self.bodies.copied += u64::from(bytes);
    }

    /// Counts bytes of bodies that a destination can see now.
    #[inline]
    pub fn count_delivered(&mut self, bytes: u64) {
        self.bodies.delivered += bytes;
    }

    /// Gives everything back, then notifies. [`Arena::turn`] does it where the turn did not.
    pub fn end(&mut self) {
        let sources = std::mem::take(&mut self.sources);
        for (i, source) in sources.iter().enumerate() {
            self.serve(source.served());
            source.give_back(self, SourceQueueId(u16::try_from(i).unwrap_or(u16::MAX)));
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

//! Slots: the parts of packets that a worker keeps in its own memory, in one pool for each worker.
//!
//! Facts that were parsed from a packet's head are kept until the head changes. So the fields that
//! say where the head is, and its bytes, are private to this file: [`Slot::change`] is the one way to
//! change them, and it forgets these facts.

use straightline_wire::VlanId;

use crate::{Offload, PortIndex, Reason};

/// Bytes of a packet that are copied into its slot. The rest stays in guest memory.
pub const HEAD: usize = 256;

/// Free bytes in front of the head of a packet that has just come in. They are for headers that are
/// prepended: a virtio-net header, a tunnel's headers.
pub const HEADROOM: usize = 128;

/// Bytes of a packet that fit into its slot, for headers that lie deeper than [`HEAD`].
pub(crate) const HEAD_MAX: usize = 512;

/// Bytes of a slot for packet data: the headroom and the longest head.
pub(crate) const SLOT_DATA: usize = HEADROOM + HEAD_MAX;

/// A source queue of the turn, as an index into the turn's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceQueueId(pub(crate) u16);

impl SourceQueueId {
    /// No source queue: all bytes of the packet are in memory of the switch.
    pub const NONE: SourceQueueId = SourceQueueId(u16::MAX);
}

/// The VLAN of a bridge that a packet is in, with the priority that it has there (IEEE 802.1Q, 6.9).
/// The packet itself has no tag for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketVlan {
    /// The VLAN.
    pub id: VlanId,
    /// Priority, 0 to 7.
    pub pcp: u8,
    /// True if the packet may be dropped before others.
    pub dei: bool,
}

/// Facts about a packet that nodes set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetFacts {
    pub(crate) vlan: Option<PacketVlan>,
    /// Identity of the packet's connection; 0 for none.
    pub(crate) connection: u32,
    /// 0 for none.
    pub(crate) mark: u32,
}

impl SetFacts {
    const NONE: SetFacts = SetFacts { vlan: None, connection: 0, mark: 0 };
}

/// The facts about a head that were parsed from its bytes as they are now: a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed(u8);

impl Parsed {
    pub(crate) const LAYOUT: Parsed = Parsed(1);
    pub(crate) const FLOW_HASH: Parsed = Parsed(2);
    const NOTHING: Parsed = Parsed(0);
}

/// A packet in the worker's pool: its words, and its head.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// Index of the head's first byte in `data`.
    start: u16,
    /// Bytes in the head.
    head: u16,
    /// Port that the packet came from.
    pub(crate) port: PortIndex,
    /// Queue that the packet came from; the body lies in its memory.
    pub(crate) source: SourceQueueId,
    /// Index of the body's first memory segment in the turn's list.
    pub(crate) first: u32,
    /// Number of the body's memory segments.
    pub(crate) count: u32,
    /// Bytes in the body.
    pub(crate) body: u32,
    pub(crate) disposition: Disposition,
    parsed: Parsed,
    pub(crate) offload: Offload,
    pub(crate) facts: SetFacts,
    data: Data,
}

/// The bytes of a slot and the place of the head in them, to be changed.
pub(crate) struct SlotBytes<'a> {
    /// Index of the head's first byte in `data`.
    pub(crate) start: &'a mut u16,
    /// Bytes in the head.
    pub(crate) head: &'a mut u16,
    pub(crate) data: &'a mut [u8; SLOT_DATA],
}

/// The disposition of a packet in its source's ring (`full = "wait"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The packet is delivered, or dropped by its destination: its chain goes back to the guest.
    Sent,
    /// The packet is to be left in the ring.
    Left,
    /// A node dropped the packet for this reason.
    Dropped(Reason),
}

/// The headroom and the head. They begin on a cache line of their own, so that an Ethernet header
/// never straddles two.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Data([u8; SLOT_DATA]);

/// All words of a slot lie on one line, in front of the data.
const _: () = assert!(std::mem::offset_of!(Slot, data) == 64);

impl Slot {
    pub(crate) const EMPTY: Slot = Slot {
        start: 0,
        head: 0,
        port: PortIndex(0),
        source: SourceQueueId::NONE,
        first: 0,
        count: 0,
        body: 0,
        disposition: Disposition::Sent,
        parsed: Parsed::NOTHING,
        offload: Offload { checksum: crate::Checksum::Complete, gso: None },
        facts: SetFacts::NONE,
        data: Data([0; SLOT_DATA]),
    };

    /// Forgets what was parsed from the head, and returns all that may change. There is no other way
    /// to change where the head is, or its bytes.
    #[inline(always)]
    pub(crate) fn change(&mut self) -> SlotBytes<'_> {
        self.parsed = Parsed::NOTHING;
        SlotBytes { start: &mut self.start, head: &mut self.head, data: &mut self.data.0 }
    }

    /// Returns whether this fact was parsed from the head as it is now.
    #[inline(always)]
    pub(crate) fn has_parsed(&self, fact: Parsed) -> bool {
        self.parsed.0 & fact.0 != 0
    }

    /// Notes that this fact was parsed from the head as it is now.
    #[inline(always)]
    pub(crate) fn note_parsed(&mut self, fact: Parsed) {
        self.parsed.0 |= fact.0;
    }

    /// Returns the index of the head's first byte in the slot's bytes.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start.into()
    }

    /// Returns the number of bytes in the head.
    #[inline]
    pub(crate) fn head_len(&self) -> usize {
        self.head.into()
    }

    #[inline]
    pub(crate) fn head(&self) -> &[u8] {
        &self.data.0[self.start()..self.start() + self.head_len()]
    }

    #[inline]
    pub(crate) fn head_mut(&mut self) -> &mut [u8] {
        let SlotBytes { start, head, data } = self.change();
        &mut data[usize::from(*start)..usize::from(*start) + usize::from(*head)]
    }

    /// Returns the slot's bytes. The head begins at [`Self::start`].
    #[inline]
    pub(crate) fn data(&self) -> &[u8; SLOT_DATA] {
        &self.data.0
    }

    /// Returns the `N` bytes in front of the head, to be changed. Nothing is parsed from them.
    #[inline]
    pub(crate) fn front_mut<const N: usize>(&mut self) -> &mut [u8; N] {
        let start = self.start();
        (&mut self.data.0[start - N..start]).try_into().expect("the range has N bytes")
    }

    /// Returns the `N` bytes in front of the head, and the head behind them, for a copy that writes
    /// into them. The copy leaves the head as it was, so what was parsed from it stays.
    #[inline]
    pub(crate) fn lend<const N: usize>(&mut self) -> &mut [u8] {
        let start = self.start();
        let end = start + self.head_len();
        &mut self.data.0[start - N..end]
    }

    /// Copies the words, the facts that nodes have set, and the head. The other bytes of `to` stay as
    /// they are.
    #[inline]
    pub(crate) fn copy_to(&self, to: &mut Slot) {
        let Slot { start, head, port, source, first, count, body, disposition, parsed: _, offload, facts, data: _ } =
            *self;
        let bytes = to.change();
        *bytes.start = start;
        *bytes.head = head;
        to.port = port;
        to.source = source;
        to.first = first;
        to.count = count;
        to.body = body;
        to.disposition = disposition;
        to.offload = offload;
        to.facts = facts;
        to.head_mut().copy_from_slice(self.head());
    }

    /// Returns the length of the packet in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.head) + self.body
    }

    /// Returns the length that the packet had when it came in, before headers were prepended or
    /// stripped.
    pub(crate) fn received_len(&self) -> u64 {
        u64::from(self.len()) + u64::from(self.start) - HEADROOM as u64
    }
}

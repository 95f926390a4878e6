//! Slots: the parts of packets that a worker keeps in its own memory, in one pool for each worker.

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

/// A packet in the worker's pool: its words, and its head.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// Index of the head's first byte in `data`.
    pub(crate) start: u16,
    /// Bytes in the head.
    pub(crate) head: u16,
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
    pub(crate) offload: Offload,
    pub(crate) data: Data,
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
pub(crate) struct Data(pub(crate) [u8; SLOT_DATA]);

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
        offload: Offload { checksum: crate::Checksum::Complete, gso: None },
        data: Data([0; SLOT_DATA]),
    };

    #[inline]
    pub(crate) fn head(&self) -> &[u8] {
        &self.data.0[usize::from(self.start)..usize::from(self.start) + usize::from(self.head)]
    }

    #[inline]
    pub(crate) fn head_mut(&mut self) -> &mut [u8] {
        &mut self.data.0[usize::from(self.start)..usize::from(self.start) + usize::from(self.head)]
    }

    /// Copies the words and the head. The other bytes of `to` stay as they are.
    #[inline]
    pub(crate) fn copy_to(&self, to: &mut Slot) {
        let Slot { start, head, port, source, first, count, body, disposition, offload, data: _ } = *self;
        to.start = start;
        to.head = head;
        to.port = port;
        to.source = source;
        to.first = first;
        to.count = count;
        to.body = body;
        to.disposition = disposition;
        to.offload = offload;
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

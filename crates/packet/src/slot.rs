//! A packet's place in the worker's pool: what nodes look at, and the head.

use crate::{Offload, PortIndex, Reason, turn::SourceQueueId};

/// Bytes of a packet that are copied into its slot. The rest stays in guest memory.
pub const HEAD: usize = 256;

/// Free bytes in front of the head of a packet that has just come in, for headers that are put there: a virtio-net header,
/// a tunnel's headers.
pub const HEADROOM: usize = 128;

/// Bytes of a packet that fit into its slot, for headers that lie deeper than [`HEAD`].
pub(crate) const HEAD_MAX: usize = 512;

/// Bytes of a slot for packet data: the headroom and the longest head.
pub(crate) const SLOT_DATA: usize = HEADROOM + HEAD_MAX;

#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// Where the head begins in `data`.
    pub(crate) start: u16,
    /// Bytes of head.
    pub(crate) head: u16,
    /// Where it came from.
    pub(crate) port: PortIndex,
    /// The ring whose memory the body lies in.
    pub(crate) source: SourceQueueId,
    /// First of the body's segments in the turn's list, and how many there are.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Bytes in the body.
    pub(crate) body: u32,
    pub(crate) disposition: Disposition,
    pub(crate) offload: Offload,
    pub(crate) data: Data,
}

/// What became of a packet, as far as its source's ring is concerned (`full = "wait"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Its chain is done with.
    Sent,
    /// It is to be left in the ring.
    Left,
    /// A node would not have it, for this reason.
    Dropped(Reason),
}

/// The head's bytes, on lines of their own so that an Ethernet header never straddles two.
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

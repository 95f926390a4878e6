//! Descriptor chains of either layout: the first descriptor, the walk from descriptors to staged
//! segments, and all faults.

use az::SaturatingAs;
use straightline_packet::{MAX_FRAME, MemorySegment, Reason, Turn};

use super::layout::{Descriptor, INDIRECT, NEXT, WRITE};
use crate::memory::GuestMemory;

/// The most chains read at once: prefetched lines must not leave the cache before they are used.
pub const BURST: usize = 64;

/// A fault of one chain. The chain is given back unused; the ring continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainFault {
    /// A buffer lies outside guest memory.
    Address,
    /// A buffer is device-readable where it must be device-writable, or the reverse.
    Direction,
    /// An indirect table is empty, nested, too long, loops, or is not a multiple of 16 bytes.
    Indirect,
    /// The chain has more bytes than the longest Ethernet frame.
    Long,
}

impl ChainFault {
    /// Returns the drop reason by which the fault is counted.
    pub fn reason(self) -> Reason {
        match self {
            ChainFault::Address => Reason::BadAddress,
            ChainFault::Direction => Reason::BadDirection,
            ChainFault::Indirect => Reason::BadIndirect,
            ChainFault::Long => Reason::LongChain,
        }
    }
}

/// A fault of the ring itself. Nothing in the ring can be trusted any more, so the ring stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// The driver's available index is further ahead than the ring has entries.
    #[error("available index {index} is too far ahead of {taken}, the next entry to take, in a ring of {size} entries")]
    IndexJump {
        /// The index as read.
        index: u16,
        /// The next available entry that the device takes.
        taken: u16,
        /// Entries.
        size: u16,
    },
    /// An available entry names a descriptor outside the table.
    #[error("available entry {entry} names descriptor {head}, but the table has {size}")]
    Head {
        /// Slot of the entry in the available ring.
        entry: u16,
        /// The descriptor's index as read.
        head: u16,
        /// Entries.
        size: u16,
    },
    /// A descriptor's `next` is outside the table.
    #[error("descriptor {at} chains to {next}, but the table has {size} descriptors")]
    Next {
        /// The descriptor with the faulty field.
        at: u16,
        /// The field `next` as read.
        next: u16,
        /// Entries.
        size: u16,
    },
    /// A chain loops: it has more descriptors than the ring.
    #[error("the chain from descriptor {head} is longer than the ring's {size} entries: it loops")]
    Loop {
        /// The first descriptor of the chain.
        head: u16,
        /// Entries.
        size: u16,
    },
    /// A descriptor is indirect, but INDIRECT_DESC was not negotiated.
    #[error("descriptor {0} is indirect, but INDIRECT_DESC was not negotiated")]
    Indirect(u16),
}

/// A fault that stops a chain or the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The fault concerns the chain alone.
    Chain(ChainFault),
    /// The fault concerns the ring.
    Ring(RingFault),
}

/// The direction in which the bytes of a chain go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device reads what the guest sends.
    FromGuest,
    /// The device writes what the guest receives.
    ToGuest,
    /// The device reads a command, then writes its answer.
    Command,
}

/// The first descriptor of a chain, read once.
#[derive(Clone, Copy, Debug, Default)]
pub struct First {
    /// The value returned to the driver with the used chain: the index of the first descriptor, or
    /// in a packed ring the buffer's id.
    pub head: u16,
    /// The fields of the descriptor.
    pub desc: Descriptor,
    /// The number of descriptors of the chain (packed rings only).
    pub(super) span: u16,
    /// Index of the descriptors behind the first one in the device half's `following`.
    pub(super) following: u16,
}

impl First {
    /// Returns the buffer of a chain that has one buffer, in one region. This is the common case,
    /// and it needs no staging.
    #[inline(always)]
    pub(super) fn single<'t>(
        &self,
        memory: &'t GuestMemory,
        direction: Direction,
        hint: &mut usize,
    ) -> Option<MemorySegment<'t>> {
        // Cites packed-2.8.15-1, packed-2.8.15-2.
        let plain = if direction == Direction::ToGuest { WRITE } else { 0 };
        if self.desc.flags & (NEXT | WRITE | INDIRECT) != plain {
            return None;
        }
        memory.segment(self.desc.addr, self.desc.len, hint)
    }
}

/// A chain whose bytes are all staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Bytes in all buffers.
    pub len: u32,
    /// The number of these bytes that the device reads; they come first (2.7.4.2).
    pub readable: u32,
}

/// A walk over one chain, which turns descriptors into staged segments.
pub(super) struct Walk<'w, 't> {
    pub(super) memory: &'t GuestMemory,
    pub(super) turn: &'w mut Turn<'t>,
    pub(super) hint: usize,
    pub(super) direction: Direction,
    pub(super) len: u64,
    /// Bytes before the first device-writable buffer.
    readable: u64,
    pub(super) descriptors: u32,
    /// Index of the chain's first segment among those staged.
    mark: usize,
}

impl<'w, 't> Walk<'w, 't> {
    /// Begins a walk. `hint` is the region in which the last walk ended.
    pub(super) fn new(memory: &'t GuestMemory, turn: &'w mut Turn<'t>, hint: usize, direction: Direction) -> Self {
        let mark = turn.mark();
        Walk { memory, turn, hint, direction, len: 0, readable: 0, descriptors: 0, mark }
    }

    /// Ends the walk: returns the chain and updates `hint` for the next walk. On a fault nothing
    /// stays staged.
    pub(super) fn end(self, result: Result<(), Fault>, hint: &mut usize) -> Result<Chain, Fault> {
        *hint = self.hint;
        self.turn.count_descriptors(self.descriptors);
        let narrow = |n: u64| n.saturating_as::<u32>();
        match result {
            Ok(()) => Ok(Chain { len: narrow(self.len), readable: narrow(self.readable) }),
            Err(fault) => {
                self.turn.unstage(self.mark);
                Err(fault)
            }
        }
    }

    /// Checks one buffer and stages it.
    pub(super) fn buffer(&mut self, desc: Descriptor) -> Result<(), ChainFault> {
        self.descriptors += 1;
        let writable = desc.flags & WRITE != 0;
        // Cites packed-2.8.3-1, packed-2.8.15-1, packed-2.8.15-2.
        let wrong = match self.direction {
            Direction::FromGuest => writable,
            Direction::ToGuest => !writable,
            // Cites packed-2.8-2.
            Direction::Command => !writable && self.readable < self.len,
        };
        if wrong {
            return Err(ChainFault::Direction);
        }
        self.len += u64::from(desc.len);
        if !writable {
            self.readable = self.len;
        }
        // The limit is a header and the longest frame. Receive buffers of the guest may be larger.
        if self.direction != Direction::ToGuest && self.len > u64::from(MAX_FRAME) + 12 {
            return Err(ChainFault::Long);
        }
        let turn = &mut *self.turn;
        let found = self.memory.segments(desc.addr, desc.len, &mut self.hint, |segment| turn.stage(segment));
        if found { Ok(()) } else { Err(ChainFault::Address) }
    }
}

//! The words of a packed ring's descriptors, in the order that both sides rely on: the flags of the
//! first descriptor make a burst available, and the flags of a used one say that it may be read.
//!
//! `packed_words_loom.rs` builds this file a second time, on loom's atomics.

use az::SaturatingAs;

use super::sync::AtomicU64;
use super::sync::Ordering::{Acquire, Relaxed, Release};
use super::{Buffers, RingState};
use crate::ring::layout::WRITE;
use crate::ring::packed_device::{AVAIL, USED};

/// A burst that is being written into a ring. Only the flags of its first descriptor are not
/// written yet, and the device cannot pass that descriptor.
pub(super) struct Burst<'a> {
    table: &'a [AtomicU64],
    first: Option<(usize, u64)>,
}

impl<'a> Burst<'a> {
    #[inline]
    pub(super) fn new(table: &'a [AtomicU64]) -> Self {
        Burst { table, first: None }
    }

    /// Writes this buffer into the descriptor at a position.
    #[inline]
    pub(super) fn put(&mut self, state: &RingState, position: u32, id: u16, addr: u64, len: u32) {
        // Cites packed-2.8.3-1.
        let write = if state.buffers == Buffers::Transmit { 0 } else { WRITE };
        // 2.8.1: available means that AVAIL equals the wrap counter, which begins with 1, and USED
        // is its inverse.
        // Cites packed-2.8.1-4.
        let flags = write | if position & state.size == 0 { AVAIL } else { USED };
        // Cites packed-2.8.13-1.
        let word = (u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48).to_le();
        let at = 2 * state.slot(position);
        self.table[at].store(addr.to_le(), Relaxed);
        if self.first.is_none() {
            self.first = Some((at + 1, word));
        } else {
            self.table[at + 1].store(word, Relaxed);
        }
    }

    #[inline]
    pub(super) fn publish(self) {
        if let Some((at, word)) = self.first {
            // Release: all other descriptors, and this one's address, are visible before its flags
            // (2.8.21.1).
            // Cites packed-2.8.21.1.1-1.
            self.table[at].store(word, Release);
        }
    }
}

/// Returns the id of a used descriptor and the number of bytes written, or `None` if the device has
/// not used it yet.
#[inline]
pub(super) fn used(table: &[AtomicU64], state: &RingState, position: u32) -> Option<(u32, u32)> {
    // Acquire: once the flags are visible, so are the bytes in the buffer.
    // Cites packed-2.8.22-3.
    let word = u64::from_le(table[2 * state.slot(position) + 1].load(Acquire));
    let both = u64::from(AVAIL | USED) << 48;
    // 2.8.1: used means that both bits equal the device's wrap counter, which begins with 1.
    // Cites packed-2.8.1-5, packed-2.8.6-6.
    let is_used = word & both == if position & state.size == 0 { both } else { 0 };
    // 2.8.4: without WRITE the length means nothing. The flag is in the word that was read.
    // Cites packed-2.8.4-1, packed-2.8.4-2.
    let has_written = word & u64::from(WRITE) << 48 != 0;
    let len = if has_written { (word & u64::from(u32::MAX)).saturating_as::<u32>() } else { 0 };
    let id = (word >> 32 & 0xffff).saturating_as::<u32>();
    is_used.then_some((id, len))
}

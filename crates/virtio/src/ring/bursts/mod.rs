//! Driver halves for chains of one buffer, which move whole bursts. They are for guests that only
//! receive and send packets, and whose own cost must be as low as possible.
//!
//! Four properties make them cheap:
//! 1. A buffer is identified by its address alone. A received buffer is sent by writing its address
//!    into a descriptor of the other ring.
//! 2. Devices use buffers in the order in which they were made available. So the next id is
//!    predicted and compared. A slower path handles a device that changes the order.
//! 3. An entry of the available ring that already has the right value is not written.
//! 4. The driver's side of a burst becomes visible by one store for each ring.
//!
//! They support no chains of several descriptors, no indirect tables, and no notifications by event
//! index. A packet in several receive buffers counts as several packets, and must not be forwarded.

mod packed;
mod packed_words;
#[cfg(test)]
mod packed_words_loom;
mod split;

use az::SaturatingAs;

use super::driver::DeviceFault;
use super::layout::{Geometry, RingOptions};
use crate::memory::GuestMemory;
pub use packed::PackedBursts;
pub use split::SplitBursts;

/// The atomics of `packed_words`.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

/// The use of a ring's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// The device fills the buffers; each has a capacity of this many bytes.
    Receive(u32),
    /// The device reads the buffers.
    Transmit,
}

/// The packets that a call moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of packets.
    pub packets: usize,
    /// Bytes that the device reports as written, headers included; 0 for transmitted packets.
    pub bytes: u64,
    /// The most bytes in one buffer.
    pub longest: u32,
}

impl Moved {
    /// Counts a buffer, unless the device reports more bytes than its capacity. Then nothing of
    /// that burst is published elsewhere.
    #[inline]
    fn add(&mut self, id: u16, bytes: u32, capacity: u32) -> Result<(), DeviceFault> {
        if bytes > capacity {
            return Err(DeviceFault::Length { id, bytes, capacity });
        }
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.longest = self.longest.max(bytes);
        Ok(())
    }
}

/// A driver half of either layout. It must not be used after an error: the device's position is
/// unknown then.
pub trait Bursts: Sized {
    /// Creates an empty ring at `geometry`, in memory that is all zeros. The ring asks for no
    /// interrupts. `in_order` is the only option that it uses.
    ///
    /// # Errors
    /// The error names the part that is not in memory. For a packed ring it may also be the size,
    /// if that is no power of two.
    fn new(
        memory: &GuestMemory,
        geometry: Geometry,
        options: RingOptions,
        buffers: Buffers,
    ) -> Result<Self, &'static str>;

    /// Makes buffers available, given by guest address and, for transmission, length. Takes as many
    /// as descriptors are free, and returns their number.
    fn fill(&mut self, buffers: impl IntoIterator<Item = (u64, u32)>) -> usize;

    /// Sends the packets received by `from`, at most `most`, through `to`, buffer by buffer and
    /// unchanged. `from` gets the last buffers of `spare` in their place. The free descriptors of
    /// `to` and the number of spare buffers are limits too.
    ///
    /// # Errors
    /// Fails if the device of `from` reports something impossible.
    #[inline]
    fn forward(from: &mut Self, to: &mut Self, spare: &mut Vec<u64>, most: usize) -> Result<Moved, DeviceFault> {
        Self::forward_each(from, to, spare, most, |_, _| {})
    }

    /// Forwards as [`Self::forward`] does. `each` gets address and length of every packet before it
    /// is sent.
    ///
    /// # Errors
    /// Fails if the device of `from` reports something impossible.
    fn forward_each(
        from: &mut Self,
        to: &mut Self,
        spare: &mut Vec<u64>,
        most: usize,
        each: impl FnMut(u64, u32),
    ) -> Result<Moved, DeviceFault>;

    /// Moves all transmitted buffers to `spare`, and returns their number.
    ///
    /// # Errors
    /// Fails if the device reports something impossible.
    fn reclaim(&mut self, spare: &mut Vec<u64>) -> Result<usize, DeviceFault>;

    /// Gives used buffers, at most `most`, to the device again. Received packets are dropped; sent
    /// packets are sent once more, as they were filled in. The ring must have been filled
    /// completely, so that each buffer returns to its slot.
    ///
    /// # Errors
    /// Fails if the device reports something impossible.
    fn recycle(&mut self, most: usize) -> Result<Moved, DeviceFault>;

    /// Recycles as [`Self::recycle`] does. `each` gets the address and the length of every packet
    /// before its buffer is given back. The length is the one that the device reports, or the one
    /// that was filled in for sending.
    ///
    /// # Errors
    /// Fails if the device reports something impossible.
    fn recycle_each(&mut self, most: usize, each: impl FnMut(u64, u32)) -> Result<Moved, DeviceFault>;

    /// Removes received buffers, at most `most`, from the ring for good. `each` gets address and
    /// length. If the call fails, nothing that `each` got can be trusted.
    ///
    /// # Errors
    /// Fails if the device reports something impossible.
    fn collect(&mut self, most: usize, each: impl FnMut(u64, u32)) -> Result<usize, DeviceFault>;

    /// Returns whether the device asked for a kick for the buffers made available since its last
    /// request. No fence precedes the read. So a request may be missed right after publishing; then
    /// look again behind a fence.
    fn kick_due(&mut self) -> bool;

    /// Returns the number of buffers that the device holds, or has used without our looking at them
    /// yet.
    fn out(&self) -> usize;
}

/// The private state of a ring. Positions count up for ever and wrap around the ring.
#[derive(Debug)]
struct RingState {
    size: u32,
    /// The id in each slot of the ring: the id of the buffer that was or will be made available
    /// there.
    ids: Box<[u16]>,
    /// The buffer of each id, and the length that it was filled in with.
    addrs: Box<[u64]>,
    lens: Box<[u32]>,
    next_avail: u32,
    next_used: u32,
    kicked: u32,
    /// True while the id in each slot is the slot's index.
    sorted: bool,
    in_order: bool,
    buffers: Buffers,
}

impl RingState {
    fn new(size: u16, in_order: bool, buffers: Buffers) -> Self {
        RingState {
            size: size.into(),
            ids: (0..size).collect(),
            // No buffer is at this address.
            addrs: vec![u64::MAX; size.into()].into_boxed_slice(),
            lens: vec![0; size.into()].into_boxed_slice(),
            next_avail: 0,
            next_used: 0,
            kicked: 0,
            sorted: true,
            in_order,
            buffers,
        }
    }

    /// Returns the slot of a position in the ring, whose size is a power of two.
    #[inline]
    fn slot(&self, position: u32) -> usize {
        (position & (self.size - 1)) as usize
    }

    #[inline]
    fn out(&self) -> u32 {
        self.next_avail.wrapping_sub(self.next_used)
    }

    #[inline]
    fn free(&self) -> usize {
        (self.size - self.out()) as usize
    }

    /// Returns the id used at a position. The device reports `reported`. If the device keeps the
    /// order, the result is the id made available at that position.
    #[inline]
    fn resolve(&mut self, position: u32, reported: u32) -> Result<u16, DeviceFault> {
        let expected = self.ids[self.slot(position)];
        if u32::from(expected) == reported { Ok(expected) } else { self.resolve_out_of_order(position, reported) }
    }

    /// Finds the later slot that has the id `reported`, and swaps it with the id of this position.
    #[cold]
    fn resolve_out_of_order(&mut self, position: u32, reported: u32) -> Result<u16, DeviceFault> {
        // With in-order use, only the last buffer of a batch has a length (2.7.9), and a full
        // buffer holds only a part of a packet. So no id may be skipped.
        let mut later =
            (1..self.next_avail.wrapping_sub(position)).map(|ahead| self.slot(position.wrapping_add(ahead)));
        let there = later.find(|&slot| u32::from(self.ids[slot]) == reported && !self.in_order);
        let here = self.slot(position);
        let there = there.ok_or(DeviceFault::Id(reported))?;
        self.ids.swap(here, there);
        self.sorted = false;
        Ok(self.ids[here])
    }

    /// Returns the number of sent buffers that are done if the device reports the id `reported`. It
    /// is for in-order use only (2.7.9; 2.8, "In-order use of descriptors").
    #[inline]
    fn batch(&self, position: u32, reported: u32) -> Result<u32, DeviceFault> {
        let ahead = reported.wrapping_sub(position) & (self.size - 1);
        let is_out = reported < self.size && ahead < self.next_avail.wrapping_sub(position);
        if is_out { Ok(ahead + 1) } else { Err(DeviceFault::Id(reported)) }
    }

    /// Returns the capacity of a buffer. Buffers that the device only reads have no reported length
    /// to check.
    #[inline]
    fn capacity(&self) -> u32 {
        match self.buffers {
            Buffers::Receive(capacity) => capacity,
            Buffers::Transmit => u32::MAX,
        }
    }

    #[inline]
    fn kick_due(&mut self, is_enabled: impl FnOnce() -> bool) -> bool {
        let due = self.kicked != self.next_avail && is_enabled();
        if due {
            self.kicked = self.next_avail;
        }
        due
    }
}

/// Returns a count of entries as a number of positions: a ring has at most 32768.
#[inline]
fn positions(n: usize) -> u32 {
    n.saturating_as::<u32>()
}

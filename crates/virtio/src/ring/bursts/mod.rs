//! Driver halves whose every chain is one buffer, and that move whole bursts: for a guest that does nothing with packets
//! but take and send them, and whose own cost is to be as low as it can be.
//!
//! What makes them cheap: a buffer is known by its address alone, so one that was received is sent by writing that
//! address into the other ring's descriptor; devices use buffers in the order in which they were made available, so what
//! names the next one is expected and compared (a device that does not is followed, by a slower way); entries of the
//! available ring that are right already are not written; the driver's side of a burst becomes visible by one store for
//! each ring.
//!
//! What they cannot do: chains of several descriptors, indirect tables, notifications by event index. A packet in several
//! receive buffers is several of them to who collects, and is not to be forwarded.

mod packed;
mod split;

use super::driver::DeviceFault;
use super::layout::{Geometry, Options};
use crate::memory::GuestMemory;
pub use packed::PackedBursts;
pub use split::SplitBursts;

/// What a ring's buffers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// The device fills them: each has room for so many bytes.
    Receive(u32),
    /// The device reads them.
    Transmit,
}

/// What a call has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Packets.
    pub packets: usize,
    /// Bytes that the device says it has written, headers included; nothing of transmitted ones.
    pub bytes: u64,
    /// The most in one buffer.
    pub longest: u32,
}

impl Moved {
    /// Counts a buffer, unless the device says that it holds more than it can: nothing of that burst is reported to others.
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

/// A driver half of either layout. After an error it is not to be used any more: where the device stands nobody knows.
pub trait Bursts: Sized {
    /// An empty ring at `geometry`, in memory that is all zeros there, that wants no interrupts. Of the options it knows
    /// `in_order`.
    ///
    /// # Errors
    /// The part that is not in memory; of a packed ring also the size, where it is no power of two.
    fn new(memory: &GuestMemory, geometry: Geometry, options: Options, buffers: Buffers) -> Result<Self, &'static str>;

    /// Makes these buffers available: their guest addresses, and of those to be transmitted the length. As many as there
    /// is room for; returns how many.
    fn fill(&mut self, buffers: impl IntoIterator<Item = (u64, u32)>) -> usize;

    /// Sends what has come by `from`, at most `most` packets, by `to`, buffer by buffer as it is; `from` gets the last of
    /// `spare` in their place. No more than `to` has room for, and than there are spare ones.
    ///
    /// # Errors
    /// What the device of `from` says that cannot be.
    #[inline]
    fn forward(from: &mut Self, to: &mut Self, spare: &mut Vec<u64>, most: usize) -> Result<Moved, DeviceFault> {
        Self::forward_each(from, to, spare, most, |_, _| {})
    }

    /// As [`Self::forward`]; `each` is reported address and length of every packet before it is sent.
    ///
    /// # Errors
    /// What the device of `from` says that cannot be.
    fn forward_each(
        from: &mut Self,
        to: &mut Self,
        spare: &mut Vec<u64>,
        most: usize,
        each: impl FnMut(u64, u32),
    ) -> Result<Moved, DeviceFault>;

    /// Takes all transmitted buffers back; returns how many.
    ///
    /// # Errors
    /// What the device says that cannot be.
    fn reclaim(&mut self, spare: &mut Vec<u64>) -> Result<usize, DeviceFault>;

    /// Gives what the device has used, at most `most` buffers, to it again: what was received is dropped, what was sent
    /// is sent once more, as it was filled in. For a ring that was filled wholly: each goes where it was taken from.
    ///
    /// # Errors
    /// What the device says that cannot be.
    fn recycle(&mut self, most: usize) -> Result<Moved, DeviceFault>;

    /// As [`Self::recycle`]; `each` is reported the address of every packet before its buffer is given back, and its length: as
    /// the device says, or as it was filled to be sent.
    ///
    /// # Errors
    /// What the device says that cannot be.
    fn recycle_each(&mut self, most: usize, each: impl FnMut(u64, u32)) -> Result<Moved, DeviceFault>;

    /// Takes what has been received, at most `most` buffers, out of the ring for good: address and length. Nothing of them
    /// is to be believed where it fails.
    ///
    /// # Errors
    /// What the device says that cannot be.
    fn collect(&mut self, most: usize, each: impl FnMut(u64, u32)) -> Result<usize, DeviceFault>;

    /// Whether the device wants a kick for what has been made available since the last time that it did. It may be missed
    /// where this follows the publishing at once: then look again behind a fence.
    fn kick_due(&mut self) -> bool;

    /// Buffers that the device has, or has used and nobody has looked at.
    fn out(&self) -> usize;
}

/// What is kept of a ring: positions count up for ever, and wrap around the ring.
#[derive(Debug)]
struct RingState {
    size: u32,
    /// The id at each place of the ring: what was made available there, or what will be.
    ids: Box<[u16]>,
    /// The buffer of each id, and the length that it was filled with.
    addrs: Box<[u64]>,
    lens: Box<[u32]>,
    next_avail: u32,
    next_used: u32,
    kicked: u32,
    /// Whether ids still are what the places are.
    sorted: bool,
    in_order: bool,
    buffers: Buffers,
}

impl RingState {
    fn new(size: u16, in_order: bool, buffers: Buffers) -> Self {
        RingState {
            size: size.into(),
            ids: (0..size).collect(),
            addrs: vec![0; size.into()].into_boxed_slice(),
            lens: vec![0; size.into()].into_boxed_slice(),
            next_avail: 0,
            next_used: 0,
            kicked: 0,
            sorted: true,
            in_order,
            buffers,
        }
    }

    /// The place of a position in the ring, whose size is a power of two.
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

    /// The id of what was used at a position: `reported`, which is the one that was made available there, unless the device
    /// does not keep to the order.
    #[inline]
    fn resolve(&mut self, position: u32, reported: u32) -> Result<u16, DeviceFault> {
        let expected = self.ids[self.slot(position)];
        if u32::from(expected) == reported { Ok(expected) } else { self.resolve_out_of_order(position, reported) }
    }

    /// The place where `reported` was made available takes what was made available here.
    #[cold]
    fn resolve_out_of_order(&mut self, position: u32, reported: u32) -> Result<u16, DeviceFault> {
        // Of a batch (2.7.9) the lengths are not reported, and a buffer that is full holds a part of a packet only.
        let mut later =
            (1..self.next_avail.wrapping_sub(position)).map(|ahead| self.slot(position.wrapping_add(ahead)));
        let there = later.find(|&slot| u32::from(self.ids[slot]) == reported && !self.in_order);
        let (here, there) = (self.slot(position), there.ok_or(DeviceFault::Id(reported))?);
        self.ids.swap(here, there);
        self.sorted = false;
        Ok(self.ids[here])
    }

    /// Of what was sent in order: how many are done where the device says that `reported` is (2.7.9; 2.8, "In-order use of
    /// descriptors").
    #[inline]
    fn batch(&self, position: u32, reported: u32) -> Result<u32, DeviceFault> {
        let ahead = reported.wrapping_sub(position) & (self.size - 1);
        let is_out = reported < self.size && ahead < self.next_avail.wrapping_sub(position);
        if is_out { Ok(ahead + 1) } else { Err(DeviceFault::Id(reported)) }
    }

    /// What a buffer has room for. Of those that were only read the device says nothing.
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

/// A count of entries as a number of positions: a ring has at most 32768.
#[inline]
fn positions(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

//! The position of a lost device half in a packed ring, recovered from the ring itself.
//!
//! A frontend that connects again after its backend was killed cannot give the position in a packed
//! ring: QEMU sends 0, and so does User Mode Linux for a new ring. The ring itself has all that is
//! needed.
//!
//! # One boundary
//!
//! Only the device changes the USED bit of a descriptor. When the driver makes a descriptor
//! available, it writes USED as the inverse of its wrap counter (2.8.1). That is the value that the
//! device left there a round ago, or the value in zeroed memory. So the bit counts how often the
//! device has passed the descriptor, modulo 2. The driver's writes do not disturb this count.
//!
//! The device passes every descriptor: [`PackedDevice::give_back`] marks those that it skips.
//! Compare the bit of each position with the position's wrap counter. Around the ring there is then
//! one boundary between descriptors passed in this round and descriptors not passed yet: the
//! device's position.
//!
//! ```text
//! index            0   1   2   3   4   5   6   7
//! passed           y   y   y   -   -   -   -   -      one boundary: the position is 3
//! passed           y   y   y   -   -   y   y   -      three: a burst from 3 to 6 was interrupted
//! ```
//!
//! # Three boundaries
//!
//! A burst is published from its last descriptor to its first. A crash in the middle leaves a part
//! that is not passed, a part that is, and then the rest of the ring: three boundaries. The driver
//! has seen nothing of the burst, because it waits at the first descriptor. So the first part is
//! wholly available and the second part wholly used. That shows which part is which.
//!
//! A burst of the whole ring has no rest. It leaves one boundary, with the available part before
//! it.
//!
//! # The frontend's base
//!
//! A base from a frontend may be out of date: QEMU could not ask for the current one, and repeats
//! the last base that it sent or received. QEMU also gives back buffers itself, if it finds them in
//! a transmit ring while no backend is connected (`virtqueue_packed_drop_all`). It begins where it
//! believes the device to be, mostly at the ring's start in the first round. If the available
//! buffers extend that far, this leaves the same three boundaries. QEMU then sends the position
//! where it stopped, which is the end of an interrupted burst.
//!
//! So there are two rules:
//! - A ring with one boundary is believed, and a frontend that contradicts it is not. One
//!   exception: the frontend names the end of a chain, and only the chain's first descriptor is
//!   passed. That is how other devices leave a ring.
//! - In a ring with more boundaries the frontend's base is believed, if the frontend knows one.
//!   Otherwise the interrupted burst is completed.
//!
//! # Completion
//!
//! An interrupted burst is completed. Descriptors that were written before are not written again.
//! In a transmit ring nothing more is needed: the packets were delivered before they were given
//! back. In a receive ring the bytes are there, but the lengths are lost. If the rest of a packet
//! is in the published part, its first buffers are full. Any other packet is lost: each of its
//! buffers becomes a packet that has a header without a frame, which drivers drop and count.

use std::sync::Arc;

use straightline_packet::{Level, MemorySegment};

use super::chain::{Direction, First};
use super::device::Device;
use super::layout::{DESCRIPTOR, Descriptor, Geometry, INDIRECT, NEXT, RingOptions};
use super::packed_device::{AVAIL, PackedDevice, RingPosition, USED, is_available};
use crate::memory::{DirtyLog, GuestMemory};
use crate::net_header::{LEN, NetHeader};

/// Bytes of a virtio-net header, as a length of guest memory.
const HEADER: u32 = 12;
const _: () = assert!(LEN == 12);

/// Bases sent by frontends that do not know the position. QEMU and User Mode Linux send them, and
/// so do frontends that give the start of a new ring.
const UNKNOWN: [u32; 2] = [0, 0x8000_8000];

/// The position that the ring shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recovered {
    position: RingPosition,
    /// For an interrupted burst: the number of descriptors that are not written, and the number of
    /// written ones behind them.
    interrupted: Option<(u16, u16)>,
    /// True if there is exactly one boundary.
    is_unambiguous: bool,
}

impl PackedDevice {
    /// Creates the device half as [`PackedDevice::new`] does, but takes the position from the ring
    /// if the ring shows it. Frontends also send a base when they do not know the position (see the
    /// module).
    ///
    /// If the last device was killed while it gave back buffers, they are given back now. The bytes
    /// written for that are marked in `log`. `direction` is the direction of the ring's buffers.
    /// With any contents of the ring, the result is some position.
    pub fn recover(
        memory: &GuestMemory,
        geometry: Geometry,
        base: u32,
        options: RingOptions,
        direction: Direction,
        log: Option<&Arc<DirtyLog>>,
    ) -> Result<Self, &'static str> {
        let size = geometry.size;
        let desc = geometry.locate_packed(memory)?.desc;
        // Acquire: once the flags are visible, so is the rest of the descriptor.
        let flags = |at: u16| desc.acquire_u16(usize::from(at) * DESCRIPTOR + 14);
        let Recovered { position, interrupted, is_unambiguous } = find(size, flags);
        let at = |position: RingPosition| u32::from(position.bits()) * 0x1_0001;
        let [low, high, _, _] = base.to_le_bytes();
        let reported = RingPosition::from_bits(u16::from_le_bytes([low, high]));
        let is_dropped_by_frontend = direction == Direction::FromGuest
            && interrupted.is_some_and(|(unwritten, written)| {
                let start = position.plus(unwritten, size);
                let is_chain_end =
                    start != RingPosition { at: 0, wrap: true } && is_rest_of_chain(size, position, start, flags);
                reported == start.plus(written, size) && !is_chain_end
            });
        let is_meaningful = !UNKNOWN.contains(&base) && reported != position && !is_dropped_by_frontend;
        if is_meaningful
            && (reported.at >= size || !is_unambiguous || is_rest_of_chain(size, position, reported, flags))
        {
            return Self::new(memory, geometry, base, options);
        }
        let mut device = Self::new(memory, geometry, at(position), options)?;
        let Some((unwritten, written)) = interrupted else { return Ok(device) };
        device.set_log(log.cloned());
        device.complete(memory, unwritten, direction);
        let end = position.plus(unwritten, size).plus(written, size);
        Self::new(memory, geometry, at(end), options)
    }

    /// Gives back the chains of the next `descriptors`, which a predecessor had filled or emptied.
    fn complete(&mut self, memory: &GuestMemory, descriptors: u16, direction: Direction) {
        let mut buffers = Vec::new();
        let mut covered = 0;
        let mut first = [First::default()];
        // One chain at a time: the last one may extend into the written part, and nothing behind it
        // is available.
        while covered < descriptors && self.find(&mut first) == Ok(1) {
            self.take(&first[0]);
            covered += first[0].span;
            if direction == Direction::ToGuest {
                buffers.push(Buffer::new(memory, &first[0].desc, self.rest(&first[0]), self.size()));
            }
        }
        for (n, bytes) in (0..).zip(lengths(&buffers)) {
            self.written_at(n, bytes);
        }
        if let Some(log) = self.log() {
            let marks = log.after_writes();
            for segment in buffers.iter().flat_map(|buffer| &buffer.front) {
                let header = segment.split_at(HEADER).0;
                memory.guest_addr(header).map_or_else(|| marks.missed(), |addr| marks.mark(addr, header.len().into()));
            }
        }
        self.give_back(self.outstanding());
    }
}

/// Finds the position in a ring of `size` descriptors with these `flags`. Reads the flags of each
/// descriptor once, and the descriptors of an interrupted burst once more.
fn find(size: u16, flags: impl Fn(u16) -> u16) -> Recovered {
    let mut boundaries = Boundaries::default();
    // The wrap counter changes at the ring's start, so equal bits are a boundary there.
    let mut before = flags(size - 1) & USED == 0;
    for at in 0..size {
        let used = flags(at) & USED != 0;
        if used != before {
            boundaries.add(at);
        }
        before = used;
    }
    let is_used = |at: u16| {
        let flags = flags(at);
        (flags & AVAIL != 0) == (flags & USED != 0)
    };
    let around = |from: u16, n: u16| RingPosition { at: from, wrap: false }.plus(n, size).at;
    let all = |from: u16, n: u16, used: bool| (0..n).all(|i| is_used(around(from, i)) == used);
    let length = |from: u16, to: u16| if to > from { to - from } else { size - from + to };
    // A descriptor that is not passed has the inverse of the wrap counter with which it will be
    // passed.
    let position = |at: u16| RingPosition { at, wrap: flags(at) & USED == 0 };
    let [a, b, c] = boundaries.at;
    let interrupted = match boundaries.count {
        // An interrupted burst of the whole ring: it has no rest, so its first boundary is also its
        // last. Available descriptors just before the one boundary have no other cause, except a
        // driver's half-made chain of the whole ring.
        1 => {
            let written = (0..size).find(|&i| !is_used(around(a, i))).unwrap_or(size);
            let start = around(a, written % size);
            // Check the first part again: a running driver may have filled the ring since. It
            // cannot touch the used part until it has seen all of that part.
            let is_cut = written > 0 && written < size && all(start, size - written, false) && all(a, written, true);
            is_cut.then_some((start, size - written, written))
        }
        3 => {
            let cuts = [(a, b, c), (b, c, a), (c, a, b)].map(|(u, v, w)| (u, length(u, v), length(v, w)));
            cuts.into_iter().find(|&(u, n, m)| all(u, n, false) && all(around(u, n), m, true))
        }
        _ => None,
    };
    let is_unambiguous = boundaries.count == 1;
    match interrupted {
        Some((start, unwritten, written)) => {
            Recovered { position: position(start), interrupted: Some((unwritten, written)), is_unambiguous }
        }
        None => Recovered { position: position(a), interrupted: None, is_unambiguous },
    }
}

/// Returns whether the descriptors between two positions are the rest of a chain.
fn is_rest_of_chain(size: u16, from: RingPosition, to: RingPosition, flags: impl Fn(u16) -> u16) -> bool {
    let mut position = from;
    for _ in 0..size {
        let bits = flags(position.at);
        let is_of_chain = is_available(bits, position.wrap);
        position = position.plus(1, size);
        if !is_of_chain || bits & NEXT == 0 {
            return is_of_chain && position == to;
        }
    }
    false
}

/// The first three boundaries, and the number of all boundaries. The number is odd, so there is at
/// least one.
#[derive(Default)]
struct Boundaries {
    at: [u16; 3],
    count: u16,
}

impl Boundaries {
    fn add(&mut self, at: u16) {
        if let Some(free) = self.at.get_mut(usize::from(self.count)) {
            *free = at;
        }
        self.count += 1;
    }
}

/// The most entries of an indirect table that are read: a receive buffer has a header and as many
/// pages as a GSO packet.
const MAX_TABLE_ENTRIES: u32 = 64;

/// A receive buffer that a predecessor has filled: its capacity, and the segments with its header,
/// which is overwritten if the packet is lost.
struct Buffer<'m> {
    capacity: u32,
    front: Vec<MemorySegment<'m>>,
}

impl<'m> Buffer<'m> {
    fn new(memory: &'m GuestMemory, first: &Descriptor, rest: &[Descriptor], size: u16) -> Self {
        let mut buffer = Buffer { capacity: 0, front: Vec::new() };
        for desc in std::iter::once(first).chain(rest) {
            if desc.flags & INDIRECT == 0 {
                buffer.add(memory, desc);
            } else if let Some(table) = memory.segment(desc.addr, desc.len, &mut 0) {
                // 2.8.7: as many entries as fit. An interrupted burst may have as many tables as
                // the ring has positions. The guest may have made all of them, so the number of
                // entries is limited.
                let bytes = u32::try_from(DESCRIPTOR).unwrap_or(16);
                for at in 0..(desc.len / bytes).min(size.into()).min(MAX_TABLE_ENTRIES) {
                    let entry = Descriptor::read_indirect_packed(Level::Scalar, table.split_at(at * bytes).1);
                    buffer.add(memory, &entry);
                }
            }
        }
        buffer
    }

    fn add(&mut self, memory: &'m GuestMemory, desc: &Descriptor) {
        let front = &mut self.front;
        let mut found = front.iter().map(|s| s.len() as usize).sum::<usize>();
        if found < LEN {
            memory.segments(desc.addr, desc.len, &mut 0, |segment| {
                if found < LEN {
                    found += segment.len() as usize;
                    front.push(segment);
                }
            });
        }
        self.capacity = self.capacity.saturating_add(desc.len);
    }

    /// Returns the number of buffers of the packet that begins in this one.
    fn count(&self) -> usize {
        let mut header = [0; LEN];
        let mut at = 0;
        for segment in &self.front {
            at += segment.read(Level::Scalar, &mut header[at..]);
        }
        usize::from(NetHeader::parse(&header).num_buffers).max(1)
    }

    /// Overwrites the buffer with a packet that has a header and no frame; returns its bytes.
    fn empty(&self) -> u32 {
        let header = NetHeader { num_buffers: 1, ..NetHeader::default() }.to_bytes();
        let mut at = 0;
        for segment in &self.front {
            at += segment.write(Level::Scalar, &header[at..]);
        }
        u32::try_from(at).unwrap_or(0)
    }
}

/// Returns the number of bytes in each of these buffers, which precede published ones.
fn lengths(buffers: &[Buffer<'_>]) -> Vec<u32> {
    let mut lengths = Vec::new();
    let mut rest = buffers;
    while let Some(first) = rest.first() {
        let count = first.count();
        if count > rest.len() {
            // The packet's last buffer is among those that were published, so these are full
            // (5.1.6.4.1).
            lengths.extend(rest.iter().map(|buffer| buffer.capacity));
            break;
        }
        lengths.extend(rest[..count].iter().map(Buffer::empty));
        rest = &rest[count..];
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Returns the flags at index `at` of a ring. Its device has passed everything before
    /// `position`, and its driver has made `available` descriptors available from there on.
    fn flags(at: u16, position: RingPosition, available: u16, size: u16) -> u16 {
        let ahead = if at >= position.at { at - position.at } else { size - position.at + at };
        // Indexes from the position on were used in the previous round, indexes before the position
        // in this round.
        let wrap = if at >= position.at { position.wrap } else { !position.wrap };
        match (ahead < available, wrap) {
            (true, true) => AVAIL,
            (true, false) => USED,
            (false, true) => 0,
            (false, false) => AVAIL | USED,
        }
    }

    /// A running driver may fill the ring between any two reads. No burst was interrupted, and none
    /// may be found: its buffers would be given back although they have not been filled or emptied.
    #[test]
    fn a_driver_that_fills_the_ring_behind_our_back() {
        for size in 1..=5 {
            for (at, wrap) in (0..size).flat_map(|at| [(at, true), (at, false)]) {
                let position = RingPosition { at, wrap };
                for before in 0..=size {
                    for (more, when) in (0..=size - before).flat_map(|more| (0..5 * size).map(move |when| (more, when)))
                    {
                        let reads = Cell::new(0);
                        let found = find(size, |at| {
                            reads.set(reads.get() + 1);
                            let available = if reads.get() > when { before + more } else { before };
                            flags(at, position, available, size)
                        });
                        let what =
                            format!("size {size}, {position:?}: {before} available, {more} more after {when} reads");
                        assert_eq!(found, Recovered { position, interrupted: None, is_unambiguous: true }, "{what}");
                    }
                }
            }
        }
    }
}

//! The bounded ring between a worker and the thread that sends its records.
//!
//! Records are in blocks, and blocks go round: the worker fills them, the other thread empties
//! them. Each side has a queue that never waits. All blocks exist from the beginning.
//!
//! ```text
//!            full blocks
//!   worker ─────────────▶ sender
//!          ◀─────────────
//!            empty blocks
//! ```
//!
//! A turn's records are handed over when the turn has ended, because packets may go back to their
//! source's ring until then. A block that is not full is handed over when the sender has taken all
//! others. So a sender that comes often gets records soon, and one that comes late gets full blocks.
//!
//! The worker makes no system call. The sender looks from time to time, and wakes a worker that
//! sleeps with a block that is not full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};
use straightline_packet::MAX_BATCH;

use crate::record::{HEADER, Packet, Written, packet_header, record_len};

/// Bytes of a block: several of the longest records fit.
const BLOCK: usize = 256 << 10;

/// Blocks of a ring.
const BLOCKS: usize = 64;

/// Bytes of a ring.
pub const RING_BYTES: usize = BLOCK * BLOCKS;

/// Packets without a place that a turn remembers, until it knows whether they went back.
const MAX_MISSED: usize = 4 * MAX_BATCH;

struct Block {
    bytes: Box<[u8]>,
    len: usize,
    /// Where the records of the present turn begin.
    turn: usize,
}

/// The words that both sides of a ring see.
#[derive(Debug)]
struct Shared {
    /// The worker has a block with records that it has not handed over.
    is_pending: AtomicBool,
    /// The counts of each interface. Only the worker writes them.
    counts: Box<[Counts]>,
}

/// The counts of an interface.
#[derive(Debug, Default)]
struct Counts {
    selected: AtomicU64,
    missed: AtomicU64,
}

/// The worker's side of a ring.
pub(crate) struct Writer {
    full: Producer<Block>,
    empty: Consumer<Block>,
    now: Option<Block>,
    /// Full blocks with records of the present turn.
    held: Vec<Block>,
    /// Packets of the present turn that found no place: index and interface.
    missed: Vec<(u8, u16)>,
    /// The present turn has captured packets, or missed some.
    wrote: bool,
    is_pending: bool,
    shared: Arc<Shared>,
}

/// The sender's side of a ring.
pub struct Reader {
    full: Consumer<Block>,
    empty: Producer<Block>,
    /// The block that is being sent, with the offset of its first record that is not sent.
    now: Option<(Block, usize)>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// Creates a ring for packets of so many interfaces. Its memory is written here, so that the worker
/// never waits for the kernel to provide it.
pub(crate) fn ring(interfaces: usize) -> (Writer, Reader) {
    let (full, full_end) = RingBuffer::new(BLOCKS);
    let (mut empty, empty_end) = RingBuffer::new(BLOCKS);
    for _ in 0..BLOCKS {
        // Other bytes than zeros: the allocator would take zeros from the kernel untouched.
        let block = Block { bytes: vec![0xff; BLOCK].into_boxed_slice(), len: 0, turn: 0 };
        // The queue has space for all blocks.
        let _ = empty.push(block);
    }
    let counts = (0..interfaces).map(|_| Counts::default()).collect();
    let shared = Arc::new(Shared { is_pending: AtomicBool::new(false), counts });
    let writer = Writer {
        full,
        empty: empty_end,
        now: None,
        held: Vec::with_capacity(BLOCKS),
        missed: Vec::with_capacity(MAX_MISSED),
        wrote: false,
        is_pending: false,
        shared: Arc::clone(&shared),
    };
    (writer, Reader { full: full_end, empty, now: None, shared })
}

impl Writer {
    /// Adds the first `captured` bytes of a packet. `copy` writes them, and returns how many it
    /// wrote. If the ring is full, the packet is counted as missed.
    pub(crate) fn push(
        &mut self,
        packet: &Packet<'_>,
        index: u8,
        captured: usize,
        copy: impl FnOnce(&mut [u8]) -> usize,
    ) {
        self.wrote = true;
        let needed = record_len(captured);
        if self.now.as_ref().is_some_and(|block| block.bytes.len() - block.len < needed) {
            self.held.extend(self.now.take());
        }
        if self.now.is_none() {
            self.now = self.empty.pop().ok();
        }
        let Some(block) = &mut self.now else {
            if self.missed.len() < MAX_MISSED {
                self.missed.push((index, packet.interface));
            } else {
                self.shared.add(packet.interface, 1, 1);
            }
            return;
        };
        let Some(space) = block.bytes.get_mut(block.len..block.len + needed) else {
            // No packet is as long as a block.
            return self.shared.add(packet.interface, 1, 1);
        };
        let (header, bytes) = space.split_at_mut(HEADER);
        let copied = copy(&mut bytes[..captured]).min(captured);
        header.copy_from_slice(&packet_header(packet, index, copied));
        block.len += record_len(copied);
        self.shared.add(packet.interface, 1, 0);
    }

    /// Ends a turn. `departs` tells for each packet, by its index, whether it has left its source's
    /// ring; without it all have. Nothing has happened to the others.
    pub(crate) fn end_turn(&mut self, departs: impl FnOnce() -> Option<[bool; MAX_BATCH]>) {
        if self.wrote {
            self.wrote = false;
            let departs = departs();
            if let Some(departs) = &departs {
                self.void_returned(departs);
            }
            for (index, interface) in self.missed.drain(..) {
                if departs.as_ref().is_none_or(|departs| departs[usize::from(index)]) {
                    self.shared.add(interface, 1, 1);
                }
            }
            for mut block in self.held.drain(..) {
                block.turn = 0;
                // The queue has space for all blocks.
                let _ = self.full.push(block);
            }
            if let Some(block) = &mut self.now {
                block.turn = block.len;
            }
        }
        if self.now.is_some()
            && self.full.slots() == BLOCKS
            && let Some(block) = self.now.take_if(|block| block.len > 0)
        {
            let _ = self.full.push(block);
        }
        let is_pending = self.now.as_ref().is_some_and(|block| block.len > 0);
        if is_pending != self.is_pending {
            self.is_pending = is_pending;
            self.shared.is_pending.store(is_pending, Ordering::Relaxed);
        }
    }

    /// Takes the meaning from the records of packets that went back.
    #[cold]
    fn void_returned(&mut self, departs: &[bool; MAX_BATCH]) {
        for block in self.held.iter_mut().chain(&mut self.now) {
            let mut rest = block.bytes.get_mut(block.turn..block.len).unwrap_or_default();
            while let Some((mut record, behind)) = Written::split(rest) {
                if !record.is_delivered() && !record.is_void() && !departs[record.index()] {
                    record.make_void();
                    self.shared.add(record.interface(), u64::MAX, 0);
                }
                rest = behind;
            }
        }
    }
}

impl Shared {
    /// Adds to the counts of an interface, modulo 2^64.
    fn add(&self, interface: u16, selected: u64, missed: u64) {
        if let Some(counts) = self.counts.get(usize::from(interface)) {
            let add = |count: &AtomicU64, n: u64| {
                if n > 0 {
                    count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
                }
            };
            add(&counts.selected, selected);
            add(&counts.missed, missed);
        }
    }
}

impl Reader {
    /// Returns whether the worker has records that it hands over at the end of its next turn.
    pub fn is_pending(&self) -> bool {
        self.shared.is_pending.load(Ordering::Relaxed)
    }

    /// Returns the numbers of packets that the filter has selected, and of those that did not fit
    /// the ring, for an interface.
    pub fn counts(&self, interface: usize) -> (u64, u64) {
        let counts = self.shared.counts.get(interface);
        counts.map_or((0, 0), |counts| (counts.selected.load(Ordering::Relaxed), counts.missed.load(Ordering::Relaxed)))
    }

    /// Appends records to `output` until it has at least `limit` bytes. `time` translates a reading
    /// of the workers' clock into nanoseconds since 1970. Returns whether all records were appended.
    pub fn drain(&mut self, output: &mut Vec<u8>, limit: usize, time: impl Fn(u64) -> u64) -> bool {
        loop {
            if self.now.is_none() {
                self.now = self.full.pop().ok().map(|block| (block, 0));
            }
            let Some((block, at)) = &mut self.now else { return true };
            while let Some((mut record, _)) = Written::split(block.bytes.get_mut(*at..block.len).unwrap_or_default()) {
                if output.len() >= limit {
                    return false;
                }
                *at += record.bytes().len();
                if !record.is_void() {
                    record.change_time(&time);
                    output.extend_from_slice(record.bytes());
                }
            }
            if let Some((mut block, _)) = self.now.take() {
                (block.len, block.turn) = (0, 0);
                // The queue has space for all blocks.
                let _ = self.empty.push(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Place, Record};

    fn packet(interface: u16, place: Place) -> Packet<'static> {
        Packet { interface, place, time: 7, len: 1000, bytes: &[] }
    }

    fn push(writer: &mut Writer, index: u8, place: Place, captured: usize) {
        writer.push(&packet(0, place), index, captured, |space| {
            space.fill(index);
            space.len()
        });
    }

    /// Returns the first captured byte and the number of bytes of each packet.
    fn read(reader: &mut Reader) -> Vec<(u8, usize)> {
        let mut output = Vec::new();
        assert!(reader.drain(&mut output, usize::MAX, |time| time + 1));
        let mut rest = &output[..];
        let mut found = Vec::new();
        while let Some((record, len)) = Record::parse(rest).unwrap() {
            let Record::Packet(packet) = record else { panic!("{record:?}") };
            assert_eq!((packet.time, packet.len), (8, 1000));
            assert!(packet.bytes.iter().all(|byte| *byte == packet.bytes[0]));
            found.push((packet.bytes[0], packet.bytes.len()));
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
        found
    }

    #[test]
    fn records_come_at_the_end_of_their_turn() {
        let (mut writer, mut reader) = ring(1);
        push(&mut writer, 1, Place::Received, 60);
        assert_eq!(read(&mut reader), []);
        writer.end_turn(|| None);
        push(&mut writer, 2, Place::Delivered, 61);
        writer.end_turn(|| None);
        assert!(reader.is_pending(), "the first block was not taken yet");
        assert_eq!(read(&mut reader), [(1, 60)]);
        writer.end_turn(|| panic!("nothing was captured"));
        assert!(!reader.is_pending());
        assert_eq!(read(&mut reader), [(2, 61)]);
        assert_eq!(reader.counts(0), (2, 0));
    }

    #[test]
    fn packets_that_went_back_are_not_there() {
        let (mut writer, mut reader) = ring(1);
        push(&mut writer, 9, Place::Received, 10);
        writer.end_turn(|| None);
        for index in 0..4 {
            push(&mut writer, index, Place::Received, 100);
        }
        push(&mut writer, 0, Place::Delivered, 100);
        push(&mut writer, 3, Place::Dropped { reason: 0, on_way_in: true }, 100);
        let mut departs = [true; MAX_BATCH];
        (departs[2], departs[3]) = (false, false);
        writer.end_turn(|| Some(departs));
        assert_eq!(read(&mut reader), [(9, 10)]);
        writer.end_turn(|| None);
        assert_eq!(read(&mut reader), [(0, 100), (1, 100), (0, 100)]);
        assert_eq!(reader.counts(0), (4, 0));
    }

    #[test]
    fn a_full_ring_counts_and_goes_on() {
        let (mut writer, mut reader) = ring(2);
        let per_block = BLOCK / record_len(65_550);
        // The first block goes to the reader at once.
        let fits = (BLOCKS - 1) * per_block + 1;
        for _ in 0..fits + 3 {
            push(&mut writer, 5, Place::Received, 65_550);
            writer.end_turn(|| None);
        }
        // What goes back was not missed.
        push(&mut writer, 6, Place::Received, 10);
        writer.end_turn(|| Some([false; MAX_BATCH]));
        assert_eq!(reader.counts(0), (u64::try_from(fits).unwrap() + 3, 3));
        assert_eq!(read(&mut reader).len(), fits);
        push(&mut writer, 8, Place::Received, 10);
        writer.end_turn(|| None);
        assert_eq!(read(&mut reader), [(8, 10)]);
        assert_eq!(reader.counts(1), (0, 0));
    }

    #[test]
    fn a_limit_stops_the_reader_between_records() {
        let (mut writer, mut reader) = ring(1);
        for index in 0..5 {
            push(&mut writer, index, Place::Received, 100);
        }
        writer.end_turn(|| None);
        let mut output = Vec::new();
        let mut calls = 1;
        while !reader.drain(&mut output, calls * 2 * 136, |time| time) {
            assert_eq!(output.len(), calls * 2 * 136);
            calls += 1;
        }
        assert_eq!((output.len(), calls), (5 * 136, 3));
    }

    #[test]
    fn two_threads_lose_nothing_that_is_not_counted() {
        let (mut writer, mut reader) = ring(1);
        let sent = 200_000_u64;
        let thread = std::thread::spawn(move || {
            for n in 0..sent {
                let captured = usize::try_from(n % 1500).unwrap() + 1;
                push(&mut writer, n.to_le_bytes()[0], Place::Received, captured);
                if n % 3 == 0 {
                    writer.end_turn(|| None);
                }
            }
            writer.end_turn(|| None);
            writer
        });
        let mut seen = 0;
        loop {
            let ended = thread.is_finished();
            seen += u64::try_from(read(&mut reader).len()).unwrap();
            if ended {
                break;
            }
        }
        let mut writer = thread.join().unwrap();
        writer.end_turn(|| None);
        seen += u64::try_from(read(&mut reader).len()).unwrap();
        let (selected, missed) = reader.counts(0);
        assert_eq!((selected, seen + missed), (sent, sent));
    }
}

//! The storage of a table: slots with open addressing and linear probing, at most two fifths of them
//! taken.
//!
//! - **Readers** need no lock and never wait. A slot's word is read by one load, and names a station
//!   and its port (`word.rs` has the proof). While a writer moves a station, a reader may find it
//!   twice or not at all. The time at which a station was seen is a word of its own, so a station can
//!   look older or younger than it is while a writer replaces it.
//! - **Writers** hold the lock of the table. So a writer finds each station exactly once.
//!
//! `slots_loom.rs` compiles this file a second time, with the atomics of loom, and tries every order
//! of a writer and a reader.

use std::hash::BuildHasher;

use straightline_packet::prefetch_read;

use super::sync::{AtomicU32, AtomicU64, Ordering};
use super::word::{Layout, Station, WINDOW};

/// A place for a station. Four are in a cache line.
#[repr(align(16))]
struct Slot {
    /// The station; 0 if the slot is free.
    word: AtomicU64,
    /// Time at which the station was last seen.
    seen: AtomicU32,
    /// The mark of a frozen station (`table/freeze.rs`); 0 if it is not frozen. It takes no memory of
    /// its own: a slot would have these bytes in any case.
    frozen: AtomicU32,
}

/// A station in the table, as it was when it was found.
#[derive(Clone, Copy)]
pub(crate) struct Found<'t> {
    word: u64,
    at: usize,
    slot: &'t Slot,
}

impl Found<'_> {
    #[inline]
    pub(crate) fn seen(&self) -> u32 {
        self.slot.seen.load(Ordering::Relaxed)
    }

    /// Sets the time at which the station was last seen. The caller holds the lock.
    pub(crate) fn set_seen(&self, seen: u32) {
        self.slot.seen.store(seen, Ordering::Relaxed);
    }

    /// Returns the mark of a frozen station; 0 if it is not frozen.
    #[inline]
    pub(crate) fn frozen(&self) -> u32 {
        self.slot.frozen.load(Ordering::Relaxed)
    }

    /// Sets the mark of a frozen station. The caller holds the lock.
    pub(crate) fn set_frozen(&self, mark: u32) {
        self.slot.frozen.store(mark, Ordering::Relaxed);
    }

    /// Returns the number of the station's slot.
    pub(crate) fn slot(&self) -> usize {
        self.at
    }
}

/// Number of stations from which on their lines exceed a core's own cache, together with all else that a
/// worker reads: 512 KiB.
const MANY: u32 = 8192;

/// The slots of a table.
pub(crate) struct Slots {
    layout: Layout,
    slots: Box<[Slot]>,
    /// Number of stations.
    taken: AtomicU32,
}

impl Slots {
    /// Creates a table for this number of stations, at ports with indices below `ports`.
    pub(crate) fn new(stations: usize, ports: usize, secret: &impl BuildHasher) -> Self {
        let layout = Layout::new(stations.saturating_mul(5) / 2, ports, secret);
        let free = |_| Slot { word: AtomicU64::new(0), seen: AtomicU32::new(0), frozen: AtomicU32::new(0) };
        Slots { slots: (0..layout.slots()).map(free).collect(), layout, taken: AtomicU32::new(0) }
    }

    /// Finds a station.
    #[inline]
    pub(crate) fn find(&self, key: Station) -> Option<Found<'_>> {
        // The compiler sees that such an index is in the list.
        let mask = self.slots.len() - 1;
        let (home, mut identity) = self.layout.home(key);
        let mut at = home & mask;
        // Each slot in the window has another identity of the key, and one beyond it has none.
        for _ in 0..WINDOW {
            let slot = &self.slots[at];
            let word = slot.word.load(Ordering::Relaxed);
            if self.layout.matches(word, identity) {
                return Some(Found { word, at, slot });
            }
            if word == 0 {
                return None;
            }
            at = (at + 1) & mask;
            identity = self.layout.further(identity);
        }
        None
    }

    /// Returns whether a lookup is likely to wait for the third cache or for memory.
    #[inline]
    pub(crate) fn are_many(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= MANY
    }

    /// Prefetches the slot where the search for a station begins.
    #[inline]
    pub(crate) fn prefetch(&self, key: Station) {
        let (home, _) = self.layout.home(key);
        let slot = &self.slots[home & (self.slots.len() - 1)];
        prefetch_read(std::ptr::from_ref(slot).cast());
    }

    /// Adds a station. Returns `false` if all slots are taken in which it may be. The caller holds
    /// the lock, and has not found the station.
    pub(crate) fn insert(&self, key: Station, port: u16, seen: u32) -> bool {
        let (mut at, mut identity) = self.layout.home(key);
        for _ in 0..WINDOW {
            let slot = &self.slots[at];
            if slot.word.load(Ordering::Relaxed) == 0 {
                slot.seen.store(seen, Ordering::Relaxed);
                slot.frozen.store(0, Ordering::Relaxed);
                slot.word.store(self.layout.word(identity, port), Ordering::Relaxed);
                self.taken.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            at = self.layout.behind(at, 1);
            identity = self.layout.further(identity);
        }
        false
    }

    /// Sets the port of a station. The caller holds the lock.
    pub(crate) fn set_port(&self, station: Found<'_>, port: u16) {
        station.slot.word.store(self.layout.with_port(station.word, port), Ordering::Relaxed);
    }

    /// Removes a station, and closes the gap that this leaves in a row of stations (Knuth, volume 3,
    /// 6.4, algorithm R). The caller holds the lock. Calls `shifted` with the old and the new slot of each
    /// station that fills a gap, in their order. Returns the slot that is free now.
    pub(crate) fn remove(&self, station: Found<'_>, mut shifted: impl FnMut(usize, usize)) -> usize {
        let mut gap = station.at;
        let mut at = gap;
        loop {
            at = self.layout.behind(at, 1);
            let word = self.slots[at].word.load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            // A station may move into the gap unless its home lies behind the gap.
            let from_home = self.layout.between(self.layout.home_of(at, word), at);
            let from_gap = self.layout.between(gap, at);
            if from_home >= from_gap {
                let seen = self.slots[at].seen.load(Ordering::Relaxed);
                let frozen = self.slots[at].frozen.load(Ordering::Relaxed);
                self.slots[gap].seen.store(seen, Ordering::Relaxed);
                self.slots[gap].frozen.store(frozen, Ordering::Relaxed);
                self.slots[gap].word.store(self.layout.nearer(word, from_gap), Ordering::Relaxed);
                shifted(at, gap);
                gap = at;
            }
        }
        self.slots[gap].word.store(0, Ordering::Relaxed);
        self.taken.fetch_sub(1, Ordering::Relaxed);
        gap
    }

    /// Returns the number of slots.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the slot behind this one, in a circle through all.
    pub(crate) fn next(&self, at: usize) -> usize {
        self.layout.behind(at, 1)
    }

    /// Returns the station in a slot.
    pub(crate) fn get(&self, at: usize) -> Option<Found<'_>> {
        let slot = &self.slots[at];
        let word = slot.word.load(Ordering::Relaxed);
        (word != 0).then_some(Found { word, at, slot })
    }

    /// Returns the stations in all slots.
    pub(crate) fn all(&self) -> impl Iterator<Item = Found<'_>> {
        (0..self.slots.len()).filter_map(|at| self.get(at))
    }

    pub(crate) fn key(&self, station: Found<'_>) -> Station {
        self.layout.key(station.at, station.word)
    }

    #[inline]
    pub(crate) fn port(&self, station: Found<'_>) -> u16 {
        self.layout.port(station.word)
    }
}

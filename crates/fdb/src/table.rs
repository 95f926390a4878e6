//! The forwarding database: the port behind which each station is.
//!
//! All workers of a bridge share one table. It uses open addressing with linear probing, and is at
//! most half full. The hash is seeded, because guests choose addresses.
//!
//! An entry is one 64-bit word, which has address and port, and the time at which the address was
//! last seen, in whole seconds.
//!
//! - **Readers** need no lock. While a writer moves an entry, a reader may find the entry twice or
//!   not at all. The entry may also look older or younger than it is. The bridge then floods a
//!   frame unnecessarily, or forwards by an entry that is about to be forgotten. A reader never
//!   takes one address for another, because address and port are one word.
//! - **Writers** hold a lock, so a writer finds each entry exactly once.
//!
//! An address that was seen in the same second is not written again. So each known station costs
//! one use of the lock a second. Guests that invent addresses make all workers of their bridge wait
//! for the lock, for a few dozen nanoseconds each time.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::shares::{PortShare, Shares};
use foldhash::fast::RandomState;
use straightline_packet::PortIndex;
use straightline_wire::MacAddr;

const STATIC: u64 = 1 << 63;
const PORT_SHIFT: u32 = 48;
const MAC_MASK: u64 = (1 << PORT_SHIFT) - 1;

/// An entry of the table: a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// Address of the station.
    pub mac: MacAddr,
    /// Port behind which the station is.
    pub port: PortIndex,
    /// Time at which the station was last seen, in seconds of the worker's clock.
    pub seen: u32,
    /// True if the configuration has the entry: it neither ages nor moves.
    pub is_static: bool,
}

struct Slot {
    /// 0 if the slot is free. Else bit 63: static; bits 48 to 62: port; bits 0 to 47: address.
    word: AtomicU64,
    seen: AtomicU32,
}

impl Slot {
    fn read(&self) -> Option<FdbEntry> {
        let word = self.word.load(Ordering::Relaxed);
        (word != 0).then(|| FdbEntry {
            mac: mac_of(word),
            port: port_of(word),
            seen: self.seen.load(Ordering::Relaxed),
            is_static: word & STATIC != 0,
        })
    }
}

/// An address that moved from one port to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbMove {
    /// Address of the station.
    pub mac: MacAddr,
    /// Port behind which the station was.
    pub from: PortIndex,
    /// Port behind which the station is now.
    pub to: PortIndex,
}

/// The number of moves that are kept until they are asked for.
const MOST_MOVES: usize = 16;

/// The outcome of learning an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnOutcome {
    /// The address is known at this port.
    Known,
    /// The address is new.
    Learned,
    /// The address was at another port before.
    Moved,
    /// The configuration fixes the address to another port.
    Fixed,
    /// The port has filled its share of the table (see [`PortShare`]). The address is known
    /// at no port.
    Full,
}

/// A forwarding database: learns the port of each address, and forgets addresses that age.
///
/// Workers share it, and read it without a lock.
pub struct Fdb {
    slots: Box<[Slot]>,
    hash: RandomState,
    limit: usize,
    ageing: u32,
    shares: Shares,
    fixed: u32,
    /// The number of moves so far.
    moves: AtomicU64,
    writer: Mutex<Writer>,
}

/// State of the writer that holds the lock. It has cache lines that readers do not read.
#[derive(Default)]
#[repr(align(128))]
struct Writer {
    /// Index of the slot where the next sweep begins.
    sweep_at: usize,
    /// The last moves: the move with number `n` is at `n % MOST_MOVES`.
    moves: [Option<FdbMove>; MOST_MOVES],
}

impl std::fmt::Debug for Fdb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fdb").field("limit", &self.limit).field("learned", &self.learned()).finish_non_exhaustive()
    }
}

fn word(mac: MacAddr, port: PortIndex, fixed: u64) -> u64 {
    mac.as_u64() | u64::from(port.0) << PORT_SHIFT | fixed
}

fn mac_of(word: u64) -> MacAddr {
    let [_, _, a, b, c, d, e, f] = word.to_be_bytes();
    MacAddr([a, b, c, d, e, f])
}

fn port_of(word: u64) -> PortIndex {
    PortIndex(u16::try_from(word >> PORT_SHIFT & 0x7fff).unwrap_or(0))
}

/// Returns the place of a move with this number.
fn place(number: u64) -> usize {
    usize::try_from(number % MOST_MOVES as u64).unwrap_or(0)
}

impl Fdb {
    /// Creates a table for at most `limit` addresses that are learned at `ports`. An address is
    /// forgotten `ageing` seconds after it was last seen. The entries in `fixed` are in the table
    /// from the start, and do not count towards the limit.
    pub fn new(limit: usize, ageing: u32, ports: &[PortIndex], fixed: &[(MacAddr, PortIndex)]) -> Self {
        let size = ((limit + fixed.len()) * 2).next_power_of_two().max(64);
        let free = || Slot { word: AtomicU64::new(0), seen: AtomicU32::new(0) };
        let fdb = Fdb {
            slots: (0..size).map(|_| free()).collect(),
            hash: RandomState::default(),
            limit,
            ageing,
            shares: Shares::new(limit, ports),
            fixed: fixed.len().try_into().unwrap_or(u32::MAX),
            moves: AtomicU64::new(0),
            writer: Mutex::default(),
        };
        for &(mac, port) in fixed {
            let (Ok((at, _)) | Err(at)) = fdb.find(mac);
            fdb.slots[at].word.store(word(mac, port, STATIC), Ordering::Relaxed);
        }
        fdb
    }

    /// Creates a table with other settings that takes over what this one has learned. No worker may
    /// use this table during the call.
    ///
    /// An address is taken over if its port is one of `ports`, if `keep` returns true, and if there
    /// is a place for it. Addresses that were seen last come first.
    pub fn successor(
        &self,
        limit: usize,
        ageing: u32,
        ports: &[PortIndex],
        fixed: &[(MacAddr, PortIndex)],
        keep: impl Fn(&FdbEntry) -> bool,
    ) -> Self {
        let fdb = Fdb::new(limit, ageing, ports, fixed);
        let mut known: Vec<FdbEntry> = self.slots.iter().filter_map(Slot::read).collect();
        known.retain(|entry| !entry.is_static && fdb.shares.is_member(entry.port) && keep(entry));
        known.sort_by_key(|entry| std::cmp::Reverse(entry.seen));
        for entry in known {
            fdb.learn(entry.mac, entry.port, entry.seen);
        }
        // An address that was not taken over does not count as a refusal.
        fdb.shares.continue_counts(&self.shares);
        // Nor is an address that was taken over a move. Moves that nobody has asked for stay.
        fdb.moves.store(self.moves.load(Ordering::Relaxed), Ordering::Relaxed);
        fdb.lock().moves = self.lock().moves;
        fdb
    }

    /// Returns the number of times that an address moved from one port to another.
    pub fn moved(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Returns the moves after the first `since` ones, oldest first, as far as they are kept, and the
    /// number of all moves.
    pub fn moves(&self, since: u64) -> (Vec<FdbMove>, u64) {
        let writer = self.lock();
        let count = self.moved();
        let first = since.max(count.saturating_sub(MOST_MOVES as u64));
        ((first..count).filter_map(|n| writer.moves[place(n)]).collect(), count)
    }

    /// Returns the number of addresses learned and not yet forgotten.
    pub fn learned(&self) -> u32 {
        self.shares.total().learned
    }

    /// Returns the number of times that an address was not learned, because its port had no place
    /// left.
    pub fn full(&self) -> u64 {
        self.shares.total().refused
    }

    /// Returns a port's share of the table.
    pub fn share(&self, port: PortIndex) -> PortShare {
        self.shares.port(port)
    }

    /// Returns the ageing time: the seconds after which an address that was not seen again is
    /// forgotten.
    pub fn ageing(&self) -> u32 {
        self.ageing
    }

    /// Returns the port behind which a station is, if it is known at `now`.
    #[inline]
    pub fn lookup(&self, mac: MacAddr, now: u32) -> Option<PortIndex> {
        let (at, word) = self.find(mac).ok()?;
        (word & STATIC != 0 || self.is_fresh(&self.slots[at], now)).then(|| port_of(word))
    }

    /// Learns that `mac` is behind `port`, because a frame with this source came in there.
    #[inline]
    pub fn learn(&self, mac: MacAddr, port: PortIndex, now: u32) -> LearnOutcome {
        if let Ok((at, word)) = self.find(mac) {
            let is_here = port_of(word) == port;
            if word & STATIC != 0 {
                return if is_here { LearnOutcome::Known } else { LearnOutcome::Fixed };
            }
            // The clocks of workers differ by less than a second. An entry's time never goes back.
            if is_here && self.slots[at].seen.load(Ordering::Relaxed) >= now {
                return LearnOutcome::Known;
            }
        }
        self.update(mac, port, now)
    }

    /// Does the part of [`Self::learn`] that writes, with the lock held. It looks again, because
    /// another writer may have been faster.
    fn update(&self, mac: MacAddr, port: PortIndex, now: u32) -> LearnOutcome {
        let mut writer = self.lock();
        match self.find(mac) {
            Ok((at, before)) => {
                let slot = &self.slots[at];
                if before & STATIC != 0 {
                    return if port_of(before) == port { LearnOutcome::Known } else { LearnOutcome::Fixed };
                }
                if slot.seen.load(Ordering::Relaxed) < now {
                    slot.seen.store(now, Ordering::Relaxed);
                }
                if port_of(before) == port {
                    return LearnOutcome::Known;
                }
                self.shares.release(port_of(before));
                if !self.shares.reserve(port) {
                    // The station has left its old port, so the old entry must go.
                    self.remove(at);
                    return LearnOutcome::Full;
                }
                slot.word.store(word(mac, port, 0), Ordering::Relaxed);
                let count = self.moves.load(Ordering::Relaxed);
                writer.moves[place(count)] = Some(FdbMove { mac, from: port_of(before), to: port });
                self.moves.store(count + 1, Ordering::Relaxed);
                LearnOutcome::Moved
            }
            Err(at) => {
                if !self.shares.reserve(port) {
                    return LearnOutcome::Full;
                }
                self.slots[at].seen.store(now, Ordering::Relaxed);
                self.slots[at].word.store(word(mac, port, 0), Ordering::Relaxed);
                LearnOutcome::Learned
            }
        }
    }

    /// Sweeps the next eight slots: forgets the addresses that have aged.
    ///
    /// Called with every batch, it passes over the whole table again and again. It never delays a
    /// packet: if another thread holds the lock, it does nothing.
    pub fn sweep(&self, now: u32) {
        let Ok(mut writer) = self.writer.try_lock() else { return };
        let mask = self.slots.len() - 1;
        let mut at = writer.sweep_at & mask;
        for _ in 0..8 {
            let slot = &self.slots[at];
            let word = slot.word.load(Ordering::Relaxed);
            if word != 0 && word & STATIC == 0 && !self.is_fresh(slot, now) {
                // Another entry may have moved into this slot. The next pass checks that entry.
                self.shares.release(port_of(word));
                self.remove(at);
            }
            at = (at + 1) & mask;
        }
        writer.sweep_at = at;
    }

    /// Returns all stations known at `now`.
    pub fn entries(&self, now: u32) -> Vec<FdbEntry> {
        let fresh = |entry: &FdbEntry| entry.is_static || now.saturating_sub(entry.seen) < self.ageing;
        self.slots.iter().filter_map(Slot::read).filter(fresh).collect()
    }

    /// Returns the number of entries that the configuration fixes.
    pub fn fixed(&self) -> u32 {
        self.fixed
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self, slot: &Slot, now: u32) -> bool {
        now.saturating_sub(slot.seen.load(Ordering::Relaxed)) < self.ageing
    }

    fn home(&self, mac: u64) -> usize {
        let hash = self.hash.hash_one(mac);
        usize::try_from(hash & 0xffff_ffff).unwrap_or(0) & (self.slots.len() - 1)
    }

    /// Finds the slot of an address and its word, or the free slot where the address would go.
    /// There always is a free slot, because the table is at most half full.
    #[inline]
    fn find(&self, mac: MacAddr) -> Result<(usize, u64), usize> {
        let mac = mac.as_u64();
        let mask = self.slots.len() - 1;
        let mut at = self.home(mac);
        loop {
            match self.slots[at].word.load(Ordering::Relaxed) {
                0 => return Err(at),
                word if word & MAC_MASK == mac => return Ok((at, word)),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Frees a slot, and closes the gap that this leaves in a row of entries (Knuth, 6.4, algorithm
    /// R). The caller holds the lock.
    fn remove(&self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let word = self.slots[at].word.load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            let home = self.home(word & MAC_MASK);
            // An entry may move into the gap unless its home lies behind the gap and not behind the
            // entry.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                let seen = self.slots[at].seen.load(Ordering::Relaxed);
                self.slots[gap].seen.store(seen, Ordering::Relaxed);
                self.slots[gap].word.store(word, Ordering::Relaxed);
                gap = at;
            }
        }
        self.slots[gap].word.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn mac(n: u64) -> MacAddr {
        mac_of(0x0200_0000_0000 | n)
    }

    const A: PortIndex = PortIndex(0);
    const B: PortIndex = PortIndex(1);

    #[test]
    fn learns_moves_and_forgets() {
        let fdb = Fdb::new(16, 300, &[A, B], &[]);
        assert_eq!(fdb.lookup(mac(1), 0), None);
        assert_eq!(fdb.learn(mac(1), A, 0), LearnOutcome::Learned);
        assert_eq!(fdb.learn(mac(1), A, 5), LearnOutcome::Known);
        assert_eq!(fdb.lookup(mac(1), 10), Some(A));
        assert_eq!(fdb.learn(mac(1), B, 10), LearnOutcome::Moved);
        assert_eq!(fdb.lookup(mac(1), 309), Some(B));
        assert_eq!(fdb.lookup(mac(1), 310), None, "aged");
        assert!(fdb.entries(310).is_empty());
        for _ in 0..64 {
            fdb.sweep(310);
        }
        assert_eq!(fdb.learned(), 0);
    }

    #[test]
    fn the_last_moves_are_kept() {
        let fdb = Fdb::new(16, 300, &[A, B], &[]);
        let all = |fdb: &Fdb| fdb.moves(0);
        for port in [A, A, B] {
            fdb.learn(mac(1), port, 0);
        }
        let moved = FdbMove { mac: mac(1), from: A, to: B };
        assert_eq!((fdb.moved(), all(&fdb)), (1, (vec![moved], 1)));
        assert_eq!(fdb.moves(1), (vec![], 1));
        let next = fdb.successor(16, 300, &[A, B], &[], |_| true);
        assert_eq!(all(&next), (vec![moved], 1));
        for n in 0..40 {
            next.learn(mac(1), if n % 2 == 0 { A } else { B }, 0);
        }
        let (moves, count) = next.moves(1);
        assert_eq!((moves.len(), count, moves.last()), (MOST_MOVES, 41, Some(&moved)));
        assert_eq!(moves[0], FdbMove { mac: mac(1), from: B, to: A });
    }

    #[test]
    fn static_entries_neither_move_nor_age() {
        let fdb = Fdb::new(4, 300, &[A, B], &[(mac(7), B)]);
        assert_eq!(fdb.learn(mac(7), A, 0), LearnOutcome::Fixed);
        assert_eq!(fdb.lookup(mac(7), u32::MAX), Some(B));
        for now in 0..1000 {
            fdb.sweep(now);
        }
        assert_eq!(fdb.entries(2000).len(), 1);
    }

    #[test]
    fn the_limit_holds_until_something_is_forgotten() {
        let fdb = Fdb::new(3, 10, &[A], &[]);
        for n in 0..3 {
            assert_eq!(fdb.learn(mac(n + 1), A, 0), LearnOutcome::Learned);
        }
        assert_eq!(fdb.learn(mac(9), A, 5), LearnOutcome::Full);
        assert_eq!(fdb.full(), 1);
        for _ in 0..64 {
            fdb.sweep(10);
        }
        assert_eq!(fdb.learn(mac(9), A, 10), LearnOutcome::Learned);
    }

    #[test]
    fn a_port_that_invents_addresses_leaves_the_others_their_places() {
        let ports = [0, 1, 2].map(PortIndex);
        let fdb = Fdb::new(60, 300, &ports, &[]);
        for n in 0..1000 {
            fdb.learn(mac(n), A, 0);
        }
        // Its own ten places and the thirty common ones.
        assert_eq!(fdb.share(A), PortShare { learned: 40, refused: 960 });
        for (port, first) in [(B, 2000), (PortIndex(2), 3000)] {
            for n in first..first + 10 {
                assert_eq!(fdb.learn(mac(n), port, 1), LearnOutcome::Learned);
            }
            assert_eq!(fdb.learn(mac(first + 10), port, 1), LearnOutcome::Full);
            assert_eq!(fdb.share(port), PortShare { learned: 10, refused: 1 });
        }
        // An address that moves to a port without a free place is known nowhere. Frames for it are
        // flooded.
        assert_eq!((fdb.lookup(mac(2000), 1), fdb.learn(mac(2000), A, 1)), (Some(B), LearnOutcome::Full));
        assert_eq!((fdb.lookup(mac(2000), 1), fdb.share(B).learned), (None, 9));
        // An address that moves back to its own port finds its place.
        assert_eq!(fdb.learn(mac(2000), B, 1), LearnOutcome::Learned);
        assert_eq!(fdb.learn(mac(9000), PortIndex(3), 1), LearnOutcome::Full, "no port of this bridge");
    }

    #[test]
    fn a_successor_knows_what_still_holds() {
        let fdb = Fdb::new(8, 300, &[A, B], &[(mac(9), B)]);
        for n in 1..=6_u32 {
            fdb.learn(mac(n.into()), if n % 2 == 0 { B } else { A }, n);
        }
        let known = |fdb: &Fdb| {
            let mut known: Vec<_> = fdb.entries(6).into_iter().map(|e| (e.mac, e.port, e.seen, e.is_static)).collect();
            known.sort_unstable_by_key(|entry| entry.0.as_u64());
            known
        };
        let same = fdb.successor(8, 300, &[A, B], &[(mac(9), B)], |_| true);
        assert_eq!((known(&same), same.learned()), (known(&fdb), 6));
        // One port is gone. One learned address is now fixed, and the formerly fixed address is
        // gone.
        let other = fdb.successor(8, 10, &[A], &[(mac(3), A)], |_| true);
        assert_eq!(known(&other), [(mac(1), A, 1, false), (mac(3), A, 0, true), (mac(5), A, 5, false)]);
        assert_eq!((other.learned(), other.ageing(), other.fixed()), (2, 10, 1));
        assert_eq!(other.lookup(mac(1), 11), None, "it ages by the new rule");
        // Too few places: the addresses seen last stay, and no refusal is counted.
        let small = fdb.successor(2, 300, &[A, B], &[], |_| true);
        assert_eq!(known(&small), [(mac(5), A, 5, false), (mac(6), B, 6, false)]);
        assert_eq!((small.full(), small.learn(mac(7), A, 7)), (0, LearnOutcome::Full));
        // `keep` decides on learned addresses, and not on fixed ones.
        let kept = fdb.successor(8, 300, &[A, B], &[(mac(9), B)], |entry| entry.port == A && entry.mac != mac(1));
        assert_eq!(known(&kept), [(mac(3), A, 3, false), (mac(5), A, 5, false), (mac(9), B, 0, true)]);
        assert_eq!((kept.learned(), kept.share(B).learned), (2, 0));
    }

    /// Three workers use one small table at once. The result is as if they had used it one after
    /// the other.
    #[test]
    fn workers_share_it() {
        let ports: Vec<_> = (0..3).map(PortIndex).collect();
        let fdb = Fdb::new(24, 4, &ports, &[(mac(500), B)]);
        let work = |worker: u64| {
            let mut seed = worker + 1;
            for n in 0..60_000_u32 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (address, port) = (seed >> 33 & 0x1f, ports[usize::try_from(seed >> 60).unwrap() % 3]);
                // The clocks of workers differ by one second at most.
                let now = n / 500 + u32::from(worker == 1);
                // Some addresses stay at their port, and all workers see them. Others move between
                // ports.
                if address < 4 {
                    assert_ne!(fdb.learn(mac(1000 + address), A, now), LearnOutcome::Moved);
                    let found = fdb.lookup(mac(1000 + address), now);
                    assert!(found.is_none_or(|port| port == A), "{found:?}");
                } else {
                    fdb.learn(mac(address), port, now);
                    assert_eq!(fdb.learn(mac(500), port, now) == LearnOutcome::Fixed, port != B);
                }
                fdb.sweep(now);
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|worker| drop(scope.spawn(move || work(worker)))));
        let entries = fdb.entries(0);
        let mut addresses: Vec<_> = entries.iter().map(|entry| entry.mac.as_u64()).collect();
        addresses.sort_unstable();
        let count = addresses.len();
        addresses.dedup();
        assert_eq!(addresses.len(), count, "none is there twice");
        for &port in &ports {
            let has = entries.iter().filter(|entry| entry.port == port && !entry.is_static).count();
            assert_eq!(fdb.share(port).learned as usize, has, "{port:?}");
        }
        for entry in entries {
            assert!(fdb.find(entry.mac).is_ok(), "each is found");
        }
        for _ in 0..64 {
            fdb.sweep(1000);
        }
        assert_eq!((fdb.learned(), fdb.entries(1000).len()), (0, 1));
        // All places are free again.
        (0..8).for_each(|n| assert_eq!(fdb.learn(mac(n), A, 1000), LearnOutcome::Learned));
    }

    /// Compares the table with a reference implementation, a hash map, while many addresses come
    /// and go in few slots.
    #[test]
    fn agrees_with_a_map() {
        let ports: Vec<_> = (0..16).map(PortIndex).collect();
        let fdb = Fdb::new(100, 50, &ports, &[]);
        // Three places for each of sixteen ports, and 52 common ones.
        let is_too_much = |model: &HashMap<u64, (PortIndex, u32)>| {
            let of = |port: &PortIndex| model.values().filter(|e| e.0 == *port).count();
            ports.iter().map(|port| of(port).saturating_sub(3)).sum::<usize>() > 52
        };
        let mut model: HashMap<u64, (PortIndex, u32)> = HashMap::new();
        let mut full = 0;
        let mut seed = 1_u64;
        for now in 0..20_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = seed >> 33 & 0xff;
            let port = PortIndex(u16::try_from(seed >> 60).unwrap());
            let now = now / 8;
            let before = model.insert(n, (port, now));
            let expected = match before {
                Some(before) if before.0 == port => LearnOutcome::Known,
                _ if is_too_much(&model) => {
                    model.remove(&n);
                    LearnOutcome::Full
                }
                Some(_) => LearnOutcome::Moved,
                None => LearnOutcome::Learned,
            };
            assert_eq!(fdb.learn(mac(n), port, now), expected, "address {n} at {now}");
            full += u64::from(expected == LearnOutcome::Full);
            fdb.sweep(now);
            if now % 64 == 0 {
                for m in 0..256 {
                    let expected = model.get(&m).filter(|e| now - e.1 < 50).map(|e| e.0);
                    assert_eq!(fdb.lookup(mac(m), now), expected, "address {m} at {now}");
                }
            }
            model.retain(|&m, e| now - e.1 < 50 || fdb.find(mac(m)).is_ok());
            assert_eq!((fdb.learned() as usize, fdb.full()), (model.len(), full));
        }
        assert!(full > 0, "there was always a free place");
    }
}

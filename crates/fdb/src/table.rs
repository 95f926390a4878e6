//! The table: the port behind which each station is.
//!
//! All workers of a bridge or tunnel share one table. It uses open addressing with linear probing, and is at
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

use foldhash::fast::RandomState;
use straightline_packet::PortIndex;
use straightline_wire::MacAddr;

use crate::port::FdbPort;
use crate::shares::{PortShare, Shares};

const STATIC: u64 = 1 << 63;
const PORT_SHIFT: u32 = 48;
const PORT_MASK: u64 = 0x7fff;
const MAC_MASK: u64 = (1 << PORT_SHIFT) - 1;

/// An entry of the table: a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry<P = PortIndex> {
    /// Address of the station.
    pub mac: MacAddr,
    /// Port behind which the station is.
    pub port: P,
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
    fn read<P: FdbPort>(&self) -> Option<FdbEntry<P>> {
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
pub struct FdbMove<P = PortIndex> {
    /// Address of the station.
    pub mac: MacAddr,
    /// Port behind which the station was.
    pub from: P,
    /// Port behind which the station is now.
    pub to: P,
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
pub struct Fdb<P = PortIndex> {
    slots: Box<[Slot]>,
    hash: RandomState,
    limit: usize,
    ageing: u32,
    shares: Shares,
    fixed: u32,
    /// The number of moves so far.
    moves: AtomicU64,
    writer: Mutex<Writer<P>>,
}

/// State of the writer that holds the lock. It has cache lines that readers do not read.
#[repr(align(128))]
struct Writer<P> {
    /// Index of the slot where the next sweep begins.
    sweep_at: usize,
    /// The last moves: the move with number `n` is at `n % MOST_MOVES`.
    moves: [Option<FdbMove<P>>; MOST_MOVES],
}

impl<P: FdbPort> std::fmt::Debug for Fdb<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fdb").field("limit", &self.limit).field("learned", &self.learned()).finish_non_exhaustive()
    }
}

fn word(mac: MacAddr, port: impl FdbPort, fixed: u64) -> u64 {
    mac.as_u64() | (u64::from(port.index()) & PORT_MASK) << PORT_SHIFT | fixed
}

fn mac_of(word: u64) -> MacAddr {
    let [_, _, a, b, c, d, e, f] = word.to_be_bytes();
    MacAddr([a, b, c, d, e, f])
}

fn port_of<P: FdbPort>(word: u64) -> P {
    P::from_index(u16::try_from(word >> PORT_SHIFT & PORT_MASK).unwrap_or(0))
}

/// Returns the place of a move with this number.
fn place(number: u64) -> usize {
    usize::try_from(number % MOST_MOVES as u64).unwrap_or(0)
}

impl<P: FdbPort> Fdb<P> {
    /// Creates a table for at most `limit` addresses that are learned at `ports`. An address is
    /// forgotten `ageing` seconds after it was last seen. The entries in `fixed` are in the table
    /// from the start, and do not count towards the limit.
    pub fn new(limit: usize, ageing: u32, ports: &[P], fixed: &[(MacAddr, P)]) -> Self {
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
            writer: Mutex::new(Writer { sweep_at: 0, moves: [None; MOST_MOVES] }),
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
        ports: &[P],
        fixed: &[(MacAddr, P)],
        keep: impl Fn(&FdbEntry<P>) -> bool,
    ) -> Self {
        let fdb = Fdb::new(limit, ageing, ports, fixed);
        let mut known: Vec<FdbEntry<P>> = self.slots.iter().filter_map(Slot::read).collect();
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
    pub fn moves(&self, since: u64) -> (Vec<FdbMove<P>>, u64) {
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
    pub fn share(&self, port: P) -> PortShare {
        self.shares.port(port)
    }

    /// Returns the ageing time: the seconds after which an address that was not seen again is
    /// forgotten.
    pub fn ageing(&self) -> u32 {
        self.ageing
    }

    /// Returns the port behind which a station is, if it is known at `now`.
    #[inline]
    pub fn lookup(&self, mac: MacAddr, now: u32) -> Option<P> {
        let (at, word) = self.find(mac).ok()?;
        (word & STATIC != 0 || self.is_fresh(&self.slots[at], now)).then(|| port_of(word))
    }

    /// Learns that `mac` is behind `port`, because a frame with this source came in there.
    #[inline]
    pub fn learn(&self, mac: MacAddr, port: P, now: u32) -> LearnOutcome {
        if let Ok((at, word)) = self.find(mac) {
            let is_here = port_of::<P>(word) == port;
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
    fn update(&self, mac: MacAddr, port: P, now: u32) -> LearnOutcome {
        let mut writer = self.lock();
        match self.find(mac) {
            Ok((at, before)) => {
                let slot = &self.slots[at];
                if before & STATIC != 0 {
                    return if port_of::<P>(before) == port { LearnOutcome::Known } else { LearnOutcome::Fixed };
                }
                if slot.seen.load(Ordering::Relaxed) < now {
                    slot.seen.store(now, Ordering::Relaxed);
                }
                if port_of::<P>(before) == port {
                    return LearnOutcome::Known;
                }
                self.shares.release(port_of::<P>(before));
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
                self.shares.release(port_of::<P>(word));
                self.remove(at);
            }
            at = (at + 1) & mask;
        }
        writer.sweep_at = at;
    }

    /// Returns all stations known at `now`.
    pub fn entries(&self, now: u32) -> Vec<FdbEntry<P>> {
        let fresh = |entry: &FdbEntry<P>| entry.is_static || now.saturating_sub(entry.seen) < self.ageing;
        self.slots.iter().filter_map(Slot::read).filter(fresh).collect()
    }

    /// Returns the number of entries that the configuration fixes.
    pub fn fixed(&self) -> u32 {
        self.fixed
    }

    fn lock(&self) -> MutexGuard<'_, Writer<P>> {
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
mod tests;

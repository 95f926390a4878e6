//! The remote behind which each station is, for tunnels with several remotes.
//!
//! Workers share one table. It has a fixed number of sets of four entries each, and an address has
//! its set by a seeded hash, because guests choose addresses. A new address takes the place of the
//! entry in its set that was not seen for the longest time. So the table never grows, and nothing
//! sweeps it. A station that lost its place is unknown, and packets for it go to all remotes.
//!
//! An address and its remote are one word, so a reader needs no lock and never takes one address
//! for another. Writers hold a lock: once a second for each station, and when a station is new or
//! moves.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use foldhash::quality::RandomState;
use straightline_wire::MacAddr;

/// A remote of a tunnel: its place in [`TunnelConfig::remotes`].
///
/// [`TunnelConfig::remotes`]: crate::TunnelConfig::remotes
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RemoteIndex(pub(crate) u16);

/// Seconds after which a station that was not seen again is forgotten (RFC 7348 and IEEE 802.1Q,
/// table 8-6: 300).
const AGEING: u32 = 300;

const WAYS: usize = 4;
const SETS: usize = 1024;

/// The bit of an entry that is in use.
const USED: u64 = 1 << 63;
const REMOTE_SHIFT: u32 = 48;
const REMOTE_MASK: u64 = 0x7fff;
const MAC_MASK: u64 = (1 << REMOTE_SHIFT) - 1;

/// The table of stations.
pub(crate) struct Remotes {
    sets: Box<[Set]>,
    hash: RandomState,
    /// The stations that the configuration fixes, in the order of their addresses.
    fixed: Box<[(MacAddr, RemoteIndex)]>,
    writer: Mutex<()>,
}

/// Entries whose addresses have the same hash. All lie on one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Set {
    /// 0 if the entry is free. Else bit 63: used; bits 48 to 62: remote; bits 0 to 47: address.
    words: [AtomicU64; WAYS],
    /// The time at which the station was last seen, in seconds of the worker's clock.
    seen: [AtomicU32; WAYS],
}

impl fmt::Debug for Remotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remotes").field("fixed", &self.fixed).finish_non_exhaustive()
    }
}

impl Remotes {
    /// Returns a table that has learned nothing. Stations in `fixed` neither move nor age.
    pub(crate) fn new(fixed: &[(MacAddr, RemoteIndex)]) -> Self {
        let mut fixed: Box<[_]> = fixed.into();
        fixed.sort_unstable_by_key(|&(mac, _)| mac);
        Remotes {
            sets: (0..SETS).map(|_| Set::default()).collect(),
            hash: RandomState::default(),
            fixed,
            writer: Mutex::default(),
        }
    }

    /// Returns the remote behind which a station is, if it is known at `now`.
    #[inline]
    pub(crate) fn of(&self, mac: MacAddr, now: u32) -> Option<RemoteIndex> {
        if let Some(remote) = self.fixed(mac) {
            return Some(remote);
        }
        let set = self.set(mac);
        let (way, word) = set.find(mac)?;
        let is_fresh = now.saturating_sub(set.seen[way].load(Ordering::Relaxed)) < AGEING;
        is_fresh.then(|| remote_of(word))
    }

    /// Learns that a station is behind `remote`, because a frame with this source came from there.
    /// An address that no station has is not learned.
    #[inline]
    pub(crate) fn learn(&self, mac: MacAddr, remote: RemoteIndex, now: u32) {
        let set = self.set(mac);
        if let Some((way, word)) = set.find(mac)
            && remote_of(word) == remote
            && set.seen[way].load(Ordering::Relaxed) >= now
        {
            return;
        }
        self.update(set, mac, remote, now);
    }

    /// Does the part of [`Self::learn`] that writes. It looks again, because another worker may
    /// have been faster.
    #[cold]
    fn update(&self, set: &Set, mac: MacAddr, remote: RemoteIndex, now: u32) {
        if mac.is_multicast() || mac.as_u64() == 0 || self.fixed(mac).is_some() {
            return;
        }
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let way = set.find(mac).map_or_else(|| set.oldest(), |(way, _)| way);
        let word = USED | (u64::from(remote.0) & REMOTE_MASK) << REMOTE_SHIFT | mac.as_u64();
        // The clocks of workers differ by less than a second. The time of a station never goes
        // back; that of an entry does when another station takes its place.
        let before = set.words[way].load(Ordering::Relaxed);
        let seen = set.seen[way].load(Ordering::Relaxed);
        let is_same = before & (USED | MAC_MASK) == word & (USED | MAC_MASK);
        set.seen[way].store(if is_same { seen.max(now) } else { now }, Ordering::Relaxed);
        set.words[way].store(word, Ordering::Relaxed);
    }

    #[inline]
    fn fixed(&self, mac: MacAddr) -> Option<RemoteIndex> {
        let at = self.fixed.binary_search_by_key(&mac, |&(mac, _)| mac).ok()?;
        Some(self.fixed[at].1)
    }

    #[inline]
    fn set(&self, mac: MacAddr) -> &Set {
        let hash = self.hash.hash_one(mac.as_u64());
        &self.sets[usize::try_from(hash & (SETS as u64 - 1)).unwrap_or(0)]
    }
}

impl Set {
    #[inline]
    fn find(&self, mac: MacAddr) -> Option<(usize, u64)> {
        let wanted = USED | mac.as_u64();
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        words.enumerate().find(|(_, word)| word & (USED | MAC_MASK) == wanted)
    }

    /// Returns a free entry, or that of the station that was not seen for the longest time.
    fn oldest(&self) -> usize {
        let age = |&way: &usize| {
            let is_used = self.words[way].load(Ordering::Relaxed) != 0;
            (is_used, self.seen[way].load(Ordering::Relaxed))
        };
        (0..WAYS).min_by_key(age).unwrap_or(0)
    }
}

fn remote_of(word: u64) -> RemoteIndex {
    RemoteIndex(u16::try_from(word >> REMOTE_SHIFT & REMOTE_MASK).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RemoteIndex = RemoteIndex(0);
    const B: RemoteIndex = RemoteIndex(1);

    fn mac(n: u32) -> MacAddr {
        let [a, b, c, d] = n.to_be_bytes();
        MacAddr([2, 0, a, b, c, d])
    }

    #[test]
    fn stations_are_learned_move_and_are_forgotten() {
        let remotes = Remotes::new(&[]);
        assert_eq!(remotes.of(mac(1), 0), None);
        remotes.learn(mac(1), A, 0);
        assert_eq!((remotes.of(mac(1), 299), remotes.of(mac(1), 300)), (Some(A), None));
        remotes.learn(mac(1), B, 10);
        assert_eq!((remotes.of(mac(1), 309), remotes.of(mac(1), 310)), (Some(B), None));
        remotes.learn(mac(1), B, 400);
        assert_eq!(remotes.of(mac(1), 699), Some(B));
        // The clock of another worker is behind.
        remotes.learn(mac(1), A, 399);
        assert_eq!((remotes.of(mac(1), 399), remotes.of(mac(1), 699)), (Some(A), Some(A)));
    }

    #[test]
    fn fixed_stations_stay() {
        let remotes = Remotes::new(&[(mac(9), B), (mac(3), A)]);
        remotes.learn(mac(9), A, 0);
        assert_eq!((remotes.of(mac(9), u32::MAX), remotes.of(mac(3), 5)), (Some(B), Some(A)));
    }

    #[test]
    fn addresses_that_no_station_has_are_not_learned() {
        let remotes = Remotes::new(&[]);
        for mac in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1]), MacAddr::default()] {
            remotes.learn(mac, A, 0);
            assert_eq!(remotes.of(mac, 0), None, "{mac}");
        }
    }

    #[test]
    fn a_flood_of_addresses_leaves_those_that_are_seen() {
        let remotes = Remotes::new(&[]);
        for n in 0..100_000 {
            // A second is long enough for a few addresses a set.
            let now = n / 1000;
            if n % 1000 == 0 {
                (0..16).for_each(|station| remotes.learn(mac(0x0100_0000 + station), B, now));
            }
            remotes.learn(mac(n), A, now);
        }
        let used = remotes.sets.iter().flat_map(|set| &set.words).filter(|word| word.load(Ordering::Relaxed) != 0);
        assert_eq!(used.count(), SETS * WAYS);
        assert_eq!(remotes.of(mac(99_999), 99), Some(A));
        assert_eq!(remotes.of(mac(0), 99), None, "forgotten");
        // A station that is heard each second keeps its place.
        assert!((0..16).filter(|station| remotes.of(mac(0x0100_0000 + station), 99) == Some(B)).count() >= 12);
    }

    /// Compares the table with a reference implementation, a map, for few enough stations that none
    /// loses its place.
    #[test]
    fn workers_share_it() {
        let remotes = Remotes::new(&[]);
        std::thread::scope(|scope| {
            for worker in 0..3_u16 {
                let remotes = &remotes;
                scope.spawn(move || {
                    for n in 0..50_000_u32 {
                        let station = n % 7;
                        remotes.learn(mac(station), RemoteIndex(worker), n / 1000);
                        let found = remotes.of(mac(station), n / 1000);
                        assert!(found.is_some_and(|remote| remote.0 < 3), "{found:?}");
                    }
                });
            }
        });
        for set in &remotes.sets {
            let mut words: Vec<_> = set.words.iter().map(|word| word.load(Ordering::Relaxed) & MAC_MASK).collect();
            words.retain(|&word| word != 0);
            let count = words.len();
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), count, "none is there twice");
        }
    }
}

//! The hash table of a port: the entries where a key may be.
//!
//! A bucket is two cache lines of eight places each. A hash names a bucket, and the line that is looked
//! at first. So no search is longer than 16 places, whatever senders invent. There are at least four
//! places for each entry: with all entries taken, a bucket has four of them on average, and one in a
//! million has more than 16. Then a connection is refused ([`Full::Places`](crate::Full::Places)).
//!
//! A place is one word: 32 further bits of the hash, and the entry's number plus 1. So a reader looks
//! at few entries but the right one. A place is a hint: the entry has the key.

use super::sync::{AtomicU64, Ordering};

/// Places of a cache line.
const LINE: usize = 8;
/// Places for each entry.
const PLACES: usize = 4;

#[repr(align(64))]
struct Line([AtomicU64; LINE]);

/// The hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(pub(crate) u64);

impl Hash {
    /// Returns the upper bits: they are in a place.
    #[inline]
    fn mark(self) -> u64 {
        self.0 >> 32 << 32
    }
}

/// The places of a port's entries.
pub(crate) struct Buckets(Box<[Line]>);

impl Buckets {
    /// Creates the buckets for this number of entries.
    pub(crate) fn new(entries: usize) -> Self {
        let lines = (entries.saturating_mul(PLACES) / LINE).next_power_of_two().max(2);
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Buckets((0..lines).map(line).collect())
    }

    /// Returns the line that is looked at first.
    #[inline]
    fn first(&self, hash: Hash) -> usize {
        let mask = self.0.len() - 1;
        usize::try_from(hash.0 & u64::from(u32::MAX)).unwrap_or(0) & mask
    }

    #[inline]
    fn line(&self, at: usize) -> &[AtomicU64; LINE] {
        // The compiler sees that such an index is in the list.
        &self.0[at & (self.0.len() - 1)].0
    }

    /// Returns the place of the first line, for a hint.
    #[inline]
    pub(crate) fn first_line(&self, hash: Hash) -> *const u8 {
        self.line(self.first(hash)).as_ptr().cast()
    }

    /// Returns the entry that most probably has a key with this hash.
    #[inline]
    pub(crate) fn guess(&self, hash: Hash) -> Option<u32> {
        let first = self.first(hash);
        let (mut places, line) = matches(self.line(first), hash);
        if places == 0 {
            return self.candidates(hash).next();
        }
        places &= places.wrapping_neg();
        entry_at(line, places.trailing_zeros())
    }

    /// Returns the entries that may have a key with this hash.
    #[inline]
    pub(crate) fn candidates(&self, hash: Hash) -> impl Iterator<Item = u32> {
        let first = self.first(hash);
        [first, first ^ 1].into_iter().flat_map(move |at| {
            let (places, line) = matches(self.line(at), hash);
            (0..8).filter(move |n| places >> n & 1 != 0).filter_map(move |n| entry_at(line, n))
        })
    }

    /// Adds an entry. Returns `false` if all places are taken where it may be. The caller holds the lock
    /// of the port.
    pub(crate) fn insert(&self, hash: Hash, entry: u32) -> bool {
        let first = self.first(hash);
        for at in [first, first ^ 1] {
            if let Some(place) = self.line(at).iter().find(|place| place.load(Ordering::Relaxed) == 0) {
                place.store(hash.mark() | (u64::from(entry) + 1), Ordering::Release);
                return true;
            }
        }
        false
    }

    /// Removes an entry. The caller holds the lock of the port.
    pub(crate) fn remove(&self, hash: Hash, entry: u32) {
        let word = hash.mark() | (u64::from(entry) + 1);
        let first = self.first(hash);
        for at in [first, first ^ 1] {
            if let Some(place) = self.line(at).iter().find(|place| place.load(Ordering::Relaxed) == word) {
                place.store(0, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Returns the places of a line with this hash, as bits.
#[inline]
fn matches(line: &[AtomicU64; LINE], hash: Hash) -> (u32, &[AtomicU64; LINE]) {
    let mut places = 0;
    for (n, place) in (0_u32..).zip(line) {
        // Bits of the hash above the number of the entry.
        let is_same = (place.load(Ordering::Acquire) ^ hash.0) >> 32 == 0;
        places |= u32::from(is_same) << n;
    }
    (places, line)
}

#[inline]
fn entry_at(line: &[AtomicU64; LINE], place: u32) -> Option<u32> {
    let number = line[place as usize % LINE].load(Ordering::Acquire) & u64::from(u32::MAX);
    u32::try_from(number).ok()?.checked_sub(1)
}

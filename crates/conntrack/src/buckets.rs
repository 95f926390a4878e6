//! The hash table of a port: the entries where a key may be.
//!
//! A bucket is two cache lines of eight places each. A hash names a bucket, and the line that is looked
//! at first. So no search is longer than 16 places, whatever senders invent. There are at least four
//! places for each entry: with all entries taken, a bucket has four of them on average, and one in a
//! million has more than 16. Then a connection is refused ([`Full::Places`](crate::Full::Places)).
//!
//! A place has a mark: eight further bits of the hash, and 0 if it is free. The marks of a line are one
//! word, so a reader compares all of them at once, and looks at few entries but the right one. A place is
//! a hint: the entry has the key. Readers take no lock, and may see a mark beside the entry of another
//! one. Writers hold the lock of the port.

use super::sync::{self, AtomicU64, Ordering, zeroed};

/// Places of a cache line.
const LINE: u32 = 8;
/// Places for each entry.
const PLACES: usize = 4;
/// Bits of a mark.
const MARK: u32 = 8;

/// The lowest bit of each mark, and the highest.
const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << (MARK - 1);

/// Words of a cache line. The first has the marks, each of the next four has two entries.
const WORDS: usize = 8;

/// A line of places.
#[derive(Clone, Copy)]
struct Line<'b>(&'b [AtomicU64; WORDS]);

/// The hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(pub(crate) u64);

impl Hash {
    /// Returns the mark of the hash. A free place has 0.
    #[inline]
    fn mark(self) -> u64 {
        (self.0 >> (u64::BITS - MARK)).max(1)
    }
}

/// The places of a line that may have a hash: the highest bit of each mark.
#[derive(Clone, Copy)]
struct Matches(u64);

impl Matches {
    #[inline]
    fn first(self) -> u32 {
        self.0.trailing_zeros() / MARK
    }

    #[inline]
    fn without_first(self) -> Self {
        Matches(self.0 & self.0.wrapping_sub(1))
    }
}

impl Line<'_> {
    #[inline]
    fn matches(self, hash: Hash) -> Matches {
        let difference = self.0[0].load(Ordering::Relaxed) ^ hash.mark().wrapping_mul(LOW);
        // A difference of 0 borrows. The mark above it may borrow too, and is then looked at for nothing.
        Matches(difference.wrapping_sub(LOW) & !difference & HIGH)
    }

    #[inline]
    fn entry(self, place: u32) -> u32 {
        let word = self.0[1 + place as usize / 2 % (LINE as usize / 2)].load(Ordering::Relaxed);
        lower(word >> (place % 2 * u32::BITS))
    }

    fn mark(self, place: u32) -> u64 {
        self.0[0].load(Ordering::Relaxed) >> (place * MARK) & 0xff
    }

    fn set_entry(self, place: u32, entry: u32) {
        let word = &self.0[1 + place as usize / 2];
        let shift = place % 2 * u32::BITS;
        let others = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(others | u64::from(entry) << shift, Ordering::Relaxed);
    }

    fn set_mark(self, place: u32, mark: u64) {
        let others = self.0[0].load(Ordering::Relaxed) & !(0xff << (place * MARK));
        self.0[0].store(others | mark << (place * MARK), Ordering::Relaxed);
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn lower(word: u64) -> u32 {
    word as u32
}

/// The places of a port's entries.
pub(crate) struct Buckets(Box<[sync::Line]>);

impl Buckets {
    /// Creates the buckets for this number of entries.
    pub(crate) fn new(entries: usize) -> Self {
        let lines = (entries.saturating_mul(PLACES) / LINE as usize).next_power_of_two().max(2);
        Buckets(zeroed(lines))
    }

    /// Returns the number of the line that is looked at first. The other one of the bucket differs in the
    /// lowest bit.
    #[inline]
    fn first(&self, hash: Hash) -> usize {
        lower(hash.0) as usize & (self.0.len() - 1)
    }

    #[inline]
    fn line(&self, at: usize) -> Line<'_> {
        // The compiler sees that such an index is in the list.
        Line(&self.0[at & (self.0.len() - 1)].0)
    }

    /// Returns the place of the first line, for a hint.
    #[inline]
    pub(crate) fn first_line(&self, hash: Hash) -> *const u8 {
        self.line(self.first(hash)).0.as_ptr().cast()
    }

    /// Returns the entry that most probably has a key with this hash.
    #[inline]
    pub(crate) fn guess(&self, hash: Hash) -> Option<u32> {
        let line = self.line(self.first(hash));
        let matches = line.matches(hash);
        if matches.0 == 0 { self.guess_second(hash) } else { Some(line.entry(matches.first())) }
    }

    #[inline(never)]
    fn guess_second(&self, hash: Hash) -> Option<u32> {
        let line = self.line(self.first(hash) ^ 1);
        let matches = line.matches(hash);
        (matches.0 != 0).then(|| line.entry(matches.first()))
    }

    /// Returns the entries that may have a key with this hash.
    pub(crate) fn candidates(&self, hash: Hash) -> impl Iterator<Item = u32> {
        let first = self.first(hash);
        [first, first ^ 1].into_iter().flat_map(move |at| {
            let line = self.line(at);
            let some = |matches: Matches| (matches.0 != 0).then_some(matches);
            let all = std::iter::successors(some(line.matches(hash)), move |matches| some(matches.without_first()));
            all.map(move |matches| line.entry(matches.first()))
        })
    }

    /// Adds an entry. Returns `false` if all places are taken where it may be. The caller holds the lock
    /// of the port.
    pub(crate) fn insert(&self, hash: Hash, entry: u32) -> bool {
        let first = self.first(hash);
        for at in [first, first ^ 1] {
            let line = self.line(at);
            if let Some(place) = (0..LINE).find(|place| line.mark(*place) == 0) {
                line.set_entry(place, entry);
                line.set_mark(place, hash.mark());
                return true;
            }
        }
        false
    }

    /// Removes an entry. The caller holds the lock of the port.
    pub(crate) fn remove(&self, hash: Hash, entry: u32) {
        let first = self.first(hash);
        for at in [first, first ^ 1] {
            let line = self.line(at);
            let has = |place: &u32| line.mark(*place) == hash.mark() && line.entry(*place) == entry;
            if let Some(place) = (0..LINE).find(has) {
                line.set_mark(place, 0);
                return;
            }
        }
    }
}

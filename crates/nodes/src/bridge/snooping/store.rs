//! The sets of edges by their keys, as workers read them.
//!
//! Entries are in chains, one for each bucket of a hash, and never move. A bucket has a version, which is
//! odd while a writer changes the chain:
//!
//! ```text
//! reader                             writer, with the lock
//! v = version, even  (acquire)       version = v + 1
//! walk the chain, copy the set       fence(release)
//! fence(acquire)                     change links and entries
//! version is still v?                version = v + 2   (release)
//! ```
//!
//! - **Readers** take no lock and never wait. If the version has changed, what was read means nothing;
//!   after a few tries the answer is [`Read::Busy`], and the caller floods. A reader never takes one set
//!   for another, and never misses an entry that stays: a packet that is pruned by mistake would be lost.
//! - **Writers** hold the lock of the table. An entry is used again only after it has left its chain, so
//!   a reader that still walks through it finds another version of the bucket where it began.
//! - **An edge** comes and goes by one atomic operation, without a new version.
//!
//! `store_loom.rs` compiles this file a second time, with the atomics of loom.

use std::hash::BuildHasher;

use super::sync::{AtomicU32, AtomicU64, Ordering, TRIES, fence};

/// Longest chain that a reader follows. The table has as many buckets as entries, and the seed of the
/// hash is secret, so chains are short. A longer walk follows links that a writer is changing.
const LONGEST: u32 = 32;

/// A key. It must not be all zeros.
pub(super) type Key = [u64; 3];

/// An answer to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The set was copied. It holds from this second on.
    Found(u32),
    /// There is no such key.
    Absent,
    /// Writers changed the chain at each try. The copy means nothing.
    Busy,
}

struct Bucket {
    version: AtomicU32,
    /// The first entry of the chain, as its index and 1; 0 if there is none.
    first: AtomicU32,
}

struct Entry {
    key: [AtomicU64; 3],
    /// The next entry of the chain, as its index and 1.
    next: AtomicU32,
    since: AtomicU32,
}

/// Sets of edges by their keys.
pub(super) struct Store<S> {
    secret: S,
    buckets: Box<[Bucket]>,
    entries: Box<[Entry]>,
    /// The words of all sets.
    sets: Box<[AtomicU64]>,
    words: usize,
}

impl<S: BuildHasher> Store<S> {
    /// Creates a store for this number of entries, with sets of `words` words.
    pub(super) fn new(entries: usize, words: usize, secret: S) -> Self {
        let bucket = |_| Bucket { version: AtomicU32::new(0), first: AtomicU32::new(0) };
        let entry = |_| Entry { key: [0; 3].map(AtomicU64::new), next: AtomicU32::new(0), since: AtomicU32::new(0) };
        Store {
            secret,
            buckets: (0..entries.next_power_of_two()).map(bucket).collect(),
            entries: (0..entries).map(entry).collect(),
            sets: (0..entries * words).map(|_| AtomicU64::new(0)).collect(),
            words,
        }
    }

    #[inline]
    fn bucket(&self, key: Key) -> &Bucket {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits of a hash")]
        let hash = self.secret.hash_one(key) as usize;
        &self.buckets[hash & (self.buckets.len() - 1)]
    }

    /// Copies the set of a key into `set`.
    #[inline]
    pub(super) fn read(&self, key: Key, set: &mut [u64]) -> Read {
        let bucket = self.bucket(key);
        for _ in 0..TRIES {
            let version = bucket.version.load(Ordering::Acquire);
            if version % 2 == 1 {
                continue;
            }
            let found = self.walk(bucket, key, set);
            fence(Ordering::Acquire);
            if found != Read::Busy && bucket.version.load(Ordering::Relaxed) == version {
                return found;
            }
        }
        Read::Busy
    }

    #[inline]
    fn walk(&self, bucket: &Bucket, key: Key, set: &mut [u64]) -> Read {
        let mut link = bucket.first.load(Ordering::Relaxed);
        for _ in 0..LONGEST {
            let Some(at) = index(link) else { return Read::Absent };
            let entry = &self.entries[at];
            if entry.has(key) {
                for (word, atomic) in set.iter_mut().zip(self.set(at)) {
                    *word = atomic.load(Ordering::Relaxed);
                }
                return Read::Found(entry.since.load(Ordering::Relaxed));
            }
            link = entry.next.load(Ordering::Relaxed);
        }
        Read::Busy
    }

    fn set(&self, at: usize) -> &[AtomicU64] {
        &self.sets[at * self.words..(at + 1) * self.words]
    }

    /// Returns the index of a key's entry. The caller holds the lock.
    pub(super) fn find(&self, key: Key) -> Option<usize> {
        let mut link = self.bucket(key).first.load(Ordering::Relaxed);
        while let Some(at) = index(link) {
            if self.entries[at].has(key) {
                return Some(at);
            }
            link = self.entries[at].next.load(Ordering::Relaxed);
        }
        None
    }

    /// Adds the entry `at`, which is in no chain, for a key that has none. Its set is empty. The caller
    /// holds the lock.
    pub(super) fn insert(&self, at: usize, key: Key, since: u32) {
        let bucket = self.bucket(key);
        let entry = &self.entries[at];
        bucket.change(|| {
            for (word, value) in entry.key.iter().zip(key) {
                word.store(value, Ordering::Relaxed);
            }
            self.set(at).iter().for_each(|word| word.store(0, Ordering::Relaxed));
            entry.since.store(since, Ordering::Relaxed);
            entry.next.store(bucket.first.load(Ordering::Relaxed), Ordering::Relaxed);
            bucket.first.store(link(at), Ordering::Relaxed);
        });
    }

    /// Takes the entry of a key out of its chain. The caller holds the lock.
    pub(super) fn remove(&self, key: Key) {
        let bucket = self.bucket(key);
        let mut before = &bucket.first;
        while let Some(at) = index(before.load(Ordering::Relaxed)) {
            let entry = &self.entries[at];
            if entry.has(key) {
                return bucket.change(|| before.store(entry.next.load(Ordering::Relaxed), Ordering::Relaxed));
            }
            before = &entry.next;
        }
    }

    /// Adds an edge to the set of the entry `at`: its word and its bit. The caller holds the lock.
    pub(super) fn add_edge(&self, at: usize, (word, bit): (usize, u64)) {
        self.set(at)[word].fetch_or(bit, Ordering::Relaxed);
    }

    /// Removes an edge from the set of the entry `at`. The caller holds the lock.
    pub(super) fn remove_edge(&self, at: usize, (word, bit): (usize, u64)) {
        self.set(at)[word].fetch_and(!bit, Ordering::Relaxed);
    }

    /// Sets the second from which the set of the entry `at` holds. The caller holds the lock.
    pub(super) fn set_since(&self, at: usize, since: u32) {
        self.entries[at].since.store(since, Ordering::Relaxed);
    }
}

impl Bucket {
    /// Makes changes that readers of this bucket must see all or not at all.
    fn change(&self, changes: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees one of the changes sees the odd version, too.
        fence(Ordering::Release);
        changes();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

impl Entry {
    #[inline]
    fn has(&self, key: Key) -> bool {
        self.key.iter().zip(key).all(|(word, value)| word.load(Ordering::Relaxed) == value)
    }
}

/// Returns the index that a link leads to.
fn index(link: u32) -> Option<usize> {
    (link as usize).checked_sub(1)
}

/// Returns the link to an index. A store has far fewer than 2^32 entries.
fn link(at: usize) -> u32 {
    u32::try_from(at + 1).unwrap_or(0)
}

//! Entries: the place of each connection, shared by workers.
//!
//! An entry has two cache lines of words. The *tag* is one of them: it says which connection has the
//! entry, and whether a worker changes it just now.
//!
//! ```text
//! tag:  | generation: 32 | version: 30 | live: 1 | locked: 1 |
//! ```
//!
//! # No packet gets the verdict of another connection
//!
//! A worker finds an entry without a lock, by reading its key. Meanwhile the entry may end, and another
//! connection may take it. So what was found is only a guess until the worker has *locked* the entry:
//!
//! 1. [`Entries::find`] reads the tag before the key (Acquire). An entry that ends gets another version
//!    before its key changes. So if the version is still the same later, the key was that version's.
//! 2. [`Entries::lock`] sets the locked bit by a compare-and-exchange that names the version.
//!    It fails if the entry has ended meanwhile, whatever connection has it by now.
//! 3. Only the thread that holds the lock writes the state, and only it ends the entry.
//!
//! A lock is held for some dozen instructions, and its holder takes no other lock. The version has 30
//! bits: an entry would have to be taken a thousand million times between the two steps.
//!
//! `entries_loom.rs` compiles this file a second time, with the atomics of loom, and tries every order
//! of two workers.

use super::sync::{AtomicU64, Ordering, TwoLines, spin_loop, yield_now, zeroed};

/// Number of words of a key.
pub(crate) const KEY: usize = 5;
/// Number of words of a connection's state. The first two lie beside key and tag.
pub(crate) const STATE: usize = 10;

const LOCKED: u64 = 1;
const LIVE: u64 = 2;
const VERSION: u64 = 0xffff_fffc;
const STEP: u64 = 4;
const GENERATION: u32 = 32;

/// Spins before a thread lets others run: the holder of the lock may be preempted.
const SPINS: u32 = 200;

/// Words of an entry: two cache lines.
const WORDS: usize = KEY + 1 + STATE;
/// The tag lies behind the key, and the state behind the tag.
const TAG: usize = KEY;
const FIRST: usize = TAG + 1;

type Entry = [AtomicU64; WORDS];

/// The identity of a connection: an entry's tag, as it was when the entry was not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    /// Returns the generation of the policy that allowed the connection.
    #[inline]
    pub(crate) fn generation(self) -> u32 {
        u32::try_from(self.0 >> GENERATION).unwrap_or(0)
    }

    #[inline]
    fn is_same_connection(self, word: u64) -> bool {
        (self.0 ^ word) & (VERSION | LIVE) == 0
    }
}

/// The entries of a port.
pub(crate) struct Entries(Box<[TwoLines]>);

/// An entry that is locked. It is unlocked when this is dropped.
pub(crate) struct Locked<'e> {
    entry: &'e Entry,
    /// The tag that the entry gets.
    tag: u64,
}

impl Entries {
    pub(crate) fn new(count: usize) -> Self {
        Entries(zeroed(count))
    }

    /// Returns the places of an entry's cache lines, for hints.
    #[inline]
    pub(crate) fn lines(&self, at: u32) -> [*const u8; 2] {
        let entry = self.entry(at);
        [entry.as_ptr().cast(), entry[WORDS / 2..].as_ptr().cast()]
    }

    /// Returns the tag of a live entry with this key.
    #[inline]
    pub(crate) fn find(&self, at: u32, key: &[u64; KEY]) -> Option<Tag> {
        let entry = self.entry(at);
        let tag = entry[TAG].load(Ordering::Acquire);
        let difference = (0..KEY).fold(0, |all, n| all | entry[n].load(Ordering::Relaxed) ^ key[n]);
        (difference == 0 && tag & LIVE != 0).then_some(Tag(tag & !LOCKED))
    }

    /// Returns the tag of an entry, if it is live.
    pub(crate) fn tag(&self, at: u32) -> Option<Tag> {
        let tag = self.entry(at)[TAG].load(Ordering::Acquire);
        (tag & LIVE != 0).then_some(Tag(tag & !LOCKED))
    }

    /// Returns a word of an entry's state. Another connection may have the entry by now.
    #[inline]
    pub(crate) fn peek(&self, at: u32, word: usize) -> u64 {
        self.entry(at)[FIRST + word].load(Ordering::Relaxed)
    }

    /// Locks an entry; none if the connection has ended.
    #[inline]
    pub(crate) fn lock(&self, at: u32, tag: Tag) -> Option<Locked<'_>> {
        let entry = self.entry(at);
        match entry[TAG].compare_exchange(tag.0, tag.0 | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Locked { entry, tag: tag.0 }),
            Err(_) => Self::wait(entry, tag),
        }
    }

    /// Waits for the lock.
    #[cold]
    fn wait(entry: &Entry, tag: Tag) -> Option<Locked<'_>> {
        let mut spins = 0;
        loop {
            let now = entry[TAG].load(Ordering::Relaxed);
            if !tag.is_same_connection(now) {
                return None;
            }
            // The generation may be another one by now.
            let free = now & !LOCKED;
            if now == free
                && entry[TAG].compare_exchange_weak(free, free | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Some(Locked { entry, tag: free });
            }
            spins += 1;
            if spins % SPINS == 0 { yield_now() } else { spin_loop() }
        }
    }

    /// Makes a free entry a connection's. The caller holds the lock of the port, so nobody else takes
    /// the entry.
    pub(crate) fn fill(&self, at: u32, key: &[u64; KEY], state: &[u64; STATE], generation: u32) -> Tag {
        let entry = self.entry(at);
        // The entry is free, so nobody holds its lock: its version was counted up by the one that ended it.
        let version = entry[TAG].load(Ordering::Relaxed) & VERSION;
        for (word, value) in entry.iter().zip(key) {
            word.store(*value, Ordering::Relaxed);
        }
        for (word, value) in entry[FIRST..].iter().zip(state) {
            word.store(*value, Ordering::Relaxed);
        }
        let tag = u64::from(generation) << GENERATION | version | LIVE;
        entry[TAG].store(tag, Ordering::Release);
        Tag(tag)
    }

    #[inline]
    fn entry(&self, at: u32) -> &Entry {
        &self.0[at as usize].0
    }
}

impl Locked<'_> {
    #[inline]
    pub(crate) fn get(&self, word: usize) -> u64 {
        self.entry[FIRST + word].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, word: usize, value: u64) {
        self.entry[FIRST + word].store(value, Ordering::Relaxed);
    }

    pub(crate) fn key(&self) -> [u64; KEY] {
        std::array::from_fn(|n| self.entry[n].load(Ordering::Relaxed))
    }

    /// Returns the tag of the connection.
    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        Tag(self.tag)
    }

    /// Notes that another generation of the policy allows the connection.
    pub(crate) fn set_generation(&mut self, generation: u32) {
        self.tag = u64::from(generation) << GENERATION | self.tag & !(u64::MAX << GENERATION);
    }

    /// Ends the connection: its tag is no longer valid. The entry is free.
    pub(crate) fn end(mut self) {
        // Only the version is counted up: a carry must not reach the generation, which has no meaning now.
        self.tag = self.tag.wrapping_add(STEP) & VERSION;
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.entry[TAG].store(self.tag, Ordering::Release);
    }
}

//! A word for the key and a word for the port and the time, in buckets of one cache line with three
//! stations. A number counts the writes to a bucket, and is odd during one. A reader looks at it
//! before and after, and begins again if it changed. So a writer that is descheduled in a write
//! makes readers of that bucket wait, or give up.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

use foldhash::fast::RandomState;

use crate::{AGEING, Design, Key};

const PLACES: usize = 3;
const STATIC: u64 = 1 << 63;

#[derive(Default)]
#[repr(align(64))]
struct Bucket {
    writes: AtomicU64,
    keys: [AtomicU64; PLACES],
    /// Bit 63: static; bits 32 to 47: port; bits 0 to 31: time.
    values: [AtomicU64; PLACES],
    /// Not 0 if a station of this bucket is in one behind it.
    is_over: AtomicU64,
}

pub(crate) struct Table {
    buckets: Box<[Bucket]>,
    hash: RandomState,
}

impl Table {
    #[inline]
    fn find(&self, key: Key) -> Option<u64> {
        let mask = self.buckets.len() - 1;
        let mut at = usize::try_from(self.hash.hash_one(key) & 0xffff_ffff).unwrap_or(0) & mask;
        loop {
            let bucket = &self.buckets[at];
            let (found, is_over) = loop {
                let before = bucket.writes.load(Acquire);
                let place = bucket.keys.iter().position(|word| word.load(Relaxed) == key);
                let found = place.map(|place| bucket.values[place].load(Relaxed));
                let is_over = bucket.is_over.load(Relaxed) != 0;
                fence(Acquire);
                if before.is_multiple_of(2) && bucket.writes.load(Relaxed) == before {
                    break (found, is_over);
                }
                std::hint::spin_loop();
            };
            if found.is_some() || !is_over {
                return found;
            }
            at = (at + 1) & mask;
        }
    }
}

impl Design for Table {
    fn new(limit: usize) -> Self {
        let size = (limit / 2).next_power_of_two().max(16);
        Table { buckets: (0..size).map(|_| Bucket::default()).collect(), hash: RandomState::default() }
    }

    #[inline]
    fn lookup(&self, key: Key, now: u32) -> Option<u16> {
        let value = self.find(key)?;
        let seen = u32::try_from(value & 0xffff_ffff).unwrap_or(0);
        let fresh = value & STATIC != 0 || now.saturating_sub(seen) < AGEING;
        fresh.then(|| u16::try_from(value >> 32 & 0xffff).unwrap_or(0))
    }

    #[inline]
    fn learn(&self, key: Key, port: u16, now: u32) -> bool {
        let value = u64::from(port) << 32 | u64::from(now);
        if let Some(known) = self.find(key) {
            return known >> 32 & 0xffff == u64::from(port) && known & 0xffff_ffff >= u64::from(now);
        }
        let mask = self.buckets.len() - 1;
        let mut at = usize::try_from(self.hash.hash_one(key) & 0xffff_ffff).unwrap_or(0) & mask;
        loop {
            let bucket = &self.buckets[at];
            let writes = bucket.writes.load(Relaxed);
            bucket.writes.store(writes + 1, Relaxed);
            fence(Release);
            let place = bucket.keys.iter().position(|word| word.load(Relaxed) == 0);
            match place {
                Some(place) => {
                    bucket.keys[place].store(key, Relaxed);
                    bucket.values[place].store(value, Relaxed);
                }
                None => bucket.is_over.store(1, Relaxed),
            }
            bucket.writes.store(writes + 2, Release);
            if place.is_some() {
                return false;
            }
            at = (at + 1) & mask;
        }
    }
}

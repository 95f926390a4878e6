//! The reference, which knows no VLANs: a word of 48 bits of address, 15 of port and one flag, in
//! slots with linear probing that are at most half full.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;

use crate::{AGEING, Design, Key};

const MAC: u64 = (1 << 48) - 1;

#[derive(Default)]
struct Slot {
    word: AtomicU64,
    seen: AtomicU32,
}

pub(crate) struct Table {
    slots: Box<[Slot]>,
    hash: RandomState,
}

impl Table {
    #[inline]
    fn find(&self, mac: u64) -> Result<(usize, u64), usize> {
        let mask = self.slots.len() - 1;
        let mut at = usize::try_from(self.hash.hash_one(mac) & 0xffff_ffff).unwrap_or(0) & mask;
        loop {
            match self.slots[at].word.load(Relaxed) {
                0 => return Err(at),
                word if word & MAC == mac => return Ok((at, word)),
                _ => at = (at + 1) & mask,
            }
        }
    }
}

impl Design for Table {
    fn new(limit: usize) -> Self {
        let size = (limit * 2).next_power_of_two().max(64);
        Table { slots: (0..size).map(|_| Slot::default()).collect(), hash: RandomState::default() }
    }

    #[inline]
    fn lookup(&self, key: Key, now: u32) -> Option<u16> {
        let (at, word) = self.find(key & MAC).ok()?;
        let fresh = word >> 63 != 0 || now.saturating_sub(self.slots[at].seen.load(Relaxed)) < AGEING;
        fresh.then(|| u16::try_from(word >> 48 & 0x7fff).unwrap_or(0))
    }

    #[inline]
    fn learn(&self, key: Key, port: u16, now: u32) -> bool {
        match self.find(key & MAC) {
            Ok((at, word)) if word >> 48 == u64::from(port) && self.slots[at].seen.load(Relaxed) >= now => true,
            Ok((at, _)) | Err(at) => {
                self.slots[at].seen.store(now, Relaxed);
                self.slots[at].word.store(key & MAC | u64::from(port) << 48, Relaxed);
                false
            }
        }
    }
}

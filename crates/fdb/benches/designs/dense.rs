//! A word of 48 bits of address, an index among the VLANs of the bridge and an index among its
//! ports, of 8 bits each. A bridge with more of either has no such table.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;

use crate::{AGEING, Design, Key, PORTS, VLANS};

/// Bits of address and VLAN.
const STATION: u64 = (1 << 56) - 1;

#[derive(Default)]
struct Slot {
    word: AtomicU64,
    seen: AtomicU32,
    is_static: AtomicU32,
}

pub(crate) struct Table {
    slots: Box<[Slot]>,
    hash: RandomState,
    /// Index of each VLAN; 0 for those that the bridge does not have.
    vlans: Box<[u8; 4096]>,
    ports: Box<[u16; 256]>,
}

impl Table {
    #[inline]
    fn station(&self, key: Key) -> u64 {
        let vlan = self.vlans[usize::try_from(key >> 48 & 0xfff).unwrap_or(0)];
        key & ((1 << 48) - 1) | u64::from(vlan) << 48
    }

    #[inline]
    fn find(&self, station: u64) -> Result<(usize, u64), usize> {
        let mask = self.slots.len() - 1;
        let mut at = usize::try_from(self.hash.hash_one(station) & 0xffff_ffff).unwrap_or(0) & mask;
        loop {
            match self.slots[at].word.load(Relaxed) {
                0 => return Err(at),
                word if word & STATION == station => return Ok((at, word)),
                _ => at = (at + 1) & mask,
            }
        }
    }

    #[inline]
    fn port(&self, word: u64) -> u16 {
        self.ports[usize::try_from(word >> 56).unwrap_or(0)]
    }
}

impl Design for Table {
    fn new(limit: usize) -> Self {
        let size = (limit * 2).next_power_of_two().max(64);
        let mut vlans = Box::new([0; 4096]);
        (1..=u8::try_from(VLANS).unwrap_or(0)).for_each(|vlan| vlans[usize::from(vlan)] = vlan);
        let mut ports = Box::new([0; 256]);
        (0..PORTS).for_each(|port| ports[usize::from(port)] = port);
        Table { slots: (0..size).map(|_| Slot::default()).collect(), hash: RandomState::default(), vlans, ports }
    }

    #[inline]
    fn lookup(&self, key: Key, now: u32) -> Option<u16> {
        let (at, word) = self.find(self.station(key)).ok()?;
        let slot = &self.slots[at];
        let fresh = slot.is_static.load(Relaxed) != 0 || now.saturating_sub(slot.seen.load(Relaxed)) < AGEING;
        fresh.then(|| self.port(word))
    }

    #[inline]
    fn learn(&self, key: Key, port: u16, now: u32) -> bool {
        let station = self.station(key);
        match self.find(station) {
            Ok((at, word)) if self.port(word) == port && self.slots[at].seen.load(Relaxed) >= now => true,
            Ok((at, _)) | Err(at) => {
                self.slots[at].seen.store(now, Relaxed);
                self.slots[at].word.store(station | u64::from(port) << 56, Relaxed);
                false
            }
        }
    }
}

//! The buffers of a receive ring, one after the other.

use az::SaturatingAs;
use straightline_packet::{Reason, Turn};
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::ring::{BURST, Device, Direction, First, RingFault};

use super::budget::{DescriptorBudget, MOST_BUFFERS};
use crate::vhost_user::data::HEADER;

/// The next buffers of a ring, found in bursts.
pub(super) struct Buffers<'a, R> {
    pub(super) ring: &'a mut R,
    pub(super) firsts: &'a mut [First; BURST],
    pub(super) at: usize,
    pub(super) known: usize,
    /// True if the last look found no buffer. The ring is not looked at again, unless buffers are
    /// returned to it.
    pub(super) dry: bool,
    /// The number of buffers for the next look: first [`DescriptorBudget::first_look`], then a
    /// burst.
    next_look: usize,
    spared: Spared<'a>,
    pub(super) budget: &'a mut DescriptorBudget,
    refused: Shortage,
    /// True if the last packet that ran out of buffers had taken all that the ring can hold.
    took_all: bool,
}

/// The buffers that stay free for packets that are delivered before others.
pub(super) struct Spared<'a> {
    /// The most buffers that stay free.
    pub(super) most: usize,
    /// The most free buffers that were ever found at once. At most half of them stay free: a guest may offer
    /// far fewer than its ring holds.
    pub(super) found: &'a mut usize,
}

impl Spared<'_> {
    /// Returns the number of buffers that may be used of `free` ones.
    #[inline]
    fn usable(&mut self, free: usize) -> usize {
        if self.most == 0 {
            return free;
        }
        *self.found = free.max(*self.found);
        free.saturating_sub(self.most.min(*self.found / 2))
    }
}

/// The buffers that a refused packet found. A longer packet is refused without another look.
struct Shortage {
    /// Capacity of the buffers, in bytes.
    capacity: u32,
    reason: Reason,
    /// The number of chains that were outstanding when the packet was refused.
    taken: u16,
}

impl<'a, R: Device> Buffers<'a, R> {
    /// Returns the buffers for a batch of `packets` packets.
    pub(super) fn new(
        ring: &'a mut R,
        firsts: &'a mut [First; BURST],
        packets: usize,
        spared: Spared<'a>,
        budget: &'a mut DescriptorBudget,
    ) -> Self {
        let refused = Shortage { capacity: u32::MAX, reason: Reason::NoBuffer, taken: 0 };
        let next_look = budget.first_look(packets + spared.most);
        Buffers { ring, firsts, at: 0, known: 0, dry: false, next_look, spared, budget, refused, took_all: false }
    }

    /// Returns whether a next buffer is known, in `firsts` at `at`. A ring fault counts as none
    /// here; [`Self::next`] finds it again and reports it.
    #[inline]
    pub(super) fn look(&mut self) -> bool {
        self.at < self.known || (!self.dry && self.find().is_ok_and(|known| known > 0))
    }

    fn find(&mut self) -> Result<usize, RingFault> {
        (self.at, self.known) = (0, 0);
        let into = &mut self.firsts[..self.next_look];
        self.next_look = BURST;
        self.known = self.spared.usable(self.ring.find(into)?);
        self.budget.spend(self.ring.followed());
        self.dry = self.known == 0;
        Ok(self.known)
    }

    /// Takes the next buffer. Before it returns `None`, it reads the driver's index, once for a
    /// batch.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<First>, RingFault> {
        if self.at == self.known && (self.dry || self.find()? == 0) {
            return Ok(None);
        }
        let first = self.firsts[self.at];
        self.at += 1;
        self.ring.take(&first);
        Ok(Some(first))
    }

    /// Takes and stages buffers of one descriptor for `need` bytes: as many of those known as are
    /// needed, at most [`MOST_BUFFERS`]. Returns their capacity, at most `need`, and their number.
    /// Stops before a faulty buffer; the caller finds the fault.
    #[inline]
    pub(super) fn take_singles<'t>(&mut self, memory: &'t GuestMemory, turn: &mut Turn<'t>, need: u32) -> (u32, u16) {
        let mut got = 0_u32;
        let mut chains = 0;
        while got < need && chains < MOST_BUFFERS && self.look() {
            let staged = turn.mark();
            let mut found = 0;
            let mut last = 0;
            let end = self.known.min(self.at + usize::from(MOST_BUFFERS - chains));
            for first in &self.firsts[self.at..end] {
                let Some(buffer) = self.ring.single(memory, first, Direction::ToGuest) else { break };
                if buffer.is_empty() || (got == 0 && buffer.len() < HEADER) {
                    break;
                }
                if got == 0 && turn.prefetches() {
                    buffer.prefetch_for_store::<HEADER>();
                }
                turn.stage(buffer);
                found += 1;
                // The last buffer need not be full.
                last = buffer.len().min(need - got);
                got += last;
                if got == need {
                    break;
                }
            }
            if found == 0 {
                break;
            }
            let taken = turn.staged(staged);
            let written = |nth: usize| if nth + 1 == found { last } else { taken[nth].len() };
            self.ring.take_all(&self.firsts[self.at..self.at + found], written);
            self.at += found;
            chains += found.saturating_as::<u16>();
        }
        (got, chains)
    }

    /// Returns the reason to refuse a packet that needs `need` bytes without a look at the ring.
    /// Returns `None` if there is no such reason.
    #[inline]
    pub(super) fn refuses(&self, need: u32) -> Option<Reason> {
        if need > self.refused.capacity || self.budget.is_spent() { self.why_refused(need) } else { None }
    }

    #[cold]
    fn why_refused(&self, need: u32) -> Option<Reason> {
        let Shortage { capacity, reason, taken } = self.refused;
        match reason {
            _ if self.budget.is_spent() => Some(Reason::ManyDescriptors),
            _ if need <= capacity => None,
            // All buffers together are too small. Packets since then have only taken more buffers.
            Reason::NoBuffer => Some(reason),
            // The next buffers are too many for one packet. Larger ones may follow.
            _ => (taken == self.ring.outstanding()).then_some(reason),
        }
    }

    /// Gives back `chains` buffers with a capacity of `capacity` bytes, which a packet had taken
    /// when it was refused for `reason`.
    #[cold]
    pub(super) fn refuse(&mut self, reason: Reason, capacity: u32, chains: u16) {
        if reason == Reason::NoBuffer {
            self.took_all = self.ring.is_all_taken();
        }
        self.untake(chains);
        if matches!(reason, Reason::NoBuffer | Reason::ManyDescriptors) {
            self.refused = Shortage { capacity, reason, taken: self.ring.outstanding() };
        }
    }

    /// Returns whether a packet that found too few buffers can never find enough: the packet alone
    /// had taken all buffers that the ring can hold. The packet still has `chains` buffers.
    pub(super) fn never_suffice(&self, chains: u16) -> bool {
        self.took_all && self.ring.outstanding() == chains
    }

    /// Gives back the last `n` buffers that were taken.
    pub(super) fn untake(&mut self, n: u16) {
        self.ring.untake(n);
        self.dry &= n == 0;
        if let Some(at) = self.at.checked_sub(n.into()) {
            self.at = at;
        } else {
            (self.at, self.known) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::{pread, pwrite};
    use straightline_packet::{Arena, Rcu, Settings};
    use straightline_virtio::memory::Region;
    use straightline_virtio::ring::{Geometry, RingOptions, SplitDevice, WRITE};

    /// Delivers into a ring of eight entries with buffers of these lengths, and returns the used
    /// lengths. The first buffer is at 64 KiB, in sparse memory that is large enough for the
    /// largest buffer there can be.
    fn used_lengths(lengths: &[u32], need: u32) -> Vec<u32> {
        let file = memfd_create("buffers", MemfdFlags::CLOEXEC).expect("memfd");
        let size = 5 << 30;
        ftruncate(&file, size).expect("memory");
        let write = |bytes: &[u8], at: u64| assert_eq!(pwrite(&file, bytes, at), Ok(bytes.len()));
        for (n, len) in (0_u16..).zip(lengths) {
            // A descriptor (virtio 1.2, 2.7.5), and its entry in the available ring (2.7.6).
            write(&(0x1_0000 * u64::from(n + 1)).to_le_bytes(), 16 * u64::from(n));
            write(&len.to_le_bytes(), 16 * u64::from(n) + 8);
            write(&WRITE.to_le_bytes(), 16 * u64::from(n) + 12);
            write(&n.to_le_bytes(), 0x1004 + 2 * u64::from(n));
        }
        let count = u16::try_from(lengths.len()).expect("few");
        write(&count.to_le_bytes(), 0x1002);
        let region = Region::map(file.as_fd(), 0, size, 0, 0).expect("mapped");
        let memory = GuestMemory::new(vec![Arc::new(region)]).expect("one region");
        // A turn may keep staged segments for any time, so the memory must live as long.
        let memory: &'static GuestMemory = Box::leak(Box::new(memory));
        let geometry = Geometry { size: 8, desc: 0, avail: 0x1000, used: 0x2000 };
        let mut ring = SplitDevice::new(memory, geometry, 0, RingOptions::default()).expect("in memory");
        let mut firsts = [First::default(); BURST];
        let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
        let mut budget = DescriptorBudget::default();
        let taken = arena.turn(|turn| {
            Buffers::new(&mut ring, &mut firsts, 1, Spared { most: 0, found: &mut 0 }, &mut budget)
                .take_singles(memory, turn, need)
        });
        assert!(taken.0 >= need && taken.1 == count, "{taken:?}");
        ring.give_back(count);
        let length = |n: u16| {
            let mut bytes = [0; 4];
            assert_eq!(pread(&file, &mut bytes, 0x2008 + 8 * u64::from(n)), Ok(4));
            u32::from_le_bytes(bytes)
        };
        (0..count).map(length).collect()
    }

    #[test]
    fn used_lengths_are_those_of_the_packet_whatever_the_buffers_hold() {
        for (lengths, need, used) in [
            (&[2000][..], 1512, &[1512][..]),
            (&[1000, 1000], 2000, &[1000, 1000]),
            (&[12, 500, 1000], 1300, &[12, 500, 788]),
            (&[u32::MAX], 1512, &[1512]),
            (&[1000, u32::MAX], 1512, &[1000, 512]),
            (&[1000, 400, u32::MAX - 1], 65_562, &[1000, 400, 64_162]),
        ] {
            assert_eq!(used_lengths(lengths, need), used, "{lengths:?}");
        }
    }

    #[test]
    fn a_guest_that_offers_few_buffers_has_half_of_them_for_all() {
        let usable = |most, frees: &[usize]| {
            let mut found = 0;
            let mut spared = Spared { most, found: &mut found };
            frees.iter().map(|&free| spared.usable(free)).collect::<Vec<_>>()
        };
        assert_eq!(usable(0, &[64, 8, 0]), [64, 8, 0]);
        assert_eq!(usable(32, &[64, 40, 32, 64, 1]), [32, 8, 0, 32, 0]);
        // This guest offers eight buffers.
        assert_eq!(usable(32, &[8, 5, 4, 3, 8]), [4, 1, 0, 0, 4]);
        // This one offers 33, and had a single free one at the first look.
        assert_eq!(usable(32, &[1, 33, 17, 16]), [1, 17, 1, 0]);
    }
}

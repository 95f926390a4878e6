//! Shares of a table: the number of its places that each owner may fill.
//!
//! Traffic fills many tables: stations of a bridge, remotes of a tunnel, neighbours, connections.
//! Senders can invent entries, so no sender may be able to fill the table. Each entry has an owner:
//! the port or remote that it came from. Half of the table's places are divided evenly: each owner
//! has its own. The other half is common, because there may be a network with many stations behind
//! one port. An owner that takes all common places leaves every other owner its own.
//!
//! This type counts places and knows no table. A table asks it before it makes an entry
//! ([`Shares::reserve`]), and tells it when an entry goes ([`Shares::release`]). What happens to an
//! owner without a free place is a choice of the table ([`WhenFull`]). In no case does an owner's
//! entry go because of another owner's traffic.
//!
//! ```
//! use straightline_fdb::{Reservation, Shares, WhenFull};
//!
//! // Two of the eight places are for each of two owners, and four are common.
//! let shares = Shares::new(8, [0, 1], WhenFull::Refuse);
//! assert!((0..6).all(|_| shares.reserve(0) == Reservation::Granted));
//! assert_eq!(shares.reserve(0), Reservation::Refused);
//! assert_eq!(shares.reserve(1), Reservation::Granted);
//! assert_eq!((shares.get(0).used, shares.get(0).refused), (6, 1));
//! ```

use std::iter;

use az::SaturatingAs;

use crate::sync::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// The state of an owner's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of entries that the owner has in the table.
    pub used: u32,
    /// Number of entries that were not made, because the owner had no place left.
    pub refused: u64,
    /// Number of entries that made place for another one of the same owner.
    pub evicted: u64,
}

/// The choice of a table for an owner that has no place left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The new entry is not made. What is known stays known.
    Refuse,
    /// Another entry of the same owner goes, if it has any.
    EvictOwn,
}

/// The answer of [`Shares::reserve`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// The place is reserved.
    Granted,
    /// The table must remove one entry of the same owner. Its place is reserved for the new entry,
    /// so the table does not release it.
    EvictOwn,
    /// There is no place. The refusal is counted, unless nobody has this number.
    Refused,
}

/// The shares of all owners. An owner is a small number: an index of a port, for example.
///
/// Any number of threads may use it at once, without a lock.
#[derive(Debug)]
pub struct Shares {
    /// Share of each owner, by its number.
    owners: Box<[Counts]>,
    /// Number of places in all.
    limit: u32,
    /// Number of places that each owner has of its own.
    own: AtomicU32,
    /// Number of common places that are free. It is less than 0 while owners have more than the common
    /// places, because others came later ([`Shares::set_owners`]).
    common: AtomicI32,
    when_full: WhenFull,
}

#[derive(Debug, Default)]
struct Counts {
    is_member: AtomicBool,
    /// The most places that the owner may have.
    most: u32,
    used: AtomicU32,
    refused: AtomicU64,
    evicted: AtomicU64,
}

impl Counts {
    fn read(&self) -> Share {
        Share {
            used: self.used.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }
}

impl Shares {
    /// Divides `limit` places among `owners`. No owner is named twice.
    pub fn new(limit: usize, owners: impl IntoIterator<Item = usize>, when_full: WhenFull) -> Self {
        Self::with_space(limit, owners, 0, when_full)
    }

    /// Divides places as [`Self::new`] does. Owners with numbers below `space` can be added later.
    pub fn with_space(
        limit: usize,
        owners: impl IntoIterator<Item = usize>,
        space: usize,
        when_full: WhenFull,
    ) -> Self {
        let owners: Vec<usize> = owners.into_iter().collect();
        let size = owners.iter().map(|owner| owner + 1).max().unwrap_or(0).max(space);
        let mut counts = Vec::with_capacity(size);
        counts.resize_with(size, || Counts { most: u32::MAX, ..Counts::default() });
        let shares = Shares {
            owners: counts.into(),
            limit: limit.saturating_as::<i32>().unsigned_abs(),
            own: AtomicU32::new(0),
            common: AtomicI32::new(0),
            when_full,
        };
        shares.set_owners(owners);
        shares
    }

    /// Divides the places anew among these owners, whose numbers have space. Owners that are not named
    /// get no further place; they release those that they have. An owner that has more than its new
    /// share keeps it, and nobody gets common places until it has released them.
    ///
    /// Nobody may reserve or release a place during the call.
    pub fn set_owners(&self, owners: impl IntoIterator<Item = usize>) {
        self.owners.iter().for_each(|counts| counts.is_member.store(false, Ordering::Relaxed));
        let mut count = 0_u32;
        for counts in owners.into_iter().filter_map(|owner| self.owners.get(owner)) {
            counts.is_member.store(true, Ordering::Relaxed);
            count += 1;
        }
        let count = count.max(1);
        // In a small table, half of the places may be less than one for each owner.
        let own = (self.limit / 2 / count).max((self.limit / count).min(1));
        self.own.store(own, Ordering::Relaxed);
        let extra = |counts: &Counts| counts.used.load(Ordering::Relaxed).saturating_sub(self.own_of(counts));
        let taken: u32 = self.owners.iter().map(extra).sum();
        let common = i64::from(self.limit - own * count) - i64::from(taken);
        self.common.store(common.saturating_as::<i32>(), Ordering::Relaxed);
    }

    /// Returns the number of places of its own that an owner has.
    fn own_of(&self, counts: &Counts) -> u32 {
        if counts.is_member.load(Ordering::Relaxed) { self.own.load(Ordering::Relaxed) } else { 0 }
    }

    /// Limits the places of an owner to `most`, however many are free.
    #[must_use]
    pub fn with_most(mut self, owner: usize, most: u32) -> Self {
        if let Some(counts) = self.owners.get_mut(owner) {
            counts.most = most;
        }
        self
    }

    /// Reserves a place for an entry of `owner`.
    pub fn reserve(&self, owner: usize) -> Reservation {
        let Some(counts) = self.member(owner) else { return Reservation::Refused };
        loop {
            let used = counts.used.load(Ordering::Relaxed);
            let needs_common = used >= self.own_of(counts);
            if used >= counts.most || needs_common && !self.take_common() {
                return self.when_full(counts, used);
            }
            // Each step from `n` to `n + 1` takes a common place if `n` is at least `own`, and each
            // step back returns it. So a step must begin at the number that was looked at.
            if counts.used.compare_exchange_weak(used, used + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Reservation::Granted;
            }
            if needs_common {
                self.common.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn take_common(&self) -> bool {
        let one_less = |common: i32| (common > 0).then(|| common - 1);
        self.common.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    fn when_full(&self, counts: &Counts, used: u32) -> Reservation {
        if self.when_full == WhenFull::EvictOwn && used > 0 {
            counts.evicted.fetch_add(1, Ordering::Relaxed);
            Reservation::EvictOwn
        } else {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            Reservation::Refused
        }
    }

    /// Releases the place of an entry of `owner`.
    pub fn release(&self, owner: usize) {
        let Some(counts) = self.owners.get(owner) else { return };
        let one_less = |used: u32| used.checked_sub(1);
        let before = counts.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if before.is_ok_and(|used| used > self.own_of(counts)) {
            self.common.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Releases a reserved place of `owner` and counts a refusal: the share had a place, but the
    /// table had none.
    pub fn cancel(&self, owner: usize) {
        self.release(owner);
        if let Some(counts) = self.member(owner) {
            counts.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number below which owners have space.
    pub fn space(&self) -> usize {
        self.owners.len()
    }

    /// Returns whether there is a share for `owner`.
    pub fn is_member(&self, owner: usize) -> bool {
        self.member(owner).is_some()
    }

    /// Returns the share of `owner`; zeros if it has none.
    pub fn get(&self, owner: usize) -> Share {
        self.member(owner).map_or_else(Share::default, Counts::read)
    }

    /// Returns the sum of all shares.
    pub fn total(&self) -> Share {
        self.owners.iter().map(Counts::read).fold(Share::default(), |sum, share| Share {
            used: sum.used + share.used,
            refused: sum.refused + share.refused,
            evicted: sum.evicted + share.evicted,
        })
    }

    /// Continues the counts of refusals and evictions in `before`, for a table that replaces another
    /// one. Those that were counted here are forgotten.
    pub fn continue_counts(&self, before: &Shares) {
        let others = before.owners.iter().map(Counts::read).chain(iter::repeat(Share::default()));
        for (counts, share) in self.owners.iter().zip(others) {
            counts.refused.store(share.refused, Ordering::Relaxed);
            counts.evicted.store(share.evicted, Ordering::Relaxed);
        }
    }

    fn member(&self, owner: usize) -> Option<&Counts> {
        self.owners.get(owner).filter(|counts| counts.is_member.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_owner_without_a_place_loses_its_own_entries_only() {
        let shares = Shares::new(4, [0, 2], WhenFull::EvictOwn);
        assert!((0..3).all(|_| shares.reserve(0) == Reservation::Granted));
        assert_eq!(shares.reserve(0), Reservation::EvictOwn);
        assert_eq!(shares.get(0), Share { used: 3, refused: 0, evicted: 1 });
        assert_eq!(shares.reserve(2), Reservation::Granted);
        assert_eq!(shares.reserve(1), Reservation::Refused, "nobody has this number");
        assert_eq!(shares.total(), Share { used: 4, refused: 0, evicted: 1 });
        shares.cancel(2);
        assert_eq!(shares.get(2), Share { used: 0, refused: 1, evicted: 0 });
    }

    #[test]
    fn threads_count_together() {
        let shares = Shares::new(64, [0, 1], WhenFull::Refuse);
        let work = || {
            for _ in 0..20_000 {
                if shares.reserve(0) == Reservation::Granted {
                    shares.release(0);
                }
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(shares.total().used, 0);
        assert_eq!(shares.common.load(Ordering::Relaxed), 32);
    }

    proptest! {
        /// Owners come and go, and the limit holds as soon as everybody has its share or less. A reference
        /// with lists: each step divides the places anew.
        #[test]
        fn owners_come_and_go(
            limit in 0..40_usize,
            steps in prop::collection::vec((0..6_usize, 0..3_u8, prop::collection::btree_set(0..6_usize, 0..6)), 0..200),
        ) {
            let shares = Shares::with_space(limit, [0, 1], 6, WhenFull::Refuse);
            let mut members: Vec<usize> = vec![0, 1];
            let mut used = [0_usize; 6];
            for (owner, step, others) in steps {
                let count = members.len().max(1);
                let own = (limit / 2 / count).max((limit / count).min(1));
                match step {
                    0 => {
                        let own_of = |owner: usize| if members.contains(&owner) { own } else { 0 };
                        let common: usize = (0..6).map(|owner| used[owner].saturating_sub(own_of(owner))).sum();
                        let fits = members.contains(&owner) && (used[owner] < own || common + own * count < limit);
                        prop_assert_eq!(shares.reserve(owner) == Reservation::Granted, fits);
                        used[owner] += usize::from(fits);
                    }
                    1 if used[owner] > 0 => {
                        shares.release(owner);
                        used[owner] -= 1;
                    }
                    1 => {}
                    _ => {
                        members = others.into_iter().collect();
                        shares.set_owners(members.iter().copied());
                    }
                }
                prop_assert_eq!(shares.owners.iter().map(|counts| counts.read().used as usize).sum::<usize>(), used.iter().sum());
            }
        }

        /// A reference with lists: an owner has a place if one of its own or a common one is free.
        #[test]
        fn agrees_with_a_count(
            limit in 0..40_usize, owners in 1..6_usize, steps in prop::collection::vec((0..6_usize, any::<bool>()), 0..200),
        ) {
            let shares = Shares::new(limit, 0..owners, WhenFull::Refuse);
            let own = (limit / 2 / owners).max((limit / owners).min(1));
            let mut used = vec![0_usize; owners];
            let mut refused = vec![0_u64; owners];
            for (owner, adds) in steps.into_iter().filter(|(owner, _)| *owner < owners) {
                if adds {
                    let common: usize = used.iter().map(|used| used.saturating_sub(own)).sum();
                    let fits = used[owner] < own || common < limit - own * owners;
                    prop_assert_eq!(shares.reserve(owner) == Reservation::Granted, fits);
                    used[owner] += usize::from(fits);
                    refused[owner] += u64::from(!fits);
                } else if used[owner] > 0 {
                    shares.release(owner);
                    used[owner] -= 1;
                }
                prop_assert!(used.iter().sum::<usize>() <= limit);
            }
            for owner in 0..owners {
                let share = shares.get(owner);
                prop_assert_eq!((share.used as usize, share.refused), (used[owner], refused[owner]));
            }
        }
    }
}

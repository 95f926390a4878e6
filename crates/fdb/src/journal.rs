//! The last changes of a table, for a controller that follows it.
//!
//! Nobody follows most tables, so a journal ([`Kept`]) takes memory and time only from the first follower on. It
//! keeps the last [`KEPT`] changes. A follower that comes too late learns that it has lost some, and
//! reads the whole table again.

use crate::word::Station;

/// Number of changes that are kept.
const KEPT: usize = 8192;

/// Number of claims that are kept, to tell each once a second.
const CLAIMS: usize = 16;

/// A change of a table. Ports are indices ([`FdbPort`](crate::FdbPort)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbChange {
    /// The station.
    pub station: Station,
    /// The port that the change is about: see [`FdbChangeKind`].
    pub port: u16,
    /// The kind of change.
    pub kind: FdbChangeKind,
}

/// The kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdbChangeKind {
    /// The station was learned at the port.
    Learned,
    /// The station has moved to the port from another one.
    Moved {
        /// The other port.
        from: u16,
    },
    /// The station is not known at the port any more: it has aged, its new port had no place for it, or
    /// an owner has it now.
    Forgotten,
    /// A frame of the station came in by the port. An owner says that the station is elsewhere, so
    /// nothing was learned.
    Claimed,
}

/// The last changes, if somebody follows.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    /// The last changes: the change with number `n` is at `n % KEPT`. Empty if nobody follows.
    changes: Vec<T>,
    /// The number of all changes.
    count: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept { changes: Vec::new(), count: 0 }
    }
}

/// The changes of a table of stations.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    kept: Kept<FdbChange>,
    claims: [Option<(Station, u16, u32)>; CLAIMS],
    next_claim: usize,
}

/// Returns the place of a change with this number.
fn place(number: u64) -> usize {
    usize::try_from(number % KEPT as u64).unwrap_or(0)
}

impl<T: Copy> Kept<T> {
    /// Begins to keep changes.
    pub(crate) fn begin(&mut self) {
        if self.changes.capacity() == 0 {
            self.changes.reserve_exact(KEPT);
        }
    }

    /// Adds a change, if somebody follows.
    #[inline]
    pub(crate) fn add(&mut self, change: T) {
        if self.changes.capacity() == 0 {
            return;
        }
        if self.changes.len() < KEPT {
            self.changes.push(change);
        } else {
            self.changes[place(self.count)] = change;
        }
        self.count += 1;
    }

    /// Returns the number of all changes.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the changes after the first `since` ones; `None` if some of them are not kept.
    pub(crate) fn after(&self, since: u64) -> Option<Vec<T>> {
        let oldest = self.count - self.changes.len() as u64;
        if since < oldest || since > self.count {
            return None;
        }
        Some((since..self.count).map(|number| self.changes[place(number)]).collect())
    }
}

impl Journal {
    /// Begins to keep changes.
    pub(crate) fn begin(&mut self) {
        self.kept.begin();
    }

    /// Adds a change, if somebody follows.
    #[inline]
    pub(crate) fn add(&mut self, station: Station, port: u16, kind: FdbChangeKind) {
        self.kept.add(FdbChange { station, port, kind });
    }

    /// Returns whether this claim was added in this second.
    pub(crate) fn knows_claim(&self, station: Station, port: u16, now: u32) -> bool {
        self.claims.contains(&Some((station, port, now)))
    }

    /// Adds a claim.
    pub(crate) fn claim(&mut self, station: Station, port: u16, now: u32) {
        self.claims[self.next_claim] = Some((station, port, now));
        self.next_claim = (self.next_claim + 1) % CLAIMS;
        self.add(station, port, FdbChangeKind::Claimed);
    }

    /// Returns the number of all changes.
    pub(crate) fn count(&self) -> u64 {
        self.kept.count()
    }

    /// Returns the changes after the first `since` ones; `None` if some of them are not kept.
    pub(crate) fn after(&self, since: u64) -> Option<Vec<FdbChange>> {
        self.kept.after(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use straightline_wire::{MacAddr, VlanId};

    fn station(number: u64) -> Station {
        Station::new(VlanId::DEFAULT, MacAddr::from_u64(number))
    }

    #[test]
    fn a_follower_gets_each_change_or_knows_that_it_has_lost_some() {
        let mut journal = Journal::default();
        journal.add(station(1), 0, FdbChangeKind::Learned);
        assert_eq!(journal.after(0), Some(vec![]), "nobody followed");
        journal.begin();
        let mut seen = journal.count();
        for number in 0..3 * KEPT as u64 {
            journal.add(station(number), 7, FdbChangeKind::Forgotten);
            if number % 1000 == 999 {
                let news = journal.after(seen).unwrap();
                let numbers = news.iter().map(|change| change.station);
                assert!(numbers.eq((number - 999..=number).map(station)));
                seen = journal.count();
            }
        }
        assert_eq!(journal.after(0), None);
        assert_eq!(journal.after(journal.count() - KEPT as u64).map(|all| all.len()), Some(KEPT));
        assert_eq!(journal.after(journal.count() + 1), None, "another table's number");
    }

    #[test]
    fn a_claim_is_told_once_a_second() {
        let mut journal = Journal::default();
        journal.begin();
        for now in [5, 5, 5, 6] {
            for port in [2, 3] {
                if !journal.knows_claim(station(1), port, now) {
                    journal.claim(station(1), port, now);
                }
            }
        }
        assert_eq!(journal.count(), 4);
    }
}

//! Shares of a table: the number of addresses that each port may fill.
//!
//! Guests can invent addresses, so a port must not be able to fill the table. Half of the table's
//! places are divided evenly: each port has its own. The other half is common, because there may be
//! a network with many stations behind one port. A port that takes all common places leaves every
//! other port its own.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::port::FdbPort;

/// A port's share of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortShare {
    /// Number of addresses learned at the port and not yet forgotten.
    pub learned: u32,
    /// Number of times that an address was not learned, because the port had no place left.
    pub refused: u64,
}

/// The shares of all ports. A writer holds the lock of the table; any thread may read.
pub(crate) struct Shares {
    /// Share of each port, by the port's index.
    ports: Box<[Share]>,
    /// Number of places that each port has of its own.
    own: u32,
    /// Number of common places that are free.
    common: AtomicU32,
}

#[derive(Default)]
struct Share {
    is_member: bool,
    learned: AtomicU32,
    refused: AtomicU64,
}

impl Shares {
    /// Divides `limit` places among `ports`.
    pub(crate) fn new(limit: usize, ports: &[impl FdbPort]) -> Self {
        let size = ports.iter().map(|port| usize::from(port.index()) + 1).max().unwrap_or(0);
        let mut shares: Box<[Share]> = (0..size).map(|_| Share::default()).collect();
        ports.iter().for_each(|port| shares[usize::from(port.index())].is_member = true);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let count = u32::try_from(ports.len()).unwrap_or(u32::MAX).max(1);
        // In a small table, half of the places may be less than one for each port.
        let own = (limit / 2 / count).max((limit / count).min(1));
        Shares { ports: shares, own, common: AtomicU32::new(limit - own * count) }
    }

    /// Reserves a place for a port. Returns `false`, and counts a refusal, if there is none.
    pub(crate) fn reserve(&self, port: impl FdbPort) -> bool {
        let Some(share) = self.ports.get(usize::from(port.index())).filter(|share| share.is_member) else {
            return false;
        };
        let learned = share.learned.load(Ordering::Relaxed);
        if learned >= self.own {
            let common = self.common.load(Ordering::Relaxed);
            if common == 0 {
                share.refused.store(share.refused.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                return false;
            }
            self.common.store(common - 1, Ordering::Relaxed);
        }
        share.learned.store(learned + 1, Ordering::Relaxed);
        true
    }

    /// Releases a place of a port.
    pub(crate) fn release(&self, port: impl FdbPort) {
        let Some(share) = self.ports.get(usize::from(port.index())) else { return };
        let learned = share.learned.load(Ordering::Relaxed);
        if learned > self.own {
            self.common.store(self.common.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        share.learned.store(learned.saturating_sub(1), Ordering::Relaxed);
    }

    /// Returns whether a port has a share.
    pub(crate) fn is_member(&self, port: impl FdbPort) -> bool {
        self.ports.get(usize::from(port.index())).is_some_and(|share| share.is_member)
    }

    /// Returns the share of a port.
    pub(crate) fn port(&self, port: impl FdbPort) -> PortShare {
        self.ports.get(usize::from(port.index())).map_or_else(PortShare::default, |share| PortShare {
            learned: share.learned.load(Ordering::Relaxed),
            refused: share.refused.load(Ordering::Relaxed),
        })
    }

    /// Returns the sum of all shares.
    pub(crate) fn total(&self) -> PortShare {
        let all = self.ports.iter().map(|share| (share.learned.load(Ordering::Relaxed), &share.refused));
        all.fold(PortShare::default(), |sum, (learned, refused)| PortShare {
            learned: sum.learned + learned,
            refused: sum.refused + refused.load(Ordering::Relaxed),
        })
    }

    /// Continues the counts of refusals in `before`. Refusals that were counted here are forgotten.
    pub(crate) fn continue_counts(&self, before: &Shares) {
        for (at, share) in self.ports.iter().enumerate() {
            let refused = before.ports.get(at).map_or(0, |share| share.refused.load(Ordering::Relaxed));
            share.refused.store(refused, Ordering::Relaxed);
        }
    }
}

//! How much of a bridge's table each port may fill.
//!
//! Guests invent addresses. Half of the table's places are shared out evenly among the ports, and each port has its own
//! for itself; the others are for whoever needs them first, for behind one port there may be a whole network. So a port
//! that takes all it can get leaves every other one its own places.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use straightline_packet::PortIndex;

/// What a port has of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortShare {
    /// Addresses learned there and not yet forgotten.
    pub learned: u32,
    /// Times that an address was not learned for want of room.
    pub refused: u64,
}

/// Whoever writes has the lock of the table; anybody reads them.
pub(crate) struct Shares {
    /// By the port's index.
    ports: Box<[Share]>,
    /// Places that each port has for itself.
    own: u32,
    /// What is left of the places that are nobody's own.
    common: AtomicU32,
}

#[derive(Default)]
struct Share {
    is_member: bool,
    learned: AtomicU32,
    refused: AtomicU64,
}

impl Shares {
    /// Of `limit` places, for these ports.
    pub(crate) fn new(limit: usize, ports: &[PortIndex]) -> Self {
        let size = ports.iter().map(|port| port.index() + 1).max().unwrap_or(0);
        let mut shares: Box<[Share]> = (0..size).map(|_| Share::default()).collect();
        ports.iter().for_each(|port| shares[port.index()].is_member = true);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let count = u32::try_from(ports.len()).unwrap_or(u32::MAX).max(1);
        // In a small table the half may be less than one for each.
        let own = (limit / 2 / count).max((limit / count).min(1));
        Shares { ports: shares, own, common: AtomicU32::new(limit - own * count) }
    }

    /// Takes a place for a port; `false` if there is none, which is counted.
    pub(crate) fn reserve(&self, port: PortIndex) -> bool {
        let Some(share) = self.ports.get(port.index()).filter(|share| share.is_member) else { return false };
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

    /// Gives a place of a port back.
    pub(crate) fn release(&self, port: PortIndex) {
        let Some(share) = self.ports.get(port.index()) else { return };
        let learned = share.learned.load(Ordering::Relaxed);
        if learned > self.own {
            self.common.store(self.common.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        share.learned.store(learned.saturating_sub(1), Ordering::Relaxed);
    }

    /// Whether a port is one of those that share.
    pub(crate) fn is_member(&self, port: PortIndex) -> bool {
        self.ports.get(port.index()).is_some_and(|share| share.is_member)
    }

    /// What a port has.
    pub(crate) fn port(&self, port: PortIndex) -> PortShare {
        self.ports.get(port.index()).map_or_else(PortShare::default, |share| PortShare {
            learned: share.learned.load(Ordering::Relaxed),
            refused: share.refused.load(Ordering::Relaxed),
        })
    }

    /// What all have.
    pub(crate) fn total(&self) -> PortShare {
        let all = self.ports.iter().map(|share| (share.learned.load(Ordering::Relaxed), &share.refused));
        all.fold(PortShare::default(), |sum, (learned, refused)| PortShare {
            learned: sum.learned + learned,
            refused: sum.refused + refused.load(Ordering::Relaxed),
        })
    }

    /// Goes on counting what was refused where `before` has counted, and forgets what was refused here.
    pub(crate) fn continue_counts(&self, before: &Shares) {
        for (at, share) in self.ports.iter().enumerate() {
            let refused = before.ports.get(at).map_or(0, |share| share.refused.load(Ordering::Relaxed));
            share.refused.store(refused, Ordering::Relaxed);
        }
    }
}

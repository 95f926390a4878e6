//! Loop protection: a station that moves again and again is a loop, or somebody who claims its
//! address.
//!
//! In a loop, a flooded frame comes back by another port, and its source moves there. So floods from
//! and to the port that the station moved *to* pause for a while. The port where the station was
//! before is not paused. Nor is a port whose source check allows the address: it owns the station.
//! So nobody pauses the port of a station by claiming its address.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use straightline_fdb::Station;
use straightline_packet::{IgnorePoison, PortIndex};

use crate::SourceCheck;

/// The moves of a station in [`WINDOW`] seconds that are a loop. Machines that migrate and routers
/// that take turns move seldom.
pub(super) const MOST_MOVES: u32 = 10;
const WINDOW: u32 = 10;

/// Seconds for which floods pause.
pub(super) const PAUSE: u32 = 10;

/// The number of stations whose moves are counted at the same time.
const WATCHED: usize = 16;

/// The number of loops that are kept until they are asked for.
const KEPT: usize = 16;

/// The loop protection of a bridge. All workers share it.
#[derive(Debug)]
pub(super) struct Loops {
    /// The second up to which floods of each port pause, by the port's index; 0 for never.
    paused: Box<[AtomicU32]>,
    /// The latest of these seconds.
    latest: AtomicU32,
    /// The number of pauses so far.
    count: AtomicU64,
    moving: Mutex<Moving>,
}

#[derive(Debug, Default)]
struct Moving {
    stations: [Option<Mover>; WATCHED],
    /// The entry that the next station takes.
    next: usize,
    found: Vec<Loop>,
}

/// A station that has moved.
#[derive(Clone, Copy, Debug)]
struct Mover {
    station: Station,
    /// Where it was before.
    home: PortIndex,
    since: u32,
    moves: u32,
}

/// A loop that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loop {
    pub(super) station: Station,
    /// Where the station was before it began to move.
    pub(super) home: PortIndex,
    /// The port whose floods pause.
    pub(super) paused: PortIndex,
}

impl Loops {
    pub(super) fn new(ports: usize) -> Self {
        Loops {
            paused: (0..ports).map(|_| AtomicU32::new(0)).collect(),
            latest: AtomicU32::new(0),
            count: AtomicU64::new(0),
            moving: Mutex::default(),
        }
    }

    /// Takes over the pauses of these ports, and the loops that nobody has asked for. No worker may use
    /// either bridge during the call.
    pub(super) fn take_over(&self, before: &Self, ports: impl Iterator<Item = PortIndex>) {
        for port in ports {
            if let (Some(paused), Some(before)) = (self.paused.get(port.index()), before.paused.get(port.index())) {
                let end = before.load(Ordering::Relaxed);
                paused.store(end, Ordering::Relaxed);
                self.latest.fetch_max(end, Ordering::Relaxed);
            }
        }
        self.count.store(before.count(), Ordering::Relaxed);
        *self.moving.lock().ignore_poison() = std::mem::take(&mut *before.moving.lock().ignore_poison());
    }

    /// Counts a move of a station to `to` in the second `now`, and pauses that port if it is one too
    /// many. `checks` are the source checks of ports.
    #[cold]
    pub(super) fn moved(
        &self,
        station: Station,
        (from, to): (PortIndex, PortIndex),
        now: u32,
        checks: &HashMap<PortIndex, SourceCheck>,
    ) {
        let mut moving = self.moving.lock().ignore_poison();
        let known = moving.stations.iter().position(|mover| mover.is_some_and(|mover| mover.station == station));
        let at = known.unwrap_or_else(|| {
            moving.next = (moving.next + 1) % WATCHED;
            moving.next
        });
        let new = Mover { station, home: from, since: now, moves: 0 };
        let is_recent = |mover: &Mover| known.is_some() && now.saturating_sub(mover.since) < WINDOW;
        let mut mover = moving.stations[at].filter(is_recent).unwrap_or(new);
        mover.moves += 1;
        let owns = checks.get(&to).is_some_and(|check| check.allows(station.mac()));
        let is_loop = mover.moves >= MOST_MOVES && to != mover.home && !owns;
        moving.stations[at] = Some(mover);
        if !is_loop || self.is_paused(to, now) {
            return;
        }
        if let Some(paused) = self.paused.get(to.index()) {
            let end = now.saturating_add(PAUSE);
            paused.store(end, Ordering::Relaxed);
            self.latest.fetch_max(end, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
            if moving.found.len() < KEPT {
                moving.found.push(Loop { station, home: mover.home, paused: to });
            }
        }
    }

    /// Returns whether floods of some port pause.
    #[inline]
    pub(super) fn any_paused(&self, now: u32) -> bool {
        now < self.latest.load(Ordering::Relaxed)
    }

    /// Returns whether floods from and to a port pause.
    #[inline]
    pub(super) fn is_paused(&self, port: PortIndex, now: u32) -> bool {
        self.paused.get(port.index()).is_some_and(|end| now < end.load(Ordering::Relaxed))
    }

    /// Returns the number of pauses so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the loops that were found since the last call, as far as they are kept.
    pub(super) fn news(&self) -> Vec<Loop> {
        std::mem::take(&mut self.moving.lock().ignore_poison().found)
    }
}

#[cfg(test)]
mod tests {
    use straightline_wire::{MacAddr, VlanId};

    use super::*;
    use crate::MacPrefix;

    const A: PortIndex = PortIndex(0);
    const B: PortIndex = PortIndex(1);
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn station() -> Station {
        Station::new(VlanId::DEFAULT, MAC)
    }

    /// Has the station move between both ports, `each` times to each of them.
    fn flap(loops: &Loops, each: u32, now: u32, checks: &HashMap<PortIndex, SourceCheck>) {
        for _ in 0..each {
            loops.moved(station(), (A, B), now, checks);
            loops.moved(station(), (B, A), now, checks);
        }
    }

    #[test]
    fn the_port_where_a_station_was_before_is_not_paused() {
        let loops = Loops::new(2);
        let none = HashMap::new();
        flap(&loops, 4, 100, &none);
        assert!(!loops.any_paused(100), "8 moves are few");
        flap(&loops, 4, 101, &none);
        assert_eq!((loops.is_paused(A, 101), loops.is_paused(B, 101), loops.any_paused(101)), (false, true, true));
        assert_eq!(loops.news(), [Loop { station: station(), home: A, paused: B }]);
        assert_eq!((loops.news(), loops.count()), (vec![], 1), "told once");
        assert!(!loops.is_paused(B, 101 + PAUSE) && !loops.any_paused(101 + PAUSE));
    }

    #[test]
    fn a_port_that_owns_the_station_is_never_paused() {
        let loops = Loops::new(2);
        let check = SourceCheck::new(&[MacPrefix::exact(MAC)], None);
        // The attacker was first, so the owner's port is where the station moves to.
        flap(&loops, 20, 7, &[(B, check)].into());
        assert!(!loops.any_paused(7));
    }

    #[test]
    fn a_reload_ends_no_pause_of_a_port_that_stays() {
        let before = Loops::new(2);
        flap(&before, 8, 100, &HashMap::new());
        let after = Loops::new(3);
        after.take_over(&before, [A, B, PortIndex(2)].into_iter());
        assert_eq!([A, B, PortIndex(2)].map(|port| after.is_paused(port, 105)), [false, true, false]);
        assert!(after.any_paused(105) && !after.any_paused(100 + PAUSE));
        assert_eq!((before.news().len(), after.news().len(), after.count()), (0, 1, 1), "the successor tells it");
        let without = Loops::new(2);
        without.take_over(&after, [A].into_iter());
        assert!(!without.any_paused(105), "the port has left the bridge");
    }

    #[test]
    fn seldom_moves_are_no_loop() {
        let loops = Loops::new(2);
        for now in 0..100 {
            flap(&loops, 1, now * WINDOW, &HashMap::new());
        }
        assert_eq!(loops.count(), 0);
    }
}

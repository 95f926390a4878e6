//! Loop protection: a station that moves again and again is a loop, or somebody who claims its
//! address.
//!
//! The table freezes such a station at the port that has most right to it ([`Places`] has the ranks),
//! and refuses its frames from other ports. That ends a loop between two uplinks. It has the say over one
//! station, so it is no weapon against the others.
//!
//! A loop behind an ordinary port has many stations. So floods of that port pause, too, while frames
//! of a frozen station come from it. Such a port is that of one VM, in one VLAN, so nobody else loses
//! anything. A port that leads to other networks never pauses: whoever claims the address of one station
//! there would take the way of all others. Nor does a port whose source check allows the address: that may be
//! the station itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use straightline_fdb::{PlaceRank, PlaceRanks, Station};
use straightline_packet::PortIndex;

use super::member::BridgePort;
use crate::SourceCheck;

/// Seconds for which floods pause.
pub(super) const PAUSE: u32 = 10;

/// Number of uplinks that have a bit.
const MOST_BITS: u32 = u16::BITS;

/// The ports of a bridge as places of stations.
#[derive(Debug)]
pub(super) struct Places {
    /// Bits of the uplinks by the port's index; `None` for ordinary ports. Uplinks beyond 16 have no bit:
    /// a bit that two of them share would let one be blamed for the other.
    uplinks: Box<[Option<u16>]>,
    checks: HashMap<PortIndex, SourceCheck>,
}

impl Places {
    pub(super) fn new(ports: &[BridgePort], checks: HashMap<PortIndex, SourceCheck>) -> Self {
        let count = ports.iter().map(|port| port.index.index() + 1).max().unwrap_or(0);
        let mut uplinks = vec![None; count];
        for (port, nth) in ports.iter().filter(|port| port.is_uplink()).zip(0..) {
            uplinks[port.index.index()] = Some(if nth < MOST_BITS { 1 << nth } else { 0 });
        }
        Places { uplinks: uplinks.into(), checks }
    }

    fn uplink(&self, port: PortIndex) -> Option<u16> {
        self.uplinks.get(port.index()).copied().flatten()
    }

    /// Returns whether a station may be behind a port, by its source check.
    pub(super) fn allows(&self, station: Station, port: PortIndex) -> bool {
        self.checks.get(&port).is_none_or(|check| check.allows(station.mac()))
    }
}

impl PlaceRanks<PortIndex> for Places {
    fn rank(&self, station: Station, port: PortIndex) -> PlaceRank {
        if self.checks.contains_key(&port) && self.allows(station, port) {
            PlaceRank::Checked
        } else if self.uplink(port).is_some() {
            PlaceRank::Uplink
        } else {
            PlaceRank::Ordinary
        }
    }

    fn uplink_bit(&self, port: PortIndex) -> u16 {
        self.uplink(port).unwrap_or(0)
    }
}

/// The loop protection of a bridge. All workers share it.
#[derive(Debug)]
pub(super) struct Loops {
    places: Arc<Places>,
    /// The second up to which floods of each port pause, by the port's index; 0 for never.
    paused: Box<[AtomicU32]>,
    /// The latest second for which a pause or a freeze may last.
    latest: AtomicU32,
}

impl Loops {
    pub(super) fn new(places: Arc<Places>) -> Self {
        let paused = places.uplinks.iter().map(|_| AtomicU32::new(0)).collect();
        Loops { places, paused, latest: AtomicU32::new(0) }
    }

    /// Takes over the pauses of these ports. No worker may use either bridge during the call.
    pub(super) fn take_over(&self, before: &Self, ports: impl Iterator<Item = PortIndex>) {
        for port in ports.filter(|port| !self.is_uplink(*port)) {
            if let (Some(paused), Some(before)) = (self.paused.get(port.index()), before.paused.get(port.index())) {
                paused.store(before.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        self.latest.store(before.latest.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns whether a port leads to other networks.
    pub(super) fn is_uplink(&self, port: PortIndex) -> bool {
        self.places.uplink(port).is_some()
    }

    /// Returns whether floods of a port pause when it sends frames of a station that is frozen elsewhere.
    pub(super) fn may_pause(&self, station: Station, port: PortIndex) -> bool {
        self.places.rank(station, port) == PlaceRank::Ordinary
    }

    /// Returns the bit of an uplink ([`PlaceRanks::uplink_bit`]).
    #[inline]
    pub(super) fn uplink_bit(&self, port: PortIndex) -> u16 {
        self.places.uplink_bit(port)
    }

    /// Notes that a frame from `port` was refused in the second `now`: its station is frozen elsewhere.
    #[cold]
    pub(super) fn refused(&self, station: Station, port: PortIndex, now: u32) {
        let end = now.saturating_add(PAUSE);
        // A row of refused frames writes once a second.
        if self.latest.load(Ordering::Relaxed) < end {
            self.latest.fetch_max(end, Ordering::Relaxed);
        }
        let paused = self.paused.get(port.index()).filter(|_| self.may_pause(station, port));
        if let Some(paused) = paused.filter(|paused| paused.load(Ordering::Relaxed) < end) {
            paused.fetch_max(end, Ordering::Relaxed);
        }
    }

    /// Ends the pause of a port.
    pub(super) fn resume(&self, port: PortIndex) {
        if let Some(paused) = self.paused.get(port.index()) {
            paused.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether floods of some port may pause, or some station may be frozen.
    #[inline]
    pub(super) fn any(&self, now: u32) -> bool {
        now < self.latest.load(Ordering::Relaxed)
    }

    /// Returns whether floods from and to a port pause.
    #[inline]
    pub(super) fn is_paused(&self, port: PortIndex, now: u32) -> bool {
        self.paused.get(port.index()).is_some_and(|end| now < end.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use straightline_fdb::{Fdb, LearnOutcome};
    use straightline_wire::{MacAddr, VlanId, VlanSet};

    use super::*;
    use crate::{MacPrefix, NativeVlan, PortRules, PortVlans, VlanRole};

    const A: PortIndex = PortIndex(0);
    const B: PortIndex = PortIndex(1);
    const TRUNK: PortIndex = PortIndex(2);
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn station() -> Station {
        Station::new(VlanId::DEFAULT, MAC)
    }

    fn ports() -> Vec<BridgePort> {
        let native = Some(NativeVlan { id: VlanId::DEFAULT, is_tagged: true, has_nested_tags: false });
        let vlans: VlanSet = [VlanId::DEFAULT].into_iter().collect();
        let role = VlanRole::Trunk { tpid: straightline_wire::EtherType::VLAN, vlans: Box::new(vlans), native };
        let vlans = Some(PortVlans { role, priority: 0 });
        let trunk = BridgePort { rules: PortRules { vlans, ..PortRules::default() }, ..BridgePort::plain(TRUNK) };
        vec![BridgePort::plain(A), BridgePort::plain(B), trunk]
    }

    fn scene(checks: HashMap<PortIndex, SourceCheck>) -> (Arc<Places>, Fdb) {
        let places = Arc::new(Places::new(&ports(), checks));
        (Arc::clone(&places), Fdb::new(64, 300, &[A, B, TRUNK], &[]).with_freezes(places))
    }

    /// Has the station appear at these ports in turn, many times.
    fn flap(fdb: &Fdb, ports: [PortIndex; 2]) {
        for _ in 0..20 {
            for port in ports {
                let _ = fdb.learn(station(), port, 7);
            }
        }
    }

    #[test]
    fn a_station_stays_at_the_port_that_has_most_right_to_it() {
        let check = SourceCheck::new(&[MacPrefix::exact(MAC)], None);
        for (ports, checked, home) in [
            ([A, B], None, A),
            ([B, A], None, B),
            ([A, TRUNK], None, TRUNK),
            ([TRUNK, A], None, TRUNK),
            ([TRUNK, A], Some(A), A),
            ([B, A], Some(A), A),
        ] {
            let (_, fdb) = scene(checked.map(|port| (port, check.clone())).into_iter().collect());
            flap(&fdb, ports);
            assert_eq!(fdb.lookup(station(), 7), Some(home), "{ports:?}, {checked:?}");
            for port in ports {
                let expected = if port == home { LearnOutcome::Known } else { LearnOutcome::Frozen };
                assert_eq!(fdb.learn(station(), port, 8), expected);
            }
        }
    }

    #[test]
    fn an_ordinary_port_pauses_and_an_uplink_never_does() {
        let (places, _) = scene(HashMap::new());
        let loops = Loops::new(places);
        assert!(!loops.any(100));
        loops.refused(station(), TRUNK, 100);
        assert!(loops.any(100) && [A, B, TRUNK].iter().all(|port| !loops.is_paused(*port, 100)));
        loops.refused(station(), B, 101);
        assert_eq!([A, B, TRUNK].map(|port| loops.is_paused(port, 101)), [false, true, false]);
        loops.refused(station(), B, 105);
        assert!(loops.is_paused(B, 105 + PAUSE - 1) && !loops.is_paused(B, 105 + PAUSE) && !loops.any(105 + PAUSE));
    }

    #[test]
    fn a_port_whose_source_check_allows_the_address_never_pauses() {
        let check = SourceCheck::new(&[MacPrefix::exact(MAC)], None);
        let (places, _) = scene([(B, check)].into());
        let loops = Loops::new(places);
        loops.refused(station(), B, 100);
        assert!(loops.any(100) && !loops.is_paused(B, 100));
        loops.refused(Station::new(VlanId::DEFAULT, MacAddr([2, 0, 0, 0, 0, 2])), B, 100);
        assert!(loops.is_paused(B, 100), "its address is another one");
    }

    #[test]
    fn a_reload_ends_no_pause_of_a_port_that_stays() {
        let (places, _) = scene(HashMap::new());
        let before = Loops::new(Arc::clone(&places));
        before.refused(station(), B, 100);
        let after = Loops::new(Arc::clone(&places));
        after.take_over(&before, [A, B, TRUNK].into_iter());
        assert_eq!([A, B].map(|port| after.is_paused(port, 105)), [false, true]);
        assert!(after.any(105) && !after.any(100 + PAUSE));
        let without = Loops::new(places);
        without.take_over(&after, [A].into_iter());
        assert!(!without.is_paused(B, 105), "the port has left the bridge");
    }

    #[test]
    fn uplinks_beyond_sixteen_have_no_bit_of_others() {
        let uplink = |index| BridgePort { leads_on: true, ..BridgePort::plain(PortIndex(index)) };
        let places = Places::new(&(0..20).map(uplink).collect::<Vec<_>>(), HashMap::new());
        let bits: Vec<_> = (0..20).map(|index| places.uplink_bit(PortIndex(index))).collect();
        assert_eq!(bits.iter().fold(0, |all, bit| all + u32::from(*bit)), 0xffff);
        assert_eq!((bits[15], bits[16]), (1 << 15, 0));
        assert_eq!(places.rank(station(), PortIndex(19)), PlaceRank::Uplink);
    }
}

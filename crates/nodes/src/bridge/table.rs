//! The control half of a bridge: its table of stations.

use std::collections::HashMap;
use std::sync::Arc;

use straightline_api::{EventKind, FdbEntry as StationRow, Row};
use straightline_fdb::{Fdb, FdbEntry, FdbFreeze, FdbSpace, OwnOutcome, Share, Station};
use straightline_graph::{NodeControl, RefusalNotes, Rows, TableEvent, TableView, Told};
use straightline_packet::PortIndex;
use straightline_wire::{MacAddr, VlanId};

use super::loops::{Loops, PAUSE, Places};
use super::member::BridgePort;
use super::rules::Rules;
use crate::binding_settings::BindingSettings;
use crate::{Bridge, SourceCheck};

/// The settings of a bridge's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeRules {
    /// The number of addresses that are learned.
    pub limit: usize,
    /// Seconds until an address that was not seen again is forgotten.
    pub ageing: u32,
    /// The number of stations that clients of the API may add.
    pub api_stations: usize,
    /// The static entries.
    pub statics: Vec<(VlanId, MacAddr, PortIndex)>,
    /// A station that moves again and again is frozen at one port.
    pub loop_protection: bool,
    /// The ports with their rules, in the order of the bridge's edges.
    pub ports: Vec<BridgePort>,
    /// Packets to multicast groups are pruned, by a [`SnoopingTable`](crate::SnoopingTable).
    pub snooping: bool,
    /// Frames pass flow tables first, those of a [`FlowControl`](crate::FlowControl).
    pub flows: bool,
    /// Frames pass [`Neighbours`](crate::Neighbours) with these settings. `None`: they do not.
    pub bindings: Option<BindingSettings>,
}

/// The table of a bridge. The bridges of all workers share it.
#[derive(Debug)]
pub struct BridgeTable {
    bridge: String,
    ports: Vec<BridgePort>,
    /// The rules as workers look them up; `None` if no port has one.
    rules: Option<Arc<Rules>>,
    places: Arc<Places>,
    /// `None`: loops are not looked for.
    loops: Option<Arc<Loops>>,
    fdb: Arc<Fdb>,
    told: Told<AlreadyTold>,
}

/// The news that events have told.
#[derive(Debug, Default)]
struct AlreadyTold {
    /// The number of moves.
    moves: u64,
    refusals: RefusalNotes,
}

impl BridgeTable {
    /// Creates the table of a bridge.
    #[must_use]
    pub fn new(bridge: &str, rules: &BridgeRules, checks: HashMap<PortIndex, SourceCheck>) -> Self {
        let ports = rules.ports.clone();
        let indexes: Vec<_> = ports.iter().map(|port| port.index).collect();
        let limits = ports.iter().filter_map(|port| Some((port.index, port.rules.mac_limit?.most)));
        let space = FdbSpace { owned: rules.api_stations, ports: 0 };
        let fdb = Fdb::with_space(rules.limit, rules.ageing, &indexes, &rules.statics, space).with_limits(limits);
        let move_limits = ports.iter().filter_map(|port| Some((port.index, port.move_limit?)));
        let fdb = fdb.with_move_limits(move_limits);
        let places = Arc::new(Places::new(&ports, checks));
        let loops = rules.loop_protection.then(|| Arc::new(Loops::new(Arc::clone(&places))));
        let fdb = if loops.is_some() { fdb.with_freezes(Arc::<Places>::clone(&places)) } else { fdb };
        let fdb = Arc::new(fdb);
        let rules = Rules::of(&ports).map(Arc::new);
        BridgeTable { bridge: bridge.to_owned(), ports, rules, places, loops, fdb, told: Told::default() }
    }

    /// Returns a node for one of the workers that share the table.
    #[must_use]
    pub fn node(&self, workers: u32) -> Bridge {
        Bridge::with(&self.ports, self.rules.clone(), self.loops.clone(), Arc::clone(&self.fdb)).shared_by(workers)
    }

    /// Returns the ports in the order of the bridge's edges.
    pub(crate) fn ports(&self) -> impl Iterator<Item = PortIndex> + '_ {
        self.ports.iter().map(|port| port.index)
    }

    /// Returns the rules of the ports; `None` if no port has one.
    pub(crate) fn rules(&self) -> Option<Arc<Rules>> {
        self.rules.clone()
    }

    /// Returns the stations.
    #[must_use]
    pub fn fdb(&self) -> &Arc<Fdb> {
        &self.fdb
    }

    /// Gives a station to an owner, at a port ([`Fdb::set_owned`]). If the station was frozen elsewhere, the
    /// port may have paused because of its frames. Then the pause ends.
    pub fn set_owned(&self, station: Station, port: PortIndex) -> OwnOutcome {
        let outcome = self.fdb.set_owned(station, port);
        if let (OwnOutcome::Owned, Some(loops)) = (outcome, &self.loops) {
            loops.resume(port);
        }
        outcome
    }

    /// Returns whether stations behind a port can be in a VLAN. `None`: it is no port of the bridge.
    #[must_use]
    pub fn may_have(&self, port: PortIndex, vlan: VlanId) -> Option<bool> {
        Some(self.ports.iter().find(|member| member.index == port)?.may_have(vlan))
    }

    /// Returns the name of the bridge.
    #[must_use]
    pub fn bridge(&self) -> &str {
        &self.bridge
    }

    /// Returns the number of times that an address moved from one port to another.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.fdb.moved()
    }

    /// Returns a port's share of the table.
    #[must_use]
    pub fn share(&self, port: PortIndex) -> Share {
        self.fdb.share(port)
    }

    fn loop_event(&self, view: &TableView<'_>, found: FdbFreeze<PortIndex>) -> TableEvent {
        let bridge = self.bridge.clone();
        let mac = found.station.mac().to_string();
        let from = (view.port)(found.home);
        let to = (view.port)(found.at);
        let may_pause = self.loops.as_ref().is_some_and(|loops| loops.may_pause(found.station, found.at));
        let pause = if may_pause { format!(", and floods of {to:?} pause") } else { String::new() };
        let message = format!(
            "bridge {bridge:?}: {mac} of port {from:?} appears at port {to:?} again and again, so it stays at {from:?} for \
             {PAUSE} s: its frames from other ports drop{pause}"
        );
        TableEvent { source: format!("bridge {bridge}"), kind: EventKind::Loop { bridge, mac, from, to }, message }
    }

    fn moves(&self, view: &TableView<'_>, told: &mut u64) -> Vec<TableEvent> {
        // A table that is new under an old name counts from 0 again.
        let seen = if *told > self.fdb.moved() { 0 } else { *told };
        if self.fdb.moved() == seen {
            return Vec::new();
        }
        let (moves, count) = self.fdb.moves(seen);
        *told = count;
        let event = |moved: straightline_fdb::FdbMove| {
            let bridge = self.bridge.clone();
            let mac = moved.mac.to_string();
            let from = (view.port)(moved.from);
            let to = (view.port)(moved.to);
            let message = format!("bridge {bridge:?}: {mac} moved from port {from:?} to port {to:?}");
            TableEvent { source: format!("bridge {bridge}"), kind: EventKind::Moved { bridge, mac, from, to }, message }
        };
        moves.into_iter().map(event).collect()
    }
}

impl NodeControl for BridgeTable {
    /// Takes over the stations that are still valid. Those that a port claimed before its claims were
    /// checked are not, and those in a VLAN that their port has left.
    fn commit(&self, before: &dyn NodeControl) {
        let Some(before) = before.downcast::<Self>() else { return };
        let may_stay = |entry: &FdbEntry| {
            let is_allowed = self.places.allows(Station::new(entry.vlan, entry.mac), entry.port);
            let port = self.ports.iter().find(|port| port.index == entry.port);
            is_allowed && port.is_some_and(|port| port.may_have(entry.vlan))
        };
        self.fdb.take_over(&before.fdb, may_stay);
        if let (Some(loops), Some(before)) = (&self.loops, &before.loops) {
            loops.take_over(before, self.ports.iter().map(|port| port.index));
        }
        self.told.take_over(&before.told);
    }

    fn rows(&self, view: &TableView<'_>, rows: &mut Rows) {
        for entry in self.fdb.entries(view.second()) {
            let row = || {
                Row::Station(StationRow {
                    bridge: self.bridge.clone(),
                    vlan: entry.vlan.get(),
                    mac: entry.mac.to_string(),
                    port: (view.port)(entry.port),
                    age_s: if entry.is_static || entry.is_owned { 0.0 } else { view.age(entry.seen) },
                    is_static: entry.is_static,
                    is_owned: entry.is_owned,
                })
            };
            rows.add(|| format!("{:04} {}", entry.vlan.get(), entry.mac), row);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("moved", self.fdb.moved()),
            ("held", self.fdb.held()),
            ("refused", self.fdb.full()),
            ("loops", self.fdb.frozen()),
        ]
    }

    fn events(&self, view: &TableView<'_>) -> Vec<TableEvent> {
        self.told.news(|told| {
            let mut news = self.moves(view, &mut told.moves);
            news.extend(self.fdb.freezes().into_iter().map(|found| self.loop_event(view, found)));
            if self.fdb.full() > 0 {
                let shares = self.ports.iter().map(|port| {
                    let name = (view.port)(port.index);
                    (name, None, self.fdb.share(port.index).refused)
                });
                news.extend(told.refusals.news(view, shares));
            }
            news
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PortIndex = PortIndex(1);
    const B: PortIndex = PortIndex(2);

    fn name(port: PortIndex) -> String {
        format!("vm{}", port.0)
    }

    fn view() -> TableView<'static> {
        TableView { now: 10.5, port: &name }
    }

    fn rules(limit: usize, ports: &[PortIndex]) -> BridgeRules {
        let ports = ports.iter().map(|&port| BridgePort::plain(port)).collect();
        BridgeRules {
            limit,
            ageing: 300,
            api_stations: 0,
            statics: Vec::new(),
            loop_protection: true,
            ports,
            snooping: false,
            flows: false,
            bindings: None,
        }
    }

    fn table(limit: usize, ports: &[PortIndex], checks: HashMap<PortIndex, SourceCheck>) -> BridgeTable {
        BridgeTable::new("lan", &rules(limit, ports), checks)
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    fn shown(table: &BridgeTable) -> Vec<(String, String)> {
        let mut rows = Rows::all();
        table.rows(&view(), &mut rows);
        let station = |row| match row {
            Row::Station(station) => (station.mac, station.port),
            other => panic!("{other:?}"),
        };
        rows.into_page().0.into_iter().map(station).collect()
    }

    #[test]
    fn a_successor_has_what_is_still_valid_and_tells_only_news() {
        let before = table(8, &[A, B], HashMap::new());
        for (last, port) in [(1, A), (2, A), (3, B)] {
            before.fdb.learn(Station::new(VlanId::DEFAULT, mac(last)), port, 7);
        }
        before.fdb.learn(Station::new(VlanId::DEFAULT, mac(3)), A, 8);
        let told: Vec<_> = before.events(&view()).into_iter().map(|event| event.message).collect();
        assert_eq!(told, ["bridge \"lan\": 02:00:00:00:00:03 moved from port \"vm2\" to port \"vm1\""]);
        before.fdb.learn(Station::new(VlanId::DEFAULT, mac(3)), B, 9);
        // From now on, port A may claim one address only.
        let check = SourceCheck::new(&[crate::MacPrefix::exact(mac(1))], None);
        let after = table(8, &[A, B], [(A, check)].into());
        after.commit(&before);
        let station = |last, port: &str| (mac(last).to_string(), port.to_owned());
        assert_eq!(shown(&after), [station(1, "vm1"), station(3, "vm2")]);
        assert_eq!(before.events(&view()), [], "the successor tells it");
        assert_eq!(after.events(&view()).len(), 1, "of the second move");
        assert_eq!(after.events(&view()), []);
    }

    #[test]
    fn a_port_that_gets_a_station_of_an_owner_pauses_no_more() {
        let table = table(8, &[A, B], HashMap::new());
        let key = Station::new(VlanId::DEFAULT, mac(1));
        let loops = table.loops.as_ref().unwrap();
        loops.refused(key, B, 7);
        assert_eq!(table.set_owned(key, B), OwnOutcome::Full, "there is no place for stations of owners");
        assert!(loops.is_paused(B, 8));
        let rules = BridgeRules { api_stations: 1, ..rules(8, &[A, B]) };
        let table = BridgeTable::new("lan", &rules, HashMap::new());
        let loops = table.loops.as_ref().unwrap();
        loops.refused(key, B, 7);
        assert_eq!(table.set_owned(key, B), OwnOutcome::Owned);
        assert!(!loops.is_paused(B, 8));
    }

    #[test]
    fn a_full_share_is_told_with_its_port() {
        let table = table(4, &[A, B], HashMap::new());
        for last in 0..5 {
            table.fdb.learn(Station::new(VlanId::DEFAULT, mac(last + 1)), A, 0);
        }
        let events = table.events(&view());
        let [TableEvent { kind: EventKind::NotLearned { port, remote: None, refused: 2 }, .. }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(port, "vm1");
        assert_eq!(table.counters(), [("moved", 0), ("held", 0), ("refused", 2), ("loops", 0)]);
    }
}

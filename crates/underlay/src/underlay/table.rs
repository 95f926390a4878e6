//! The control half of an underlay: its next hops and its addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use straightline_api::{EventKind, Neighbour, NeighbourState as StateWord, OwnAddress, Row};
use straightline_graph::{NodeControl, Rows, TableEvent, TableView};
use straightline_wire::MacAddr;

use super::Underlay;
use super::conflicts::AddressStatus;
use crate::{NeighbourState, NeighbourStatus};

/// The news of an underlay that events have told.
#[derive(Debug, Default)]
pub(super) struct AlreadyTold {
    /// MAC address and state of each next hop.
    next_hops: BTreeMap<IpAddr, (Option<MacAddr>, NeighbourState)>,
    /// The stations that have addresses of ours too.
    conflicts: BTreeMap<IpAddr, MacAddr>,
}

impl NodeControl for Underlay {
    /// Takes over what was told. Next hops are asked anew.
    fn commit(&self, before: &dyn NodeControl) {
        if let Some(before) = before.downcast::<Self>() {
            self.told.take_over(&before.told);
        }
    }

    fn rows(&self, _: &TableView<'_>, rows: &mut Rows) {
        let underlay = &self.config.name;
        for next_hop in self.neighbours() {
            rows.add(|| format!("next-hop {}", next_hop.ip), || Row::NextHop(neighbour(underlay, &next_hop)));
        }
        for own in self.addresses() {
            rows.add(|| format!("own {}", own.ip), || Row::OwnAddress(own_address(underlay, &own)));
        }
    }

    fn events(&self, _: &TableView<'_>) -> Vec<TableEvent> {
        self.told.news(|AlreadyTold { next_hops, conflicts }| {
            let mut news = self.news_of_next_hops(next_hops);
            news.extend(self.news_of_addresses(conflicts));
            news
        })
    }
}

impl Underlay {
    fn news_of_next_hops(&self, told: &mut BTreeMap<IpAddr, (Option<MacAddr>, NeighbourState)>) -> Vec<TableEvent> {
        let before = std::mem::take(told);
        let mut news = Vec::new();
        for NeighbourStatus { ip, mac, state, .. } in self.neighbours() {
            told.insert(ip, (mac, state));
            // A new next hop is asked at first.
            let last = before.get(&ip).copied().unwrap_or((None, NeighbourState::Asked));
            if last == (mac, state) || state == NeighbourState::Static {
                continue;
            }
            let is = match (state, mac) {
                (NeighbourState::Reachable, Some(mac)) => format!("is reachable at {mac}"),
                (NeighbourState::Unanswered, _) => "does not answer".to_owned(),
                _ => "is asked for its MAC address".to_owned(),
            };
            let underlay = self.config.name.clone();
            let message = format!("underlay {underlay:?}: next hop {ip} {is}");
            let source = format!("underlay {underlay}");
            let mac = mac.map(|mac| mac.to_string());
            let kind = EventKind::Neighbour { underlay, ip: ip.to_string(), mac, state: state.into() };
            news.push(TableEvent { source, kind, message });
        }
        news
    }

    /// A stranger can forge conflicts, so the events of each address are limited by themselves.
    fn news_of_addresses(&self, told: &mut BTreeMap<IpAddr, MacAddr>) -> Vec<TableEvent> {
        let mut before = std::mem::take(told);
        let mut news = Vec::new();
        for own in self.addresses() {
            let ip = own.ip;
            let mac = own.conflict.map(|other| other.mac);
            if let Some(mac) = mac {
                told.insert(ip, mac);
            }
            if before.remove(&ip) == mac {
                continue;
            }
            let underlay = self.config.name.clone();
            let message = match mac {
                Some(mac) => format!("underlay {underlay:?}: another station, {mac}, has our address {ip} too"),
                None => format!("underlay {underlay:?}: no other station has our address {ip} any more"),
            };
            let source = format!("address {underlay} {ip}");
            let kind = EventKind::AddressConflict { underlay, ip: ip.to_string(), mac: mac.map(|mac| mac.to_string()) };
            news.push(TableEvent { source, kind, message });
        }
        news
    }
}

fn neighbour(underlay: &str, next_hop: &NeighbourStatus) -> Neighbour {
    Neighbour {
        underlay: underlay.to_owned(),
        ip: next_hop.ip.to_string(),
        mac: next_hop.mac.map(|mac| mac.to_string()),
        state: next_hop.state.into(),
        age_s: next_hop.age_s,
    }
}

fn own_address(underlay: &str, own: &AddressStatus) -> OwnAddress {
    OwnAddress {
        underlay: underlay.to_owned(),
        ip: own.ip.to_string(),
        conflict: own.conflict.map(|other| other.mac.to_string()),
        age_s: own.conflict.map(|other| other.age_s),
        claims: own.claims,
    }
}

impl From<NeighbourState> for StateWord {
    fn from(state: NeighbourState) -> Self {
        match state {
            NeighbourState::Asked => StateWord::Asked,
            NeighbourState::Reachable => StateWord::Reachable,
            NeighbourState::Unanswered => StateWord::Unanswered,
            NeighbourState::Static => StateWord::Static,
        }
    }
}

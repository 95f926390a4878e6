//! The state of one broadcast domain.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use straightline_wire::MacAddr;

use super::settings::Domain;
use super::station::{RemoteRoute, Station};
use crate::route::{Pmsi, Route, RouteKey, VXLAN};
use crate::{INGRESS_REPLICATION, Mobility};

/// A host that wants floods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    pub(crate) next_hop: IpAddr,
    pub(crate) listing: u64,
}

/// A domain with its stations.
#[derive(Clone, Debug)]
pub(crate) struct DomainState {
    pub(crate) settings: Domain,
    pub(crate) stations: BTreeMap<MacAddr, Station>,
    /// Received routes of type 3.
    pub(crate) floods: BTreeMap<RouteKey, Flood>,
    /// The number of these routes of each host.
    flood_hosts: BTreeMap<IpAddr, usize>,
    addresses: BTreeMap<IpAddr, Holders>,
    /// The stations of each other host, as its routes say.
    behind: BTreeMap<IpAddr, BTreeSet<MacAddr>>,
}

/// The stations that say that an address is theirs.
#[derive(Clone, Debug)]
struct Holders {
    /// The first one.
    holder: MacAddr,
    all: BTreeSet<MacAddr>,
}

impl DomainState {
    pub(crate) fn new(settings: Domain) -> Self {
        Self {
            settings,
            stations: BTreeMap::new(),
            floods: BTreeMap::new(),
            addresses: BTreeMap::new(),
            behind: BTreeMap::new(),
            flood_hosts: BTreeMap::new(),
        }
    }

    /// Adds or replaces a received route of a station. Returns true if it is a new one.
    pub(crate) fn add_route(&mut self, mac: MacAddr, key: RouteKey, route: RemoteRoute) -> bool {
        let before = self.stations.entry(mac).or_default().routes.insert(key, route);
        self.behind.entry(route.next_hop).or_default().insert(mac);
        if let Some(before) = before {
            self.left(mac, before.next_hop);
        }
        before.is_none()
    }

    /// Removes a received route of a station. Returns false if there was none.
    pub(crate) fn remove_route(&mut self, mac: MacAddr, key: &RouteKey) -> bool {
        let route = self.stations.get_mut(&mac).and_then(|station| station.routes.remove(key));
        if let Some(route) = route {
            self.left(mac, route.next_hop);
        }
        route.is_some()
    }

    /// Notes that a route of this host has gone.
    fn left(&mut self, mac: MacAddr, host: IpAddr) {
        let has = |station: &Station| station.routes.values().any(|route| route.next_hop == host);
        if self.stations.get(&mac).is_some_and(has) {
            return;
        }
        if let Some(behind) = self.behind.get_mut(&host) {
            behind.remove(&mac);
            if behind.is_empty() {
                self.behind.remove(&host);
            }
        }
    }

    /// Returns the stations with a route of this host.
    pub(crate) fn behind(&self, host: IpAddr) -> Vec<MacAddr> {
        self.behind.get(&host).into_iter().flatten().copied().collect()
    }

    /// Returns whether this host wants floods.
    pub(crate) fn floods_to(&self, host: IpAddr) -> bool {
        self.flood_hosts.contains_key(&host)
    }

    /// Returns the hosts that want floods.
    pub(crate) fn flood_hosts(&self) -> impl Iterator<Item = IpAddr> {
        self.flood_hosts.keys().copied()
    }

    /// Adds or replaces a received route of type 3. Returns the hosts that want floods now, or no longer.
    pub(crate) fn add_flood(&mut self, key: RouteKey, flood: Flood) -> Vec<IpAddr> {
        let before = self.floods.insert(key, flood).map(|before| before.next_hop);
        let mut changed = Vec::new();
        let count = self.flood_hosts.entry(flood.next_hop).or_default();
        *count += 1;
        if *count == 1 {
            changed.push(flood.next_hop);
        }
        changed.extend(before.and_then(|host| self.flood_left(host)));
        changed
    }

    /// Removes a received route of type 3. Returns its host if that wants floods no longer.
    pub(crate) fn remove_flood(&mut self, key: &RouteKey) -> Option<IpAddr> {
        self.floods.remove(key).and_then(|flood| self.flood_left(flood.next_hop))
    }

    fn flood_left(&mut self, host: IpAddr) -> Option<IpAddr> {
        let count = self.flood_hosts.get_mut(&host)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.flood_hosts.remove(&host);
        Some(host)
    }

    /// Returns the key of the own route of type 3.
    pub(crate) fn own_flood(&self) -> RouteKey {
        let Domain { rd, tag, own, .. } = self.settings;
        RouteKey::Flood { rd, tag, origin: own }
    }

    /// Returns the own route with this key.
    pub(crate) fn own_route(&self, key: RouteKey) -> Route {
        let Domain { own, vni, export, .. } = &self.settings;
        let mut route = Route {
            key,
            next_hop: *own,
            label: 0,
            has_segment: false,
            targets: export.clone(),
            encapsulations: vec![VXLAN],
            mobility: Mobility::default(),
            pmsi: None,
        };
        match key {
            RouteKey::Flood { .. } => route.pmsi = Some(Pmsi { kind: INGRESS_REPLICATION, label: *vni }),
            RouteKey::Station { mac, .. } => {
                route.label = *vni;
                route.mobility = self.stations.get(&mac).map(Station::mobility).unwrap_or_default();
            }
        }
        route
    }

    /// Returns whether `mac` was the first station to have this address.
    pub(crate) fn holds(&self, mac: MacAddr, ip: IpAddr) -> bool {
        self.addresses.get(&ip).is_some_and(|holders| holders.holder == mac)
    }

    /// Notes the addresses that `mac` says are its own now. Returns stations that got an address by
    /// this.
    pub(crate) fn mention(&mut self, mac: MacAddr, before: &BTreeSet<IpAddr>, now: &BTreeSet<IpAddr>) -> Vec<MacAddr> {
        let mut heirs = Vec::new();
        for ip in before.difference(now) {
            let Some(holders) = self.addresses.get_mut(ip) else { continue };
            holders.all.remove(&mac);
            match holders.all.first() {
                None => drop(self.addresses.remove(ip)),
                Some(first) if holders.holder == mac => {
                    holders.holder = *first;
                    heirs.push(*first);
                }
                Some(_) => {}
            }
        }
        for ip in now.difference(before) {
            let new = || Holders { holder: mac, all: BTreeSet::new() };
            self.addresses.entry(*ip).or_insert_with(new).all.insert(mac);
        }
        heirs
    }
}

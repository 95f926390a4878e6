//! The state of one broadcast domain.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use straightline_wire::MacAddr;

use super::settings::Domain;
use super::station::{Mentions, RemoteRoute, Station};
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
    /// Moves of stations to this host, and from it to others.
    pub(crate) moves_here: u64,
    pub(crate) moves_away: u64,
}

/// The stations that say that an address is theirs.
#[derive(Clone, Debug)]
struct Holders {
    /// The one that counts: the first one. The switch vouches for the addresses of stations here, so these
    /// go before those of other hosts.
    holder: MacAddr,
    /// All of them, each with whether it is here.
    all: BTreeMap<MacAddr, bool>,
}

impl Holders {
    /// Returns the station that is to hold the address; `None` if nobody says any more that it has it.
    fn choose(&self) -> Option<MacAddr> {
        let here = || self.all.iter().find(|(_, is_here)| **is_here).map(|(mac, _)| *mac);
        match self.all.get(&self.holder) {
            Some(true) => Some(self.holder),
            Some(false) => here().or(Some(self.holder)),
            None => here().or_else(|| self.all.keys().next().copied()),
        }
    }
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
            moves_here: 0,
            moves_away: 0,
        }
    }

    /// Returns the host of a received route.
    pub(crate) fn host_of(&self, key: &RouteKey) -> Option<IpAddr> {
        match key {
            RouteKey::Flood { .. } => self.floods.get(key).map(|flood| flood.next_hop),
            RouteKey::Station { mac, .. } => self.stations.get(mac)?.routes.get(key).map(|route| route.next_hop),
        }
    }

    /// Adds or replaces a received route of a station.
    pub(crate) fn add_route(&mut self, mac: MacAddr, key: RouteKey, route: RemoteRoute) {
        let before = self.stations.entry(mac).or_default().routes.insert(key, route);
        self.behind.entry(route.next_hop).or_default().insert(mac);
        if let Some(before) = before {
            self.left(mac, before.next_hop);
        }
    }

    /// Removes a received route of a station.
    pub(crate) fn remove_route(&mut self, mac: MacAddr, key: &RouteKey) {
        let route = self.stations.get_mut(&mac).and_then(|station| station.routes.remove(key));
        if let Some(route) = route {
            self.left(mac, route.next_hop);
        }
    }

    /// Notes that a route of this host has gone.
    fn left(&mut self, mac: MacAddr, host: IpAddr) {
        let is_behind = |station: &Station| station.routes.values().any(|route| route.next_hop == host);
        if self.stations.get(&mac).is_some_and(is_behind) {
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

    /// Returns whether this address counts as that of `mac`.
    pub(crate) fn holds(&self, mac: MacAddr, ip: IpAddr) -> bool {
        self.addresses.get(&ip).is_some_and(|holders| holders.holder == mac)
    }

    /// Notes the addresses that `mac` says are its own now. Returns other stations that got or lost an
    /// address by this.
    pub(crate) fn mention(&mut self, mac: MacAddr, before: &Mentions, now: &Mentions) -> Vec<MacAddr> {
        let mut others = Vec::new();
        let gone = before.keys().filter(|ip| !now.contains_key(ip)).map(|ip| (ip, None));
        let changed = now.iter().filter(|(ip, is_here)| before.get(ip) != Some(is_here));
        for (ip, is_here) in gone.chain(changed.map(|(ip, is_here)| (ip, Some(*is_here)))) {
            let new = || Holders { holder: mac, all: BTreeMap::new() };
            let holders = self.addresses.entry(*ip).or_insert_with(new);
            match is_here {
                Some(is_here) => drop(holders.all.insert(mac, is_here)),
                None => drop(holders.all.remove(&mac)),
            }
            match holders.choose() {
                None => drop(self.addresses.remove(ip)),
                Some(next) if next == holders.holder => {}
                Some(next) => {
                    let before = std::mem::replace(&mut holders.holder, next);
                    others.extend([before, next].into_iter().filter(|other| *other != mac));
                }
            }
        }
        others
    }
}

//! Facts from GoBGP: routes of other hosts, and the echo of own paths.

use std::net::IpAddr;
use std::time::Duration;

use straightline_wire::MacAddr;

use super::check::check;
use super::counters::Refusal;
use super::domain::{DomainState, Flood};
use super::local::INHERIT;
use super::station::RemoteRoute;
use super::{Change, Machine};
use crate::gobgp::Told;
use crate::route::{Route, RouteKey};

impl Machine {
    /// GoBGP's whole table is told from now on.
    pub fn begin_routes(&mut self) {
        self.is_listing = true;
        self.gobgp_is_away = false;
        self.route_listing += 1;
        self.listed.clear();
    }

    /// GoBGP's whole table has been told. Own paths that were missing are to be sent again. Other
    /// missing routes stay until [`Self::sweep_routes`], or for the stale time: a GoBGP that has
    /// just started does not know them yet.
    pub fn end_routes(&mut self, now: Duration) {
        self.is_listing = false;
        self.routes_until.get_or_insert(now + self.limits.stale);
        self.know_numbers(now);
        let listed = std::mem::take(&mut self.listed);
        let missing: Vec<RouteKey> = self.paths().filter(|key| !listed.contains(key)).collect();
        self.changes.extend(missing.into_iter().map(Change::Path));
    }

    /// The first listing has ended. Stations that were seen before it are announced from now on.
    fn know_numbers(&mut self, now: Duration) {
        if std::mem::replace(&mut self.knows_numbers, true) {
            return;
        }
        self.inherited_until = Some(now + if self.serves { INHERIT } else { self.limits.stale });
        for at in 0..self.domains.len() {
            let stations: Vec<MacAddr> = self.domains[at].stations.keys().copied().collect();
            for mac in stations {
                self.settle(now, at, mac);
            }
        }
    }

    /// Returns whether all routes of GoBGP's table are known, and no others.
    #[must_use]
    pub fn knows_routes(&self) -> bool {
        self.route_listing > 0 && !self.is_listing && !self.gobgp_is_away && self.routes_until.is_none()
    }

    /// Removes the routes that GoBGP has not told since its last listing began.
    pub fn sweep_routes(&mut self, now: Duration) {
        self.routes_until = None;
        self.remove_unlisted_routes(now);
    }

    /// The routes that stayed have had their time. They end, unless the table is being told.
    pub(super) fn routes_are_due(&mut self, now: Duration) {
        if self.is_listing && !self.gobgp_is_away {
            self.routes_until = Some(now + self.limits.stale);
            return;
        }
        if self.gobgp_is_away {
            self.route_listing += 1;
        }
        self.sweep_routes(now);
    }

    /// Returns whether routes were refused by a limit, and there is capacity again: the caller then
    /// lists GoBGP's table.
    pub fn wants_routes(&mut self) -> bool {
        let has_space = self.overflowed && self.routes <= most_to_list(self.limits.routes);
        self.overflowed &= !has_space;
        std::mem::take(&mut self.has_space) || has_space
    }

    /// Returns the reason why a route of a host has no place. `before` is the host of the route that it replaces.
    fn limit(&mut self, host: IpAddr, before: Option<IpAddr>) -> Option<Refusal> {
        if before == Some(host) {
            return None;
        }
        if before.is_none() && self.routes >= self.limits.routes {
            self.overflowed = true;
            return Some(Refusal::TooManyRoutes);
        }
        let routes = self.hosts.get_mut(&host).filter(|routes| routes.kept >= self.limits.host_routes)?;
        routes.refused += 1;
        routes.is_full = true;
        Some(Refusal::HostFull)
    }

    /// Counts a kept route of the host `now`, which was one of the host `before`.
    fn count_route(&mut self, before: Option<IpAddr>, now: Option<IpAddr>) {
        if let Some(host) = now {
            self.routes += 1;
            self.hosts.entry(host).or_default().kept += 1;
        }
        let Some(host) = before else { return };
        self.routes -= 1;
        let Some(routes) = self.hosts.get_mut(&host) else { return };
        routes.kept -= 1;
        if routes.is_full && routes.kept <= most_to_list(self.limits.host_routes) {
            routes.is_full = false;
            self.has_space = true;
        }
        if routes.kept == 0 {
            self.hosts.remove(&host);
        }
    }

    /// GoBGP is away. Its routes end after a time.
    pub fn gobgp_lost(&mut self, now: Duration) {
        self.is_listing = false;
        self.gobgp_is_away = true;
        self.routes_until.get_or_insert(now + self.limits.stale);
    }

    /// GoBGP has told a path.
    pub fn told(&mut self, now: Duration, told: Told) {
        match told {
            Told::OtherFamily => {}
            Told::Unused(_) => self.counters.count(Refusal::UnusedType),
            Told::Malformed(_) => self.counters.count(Refusal::Malformed),
            Told::Withdrawn(key) => self.withdrawn(now, &key),
            Told::Own(route) => self.own_path(&route),
            Told::Route(route) => match check(&self.domains, &route) {
                Ok(domains) => {
                    for at in domains {
                        self.received_route(now, at, &route);
                    }
                }
                Err(refusal) => {
                    self.counters.count(refusal);
                    // It replaces a route that was better.
                    self.remove(now, &route.key);
                }
            },
        }
    }

    /// GoBGP has refused the path with this key: this sequence number of it was too low. Returns the paths
    /// that are to be sent again, after a pause.
    pub fn refused(&mut self, key: &RouteKey, sequence: u32) -> Vec<RouteKey> {
        self.counters.count(Refusal::GoBgp);
        let RouteKey::Station { rd, tag, mac, .. } = *key else { return Vec::new() };
        let is_of = |domain: &&mut DomainState| (domain.settings.rd, domain.settings.tag) == (rd, tag);
        let station = self.domains.iter_mut().find(is_of).and_then(|domain| domain.stations.get_mut(&mac));
        let Some(station) = station else { return Vec::new() };
        let Some(announced) = &mut station.announced else { return Vec::new() };
        // All paths of a station have one number, and each of them may be refused.
        if station.sequence > sequence {
            return vec![*key];
        }
        // Version 3 compares with other networks, too. So the number that it would take is unknown.
        station.sequence = station.sequence.saturating_mul(2).saturating_add(1);
        announced.mobility.sequence = station.sequence;
        let ips = announced.ips.iter().map(|ip| Some(*ip));
        std::iter::once(None).chain(ips).map(|ip| RouteKey::Station { rd, tag, mac, ip }).collect()
    }

    /// Removes routes that the last listing has not had.
    pub(super) fn remove_unlisted_routes(&mut self, now: Duration) {
        let listing = self.route_listing;
        let mut gone = Vec::new();
        for domain in &self.domains {
            gone.extend(domain.floods.iter().filter(|(_, flood)| flood.listing < listing).map(|(key, _)| *key));
            let routes = domain.stations.values().flat_map(|station| &station.routes);
            gone.extend(routes.filter(|(_, route)| route.listing < listing).map(|(key, _)| *key));
        }
        for key in gone {
            self.remove(now, &key);
        }
    }

    /// An own path is in GoBGP's table.
    fn own_path(&mut self, route: &Route) {
        self.listed.insert(route.key);
        if self.path(&route.key).is_some() {
            return;
        }
        if !self.domains.iter().any(|domain| domain.settings.rd == route.key.rd()) {
            // Another client of GoBGP has added it.
            return;
        }
        let is_inherited = !self.knows_numbers || self.inherited.contains_key(&route.key);
        if is_inherited && self.inherited.len() < self.limits.routes {
            self.inherited.insert(route.key, route.mobility.sequence);
        } else {
            self.changes.insert(Change::Path(route.key));
        }
    }

    fn withdrawn(&mut self, now: Duration, key: &RouteKey) {
        self.inherited.remove(key);
        if self.path(key).is_some() {
            self.counters.count(Refusal::LostPath);
            self.changes.insert(Change::Path(*key));
        }
        self.remove(now, key);
    }

    fn received_route(&mut self, now: Duration, at: usize, route: &Route) {
        match route.key {
            RouteKey::Flood { .. } => self.received_flood(now, at, route),
            RouteKey::Station { mac, ip, .. } => {
                self.received_station(now, at, mac, route);
                if ip.is_some_and(|ip| !self.domains[at].holds(mac, ip)) {
                    self.counters.count(Refusal::AddressElsewhere);
                }
            }
        }
    }

    fn received_flood(&mut self, now: Duration, at: usize, route: &Route) {
        let before = self.domains[at].host_of(&route.key);
        let mut refusal = self.limit(route.next_hop, before);
        let remotes = self.remotes(&self.domains[at].settings.tunnel);
        if refusal.is_none() && !remotes.contains(&route.next_hop) && remotes.len() >= self.limits.remotes {
            self.overflowed = true;
            refusal = Some(Refusal::TooManyRemotes);
        }
        if let Some(refusal) = refusal {
            self.counters.count(refusal);
            self.remove(now, &route.key);
            return;
        }
        self.count_route(before, Some(route.next_hop));
        let flood = Flood { next_hop: route.next_hop, listing: self.route_listing };
        for host in self.domains[at].add_flood(route.key, flood) {
            self.flood_changed(now, at, host);
        }
    }

    fn received_station(&mut self, now: Duration, at: usize, mac: MacAddr, route: &Route) {
        let before = self.domains[at].host_of(&route.key);
        if let Some(refusal) = self.limit(route.next_hop, before) {
            self.counters.count(refusal);
            // It replaces a route of another host.
            self.remove(now, &route.key);
            return;
        }
        let station = self.domains[at].stations.entry(mac).or_default();
        let best = station.best().map(RemoteRoute::rank);
        let new = RemoteRoute { next_hop: route.next_hop, mobility: route.mobility, listing: self.route_listing };
        if station.local.as_ref().is_some_and(|local| local.is_static) {
            self.counters.count(Refusal::StaticHere);
        } else if station.here.is_none() && best.is_none_or(|best| new.rank() > best) {
            // It was seen here, but moved on before it was announced.
            station.local = None;
        }
        self.count_route(before, Some(route.next_hop));
        self.domains[at].add_route(mac, route.key, new);
        self.settle(now, at, mac);
    }

    /// Removes a received route from all domains.
    fn remove(&mut self, now: Duration, key: &RouteKey) {
        for at in 0..self.domains.len() {
            let Some(host) = self.domains[at].host_of(key) else { continue };
            self.count_route(Some(host), None);
            match key {
                RouteKey::Flood { .. } => {
                    if let Some(host) = self.domains[at].remove_flood(key) {
                        self.flood_changed(now, at, host);
                    }
                }
                RouteKey::Station { mac, .. } => {
                    self.domains[at].remove_route(*mac, key);
                    self.settle(now, at, *mac);
                }
            }
        }
    }

    /// A host wants floods now, or no longer. Its stations are placed by it.
    fn flood_changed(&mut self, now: Duration, at: usize, host: IpAddr) {
        let tunnel = self.domains[at].settings.tunnel.clone();
        self.changes.insert(Change::Remote { tunnel, host });
        for mac in self.domains[at].behind(host) {
            self.settle(now, at, mac);
        }
    }
}

/// Returns the number of routes up to which it is worth listing the table again for those that a limit has
/// refused.
fn most_to_list(limit: usize) -> usize {
    limit / 10 * 9
}

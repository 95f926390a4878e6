//! The state machine: facts from the switch and from GoBGP go in, changes for both come out. It does
//! no I/O, and its clock is an argument: the time since any fixed moment.
//!
//! A change says which thing has changed, not how. Whoever executes it asks for the present state of
//! that thing. So changes that wait may be merged, and after a reconnect the whole state is compared.

mod check;
mod counters;
mod domain;
mod local;
mod rate;
mod received;
mod settings;
mod settle;
mod station;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use straightline_wire::MacAddr;

use crate::route::{Mobility, Route, RouteKey};
pub use counters::{Counters, Refusal};
use domain::DomainState;
pub use local::Seen;
use rate::Bucket;
pub use settings::{Domain, Import, Limits, Rate};
pub use station::Placed;

/// Something that has changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A path of this host: [`Machine::path`].
    Path(RouteKey),
    /// A remote of a tunnel: [`Machine::remotes`].
    Remote {
        /// The tunnel port.
        tunnel: String,
        /// The other host.
        host: IpAddr,
    },
    /// A station behind a tunnel: [`Machine::placed`].
    Station {
        /// The number of the domain.
        domain: usize,
        /// The station.
        mac: MacAddr,
    },
}

/// Something that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A station moved too often.
    Duplicate {
        /// The name of the network.
        network: String,
        /// The station.
        mac: MacAddr,
    },
}

/// The numbers of stations and routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Stations of this host that are announced.
    pub here: usize,
    /// Stations of other hosts that the switch is to have.
    pub elsewhere: usize,
    /// Stations that moved too often.
    pub duplicate: usize,
    /// Moves of stations to this host.
    pub moves_here: u64,
    /// Moves of stations from this host to others.
    pub moves_away: u64,
    /// Hosts that want floods.
    pub remotes: usize,
}

/// The received routes of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRoutes {
    /// Routes that are kept.
    pub kept: usize,
    /// Routes that were refused because the host has filled its share. Counted for as long as routes of the
    /// host are kept.
    pub refused: u64,
    /// Some of these may be told again once there is space.
    is_full: bool,
}

/// The limits and counts of a port.
#[derive(Clone, Debug)]
struct Port {
    routes: Bucket,
    moves: Bucket,
    stations: usize,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Machine {
    limits: Limits,
    domains: Vec<DomainState>,
    ports: BTreeMap<String, Port>,
    counters: Counters,
    /// The ports that may send from certain MAC addresses only.
    checked_ports: BTreeSet<String>,
    /// Received routes that are kept, of all hosts and of each.
    routes: usize,
    hosts: BTreeMap<IpAddr, HostRoutes>,
    /// Routes were refused because the limit of all was reached.
    overflowed: bool,
    /// A host whose share was full has space again.
    has_space: bool,
    /// The stations of the switch have been listed, and the switch is not away for long.
    serves: bool,
    /// GoBGP's table has been listed at least once. Before, the numbers of stations here are not known.
    knows_numbers: bool,
    /// Own paths that GoBGP had at first, from an earlier process, with their sequence numbers.
    inherited: BTreeMap<RouteKey, u32>,
    /// The time at which inherited paths are withdrawn. `None`: not yet known, or they were.
    inherited_until: Option<Duration>,
    /// Own paths that the present listing of GoBGP's table has had.
    listed: BTreeSet<RouteKey>,
    /// The number of the present or last listing of GoBGP's table.
    route_listing: u64,
    /// The number of the present or last listing of the switch's stations.
    station_listing: u64,
    /// GoBGP's table is being told.
    is_listing: bool,
    gobgp_is_away: bool,
    /// The time at which received routes that GoBGP has not told again end.
    routes_until: Option<Duration>,
    /// The time at which stations here end.
    stations_until: Option<Duration>,
    /// The stations that are looked at at some time.
    due: BTreeSet<(Duration, usize, MacAddr)>,
    changes: BTreeSet<Change>,
    notices: Vec<Notice>,
}

impl Machine {
    /// Makes a machine that knows nothing yet.
    #[must_use]
    pub fn new(limits: Limits, domains: Vec<Domain>) -> Self {
        Self {
            limits,
            domains: domains.into_iter().map(DomainState::new).collect(),
            ports: BTreeMap::new(),
            counters: Counters::default(),
            checked_ports: BTreeSet::new(),
            routes: 0,
            hosts: BTreeMap::new(),
            overflowed: false,
            has_space: false,
            serves: false,
            knows_numbers: false,
            inherited: BTreeMap::new(),
            inherited_until: None,
            listed: BTreeSet::new(),
            route_listing: 0,
            station_listing: 0,
            is_listing: false,
            gobgp_is_away: false,
            routes_until: None,
            stations_until: None,
            due: BTreeSet::new(),
            changes: BTreeSet::new(),
            notices: Vec::new(),
        }
    }

    /// Returns the domains' settings, in the order of their numbers.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.iter().map(|domain| &domain.settings)
    }

    /// Takes the changes since the last call.
    pub fn take_changes(&mut self) -> BTreeSet<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Takes the notices since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Returns how often something was refused.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of received routes that are kept.
    #[must_use]
    pub fn received(&self) -> usize {
        self.routes
    }

    /// Returns the number of received routes that are kept although GoBGP has not told them since it was away.
    #[must_use]
    pub fn stale(&self) -> usize {
        if self.routes_until.is_none() {
            return 0;
        }
        let mut stale = 0;
        for domain in &self.domains {
            let routes = domain.stations.values().flat_map(|station| station.routes.values());
            let listings = routes.map(|route| route.listing).chain(domain.floods.values().map(|flood| flood.listing));
            stale += listings.filter(|listing| self.gobgp_is_away || *listing < self.route_listing).count();
        }
        stale
    }

    /// Returns the received routes of each host.
    pub fn hosts(&self) -> impl Iterator<Item = (IpAddr, HostRoutes)> {
        self.hosts.iter().map(|(host, routes)| (*host, *routes))
    }

    /// Returns the sizes of a domain.
    #[must_use]
    pub fn sizes(&self, domain: usize) -> Sizes {
        let Some(state) = self.domains.get(domain) else { return Sizes::default() };
        let count = |is: fn(&station::Station) -> bool| state.stations.values().filter(|station| is(station)).count();
        Sizes {
            here: count(|station| station.announced.is_some()),
            elsewhere: count(|station| station.placed.is_some()),
            duplicate: count(|station| station.frozen.is_some()),
            moves_here: state.moves_here,
            moves_away: state.moves_away,
            remotes: state.flood_hosts().count(),
        }
    }

    /// Returns the own path with this key, or `None` if GoBGP is to have none.
    #[must_use]
    pub fn path(&self, key: &RouteKey) -> Option<Route> {
        let is_domain = |domain: &&DomainState| (domain.settings.rd, domain.settings.tag) == (key.rd(), key.tag());
        let domain = self.domains.iter().find(is_domain)?;
        let is_sent = match key {
            RouteKey::Flood { .. } => self.serves && domain.own_flood() == *key,
            RouteKey::Station { mac, ip, .. } => {
                let announced = domain.stations.get(mac)?.announced.as_ref()?;
                ip.is_none_or(|ip| announced.ips.contains(&ip))
            }
        };
        is_sent.then(|| domain.own_route(*key))
    }

    /// Returns the keys of all paths that GoBGP is to have.
    pub fn paths(&self) -> impl Iterator<Item = RouteKey> {
        let floods = self.domains.iter().filter(|_| self.serves).map(DomainState::own_flood);
        let stations = self.domains.iter().flat_map(|domain| {
            let Domain { rd, tag, .. } = domain.settings;
            domain.stations.iter().filter_map(|(mac, station)| Some((*mac, station.announced.as_ref()?))).flat_map(
                move |(mac, announced)| {
                    let ips = announced.ips.iter().map(|ip| Some(*ip));
                    std::iter::once(None).chain(ips).map(move |ip| RouteKey::Station { rd, tag, mac, ip })
                },
            )
        });
        floods.chain(stations)
    }

    /// Returns the remotes that a tunnel is to have.
    #[must_use]
    pub fn remotes(&self, tunnel: &str) -> BTreeSet<IpAddr> {
        let of_tunnel = self.domains.iter().filter(|domain| domain.settings.tunnel == tunnel);
        of_tunnel.flat_map(DomainState::flood_hosts).collect()
    }

    /// Returns the place that the switch is to have for a station.
    #[must_use]
    pub fn placed(&self, domain: usize, mac: MacAddr) -> Option<&Placed> {
        self.domains.get(domain)?.stations.get(&mac)?.placed.as_ref()
    }

    /// Returns all stations of a domain that the switch is to have, with their places.
    pub fn all_placed(&self, domain: usize) -> impl Iterator<Item = (MacAddr, &Placed)> {
        let stations = self.domains.get(domain).into_iter().flat_map(|domain| &domain.stations);
        stations.filter_map(|(mac, station)| Some((*mac, station.placed.as_ref()?)))
    }

    /// Calls `take` with each received route that is kept: the number of its domain, its key, its host
    /// and its mobility.
    pub fn each_received(&self, mut take: impl FnMut(usize, &RouteKey, IpAddr, Mobility)) {
        for (at, domain) in self.domains.iter().enumerate() {
            for (key, flood) in &domain.floods {
                take(at, key, flood.next_hop, Mobility::default());
            }
            for (key, route) in domain.stations.values().flat_map(|station| &station.routes) {
                take(at, key, route.next_hop, route.mobility);
            }
        }
    }

    /// Returns the time at which [`Self::tick`] has something to do.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let station = self.due.first().map(|(due, ..)| *due);
        [station, self.inherited_until, self.routes_until, self.stations_until].into_iter().flatten().min()
    }

    /// Does all that is due.
    pub fn tick(&mut self, now: Duration) {
        let is_due = |until: Option<Duration>| until.is_some_and(|until| until <= now);
        if is_due(self.routes_until) {
            self.routes_are_due(now);
        }
        if is_due(self.stations_until) {
            self.stations_until = None;
            self.serves = false;
            for at in 0..self.domains.len() {
                self.changes.insert(Change::Path(self.domains[at].own_flood()));
            }
            self.station_listing += 1;
            self.remove_unlisted_stations(now);
        }
        if is_due(self.inherited_until) {
            self.inherited_until = None;
            let inherited = std::mem::take(&mut self.inherited);
            // Whoever executes these changes finds that they are not to be there.
            self.changes.extend(inherited.into_keys().map(Change::Path));
        }
        while let Some((due, at, mac)) = self.due.first().copied().filter(|(due, ..)| *due <= now) {
            self.due.remove(&(due, at, mac));
            self.settle(now, at, mac);
        }
    }
}

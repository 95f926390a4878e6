//! Settling a station: from all facts about it to its paths, and to its place in the switch.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use straightline_wire::MacAddr;

use super::counters::Refusal;
use super::local::MAX_ADDRESSES;
use super::rate::Bucket;
use super::settings::Domain;
use super::station::{Announced, Decision, Mentions, Placed, Station, use_token};
use super::{Change, Machine, Notice, Port};
use crate::route::RouteKey;

/// The time until a station is tried again whose port is full.
const RETRY: Duration = Duration::from_secs(1);

impl Machine {
    /// Settles a station, and those that get an address by this.
    pub(super) fn settle(&mut self, now: Duration, at: usize, mac: MacAddr) {
        let mut waiting = vec![mac];
        while let Some(mac) = waiting.pop() {
            let Some(mut station) = self.domains[at].stations.remove(&mac) else { continue };
            if let Some(due) = station.due.take() {
                self.due.remove(&(due, at, mac));
            }
            station.local.take_if(|local| local.confirm_by.is_some_and(|by| by <= now));
            self.thaw(now, &mut station);

            let mut wake = self.place(now, at, mac, &mut station);
            let mentions = mentions(&station);
            waiting.extend(self.domains[at].mention(mac, &station.mentions, &mentions));
            station.mentions = mentions;
            wake = earlier(wake, self.announce(now, at, mac, &mut station));
            self.tell_switch(at, mac, &mut station);

            let confirm_by = station.local.as_ref().and_then(|local| local.confirm_by);
            station.due = earlier(earlier(wake, station.frozen), confirm_by);
            self.due.extend(station.due.map(|due| (due, at, mac)));
            if !station.is_empty() {
                self.domains[at].stations.insert(mac, station);
            }
        }
    }

    /// Ends the time of a duplicate station. A guarded one stays so while another host announces it, and
    /// one that was left to another host is free as soon as no host announces it.
    fn thaw(&self, now: Duration, station: &mut Station) {
        let Some(until) = station.frozen else { return };
        let is_due = until <= now;
        let is_elsewhere = !station.routes.is_empty();
        let is_over = if station.is_guarded {
            station.local.is_none() || is_due && !is_elsewhere
        } else {
            is_due || !is_elsewhere
        };
        if is_over {
            station.frozen = None;
            station.is_guarded = false;
        } else if is_due {
            station.frozen = Some(now + self.limits.duplicate_retry);
        }
    }

    /// Decides whether the station is here. Returns the time at which to look again.
    fn place(&mut self, now: Duration, at: usize, mac: MacAddr, station: &mut Station) -> Option<Duration> {
        if station.is_guarded {
            self.follow_port(station);
            return None;
        }
        if station.frozen.is_some() {
            self.leave(station);
            return None;
        }
        if let Some(local) = station.local.as_ref().filter(|local| station.here.is_none() && now < local.ready) {
            return Some(local.ready);
        }
        // An earlier process may have announced the station, and others have its number.
        if !self.knows_numbers {
            return None;
        }
        match station.decide(self.domains[at].settings.own) {
            Decision::Here(_) if station.here.is_some() => {
                self.follow_port(station);
                None
            }
            Decision::Here(sequence) => {
                let Domain { rd, tag, .. } = self.domains[at].settings;
                let key = RouteKey::Station { rd, tag, mac, ip: None };
                let inherited = self.inherited.get(&key).copied().unwrap_or_default();
                self.enter(now, station, sequence.max(inherited), false)
            }
            Decision::MovesHere(sequence) => {
                let wake = self.enter(now, station, sequence, true);
                self.count_move(now, at, mac, station);
                wake
            }
            Decision::Elsewhere => {
                self.domains[at].moves_away += u64::from(station.here.is_some() && station.local.is_some());
                self.leave(station);
                station.local = None;
                None
            }
            Decision::Sticky => {
                self.counters.count(Refusal::StickyElsewhere);
                station.local = None;
                None
            }
        }
    }

    /// Makes the station one of this host, as far as the limits of its port allow.
    fn enter(&mut self, now: Duration, station: &mut Station, sequence: u32, moves: bool) -> Option<Duration> {
        let local = station.local.as_ref()?;
        let limits = &self.limits;
        let new = || Port {
            routes: Bucket::new(limits.port_routes, now),
            moves: Bucket::new(limits.port_moves, now),
            stations: 0,
        };
        let port = self.ports.entry(local.port.clone()).or_insert_with(new);
        if port.stations >= limits.port_stations {
            self.counters.count(Refusal::PortFull);
            return Some(now + RETRY);
        }
        if moves && let Some(next) = use_token(&mut station.move_token, &mut port.moves, now) {
            self.counters.count(Refusal::PortRate);
            return Some(next);
        }
        port.stations += 1;
        station.here = Some(local.port.clone());
        station.sequence = sequence;
        None
    }

    /// Takes the station away from this host.
    fn leave(&mut self, station: &mut Station) {
        if let Some(port) = station.here.take().and_then(|port| self.ports.get_mut(&port)) {
            port.stations = port.stations.saturating_sub(1);
        }
    }

    /// Counts the station at the port that it has now.
    fn follow_port(&mut self, station: &mut Station) {
        let Some(local) = station.local.as_ref().filter(|local| station.here.as_ref() != Some(&local.port)) else {
            return;
        };
        // A port without a bucket has announced nothing yet: the one of the old port counts on.
        let bucket = station.here.as_ref().and_then(|port| self.ports.get(port)).cloned();
        let port = local.port.clone();
        self.leave(station);
        if let Some(bucket) = bucket {
            self.ports.entry(port.clone()).or_insert(Port { stations: 0, ..bucket }).stations += 1;
        }
        station.here = Some(port);
    }

    /// Counts a move to this host (RFC 7432 section 15.1).
    fn count_move(&mut self, now: Duration, at: usize, mac: MacAddr, station: &mut Station) {
        let Some(port) = &station.here else { return };
        self.domains[at].moves_here += 1;
        let window = self.limits.duplicate_window;
        station.moves.retain(|moved| now.saturating_sub(*moved) < window);
        station.moves.push(now);
        if station.moves.len() >= self.limits.duplicate_moves {
            station.moves.clear();
            station.frozen = Some(now + self.limits.duplicate_retry);
            // The switch has checked that nobody else sends from this address there.
            station.is_guarded = self.checked_ports.contains(port);
            if !station.is_guarded {
                self.leave(station);
            }
            self.counters.count(Refusal::Duplicate);
            let network = self.domains[at].settings.network.clone();
            self.notices.push(Notice::Duplicate { network, mac });
        }
    }

    /// Brings the station's paths to what they are to be. Returns the time at which to go on.
    fn announce(&mut self, now: Duration, at: usize, mac: MacAddr, station: &mut Station) -> Option<Duration> {
        let Domain { rd, tag, .. } = self.domains[at].settings;
        let key = |ip| Change::Path(RouteKey::Station { rd, tag, mac, ip });
        let mobility = station.mobility();
        let mut wanted: Vec<Option<IpAddr>> = Vec::new();
        if station.here.is_some() {
            let held = station.bindings.keys().filter(|ip| self.domains[at].holds(mac, **ip));
            wanted.extend(std::iter::once(None).chain(held.map(|ip| Some(*ip))));
        }
        let before = station.announced.take();
        let had = |ip: &Option<IpAddr>| match (&before, ip) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(before), Some(ip)) => before.ips.contains(ip),
        };
        let is_renumbered = before.as_ref().is_some_and(|before| before.mobility != mobility);
        let mut wake = None;
        for ip in &wanted {
            if !had(ip) {
                if wake.is_some() {
                    continue;
                }
                let port = station.here.as_ref().and_then(|port| self.ports.get_mut(port));
                wake = port.and_then(|port| use_token(&mut station.route_token, &mut port.routes, now));
                if wake.is_some() {
                    self.counters.count(Refusal::PortRate);
                    continue;
                }
            }
            if !had(ip) || is_renumbered {
                self.changes.insert(key(*ip));
            }
            let announced = station.announced.get_or_insert_with(|| Announced { mobility, ips: BTreeSet::new() });
            announced.ips.extend(*ip);
        }
        let after = station.announced.as_ref();
        if let Some(before) = &before {
            let gone = before.ips.iter().filter(|ip| !after.is_some_and(|after| after.ips.contains(ip)));
            self.changes.extend(gone.map(|ip| key(Some(*ip))));
            if after.is_none() {
                self.changes.insert(key(None));
            }
        }
        wake
    }

    /// Brings the station's place in the switch to what it is to be.
    fn tell_switch(&mut self, at: usize, mac: MacAddr, station: &mut Station) {
        let domain = &self.domains[at];
        let place = |host: IpAddr, sequence: u32| {
            let held = station.remote_ips(Some(host)).filter(|ip| domain.holds(mac, *ip));
            let ips = held.take(MAX_ADDRESSES).collect();
            Placed { remote: host, sequence, ips }
        };
        let placed = match (&station.here, &station.frozen) {
            (Some(_), _) => None,
            // A duplicate stays where it is, as long as that host has it.
            (None, Some(_)) => station.placed.as_ref().and_then(|placed| {
                let has = station.routes.values().any(|route| route.next_hop == placed.remote);
                has.then(|| place(placed.remote, placed.sequence))
            }),
            (None, None) => station.best().map(|best| place(best.next_hop, best.mobility.sequence)),
        };
        // The switch takes stations of known remotes only.
        let placed = placed.filter(|placed| domain.floods_to(placed.remote));
        if placed != station.placed {
            station.placed = placed;
            station.is_refused = false;
            self.changes.insert(Change::Station { domain: at, mac });
        }
    }
}

/// Returns the addresses that the station says are its own.
fn mentions(station: &Station) -> Mentions {
    let bound = station.bindings.keys().filter(|_| station.here.is_some());
    station.remote_ips(None).map(|ip| (ip, false)).chain(bound.map(|ip| (*ip, true))).collect()
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}

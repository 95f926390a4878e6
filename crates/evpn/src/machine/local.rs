//! Facts from the switch: stations behind its ports, and their addresses.

use std::net::IpAddr;
use std::time::Duration;

use straightline_wire::MacAddr;

use super::check::{is_host, is_station};
use super::station::{Local, Station};
use super::{Change, Machine};

/// The time in which the switch must learn a station that it has seen at another place than told.
const CONFIRM: Duration = Duration::from_secs(30);

/// The time from the listings of all stations and routes to the end of own paths that no station has.
pub(super) const INHERIT: Duration = Duration::from_secs(5);

/// The most addresses of a station.
pub(super) const MAX_ADDRESSES: usize = 16;

/// How the switch knows a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It has learned the station from a frame.
    Learned,
    /// Its configuration names the station.
    Static,
    /// A frame came from a port, although the station was placed behind a tunnel.
    Claimed,
}

impl Machine {
    /// The switch lists all its stations and addresses from now on.
    pub fn begin_stations(&mut self) {
        self.station_listing += 1;
    }

    /// The switch has listed all: what it has not named is gone.
    pub fn end_stations(&mut self, now: Duration) {
        self.stations_until = None;
        if self.inherited_until.is_some() {
            self.inherited_until = Some(now + INHERIT);
        }
        if !self.serves {
            self.serves = true;
            self.changes.extend(self.domains.iter().map(|domain| Change::Path(domain.own_flood())));
        }
        self.remove_unlisted_stations(now);
    }

    /// The switch is away. Its stations end after a time.
    pub fn switch_lost(&mut self, now: Duration) {
        if self.serves && self.stations_until.is_none() {
            self.stations_until = Some(now + self.limits.stale);
        }
    }

    /// Notes whether a port of the switch may send from certain MAC addresses only, so that its stations are
    /// what they say.
    pub fn port_is_checked(&mut self, port: &str, is_checked: bool) {
        if !is_checked {
            self.checked_ports.remove(port);
        } else if !self.checked_ports.contains(port) {
            self.checked_ports.insert(port.to_owned());
        }
    }

    /// A station is behind a port of the switch.
    pub fn station_seen(&mut self, now: Duration, bridge: &str, vlan: u16, mac: MacAddr, port: &str, seen: Seen) {
        let Some(at) = self.domain_of(bridge, vlan).filter(|_| is_station(mac)) else { return };
        let hold = self.limits.hold;
        let listing = self.station_listing;
        let station = self.domains[at].stations.entry(mac).or_default();
        // The switch learned it before it knew the place: a frame that comes later is a claim.
        let is_placed = station.placed.is_some() && !station.is_refused;
        if seen == Seen::Learned && is_placed && station.local.is_none() {
            return;
        }
        let local = station.local.get_or_insert_with(|| Local {
            port: port.to_owned(),
            is_static: false,
            ready: now + hold,
            confirm_by: (seen == Seen::Claimed).then_some(now + CONFIRM),
            listing,
        });
        if local.port != port {
            port.clone_into(&mut local.port);
        }
        local.listing = listing;
        match seen {
            Seen::Claimed => {}
            Seen::Learned => {
                local.is_static = false;
                local.confirm_by = None;
            }
            Seen::Static => {
                local.is_static = true;
                local.ready = now;
                local.confirm_by = None;
            }
        }
        self.settle(now, at, mac);
    }

    /// The switch has refused the place of a station: it learns the station as any other.
    pub fn place_refused(&mut self, bridge: &str, vlan: u16, mac: MacAddr) {
        let Some(at) = self.domain_of(bridge, vlan) else { return };
        if let Some(station) = self.domains[at].stations.get_mut(&mac) {
            station.is_refused = station.placed.is_some();
        }
    }

    /// The switch has forgotten a station that was behind this port.
    pub fn station_gone(&mut self, now: Duration, bridge: &str, vlan: u16, mac: MacAddr, port: &str) {
        let Some(at) = self.domain_of(bridge, vlan) else { return };
        if let Some(station) = self.domains[at].stations.get_mut(&mac) {
            station.local.take_if(|local| local.port == port);
            self.settle(now, at, mac);
        }
    }

    /// The switch has learned a station from a frame of the tunnel. Its host says so by a route, too. It
    /// ends here without one only if the switch does not learn it here again.
    pub fn station_left(&mut self, now: Duration, bridge: &str, vlan: u16, mac: MacAddr) {
        let Some(at) = self.domain_of(bridge, vlan) else { return };
        let Some(station) = self.domains[at].stations.get_mut(&mac) else { return };
        let is_here = station.here.is_some();
        station.local.take_if(|local| !is_here && !local.is_static);
        if let Some(local) = station.local.as_mut().filter(|local| !local.is_static) {
            local.confirm_by = Some(now + CONFIRM);
        }
        self.settle(now, at, mac);
    }

    /// A station of the switch has an address.
    pub fn bound(&mut self, now: Duration, bridge: &str, vlan: u16, mac: MacAddr, ip: IpAddr) {
        let Some(at) = self.domain_of(bridge, vlan).filter(|_| is_station(mac) && is_host(ip)) else { return };
        let station: &mut Station = self.domains[at].stations.entry(mac).or_default();
        if station.bindings.len() < MAX_ADDRESSES || station.bindings.contains_key(&ip) {
            station.bindings.insert(ip, self.station_listing);
        }
        self.settle(now, at, mac);
    }

    /// A station of the switch has an address no more.
    pub fn unbound(&mut self, now: Duration, bridge: &str, vlan: u16, mac: MacAddr, ip: IpAddr) {
        let Some(at) = self.domain_of(bridge, vlan) else { return };
        if let Some(station) = self.domains[at].stations.get_mut(&mac) {
            station.bindings.remove(&ip);
            self.settle(now, at, mac);
        }
    }

    /// Removes stations and addresses that the last listing has not had. A claim waits for its end.
    pub(super) fn remove_unlisted_stations(&mut self, now: Duration) {
        let listing = self.station_listing;
        for at in 0..self.domains.len() {
            let mut changed = Vec::new();
            for (mac, station) in &mut self.domains[at].stations {
                let addresses = station.bindings.len();
                station.bindings.retain(|_, last| *last >= listing);
                let is_gone = |local: &Local| local.listing < listing && local.confirm_by.is_none();
                let gone = station.local.take_if(|local| is_gone(local)).is_some();
                if gone || station.bindings.len() < addresses {
                    changed.push(*mac);
                }
            }
            for mac in changed {
                self.settle(now, at, mac);
            }
        }
    }

    fn domain_of(&self, bridge: &str, vlan: u16) -> Option<usize> {
        self.domains.iter().position(|domain| domain.settings.bridge == bridge && domain.settings.vlan == vlan)
    }
}

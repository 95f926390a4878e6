//! The facts about one station, and where it is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::rate::Bucket;
use crate::route::{Mobility, RouteKey};

/// A station behind a port of this switch.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// The port.
    pub(crate) port: String,
    /// It is static here: the configuration of the switch names it.
    pub(crate) is_static: bool,
    /// The time from which it may be announced.
    pub(crate) ready: Duration,
    /// It was seen while the switch had it behind a tunnel. The switch must learn it until then.
    pub(crate) confirm_by: Option<Duration>,
    /// The listing of the switch that had it last.
    pub(crate) listing: u64,
}

/// A received route of the station.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteRoute {
    pub(crate) next_hop: IpAddr,
    pub(crate) mobility: Mobility,
    /// The listing of GoBGP's table that had it last.
    pub(crate) listing: u64,
}

impl RemoteRoute {
    /// Returns a value that is greater for better routes: those of stations that may not move, then
    /// those with a higher sequence number, then those of the lowest host (RFC 7432 section 15).
    pub(crate) fn rank(&self) -> (bool, u32, Reverse<IpAddr>) {
        (self.mobility.sticky, self.mobility.sequence, Reverse(self.next_hop))
    }
}

/// A station as the switch is to have it behind a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The host.
    pub remote: IpAddr,
    /// The sequence number.
    pub sequence: u32,
    /// The addresses.
    pub ips: BTreeSet<IpAddr>,
}

/// The routes of a station that this host announces: one without an address, and these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) mobility: Mobility,
    pub(crate) ips: BTreeSet<IpAddr>,
}

/// Addresses that a station says are its own, each with whether the switch here vouches for it.
pub(crate) type Mentions = BTreeMap<IpAddr, bool>;

/// All that is known of a station.
#[derive(Clone, Debug, Default)]
pub(crate) struct Station {
    /// It is behind a port here, as the switch says.
    pub(crate) local: Option<Local>,
    /// Its addresses, as the switch says, with the listing that had each last.
    pub(crate) bindings: BTreeMap<IpAddr, u64>,
    /// Its routes from other hosts.
    pub(crate) routes: BTreeMap<RouteKey, RemoteRoute>,
    /// It belongs to this host, and counts as one of this port.
    pub(crate) here: Option<String>,
    /// The sequence number by which this host announces it.
    pub(crate) sequence: u32,
    /// The routes that are announced.
    pub(crate) announced: Option<Announced>,
    /// The place that the switch is to have.
    pub(crate) placed: Option<Placed>,
    /// The switch has refused this place.
    pub(crate) is_refused: bool,
    /// The addresses that count as those of this station, if nobody else had them first.
    pub(crate) mentions: Mentions,
    /// The times of its moves to this host.
    pub(crate) moves: Vec<Duration>,
    /// It moved too often: it stays where it is until then.
    pub(crate) frozen: Option<Duration>,
    /// It stays here meanwhile, because its port may send from this address only.
    pub(crate) is_guarded: bool,
    /// The times from which reserved tokens may be used: of a move, and of a route.
    pub(crate) move_token: Option<Duration>,
    pub(crate) route_token: Option<Duration>,
    /// The time at which it is looked at again.
    pub(crate) due: Option<Duration>,
}

/// Uses a token that is reserved, or reserves one. Returns the time to wait for, or `None` if the token
/// is used.
pub(crate) fn use_token(token: &mut Option<Duration>, bucket: &mut Bucket, now: Duration) -> Option<Duration> {
    let from = *token.get_or_insert_with(|| bucket.reserve(now));
    if from > now {
        return Some(from);
    }
    *token = None;
    None
}

/// The decision about a station with a local and a remote place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is here: announce it with this number.
    Here(u32),
    /// It came to this host from another one: announce it with this number.
    MovesHere(u32),
    /// It is elsewhere, or nowhere.
    Elsewhere,
    /// Another host has it, and says that it may not move.
    Sticky,
}

impl Station {
    /// Returns the best route from another host.
    pub(crate) fn best(&self) -> Option<&RemoteRoute> {
        self.routes.values().max_by_key(|route| route.rank())
    }

    /// Returns whether nothing is known any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.local.is_none() && self.bindings.is_empty() && self.routes.is_empty() && self.frozen.is_none()
    }

    /// Returns the mobility by which this host announces the station.
    pub(crate) fn mobility(&self) -> Mobility {
        let is_static = self.local.as_ref().is_some_and(|local| local.is_static);
        Mobility { sticky: is_static || self.is_guarded, sequence: self.sequence }
    }

    /// Returns the addresses of the station's routes by this host, or by all if it is `None`.
    pub(crate) fn remote_ips(&self, host: Option<IpAddr>) -> impl Iterator<Item = IpAddr> {
        let by_host = move |route: &RemoteRoute| host.is_none_or(|host| host == route.next_hop);
        self.routes.iter().filter(move |(_, route)| by_host(route)).filter_map(|(key, _)| match key {
            RouteKey::Station { ip, .. } => *ip,
            RouteKey::Flood { .. } => None,
        })
    }

    /// Decides where the station is, if it is behind a port here and may be announced by now.
    /// `own` is the address of this host.
    pub(crate) fn decide(&self, own: IpAddr) -> Decision {
        let Some(local) = &self.local else { return Decision::Elsewhere };
        let Some(best) = self.best().filter(|_| !local.is_static) else { return Decision::Here(self.sequence) };
        let Mobility { sticky, sequence } = best.mobility;
        if self.here.is_some() {
            // RFC 7432 section 15: the higher number wins; of equal ones, the lower address.
            let loses = sticky || sequence > self.sequence || (sequence == self.sequence && best.next_hop < own);
            return if loses { Decision::Elsewhere } else { Decision::Here(self.sequence) };
        }
        match sequence.checked_add(1) {
            Some(next) if !sticky => Decision::MovesHere(next.max(self.sequence)),
            _ => Decision::Sticky,
        }
    }
}

//! The settings of the machine: its networks, and the limits that hold for ports and routes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::route::{Distinguisher, Target};

/// A broadcast domain: a VLAN of a bridge that a tunnel carries by a VNI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The name of its network.
    pub network: String,
    /// The bridge.
    pub bridge: String,
    /// The VLAN: 1 in a bridge without VLANs.
    pub vlan: u16,
    /// The tunnel port.
    pub tunnel: String,
    /// The tunnel's own address.
    pub own: IpAddr,
    /// The VNI.
    pub vni: u32,
    /// The Ethernet tag: 0, or the VLAN in a VLAN-aware bundle (RFC 7432 section 6).
    pub tag: u32,
    /// The route distinguisher of the network.
    pub rd: Distinguisher,
    /// The route targets of sent routes.
    pub export: Vec<Target>,
    /// The route targets of routes that are taken.
    pub import: Import,
}

/// A set of route targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// These targets.
    pub exact: BTreeSet<Target>,
    /// These targets with any AS ([`Target::without_as`]).
    pub of_any_as: BTreeSet<Target>,
}

impl Import {
    /// Returns whether one of the targets is in the set.
    #[must_use]
    pub fn has_any(&self, targets: &[Target]) -> bool {
        targets.iter().any(|target| self.exact.contains(target) || self.of_any_as.contains(&target.without_as()))
    }
}

/// A rate: events a second, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Events a second.
    pub per_second: u32,
    /// Events at once.
    pub burst: u32,
}

/// The limits, and the times that the machine waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time from a station's first frame to its announcement.
    pub hold: Duration,
    /// New routes of a port.
    pub port_routes: Rate,
    /// Stations that move to a port from other hosts.
    pub port_moves: Rate,
    /// Stations of a port that are announced at the same time.
    pub port_stations: usize,
    /// Received routes of all networks that are kept.
    pub routes: usize,
    /// Received routes of one host that are kept: its share.
    pub host_routes: usize,
    /// Other hosts of a tunnel.
    pub remotes: usize,
    /// Moves of a station to this host within `duplicate_window` that make it a duplicate (RFC 7432
    /// section 15.1: N).
    pub duplicate_moves: usize,
    /// The window of `duplicate_moves` (RFC 7432 section 15.1: M).
    pub duplicate_window: Duration,
    /// The time until a duplicate station is tried again.
    pub duplicate_retry: Duration,
    /// The time that routes are kept while GoBGP is away, and stations while the switch is.
    pub stale: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hold: Duration::from_millis(20),
            port_routes: Rate { per_second: 100, burst: 200 },
            port_moves: Rate { per_second: 10, burst: 20 },
            port_stations: 1000,
            routes: 200_000,
            host_routes: 20_000,
            remotes: 1024,
            duplicate_moves: 5,
            duplicate_window: Duration::from_secs(180),
            duplicate_retry: Duration::from_secs(540),
            stale: Duration::from_secs(120),
        }
    }
}

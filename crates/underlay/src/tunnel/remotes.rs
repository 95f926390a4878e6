//! The remote behind which each station is, for tunnels with several remotes.
//!
//! This is the table of bridges ([`Fdb`]): a tunnel is a bridge whose ports are its remotes. Each
//! remote has a share of the table. So machines behind one remote may invent addresses, and those
//! behind the others keep their places. A station without a place is unknown, and packets for it go
//! to all remotes. A tunnel with several networks has a station in the VLAN of each; in other tunnels
//! all are in the default VLAN.

use std::net::IpAddr;

use straightline_fdb::{Fdb, FdbMove, FdbPort, FdbSpace, OwnOutcome, Share, Station};
use straightline_wire::{MacAddr, VlanId};

use crate::TunnelConfig;
use crate::tunnel::open::RemoteSpace;
use crate::tunnel::paths::{MOST_REMOTES, Paths};

/// A remote of a tunnel: its place in the tunnel's [`Paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RemoteIndex(pub(crate) u16);

impl FdbPort for RemoteIndex {
    fn from_index(index: u16) -> Self {
        RemoteIndex(index)
    }

    fn index(self) -> u16 {
        self.0
    }
}

/// Seconds after which a station that was not seen again is forgotten (RFC 7348 and IEEE 802.1Q,
/// table 8-6: 300).
const AGEING: u32 = 300;

/// The table of stations.
#[derive(Debug)]
pub(crate) struct Remotes {
    fdb: Fdb<RemoteIndex>,
}

/// A station that a tunnel with several remotes knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteStation {
    /// The VLAN of the station's network.
    pub vlan: VlanId,
    /// The address of the station.
    pub mac: MacAddr,
    /// The remote behind which it is.
    pub remote: IpAddr,
    /// The time at which it was last seen, in seconds of the workers' clocks.
    pub seen: u32,
    /// True if the configuration has it.
    pub is_static: bool,
    /// True if a client of the API has it.
    pub is_owned: bool,
}

/// A station that moved from one remote to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMove {
    /// The VLAN of the station's network.
    pub vlan: VlanId,
    /// The address of the station.
    pub mac: MacAddr,
    /// The remote behind which it was.
    pub from: IpAddr,
    /// The remote behind which it is now.
    pub to: IpAddr,
}

impl Remotes {
    /// Returns the table of a tunnel, if it has several remotes, or takes some. It has learned nothing.
    pub(crate) fn new(config: &TunnelConfig, space: Option<RemoteSpace>) -> Option<Self> {
        if config.remotes.len() < 2 && space.is_none() {
            return None;
        }
        let index = |at: usize| u16::try_from(at).ok().map(RemoteIndex);
        let ports: Vec<_> = (0..config.remotes.len()).filter_map(index).collect();
        let place = |remote: &IpAddr| index(config.remotes.iter().position(|known| known == remote)?);
        let stations = config.stations.iter();
        let fixed: Vec<_> = stations.filter_map(|(vlan, mac, remote)| Some((*vlan, *mac, place(remote)?))).collect();
        let limit = config.limit.saturating_sub(fixed.len());
        let space = space.map(|space| FdbSpace { owned: space.stations, ports: MOST_REMOTES });
        Some(Remotes { fdb: Fdb::with_space(limit, AGEING, &ports, &fixed, space.unwrap_or_default()) })
    }

    /// Returns the remote behind which a station is, if it is known at `now`.
    #[inline]
    pub(crate) fn of(&self, vlan: VlanId, mac: MacAddr, now: u32) -> Option<RemoteIndex> {
        self.fdb.lookup(Station::new(vlan, mac), now)
    }

    /// Prefetches the places of stations in a VLAN: see [`Fdb::prefetch`].
    #[inline]
    pub(crate) fn prefetch(&self, vlan: VlanId, stations: impl Iterator<Item = MacAddr>) {
        self.fdb.prefetch(stations.map(|mac| Station::new(vlan, mac)));
    }

    /// Learns that a station is behind `remote`, because a frame with this source came from there.
    /// An address that no station has is not learned.
    #[inline]
    pub(crate) fn learn(&self, vlan: VlanId, mac: MacAddr, remote: RemoteIndex, now: u32) {
        if !mac.is_multicast() && mac.as_u64() != 0 {
            self.fdb.learn(Station::new(vlan, mac), remote, now);
        }
    }

    /// Sweeps a part of the table: see [`Fdb::sweep`].
    #[inline]
    pub(crate) fn sweep(&self, now: u32) {
        self.fdb.sweep(now);
    }

    /// Returns the share of each remote, in their order.
    pub(crate) fn shares(&self, paths: &Paths) -> Vec<Share> {
        paths.indices().map(|remote| self.fdb.share(remote)).collect()
    }

    /// Divides the places anew among these remotes. Stations behind others go.
    pub(crate) fn set_remotes(&self, remotes: &[RemoteIndex]) {
        self.fdb.set_ports(remotes);
    }

    /// Gives a station to an owner.
    pub(crate) fn set_owned(&self, station: Station, remote: RemoteIndex) -> OwnOutcome {
        self.fdb.set_owned(station, remote)
    }

    /// Removes a station of an owner.
    pub(crate) fn remove_owned(&self, station: Station) -> bool {
        self.fdb.remove_owned(station)
    }

    /// Returns whether the configuration has a station.
    pub(crate) fn is_fixed(&self, station: Station) -> bool {
        self.fdb.is_fixed(station)
    }

    /// Returns the stations that are known at `now`.
    pub(crate) fn stations(&self, paths: &Paths, now: u32) -> Vec<RemoteStation> {
        let entries = self.fdb.entries(now).into_iter();
        entries
            .filter_map(|entry| {
                let remote = paths.address(entry.port)?;
                let straightline_fdb::FdbEntry { vlan, mac, seen, is_static, is_owned, .. } = entry;
                Some(RemoteStation { vlan, mac, remote, seen, is_static, is_owned })
            })
            .collect()
    }

    /// Returns the moves after the first `since` ones that are kept, and the number of all moves.
    pub(crate) fn moves(&self, paths: &Paths, since: u64) -> (Vec<RemoteMove>, u64) {
        if self.fdb.moved() == since {
            return (Vec::new(), since);
        }
        let (moves, count) = self.fdb.moves(since);
        let name = |FdbMove { vlan, mac, from, to, .. }| {
            Some(RemoteMove { vlan, mac, from: paths.address(from)?, to: paths.address(to)? })
        };
        (moves.into_iter().filter_map(name).collect(), count)
    }
}

#[cfg(test)]
mod tests;

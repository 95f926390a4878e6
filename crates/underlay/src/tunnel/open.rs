//! Remotes and stations that clients of the API give to a tunnel while packets pass.
//!
//! Who owns which is known elsewhere; here is what packets need. The callers hold a lock of their own,
//! so that one thread at a time changes a tunnel.

use std::net::IpAddr;
use std::sync::Arc;

use straightline_fdb::{OwnOutcome, Station};

use super::{Path, Tunnel};
use crate::kind::Traits;
use crate::tunnel::paths::MOST_REMOTES;

/// Places of a tunnel for what clients of the API add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpace {
    /// Number of stations.
    pub stations: usize,
}

/// The reason why a remote cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The configuration names its only remote.
    #[error("the tunnel has one `remote`; name its remotes in `remotes`, a list that may be empty")]
    OneRemote,
    /// The remote has another IP version than our end.
    #[error("not of the IP version of our address {0}")]
    OtherVersion(IpAddr),
    /// The underlay has this address itself.
    #[error("an address of our own")]
    Own,
    /// No station has the address.
    #[error("not the address of a station")]
    NoStation,
    /// Neither a network of the underlay nor a gateway leads there.
    #[error("no network of the underlay and no gateway leads there")]
    NoRoute,
    /// There are as many as possible.
    #[error("a tunnel has at most {MOST_REMOTES} remotes")]
    TooMany,
    /// The headers are too long.
    #[error("the headers are too long")]
    Headers,
}

impl Tunnel {
    /// Returns whether the tunnel takes remotes and stations while it runs.
    #[must_use]
    pub fn takes_remotes(&self) -> bool {
        self.remotes.as_ref().is_some_and(|_| self.space.is_some())
    }

    /// Returns the remotes, in the order of their indices.
    #[must_use]
    pub fn remotes(&self) -> Vec<IpAddr> {
        self.paths.now().iter().map(|path| path.remote).collect()
    }

    /// Returns whether this is a remote of the tunnel now.
    #[must_use]
    pub fn has_remote(&self, remote: IpAddr) -> bool {
        self.paths.now().index(remote).is_some()
    }

    /// Returns whether the configuration has a remote.
    #[must_use]
    pub fn is_fixed_remote(&self, remote: IpAddr) -> bool {
        self.paths.fixed().index(remote).is_some()
    }

    /// Looks whether a remote can be added.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_remote(&self, remote: IpAddr) -> Result<(), RemoteError> {
        if !self.takes_remotes() {
            return Err(RemoteError::OneRemote);
        }
        if remote.is_ipv4() != self.config.local.is_ipv4() {
            return Err(RemoteError::OtherVersion(self.config.local));
        }
        if self.underlay.is_own(remote) {
            return Err(RemoteError::Own);
        }
        let is_broadcast = remote == IpAddr::from([255; 4]);
        if remote.is_unspecified() || remote.is_multicast() || remote.is_loopback() || is_broadcast {
            return Err(RemoteError::NoStation);
        }
        if self.underlay.via(remote).is_none() {
            return Err(RemoteError::NoRoute);
        }
        Ok(())
    }

    /// Returns whether a packet from one remote could be for this tunnel and for the other.
    #[must_use]
    pub fn has_key_of(&self, other: &Tunnel) -> bool {
        let names = |tunnel: &Tunnel| -> Vec<_> {
            let name = |kind: &crate::TunnelKind| {
                let Traits { form, key, .. } = kind.traits();
                (form, key)
            };
            tunnel.config.kinds().map(|(_, kind)| name(&kind)).collect()
        };
        let own = names(self);
        self.config.local == other.config.local
            && self.underlay.config().name == other.underlay.config().name
            && names(other).iter().any(|name| own.contains(name))
    }

    /// Adds and removes remotes. Stations behind a removed one go. Those of the configuration stay, and
    /// one that is there already is no error.
    ///
    /// # Errors
    /// The first remote that cannot be added, by its place. Nothing is changed then.
    pub fn change_remotes(self: &Arc<Self>, add: &[IpAddr], remove: &[IpAddr]) -> Result<(), (usize, RemoteError)> {
        let Some(stations) = self.remotes.as_ref().filter(|_| self.takes_remotes()) else {
            return Err((0, RemoteError::OneRemote));
        };
        let before = self.paths.now();
        let mut kept = (*before).clone();
        for remote in remove.iter().filter(|remote| !self.is_fixed_remote(**remote)) {
            kept.remove(*remote);
        }
        // A removed remote's index is used again only when no worker has it any more: after the first
        // publication below.
        let mut after = kept.clone();
        let mut fresh = Vec::new();
        for (at, &remote) in add.iter().enumerate() {
            if after.index(remote).is_some() {
                // A tunnel that took it over from the one before has not noted it.
                self.underlay.add_tunnel_to(remote, self);
                continue;
            }
            self.check_remote(remote).map_err(|error| (at, error))?;
            let path = Path::new(&self.config, &self.underlay, remote).map_err(|_| (at, RemoteError::Headers))?;
            let path = Arc::new(path);
            if !after.add(Arc::clone(&path)) {
                return Err((at, RemoteError::TooMany));
            }
            fresh.push(path);
        }
        let publish = |paths| self.paths.publish(paths, || self.underlay.note_remote_change());
        if kept.iter().count() < before.iter().count() {
            stations.set_remotes(&kept.indices().collect::<Vec<_>>());
            publish(kept);
            remove.iter().for_each(|remote| self.underlay.forget_tunnel_to(*remote, self));
        }
        if !fresh.is_empty() {
            stations.set_remotes(&after.indices().collect::<Vec<_>>());
            publish(after);
        }
        for path in fresh {
            self.underlay.add_tunnel_to(path.remote, self);
            if let Some(hop) = &path.hop {
                self.underlay.ask_soon(hop);
            }
        }
        Ok(())
    }

    /// Gives a station to an owner, behind a remote. `None`: it is no remote of the tunnel.
    pub fn set_owned(&self, station: Station, remote: IpAddr) -> Option<OwnOutcome> {
        let remote = self.paths.now().index(remote)?;
        Some(self.remotes.as_ref()?.set_owned(station, remote))
    }

    /// Removes a station of an owner.
    pub fn remove_owned(&self, station: Station) -> bool {
        self.remotes.as_ref().is_some_and(|remotes| remotes.remove_owned(station))
    }

    /// Returns whether the configuration has a station.
    #[must_use]
    pub fn is_fixed_station(&self, station: Station) -> bool {
        self.remotes.as_ref().is_some_and(|remotes| remotes.is_fixed(station))
    }

    /// Takes over the remotes and stations that clients have added to `before`, as far as this tunnel can
    /// have them.
    pub(super) fn take_over_added(&self, before: &Self) {
        let Some(stations) = self.remotes.as_ref().filter(|_| self.takes_remotes()) else { return };
        let mut paths = (*self.paths.now()).clone();
        for remote in before.remotes().into_iter().filter(|remote| !before.is_fixed_remote(*remote)) {
            if self.check_remote(remote).is_ok()
                && let Ok(path) = Path::new(&self.config, &self.underlay, remote)
            {
                paths.add(Arc::new(path));
            }
        }
        stations.set_remotes(&paths.indices().collect::<Vec<_>>());
        self.paths.publish(paths, || self.underlay.note_remote_change());
        let of_owners = before.stations(0).into_iter().filter(|station| station.is_owned);
        for station in of_owners {
            let _ = self.set_owned(Station::new(station.vlan, station.mac), station.remote);
        }
    }
}

#[cfg(test)]
mod tests;

//! Stations of owners: clients of the API that say where they are.

use super::{Fdb, OWNED, STATIC};
use crate::journal::FdbChangeKind;
use crate::port::FdbPort;
use crate::sync::Ordering;
use crate::word::Station;

/// The outcome of [`Fdb::set_owned`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnOutcome {
    /// The owner has the station now.
    Owned,
    /// The configuration fixes the station.
    Fixed,
    /// There is no place for a further station of owners.
    Full,
    /// The port is none of this table.
    NoPort,
}

impl<P: FdbPort> Fdb<P> {
    /// Gives a station to an owner, at a port. Stations of owners have places of their own. The table
    /// does not know which owner has a station: those who call this know it.
    pub fn set_owned(&self, key: Station, port: P) -> OwnOutcome {
        let mut writer = self.lock();
        if !self.shares.is_member(port.index().into()) {
            return OwnOutcome::NoPort;
        }
        let found = self.stations.find(key);
        let seen = found.map(|station| station.seen());
        if seen == Some(STATIC) {
            return OwnOutcome::Fixed;
        }
        if seen == Some(OWNED) {
            if let Some(station) = found {
                Self::forget_moves(&mut writer, station);
                self.stations.set_port(station, port.index());
            }
            return OwnOutcome::Owned;
        }
        if self.owned.load(Ordering::Relaxed) >= self.most_owned {
            return OwnOutcome::Full;
        }
        match found {
            Some(station) => {
                let before = self.stations.port(station);
                self.shares.release(before.into());
                self.note(&mut writer, key, before, FdbChangeKind::Forgotten);
                Self::forget_moves(&mut writer, station);
                station.set_seen(OWNED);
                self.stations.set_port(station, port.index());
            }
            None if !self.stations.insert(key, port.index(), OWNED) => return OwnOutcome::Full,
            None => {}
        }
        self.owned.fetch_add(1, Ordering::Relaxed);
        OwnOutcome::Owned
    }

    /// Removes a station that an owner has. Returns whether it was there.
    pub fn remove_owned(&self, key: Station) -> bool {
        let mut writer = self.lock();
        let station = self.stations.find(key).filter(|station| station.seen() == OWNED);
        station.is_some_and(|station| {
            self.forget(&mut writer, station);
            true
        })
    }

    /// Returns the number of stations that owners have.
    pub fn owned(&self) -> u32 {
        self.owned.load(Ordering::Relaxed)
    }

    /// Returns the number of stations that owners may have.
    pub fn most_owned(&self) -> u32 {
        self.most_owned
    }

    /// Returns whether an owner has a station.
    pub fn is_owned(&self, station: Station) -> bool {
        self.stations.find(station).is_some_and(|found| found.seen() == OWNED)
    }
}

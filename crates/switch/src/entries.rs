//! Remotes and stations of API clients, as lists: who owns which. The module `networks` changes them.

mod place;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

pub(crate) use place::{Ips, Place, PortNames};
use straightline_fdb::{OwnedTable, Owners, Station};
use straightline_graph::Clock;

/// The entries of all owners.
#[derive(Debug)]
pub(crate) struct Networks {
    pub(crate) clock: Clock,
    pub(crate) began: Instant,
    /// A name of this run of the switch.
    pub(crate) instance: String,
    pub(crate) owners: Owners,
    pub(crate) ports: PortNames,
    /// The remotes of each tunnel, by the name of its port.
    pub(crate) remotes: BTreeMap<String, OwnedTable<IpAddr, ()>>,
    /// The stations of each bridge.
    pub(crate) stations: BTreeMap<String, OwnedTable<Station, Place>>,
}

impl Networks {
    /// Returns no entries, whose times are those of this clock.
    pub(crate) fn new(clock: Clock) -> Self {
        let since_epoch = clock.time_of_day().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Networks {
            began: clock.now(),
            clock,
            instance: format!("{:x}-{:x}", since_epoch.as_nanos(), std::process::id()),
            owners: Owners::default(),
            ports: PortNames::default(),
            remotes: BTreeMap::new(),
            stations: BTreeMap::new(),
        }
    }
}

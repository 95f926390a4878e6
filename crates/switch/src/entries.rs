//! Remotes and stations of API clients, as lists: who owns which. The module `networks` changes them.

mod place;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

pub(crate) use place::{Ips, Place, PortNames};
use straightline_fdb::{OwnedTable, Owners, Station};

/// The entries of all owners.
#[derive(Debug)]
pub(crate) struct Networks {
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

impl Default for Networks {
    fn default() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Networks {
            began: Instant::now(),
            instance: format!("{:x}-{:x}", since_epoch.as_nanos(), std::process::id()),
            owners: Owners::default(),
            ports: PortNames::default(),
            remotes: BTreeMap::new(),
            stations: BTreeMap::new(),
        }
    }
}

//! The control half of a source check: the addresses that the port's guest may claim.

use straightline_api::{AllowedAddress, Row};
use straightline_graph::{NodeControl, Rows, TableView};

use super::link_local;
use crate::{IpPrefix, MacPrefix, SourceCheck};

/// The addresses that a port's guest may claim as its own.
#[derive(Debug)]
pub struct AllowedAddresses {
    check: SourceCheck,
    macs: Vec<MacPrefix>,
    /// `None`: every IP address.
    ips: Option<Vec<IpPrefix>>,
}

impl AllowedAddresses {
    /// Creates the control half of a check of these addresses, as [`SourceCheck::new`] takes them.
    #[must_use]
    pub fn new(macs: &[MacPrefix], ips: Option<&[IpPrefix]>) -> Self {
        AllowedAddresses { check: SourceCheck::new(macs, ips), macs: macs.to_vec(), ips: ips.map(<[_]>::to_vec) }
    }

    /// Returns a node for a worker's graph.
    #[must_use]
    pub fn node(&self) -> SourceCheck {
        self.check.clone()
    }
}

impl NodeControl for AllowedAddresses {
    fn rows(&self, _: &TableView<'_>, rows: &mut Rows) {
        let own = self.macs.iter().filter(|_| self.ips.is_some()).filter_map(|mac| mac.only()).map(link_local);
        let macs = self.macs.iter().map(ToString::to_string);
        let ips = self.ips.iter().flatten().map(ToString::to_string).chain(own.map(|ip| ip.to_string()));
        // They stand in the order of the configuration, MAC addresses first.
        for (at, address) in macs.chain(ips).enumerate() {
            rows.add(|| format!("{at:05}"), || Row::AllowedAddress(AllowedAddress { address }));
        }
    }
}

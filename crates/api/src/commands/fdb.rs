//! The answer to `fdb`.

use serde::{Deserialize, Serialize};

use crate::layout::Grid;

/// The answer to `fdb`: the forwarding databases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fdb {
    /// The addresses that the bridges know.
    pub entries: Vec<FdbEntry>,
    /// The addresses that tunnels with several remotes know.
    #[serde(default)]
    pub remotes: Vec<RemoteEntry>,
}

/// An address that a bridge knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FdbEntry {
    /// The bridge.
    pub bridge: String,
    /// The VLAN.
    #[serde(default)]
    pub vlan: u16,
    /// The address.
    pub mac: String,
    /// The port behind which the address is; empty if the port is gone.
    pub port: String,
    /// Seconds since the address was last seen as a source; 0 for an entry of the configuration or of an
    /// owner.
    pub age_s: f64,
    /// True if the configuration names the address.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// True if a client of the API has added the address.
    #[serde(default, rename = "owned", skip_serializing_if = "std::ops::Not::not")]
    pub is_owned: bool,
}

/// An address that a tunnel with several remotes knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemoteEntry {
    /// The tunnel's port.
    pub port: String,
    /// The VLAN of the address's network, if the tunnel has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The address.
    pub mac: String,
    /// The remote behind which the address is.
    pub remote: String,
    /// Seconds since the address was last seen as a source; 0 for an entry of the configuration or of an
    /// owner.
    pub age_s: f64,
    /// True if the configuration names the address.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// True if a client of the API has added the address.
    #[serde(default, rename = "owned", skip_serializing_if = "std::ops::Not::not")]
    pub is_owned: bool,
}

/// Renders the age of an address.
pub(super) fn age(is_static: bool, is_owned: bool, age_s: f64) -> String {
    match (is_static, is_owned) {
        (true, _) => "static".to_owned(),
        (false, true) => "owned".to_owned(),
        (false, false) => format!("{age_s:.0} s"),
    }
}

/// Renders the answer to `fdb`: a row for each address that bridges know, then for each that tunnels
/// know.
#[must_use]
pub fn text(fdb: &Fdb) -> String {
    let mut bridges = Grid::new(&["<bridge", "<address", "<port", ">age"]);
    let mut with_vlans = Grid::new(&["<bridge", ">VLAN", "<address", "<port", ">age"]);
    for entry in &fdb.entries {
        let age = age(entry.is_static, entry.is_owned, entry.age_s);
        let FdbEntry { bridge, vlan, mac, port, .. } = entry;
        bridges.row([bridge.clone(), mac.clone(), port.clone(), age.clone()]);
        with_vlans.row([bridge.clone(), vlan.to_string(), mac.clone(), port.clone(), age]);
    }
    // A switch whose bridges have no VLANs needs no column for them.
    let has_vlans = fdb.entries.iter().any(|entry| entry.vlan > 1);
    let bridges = || if has_vlans { with_vlans.render("") } else { bridges.render("") };
    let mut tunnels = Grid::new(&["<tunnel", "<address", "<remote", ">age"]);
    let mut with_networks = Grid::new(&["<tunnel", ">VLAN", "<address", "<remote", ">age"]);
    for entry in &fdb.remotes {
        let age = age(entry.is_static, entry.is_owned, entry.age_s);
        let RemoteEntry { port, vlan, mac, remote, .. } = entry;
        let vlan = vlan.map_or_else(String::new, |vlan| vlan.to_string());
        tunnels.row([port.clone(), mac.clone(), remote.clone(), age.clone()]);
        with_networks.row([port.clone(), vlan, mac.clone(), remote.clone(), age]);
    }
    let has_networks = fdb.remotes.iter().any(|entry| entry.vlan.is_some());
    let tunnels = || if has_networks { with_networks.render("") } else { tunnels.render("") };
    match (fdb.entries.is_empty(), fdb.remotes.is_empty()) {
        (true, true) => "no addresses\n".to_owned(),
        (false, true) => bridges(),
        (true, false) => tunnels(),
        (false, false) => format!("{}\n{}", bridges(), tunnels()),
    }
}

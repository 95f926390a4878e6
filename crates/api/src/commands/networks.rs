//! The requests about remotes and stations that clients add, and their answers.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::layout::Grid;

/// The most rows of an answer, whatever a request asks for.
pub(super) const MOST_ROWS: u32 = 10_000;

fn default_limit() -> u32 {
    1000
}

fn default_vlan() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The arguments of the request `remotes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemotesRequest {
    /// The tunnel's port.
    pub tunnel: String,
    /// Only remotes of this owner are of interest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Only remotes behind this place are of interest: `next` of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most remotes of the answer.
    #[serde(default = "default_limit")]
    pub limit: u32,
}

impl RemotesRequest {
    /// The most remotes of an answer, whatever the request asks for.
    pub const MOST: u32 = MOST_ROWS;

    /// Returns the request for the first remotes of a tunnel.
    #[must_use]
    pub fn new(tunnel: impl Into<String>) -> Self {
        Self { tunnel: tunnel.into(), owner: None, after: None, limit: default_limit() }
    }
}

/// A remote of a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OwnedRemote {
    /// The address.
    pub remote: String,
    /// The owner; `file` if the configuration has the remote.
    pub owner: String,
    /// False: the owner has not sent it since it came back.
    pub confirmed: bool,
    /// False: it cannot be used now, because a reload has changed the tunnel or the underlay.
    pub active: bool,
}

/// The answer to `remotes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Remotes {
    /// The tunnel's port.
    pub tunnel: String,
    /// The remotes by address.
    pub remotes: Vec<OwnedRemote>,
    /// The number of all remotes that the request means.
    pub total: u64,
    /// The place of the last remote, if there are more: the next request has it as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The arguments of the request `change-remotes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangeRemotes {
    /// The tunnel's port. It has `remotes` in the file, a list that may be empty.
    pub tunnel: String,
    /// The owner: a name that the client chooses.
    pub owner: String,
    /// `add`, `delete` or `replace`.
    pub command: String,
    /// The addresses, behind those of requests with `more`.
    #[serde(default)]
    pub remotes: Vec<String>,
    /// True: these are kept for the next `change-remotes` of this connection.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// The arguments of the request `stations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StationsRequest {
    /// The name of the bridge.
    pub bridge: String,
    /// Only stations of this owner are of interest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Only stations behind this place are of interest: `next` of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most stations of the answer.
    #[serde(default = "default_limit")]
    pub limit: u32,
}

impl StationsRequest {
    /// The most stations of an answer, whatever the request asks for.
    pub const MOST: u32 = MOST_ROWS;

    /// Returns the request for the first stations of a bridge.
    #[must_use]
    pub fn new(bridge: impl Into<String>) -> Self {
        Self { bridge: bridge.into(), owner: None, after: None, limit: default_limit() }
    }
}

/// A station of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OwnedStation {
    /// The address.
    pub mac: String,
    /// The VLAN.
    pub vlan: u16,
    /// The port behind which it is.
    pub port: String,
    /// The remote behind which it is, if the port is a tunnel with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// The owner's number of the entry.
    pub sequence: u32,
    /// The station's IP addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// The owner.
    pub owner: String,
    /// False: the owner has not sent it since it came back.
    pub confirmed: bool,
    /// False: it cannot be used now, because a reload has changed the bridge, the port or its remotes.
    pub active: bool,
}

/// The answer to `stations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stations {
    /// The name of the bridge.
    pub bridge: String,
    /// The stations by VLAN and address.
    pub stations: Vec<OwnedStation>,
    /// The number of all stations that the request means.
    pub total: u64,
    /// The place of the last station, if there are more: the next request has it as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A station that a client adds or deletes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NewStation {
    /// The address.
    pub mac: String,
    /// The VLAN. In a bridge without VLANs all stations are in VLAN 1.
    #[serde(default = "default_vlan")]
    pub vlan: u16,
    /// The port behind which it is. To delete a station, none is needed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub port: String,
    /// The remote behind which it is, if the port is a tunnel with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// A number: an entry with a lower one does not change this one.
    #[serde(default)]
    pub sequence: u32,
    /// The station's IP addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
}

impl Default for NewStation {
    fn default() -> Self {
        NewStation {
            mac: String::new(),
            vlan: default_vlan(),
            port: String::new(),
            remote: None,
            sequence: 0,
            ips: Vec::new(),
        }
    }
}

/// The arguments of the request `change-stations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangeStations {
    /// The name of the bridge.
    pub bridge: String,
    /// The owner: a name that the client chooses.
    pub owner: String,
    /// `add`, `delete` or `replace`.
    pub command: String,
    /// The stations, behind those of requests with `more`.
    #[serde(default)]
    pub stations: Vec<NewStation>,
    /// True: these are kept for the next `change-stations` of this connection.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// The answer to `change-remotes` and `change-stations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EntriesChanged {
    /// The number of new entries.
    pub added: u64,
    /// The number of entries with another value than before.
    pub changed: u64,
    /// The number of deleted entries.
    pub deleted: u64,
    /// The number of entries that the file has, or that are older than the known ones.
    pub kept: u64,
    /// The number of entries that wait for the next request, after one with `more`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held: u64,
}

/// Renders the answer to a change.
#[must_use]
pub fn entries_changed(done: &EntriesChanged) -> String {
    let EntriesChanged { added, changed, deleted, kept, .. } = *done;
    let counts = [(added, "added"), (changed, "changed"), (deleted, "deleted")];
    let counts: Vec<_> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let mut text = if counts.is_empty() { "nothing changed".to_owned() } else { counts.join(", ") };
    if kept > 0 {
        let _ = write!(text, "; {kept} of the configuration file or newer stay");
    }
    text + "\n"
}

fn state(confirmed: bool, active: bool) -> String {
    match (confirmed, active) {
        (true, true) => String::new(),
        (false, true) => "unconfirmed".to_owned(),
        (true, false) => "inactive".to_owned(),
        (false, false) => "unconfirmed, inactive".to_owned(),
    }
}

/// Renders the answer to `remotes`.
#[must_use]
pub fn remotes(answer: &Remotes) -> String {
    if answer.remotes.is_empty() {
        return format!("{}: no remotes\n", answer.tunnel);
    }
    let mut grid = Grid::new(&["<remote", "<owner", "<state"]);
    for OwnedRemote { remote, owner, confirmed, active } in &answer.remotes {
        grid.row([remote.clone(), owner.clone(), state(*confirmed, *active)]);
    }
    grid.render("")
}

/// Renders the answer to `stations`.
#[must_use]
pub fn stations(answer: &Stations) -> String {
    if answer.stations.is_empty() {
        return format!("{}: no stations of owners\n", answer.bridge);
    }
    let header = [">vlan", "<address", "<port", "<remote", "<owner", ">sequence", "<IP addresses", "<state"];
    let mut grid = Grid::new(&header);
    for station in &answer.stations {
        let OwnedStation { mac, vlan, port, remote, sequence, ips, owner, confirmed, active } = station;
        grid.row([
            vlan.to_string(),
            mac.clone(),
            port.clone(),
            remote.clone().unwrap_or_default(),
            owner.clone(),
            sequence.to_string(),
            ips.join(" "),
            state(*confirmed, *active),
        ]);
    }
    grid.render("")
}

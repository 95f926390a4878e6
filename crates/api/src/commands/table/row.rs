//! The rows of tables. Each kind of row has a type here, with its text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::commands::fdb::age;
use crate::commands::{Binding, FdbEntry, Neighbour, OwnAddress, RemoteEntry};
use crate::layout::render_columns;

/// A row of a table. Its kind is the field `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Row {
    /// A station that a bridge knows.
    Station(FdbEntry),
    /// A station that a tunnel with several remotes knows.
    TunnelStation(RemoteEntry),
    /// An IP address that belongs to a MAC address.
    Binding(Binding),
    /// A next hop of an underlay.
    NextHop(Neighbour),
    /// An address of the switch in an underlay.
    OwnAddress(OwnAddress),
    /// Addresses that a port's guest may claim.
    AllowedAddress(AllowedAddress),
    /// A rule of a port's groups.
    FirewallRule(FirewallRule),
    /// A port that gets copies.
    MirroredTo(MirroredTo),
    /// A port whose guests listen to a multicast group.
    GroupMember(GroupMember),
    /// A port with a multicast router behind it.
    MulticastRouter(MulticastRouter),
    /// A row of a node that a program has added.
    Node {
        /// The fields, as the node names them.
        fields: BTreeMap<String, Cell>,
    },
    /// Another kind, from a switch of a newer version.
    #[serde(other)]
    Other,
}

/// Addresses that a port's guest may claim as its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AllowedAddress {
    /// A MAC or IP address, or a prefix with its length.
    pub address: String,
}

/// A rule that decides about packets of a port with groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FirewallRule {
    /// The port.
    pub port: String,
    /// `out`: sent by the port; `in`: sent to it.
    pub direction: String,
    /// The name of the rule, as connections and events show it.
    pub name: String,
    /// The rule.
    pub rule: String,
    /// Whether it lets packets pass.
    pub allows: bool,
    /// The packets that it has decided about: the first one of each connection, and single ones.
    pub packets: u64,
}

/// A port that gets copies of packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MirroredTo {
    /// The port.
    pub port: String,
}

/// A port whose guests listen to a multicast group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupMember {
    /// The VLAN; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The address of the group; `all` for a port that gets all groups, because its share of the table is
    /// full or its reports are too long.
    pub group: String,
    /// The port.
    pub port: String,
    /// Seconds until this is forgotten, unless a host reports the group again.
    pub left_s: u32,
}

/// A port with a multicast router behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MulticastRouter {
    /// The VLAN.
    pub vlan: u16,
    /// The protocol by which it asks for listeners: `IGMP` or `MLD`.
    pub protocol: String,
    /// The port.
    pub port: String,
    /// Seconds until this is forgotten, unless the router announces itself again.
    pub left_s: u32,
}

/// A field of a row that a program's node shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Cell {
    /// True or false.
    Truth(bool),
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl From<bool> for Cell {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truth(truth) => truth.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Row {
    /// Returns the headings and cells of the row. A heading begins with `<` or `>`, the side to which
    /// its column is aligned.
    fn cells(&self) -> Vec<(String, String)> {
        let known = |age_s: Option<u32>| age_s.map_or_else(String::new, |age| format!("{age} s"));
        let columns: Vec<(&str, String)> = match self {
            Self::Station(row) => vec![
                (">vlan", row.vlan.to_string()),
                ("<address", row.mac.clone()),
                ("<port", row.port.clone()),
                (">age", age(row.is_static, row.is_owned, row.age_s)),
            ],
            Self::TunnelStation(row) => vec![
                ("<address", row.mac.clone()),
                ("<remote", row.remote.clone()),
                (">age", age(row.is_static, row.is_owned, row.age_s)),
            ],
            Self::Binding(row) => vec![
                (">vlan", row.vlan.to_string()),
                ("<IP address", row.ip.clone()),
                ("<address", row.mac.clone()),
                ("<port", row.port.clone()),
                ("<source", row.source.clone()),
                (">age", format!("{:.0} s", row.age_s)),
            ],
            Self::NextHop(row) => vec![
                ("<next hop", row.ip.clone()),
                ("<mac", row.mac.clone().unwrap_or_default()),
                ("<state", row.state.as_str().to_owned()),
                (">age", known(row.age_s)),
            ],
            Self::OwnAddress(row) => vec![
                ("<own address", row.ip.clone()),
                ("<another station", row.conflict.clone().unwrap_or_default()),
                (">age", known(row.age_s)),
            ],
            Self::AllowedAddress(row) => vec![("<allowed address", row.address.clone())],
            Self::FirewallRule(row) => vec![
                ("<port", row.port.clone()),
                ("<way", row.direction.clone()),
                ("<name", row.name.clone()),
                (">packets", row.packets.to_string()),
                ("<rule", row.rule.clone()),
            ],
            Self::MirroredTo(row) => vec![("<copies go to", row.port.clone())],
            Self::GroupMember(row) => vec![
                (">vlan", row.vlan.map_or_else(String::new, |vlan| vlan.to_string())),
                ("<group", row.group.clone()),
                ("<port", row.port.clone()),
                (">left", format!("{} s", row.left_s)),
            ],
            Self::MulticastRouter(row) => vec![
                (">vlan", row.vlan.to_string()),
                ("<router", row.protocol.clone()),
                ("<port", row.port.clone()),
                (">left", format!("{} s", row.left_s)),
            ],
            Self::Node { fields } => {
                return fields.iter().map(|(name, cell)| (heading(name, cell), cell.to_string())).collect();
            }
            Self::Other => vec![("<row", "of a kind that this client does not know".to_owned())],
        };
        columns.into_iter().map(|(heading, cell)| (heading.to_owned(), cell)).collect()
    }
}

/// Returns the heading of a field: numbers are aligned to the right.
fn heading(name: &str, cell: &Cell) -> String {
    let side = if matches!(cell, Cell::Number(_)) { '>' } else { '<' };
    format!("{side}{name}")
}

/// Renders rows: a table for each run of rows with the same columns.
pub(super) fn text(rows: &[Row]) -> String {
    let rows: Vec<_> = rows.iter().map(Row::cells).collect();
    let is_alike =
        |a: &Vec<(String, String)>, b: &Vec<(String, String)>| a.iter().map(|(h, _)| h).eq(b.iter().map(|(h, _)| h));
    let tables = rows.chunk_by(is_alike).map(render_columns);
    tables.collect::<Vec<_>>().join("\n")
}

//! The answer to `neighbours`.

use serde::{Deserialize, Serialize};

use crate::layout::Grid;

/// The answer to `neighbours`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Neighbours {
    /// The next hops of all underlays.
    pub neighbours: Vec<Neighbour>,
    /// The switch's own addresses.
    #[serde(default)]
    pub addresses: Vec<OwnAddress>,
}

/// An address of an underlay: the switch's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OwnAddress {
    /// The underlay.
    pub underlay: String,
    /// The IP address.
    pub ip: String,
    /// The MAC address of another station that has the address too; of several the first one.
    pub conflict: Option<String>,
    /// Seconds since that station last said so. After 30 seconds of silence, the conflict ends.
    pub age_s: Option<u32>,
    /// The number of times that other stations said that they have the address.
    pub claims: u64,
}

/// A next hop of an underlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Neighbour {
    /// The underlay.
    pub underlay: String,
    /// The IP address.
    pub ip: String,
    /// The MAC address, if it is known.
    pub mac: Option<String>,
    /// The state.
    pub state: NeighbourState,
    /// Seconds since its last answer; none before the first one, and for a static entry.
    pub age_s: Option<u32>,
}

/// The states of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum NeighbourState {
    /// It was asked for its MAC address, and has not answered yet.
    Asked,
    /// It has answered.
    Reachable,
    /// It has not answered for so long that it counts as gone.
    Unanswered,
    /// The configuration fixes its MAC address.
    Static,
}

impl NeighbourState {
    /// Returns the word for the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Reachable => "reachable",
            Self::Unanswered => "unanswered",
            Self::Static => "static",
        }
    }
}

/// Renders the answer to `neighbours`: a row for each next hop, then one for each address of the
/// switch that another station has.
#[must_use]
pub fn text(neighbours: &Neighbours) -> String {
    let mut conflicts = Grid::new(&["<underlay", "<own address", "<another station", ">age"]);
    let mut has_conflicts = false;
    for own in &neighbours.addresses {
        let Some(mac) = &own.conflict else { continue };
        let age = own.age_s.map_or_else(String::new, |age| format!("{age} s"));
        conflicts.row([own.underlay.clone(), own.ip.clone(), mac.clone(), age]);
        has_conflicts = true;
    }
    let next_hops = next_hops(neighbours);
    if has_conflicts { format!("{next_hops}\n{}", conflicts.render("")) } else { next_hops }
}

fn next_hops(neighbours: &Neighbours) -> String {
    if neighbours.neighbours.is_empty() {
        return "no neighbours\n".to_owned();
    }
    let mut grid = Grid::new(&["<underlay", "<address", "<mac", "<state", ">age"]);
    for next_hop in &neighbours.neighbours {
        let mac = next_hop.mac.clone().unwrap_or_default();
        let age = next_hop.age_s.map_or_else(String::new, |age| format!("{age} s"));
        grid.row([next_hop.underlay.clone(), next_hop.ip.clone(), mac, next_hop.state.as_str().to_owned(), age]);
    }
    grid.render("")
}

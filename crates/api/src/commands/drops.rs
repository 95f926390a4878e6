//! The answer to `drops`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::layout::{Grid, INDENT, WIDTH, count, wrap};

/// The answer to `drops`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Drops {
    /// The count of each port and reason that is not 0.
    pub drops: Vec<DropCount>,
}

/// The packets dropped at a port for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DropCount {
    /// The port.
    pub port: String,
    /// The reason.
    pub reason: String,
    /// The number.
    pub count: u64,
    /// The meaning of the reason, in one sentence.
    #[serde(default)]
    pub meaning: String,
    /// The remedy for an operator, in one sentence.
    #[serde(default)]
    pub remedy: String,
}

/// Renders the answer to `drops`: a row for each port and reason, then the meaning and remedy of
/// each reason, once.
#[must_use]
pub fn text(drops: &Drops) -> String {
    if drops.drops.is_empty() {
        return "no drops\n".to_owned();
    }
    let mut grid = Grid::new(&["<port", "<reason", ">packets"]);
    for drop in &drops.drops {
        grid.row([drop.port.clone(), drop.reason.clone(), count(drop.count)]);
    }
    let mut text = grid.render("");
    // A switch of an older version sends no meanings.
    let reasons: BTreeMap<_, _> = drops.drops.iter().map(|drop| (drop.reason.as_str(), drop)).collect();
    for (reason, drop) in reasons.into_iter().filter(|(_, drop)| !drop.meaning.is_empty()) {
        text.push_str(&format!("\n{}", wrap(&format!("{reason}: "), &drop.meaning, WIDTH)));
        text.push_str(&wrap(INDENT, &drop.remedy, WIDTH));
    }
    text
}

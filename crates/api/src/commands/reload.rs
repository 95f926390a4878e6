//! The answer to `reload`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The answer to `reload`: the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Changes {
    /// The changes: ports first, then underlays, patches, bridges and nodes. Empty if the configuration is the
    /// same as before.
    pub changes: Vec<Change>,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// The kind of thing that changed.
    pub kind: ChangeKind,
    /// The name.
    pub name: String,
    /// The kind of change.
    pub change: Changed,
    /// Details in words; may be empty.
    pub detail: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ChangeKind::Port => "port",
            ChangeKind::Underlay => "underlay",
            ChangeKind::Patch => "patch",
            ChangeKind::Bridge => "bridge",
            ChangeKind::Node => "node",
        };
        let change = match self.change {
            Changed::Added => "added",
            Changed::Removed => "removed",
            Changed::Remade => "made anew",
            Changed::Moved => "moved",
            Changed::Changed => "changed",
        };
        let colon = if self.detail.is_empty() { "" } else { ": " };
        write!(f, "{kind} {:?} {change}{colon}{}", self.name, self.detail)
    }
}

/// The kinds of things that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// A port.
    Port,
    /// An underlay.
    Underlay,
    /// A patch.
    Patch,
    /// A bridge.
    Bridge,
    /// A node (`[node.NAME]`).
    Node,
}

/// The kinds of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Changed {
    /// The thing is new.
    Added,
    /// The thing is gone.
    Removed,
    /// The port was taken down and made anew: its guest must connect again.
    Remade,
    /// The port joined something else, and its guest stayed connected.
    Moved,
    /// The thing has other rules or members.
    Changed,
}

/// Renders the answer to `reload`: a line for each change.
#[must_use]
pub fn text(changes: &Changes) -> String {
    if changes.changes.is_empty() {
        return "nothing changed\n".to_owned();
    }
    changes.changes.iter().map(|change| format!("{change}\n")).collect()
}

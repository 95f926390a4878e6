//! The request `reload` and its answer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The arguments of the request `reload`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "command-line", derive(clap::Args))]
pub struct ReloadRequest {
    /// The changes are told, and nothing is changed.
    #[serde(default)]
    #[cfg_attr(feature = "command-line", arg(long, help = "Show what a reload would change, and change nothing"))]
    pub dry_run: bool,
}

/// The answer to `reload`: the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Changes {
    /// The changes: keys of `[switch]` first, then ports, underlays, patches, bridges and nodes. Empty if the
    /// configuration is the same as before.
    pub changes: Vec<Change>,
    /// The patches, bridges and underlays whose packets wait in their rings during the change, such as
    /// `bridge "lan"`.
    #[serde(default)]
    pub pauses: Vec<String>,
    /// True if nothing is changed: the answer tells what a reload would do.
    #[serde(default)]
    pub dry_run: bool,
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
            ChangeKind::Switch => "switch",
            ChangeKind::Port => "port",
            ChangeKind::Underlay => "underlay",
            ChangeKind::Patch => "patch",
            ChangeKind::Bridge => "bridge",
            ChangeKind::Node => "node",
            ChangeKind::Group => "group",
            ChangeKind::Set => "set",
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
    /// A key of `[switch]`.
    Switch,
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
    /// A group (`[group.NAME]`).
    Group,
    /// A set of addresses (`[set.NAME]`).
    Set,
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

/// Renders the answer to `reload`: a line for each change. Of a dry run it also tells which packets
/// would wait.
#[must_use]
pub fn text(changes: &Changes) -> String {
    let Changes { changes, pauses, dry_run } = changes;
    if changes.is_empty() {
        return if *dry_run { "nothing would change\n" } else { "nothing changed\n" }.to_owned();
    }
    let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
    match (dry_run, pauses.is_empty()) {
        (false, _) => lines,
        (true, true) => format!("{lines}a reload would do this; no packets would wait\n"),
        (true, false) => {
            format!("{lines}a reload would do this; packets would wait meanwhile in {}\n", pauses.join(", "))
        }
    }
}

//! The kinds of port: the keys that only one kind has, and what the switch must know of a kind.
//!
//! Each kind has a file here. The plan, the sandbox, reloads and the API ask [`PortKind`]; none of
//! them looks at the keys of one kind.

mod vhost_user;

use std::path::Path;

use straightline_port::Permissions;

use super::Draft;
use super::diagnostic::Findings;
use super::section::Section;
use crate::sandbox::Needs;
pub use vhost_user::{Mode, Offloads, VhostUserConfig};

/// The kinds of port, each with its own keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// `kind = "vhost-user"`: a VM. Its frontend connects to our socket, or we connect to its
    /// socket.
    VhostUser(VhostUserConfig),
}

/// Reads the keys of one kind.
#[derive(Clone, Copy)]
struct Reader {
    /// The keys that only this kind has.
    keys: &'static [&'static str],
    read: fn(&Section<'_>, &mut Findings<'_>, &mut Draft) -> PortKind,
}

/// The functions that read a kind's keys, by the word for the kind in a file. A section of an
/// unknown kind is read as the first kind, to find further errors.
const READERS: &[(&str, Reader)] = &[("vhost-user", Reader { keys: vhost_user::KEYS, read: vhost_user::read })];

/// Reads `kind` and the keys that belong to it. `common` are the keys that ports of all kinds have.
pub(super) fn read(section: &Section<'_>, common: &[&str], report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    let (word, first) = READERS[0];
    if section.get("kind").is_none() {
        section.missing("kind", &format!("kind = {word:?}"), report);
    }
    let known = section.choice("kind", READERS, report).map(toml::Spanned::into_inner);
    let reader = known.unwrap_or(first);
    // The kinds differ in their keys, so the keys of an unknown kind cannot be checked.
    if known.is_some() || section.get("kind").is_none() {
        section.only(&[&["kind"], reader.keys, common].concat(), report);
    }
    (reader.read)(section, report, draft)
}

impl PortKind {
    /// Returns the word for the kind in the file and in the API.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::VhostUser(_) => "vhost-user",
        }
    }

    /// Returns the keys of a vhost-user port, or `None` for another kind.
    #[must_use]
    pub fn as_vhost_user_mut(&mut self) -> Option<&mut VhostUserConfig> {
        match self {
            Self::VhostUser(config) => Some(config),
        }
    }

    /// Returns the number of queue pairs that the port is planned for, at least 1.
    pub(crate) fn queues(&self) -> usize {
        match self {
            Self::VhostUser(config) => config.planned_queues(),
        }
    }

    /// Returns the most queue pairs that can ever be started. Each has its worker, even if the port
    /// is planned for fewer.
    pub(crate) fn most_queues(&self) -> usize {
        match self {
            Self::VhostUser(config) => config.most_queues(),
        }
    }

    /// Returns the path of the port's socket as operators see it, or `None` if the port has no
    /// socket.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match self {
            Self::VhostUser(config) => Some(&config.socket),
        }
    }

    /// Returns the path that only one port can have at a time.
    pub(crate) fn exclusive_path(&self) -> Option<&Path> {
        match self {
            Self::VhostUser(config) => config.exclusive_path(),
        }
    }

    /// Returns the path of the socket that this process makes, or `None` if it makes none.
    pub(crate) fn made_socket(&self) -> Option<&Path> {
        match self {
            Self::VhostUser(config) => config.made_socket(),
        }
    }

    /// Returns who may connect. A reload can change that while the port stays open.
    pub(crate) fn permissions(&self) -> Permissions {
        match self {
            Self::VhostUser(config) => config.permissions(),
        }
    }

    /// Returns the rights that the port takes beyond those that every port has.
    pub(crate) fn needs(&self) -> Needs {
        match self {
            Self::VhostUser(config) => config.needs(),
        }
    }

    /// Returns the differences for which a port must be closed and opened again, in words. Empty if
    /// there are none.
    pub(crate) fn differs(&self, new: &Self) -> Vec<String> {
        match (self, new) {
            (Self::VhostUser(old), Self::VhostUser(new)) => old.differs(new),
        }
    }
}

/// Adds "`key` is now another" to `differences` if a key has changed.
pub(crate) fn note<T: PartialEq + std::fmt::Display>(differences: &mut Vec<String>, key: &str, old: T, new: T) {
    if old != new {
        differences.push(format!("{key} {old} is now {new}"));
    }
}

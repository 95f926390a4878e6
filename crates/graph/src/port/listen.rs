//! The users who may connect to a port's socket, and the reasons why a port cannot listen.

use std::io;
use std::path::PathBuf;

/// Permission bits of a socket file that only its owner may use.
pub const OWN_MODE: u32 = 0o600;

/// The users who may connect: owner, group and permission bits of the socket file. Without any of
/// these, only the process's own user may connect. With a group, its members may connect too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// User id.
    pub owner: Option<u32>,
    /// Group id.
    pub group: Option<u32>,
    /// Permission bits, as in `0o660`.
    pub mode: Option<u32>,
}

/// The reason why a port cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A running process listens at this path.
    #[error("{}: a live process listens there already", .0.display())]
    Taken(PathBuf),
    /// A file that is no socket is at this path.
    #[error("{}: a file that is not a socket is there", .0.display())]
    NoSocket(PathBuf),
    /// A system call failed.
    #[error("{}: {what}: {error}", path.display())]
    System {
        /// The socket's path.
        path: PathBuf,
        /// The step that failed.
        what: &'static str,
        /// The error of that step. The message contains it, so it is not the error's `source`, too.
        error: io::Error,
    },
}

impl Permissions {
    /// Returns the permission bits, with defaults resolved.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.mode.unwrap_or(if self.group.is_some() { 0o660 } else { OWN_MODE })
    }
}

//! The file of a Unix socket that we listen at: made, changed and removed by identity, never by
//! path alone.
//!
//! | file | holds |
//! |---|---|
//! | `own` | sockets that this process makes itself |
//! | `bound` | whether a socket is bound to a file, by the kernel's table |
//! | `maker` | sockets that a process with privileges makes for this one |
//!
//! To give a socket to another user takes capabilities over every file. So a process that gives up
//! its privileges has another process make its sockets ([`use_maker`]). That process knows each file
//! that it has made, and changes no other.

mod bound;
pub mod maker;
mod own;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

use maker::{MadeFile, SocketMaker};
use own::OwnFile;
use serde::{Deserialize, Serialize};
use straightline_graph::Permissions;

use crate::helper_channel::HelperProcess;
use crate::socket::socket_path::SocketState;
pub use own::clear_stale as clear_stale_here;

/// The process that makes the sockets of this one.
static MAKER: OnceLock<SocketMaker> = OnceLock::new();

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct SocketFileError {
    /// The step.
    pub step: SocketStep,
    /// The system's error.
    pub source: io::Error,
}

/// The steps of a socket file's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketStep {
    /// Reading the path.
    Path,
    /// Making the socket.
    Make,
    /// Opening the folder.
    Folder,
    /// Binding the socket to the path.
    Bind,
    /// Finding the file.
    Find,
    /// Setting owner or group.
    Owner,
    /// Setting the permission bits.
    Permissions,
    /// Asking the process that makes sockets.
    Ask,
}

/// The file of a socket. When dropped, it removes the file, unless another file is in its place.
#[derive(Debug)]
pub struct SocketFile(Origin);

#[derive(Debug)]
enum Origin {
    Own(OwnFile),
    Made(MadeFile),
}

/// Has this process make all sockets from now on. Call it once, before any socket is made.
pub fn use_maker(maker: SocketMaker) {
    // A second maker ends when it is dropped here.
    let _ = MAKER.set(maker);
}

/// Returns the process that makes the sockets of this one, and whether it still runs.
pub fn maker_process() -> Option<(&'static HelperProcess, bool)> {
    MAKER.get().map(|maker| (maker.process(), maker.is_running()))
}

/// Removes the file at `path` if it is a socket that a dead process left. Returns what is there
/// afterwards.
///
/// # Errors
/// The system refuses, or another file has taken the place of the stale socket.
pub fn clear_stale(path: &Path) -> io::Result<SocketState> {
    MAKER.get().map_or_else(|| own::clear_stale(path), |maker| maker.clear_stale(path))
}

/// Returns what is at `path` now, without disturbing a process that listens there.
pub(crate) fn state(path: &Path) -> io::Result<SocketState> {
    MAKER.get().map_or_else(|| own::state(path), |maker| maker.state(path))
}

impl SocketFile {
    /// Makes a stream socket and binds it to `path`. After that only our own user may connect.
    ///
    /// # Errors
    /// The step that failed. If a file of another owner has come into the socket's place, that is
    /// an error, and the file is left alone.
    pub fn bind(path: &Path) -> Result<(OwnedFd, Self), SocketFileError> {
        if let Some(maker) = MAKER.get() {
            let (socket, file) = maker.bind(path)?;
            return Ok((socket, SocketFile(Origin::Made(file))));
        }
        let (socket, file) = OwnFile::make(path)?;
        Ok((socket, SocketFile(Origin::Own(file))))
    }

    /// Sets the file's owner, group and permission bits. Without an owner or group, the file gets
    /// back its first one.
    ///
    /// # Errors
    /// The step that failed, or that another file is in the socket's place. That file is left
    /// alone.
    pub fn set_permissions(&self, permissions: &Permissions) -> Result<(), SocketFileError> {
        let owner = permissions.owner;
        let group = permissions.group;
        let mode = permissions.bits();
        match &self.0 {
            Origin::Own(file) => file.set_permissions(owner, group, mode),
            Origin::Made(file) => file.set_permissions(owner, group, mode),
        }
    }
}

impl SocketStep {
    /// Returns the message that the step has failed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Path => "not a path for a socket",
            Self::Make => "cannot make a socket",
            Self::Folder => "cannot open its folder",
            Self::Bind => "cannot bind",
            Self::Find => "cannot find its file",
            Self::Owner => "cannot set its owner",
            Self::Permissions => "cannot set its permissions",
            Self::Ask => "cannot ask the process that makes sockets",
        }
    }
}

impl fmt::Display for SocketStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

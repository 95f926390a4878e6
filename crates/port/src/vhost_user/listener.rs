//! The socket file of a port that listens.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, chmod, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use crate::socket_path::{self, SocketState};

/// Who may connect: owner, group and permission bits of the socket file. Without any, the process's own user alone; with
/// a group, that group too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Permissions {
    /// User id.
    pub owner: Option<u32>,
    /// Group id.
    pub group: Option<u32>,
    /// Permission bits, as in `0o660`.
    pub mode: Option<u32>,
}

/// Why a port cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// See the message.
    #[error("{}: a live process listens there already", .0.display())]
    Taken(PathBuf),
    /// See the message.
    #[error("{}: there is a file that is no socket", .0.display())]
    NoSocket(PathBuf),
    /// See the message.
    #[error("{}: {what}: {source}", path.display())]
    System {
        /// The socket's path.
        path: PathBuf,
        /// The step that failed.
        what: &'static str,
        /// Its error.
        source: io::Error,
    },
}

/// A listening socket that removes its file when it goes, if it made one.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: Option<PathBuf>,
}

impl Listener {
    /// Listens at `path`. A file that a dead process left there is replaced; nobody can connect before the file has
    /// its owner and permissions.
    ///
    /// # Errors
    /// What stands there, or what the system said.
    pub fn bind(path: &Path, permissions: &Permissions) -> Result<Self, ListenError> {
        clear_stale(path)?;
        let system = |what| move |e: Errno| ListenError::System { path: path.to_owned(), what, source: e.into() };
        let address = SocketAddrUnix::new(path).map_err(system("is no path for a socket"))?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(system("cannot make a socket"))?;
        // The file that bind makes has the mode that the socket has by then (unix(7)): nobody but us until its owner
        // is set.
        fchmod(&socket, Mode::from_raw_mode(0o600)).map_err(system("cannot set its permissions"))?;
        bind(&socket, &address).map_err(system("cannot bind"))?;
        let listener = Listener { socket: UnixListener::from(socket), path: Some(path.to_owned()) };
        set_permissions(path, permissions)?;
        listen(&listener.socket, 8).map_err(system("cannot listen"))?;
        Ok(listener)
    }

    /// A socket that listens already, and whose file, if it has one, is somebody else's.
    pub(super) fn given(socket: OwnedFd) -> Self {
        Listener { socket: socket.into(), path: None }
    }

    /// The socket.
    pub fn socket(&self) -> &UnixListener {
        &self.socket
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Somebody may have removed it already; there is nothing else to do about it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Gives the file its owner and permissions.
pub(super) fn set_permissions(path: &Path, permissions: &Permissions) -> Result<(), ListenError> {
    let system = |what| move |source| ListenError::System { path: path.to_owned(), what, source };
    let Permissions { owner, group, mode } = *permissions;
    if owner.is_some() || group.is_some() {
        std::os::unix::fs::chown(path, owner, group).map_err(system("cannot set its owner"))?;
    }
    let mode = mode.unwrap_or(if group.is_some() { 0o660 } else { 0o600 });
    chmod(path, Mode::from_raw_mode(mode)).map_err(|e| system("cannot set its permissions")(e.into()))
}

fn clear_stale(path: &Path) -> Result<(), ListenError> {
    let system = |what| move |source| ListenError::System { path: path.to_owned(), what, source };
    match socket_path::state(path).map_err(system("cannot tell whether it is free"))? {
        SocketState::Free => Ok(()),
        SocketState::Stale => std::fs::remove_file(path).map_err(system("cannot remove the stale socket")),
        SocketState::Live => Err(ListenError::Taken(path.to_owned())),
        SocketState::NotASocket => Err(ListenError::NoSocket(path.to_owned())),
    }
}

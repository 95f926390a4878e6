//! Listening sockets of ports: made with their owner and permissions, closed and opened again.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{Shutdown, SocketFlags, accept_with, listen, shutdown};
use straightline_graph::{ListenError, Permissions};
use straightline_packet::IgnorePoison;

use crate::socket::closing::ClosedApart;
use crate::socket::socket_file::{self, SocketFile, SocketFileError};
use crate::socket::socket_path::SocketState;

/// The lowest descriptor number that a listening socket should have. A table of this many
/// descriptors takes 256 KiB of the kernel's memory.
const HIGH_DESCRIPTOR: i32 = 30_000;

/// A listening socket. If the listener made the socket's file, it removes the file when it is
/// closed or dropped. Frontends in its queue hold nobody who drops it.
#[derive(Debug)]
pub struct Listener {
    /// The file is removed before the socket is closed: an open socket holds its inode.
    file: Mutex<Option<SocketFile>>,
    socket: ClosedApart<UnixListener>,
    is_closed: AtomicBool,
}

impl Listener {
    /// Listens at `path`. A socket file that a dead process left there is replaced. No process can
    /// connect before the file has its owner and permissions.
    ///
    /// # Errors
    /// The reason why this process cannot listen at `path`.
    pub fn bind(path: &Path, permissions: &Permissions) -> Result<Self, ListenError> {
        let system = |what| move |e: Errno| ListenError::System { path: path.to_owned(), what, error: e.into() };
        clear_stale(path)?;
        let (socket, file) = SocketFile::bind(path).map_err(|error| file_error(path, error))?;
        file.set_permissions(permissions).map_err(|error| file_error(path, error))?;
        listen(&socket, 8).map_err(system("cannot listen"))?;
        Ok(Listener::new(raised(socket), Some(file)))
    }

    /// Returns a listener for a socket that listens already. Its file, if any, belongs to another
    /// process.
    pub(crate) fn given(socket: OwnedFd) -> Self {
        Listener::new(socket, None)
    }

    fn new(socket: OwnedFd, file: Option<SocketFile>) -> Self {
        let socket = ClosedApart::new(socket.into());
        Listener { socket, file: Mutex::new(file), is_closed: AtomicBool::new(false) }
    }

    /// Closes our copy of the socket, and keeps its file until the returned value is dropped. Use
    /// it when another process has got the socket and serves it.
    #[must_use]
    pub fn into_file(self) -> Option<SocketFile> {
        self.file().take()
    }

    /// Returns the socket.
    pub fn socket(&self) -> &UnixListener {
        &self.socket
    }

    /// Removes the file, and refuses all connections, pending ones too. A thread that waits for a
    /// connection returns.
    fn close(&self) {
        if let Some(file) = self.file().take() {
            drop(file);
            self.is_closed.store(true, Ordering::Release);
            // The socket listens, so this cannot fail.
            let _ = shutdown(self.socket(), Shutdown::Both);
        }
    }

    /// Returns whether the socket refuses connections because the port has closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn file(&self) -> MutexGuard<'_, Option<SocketFile>> {
        self.file.lock().ignore_poison()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
        if !self.is_closed() {
            return;
        }
        // Nobody can connect any more. If the queue is empty now, it stays empty, and no thread is
        // needed.
        match accept_with(self.socket(), SocketFlags::CLOEXEC) {
            Err(Errno::INVAL | Errno::AGAIN) => self.socket.close_here(),
            Err(_) => {}
            Ok(first) => drop(ClosedApart::new(first)),
        }
    }
}

fn file_error(path: &Path, error: SocketFileError) -> ListenError {
    ListenError::System { path: path.to_owned(), what: error.step.as_str(), error: error.source }
}

/// The listening socket of a port. It can be closed and opened again while the port stays.
#[derive(Debug)]
pub(crate) struct ServerSocket {
    path: PathBuf,
    state: Mutex<ServerState>,
    /// The reason why the socket could not be opened again. The reason has a lock of its own, so
    /// that readers never wait for the system.
    failure: Mutex<Option<String>>,
}

#[derive(Debug)]
struct ServerState {
    permissions: Permissions,
    /// True if the port should listen, even if opening its socket has failed.
    is_wanted: bool,
    listener: Option<Arc<Listener>>,
}

impl ServerSocket {
    pub(crate) fn bind(path: &Path, permissions: &Permissions) -> Result<Self, ListenError> {
        let listener = Some(Arc::new(Listener::bind(path, permissions)?));
        let state = ServerState { permissions: *permissions, is_wanted: true, listener };
        Ok(ServerSocket { path: path.to_owned(), state: Mutex::new(state), failure: Mutex::default() })
    }

    /// Returns the socket while it is open.
    pub(crate) fn listener(&self) -> Option<Arc<Listener>> {
        self.state().listener.clone()
    }

    /// Closes the socket, on any thread. Its path is free when this returns.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_wanted = false;
        self.set_failure(None);
        if let Some(listener) = state.listener.take() {
            listener.close();
        }
    }

    /// Opens the socket again after [`Self::close`]. If that fails, [`Self::retry`] may succeed
    /// later.
    pub(crate) fn open(&self) -> Result<(), ListenError> {
        self.state().is_wanted = true;
        self.retry()
    }

    /// Opens the socket if it should be open and is not.
    pub(crate) fn retry(&self) -> Result<(), ListenError> {
        let mut state = self.state();
        if !state.is_wanted || state.listener.is_some() {
            return Ok(());
        }
        match Listener::bind(&self.path, &state.permissions) {
            Ok(listener) => {
                state.listener = Some(Arc::new(listener));
                self.set_failure(None);
                Ok(())
            }
            Err(error) => {
                self.set_failure(Some(format!("cannot listen again: {error}; tried every second")));
                Err(error)
            }
        }
    }

    /// Returns why the socket is not open although it should be.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().ignore_poison().clone()
    }

    fn set_failure(&self, failure: Option<String>) {
        *self.failure.lock().ignore_poison() = failure;
    }

    /// Sets the socket file's permissions, now and whenever it is opened again.
    pub(crate) fn set_permissions(&self, permissions: &Permissions) -> Result<(), ListenError> {
        let mut state = self.state();
        if let Some(listener) = &state.listener
            && let Some(file) = &*listener.file()
        {
            file.set_permissions(permissions).map_err(|error| file_error(&self.path, error))?;
        }
        state.permissions = *permissions;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().ignore_poison()
    }
}

/// Gives a listening socket a descriptor with a high number, if the limit of descriptors allows it.
///
/// Linux closes the descriptors of a killed process in descending order: `close_files` queues them
/// in ascending order, and the queue (`task_work_run`) is a stack. So the listener refuses
/// connections before a frontend notices that its own has ended. A frontend that connects again at
/// once would otherwise reach a listener that is about to go, and be reset. Some give up then.
#[must_use]
pub fn raised(socket: OwnedFd) -> OwnedFd {
    let mut numbers = std::iter::successors(Some(HIGH_DESCRIPTOR), |number| Some(number / 2)).take_while(|&n| n > 100);
    numbers.find_map(|number| fcntl_dupfd_cloexec(&socket, number).ok()).unwrap_or(socket)
}

fn clear_stale(path: &Path) -> Result<(), ListenError> {
    let what = "cannot tell whether it is free";
    match socket_file::clear_stale(path).map_err(|error| ListenError::System { path: path.to_owned(), what, error })? {
        SocketState::Free | SocketState::Stale => Ok(()),
        SocketState::Live => Err(ListenError::Taken(path.to_owned())),
        SocketState::NotASocket => Err(ListenError::NoSocket(path.to_owned())),
    }
}

//! Answers requests over a Unix socket, on one thread that no client can block.
//!
//! All sockets are non-blocking, and one `poll` waits for all of them. So a client that stalls
//! costs one of [`MAX_CLIENTS`] places for a second and nothing else. While all places are taken,
//! further clients wait in the kernel's queue.
//!
//! A client whose answer is a stream has a place of its own, one of [`MAX_STREAMS`]. It may be silent
//! for as long as it likes, and costs one bounded buffer.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{SocketFlags, accept_with, listen};
use straightline_port::Permissions;
use straightline_port::socket_file::{self, SocketFile};

use super::connection::Connection;
use super::{Control, RequestHandler, Source};
use crate::config::socket_path::{self, SocketPathError, SocketState};

/// The maximum number of clients at a time, without those that have a dynamic port or a stream.
const MAX_CLIENTS: usize = 16;

/// The maximum number of clients that have a dynamic port.
const MAX_DYNAMIC_PORTS: usize = 1024;

/// The maximum number of clients that have a stream.
pub(super) const MAX_STREAMS: usize = 16;

/// The time without accepting clients after accepting one has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The reason why the API cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The path or its folder cannot be used.
    #[error("API socket {}: {error}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The fault of the path.
        error: SocketPathError,
    },
    /// A running process has the socket open.
    #[error("API socket {}: a running process has it open; stop that switch or choose another path", .0.display())]
    Taken(PathBuf),
    /// The path is a file of another kind.
    #[error("API socket {}: a file that is not a socket has this path; remove it or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("API socket {}: {error}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// A socket that listens and is not served yet. Dropping it removes its file.
#[derive(Debug)]
pub struct ApiServer {
    /// The socket's file. It is removed with the server, before the socket is closed.
    _file: SocketFile,
    socket: OwnedFd,
    path: PathBuf,
}

impl ApiServer {
    /// Listens at `path`. Replaces a socket that a dead process left there. Only this process's
    /// user may connect.
    ///
    /// # Errors
    /// The path is not valid, or it is taken by a running process or by another kind of file.
    pub fn bind(path: &Path) -> Result<Self, ApiError> {
        Self::bind_for(path, &Permissions::default())
    }

    /// Listens as [`Self::bind`] does, for other users too. Nobody can connect before the file has its
    /// permissions.
    ///
    /// # Errors
    /// As those of [`Self::bind`], or the permissions cannot be set.
    pub fn bind_for(path: &Path, permissions: &Permissions) -> Result<Self, ApiError> {
        socket_path::check(path).map_err(|error| ApiError::Path { path: path.to_owned(), error })?;
        let io_error = |error: io::Error| ApiError::Io { path: path.to_owned(), error };
        match socket_file::clear_stale(path).map_err(io_error)? {
            SocketState::Free | SocketState::Stale => {}
            SocketState::Live => return Err(ApiError::Taken(path.to_owned())),
            SocketState::NotASocket => return Err(ApiError::NotASocket(path.to_owned())),
        }
        let (socket, file) = SocketFile::bind(path).map_err(|error| match error.source.kind() {
            io::ErrorKind::AddrInUse => ApiError::Taken(path.to_owned()),
            _ => io_error(io::Error::other(error)),
        })?;
        permissions.give(&file).map_err(|error| io_error(io::Error::other(error)))?;
        ioctl_fionbio(&socket, true).map_err(|error| io_error(error.into()))?;
        listen(&socket, 64).map_err(|error| io_error(error.into()))?;
        Ok(Self { _file: file, socket, path: path.to_owned() })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers from `source`, on a thread of its own, until the handle is dropped.
    ///
    /// # Errors
    /// The system cannot provide a thread or descriptor.
    pub fn serve(self, source: Arc<dyn Source>) -> io::Result<ApiHandle> {
        self.serve_with(RequestHandler { source, control: None })
    }

    /// Serves as [`Self::serve`] does, and lets clients change the switch through `control`.
    ///
    /// # Errors
    /// The system cannot provide a thread or descriptor.
    pub fn serve_control(self, source: Arc<dyn Source>, control: Arc<dyn Control>) -> io::Result<ApiHandle> {
        self.serve_with(RequestHandler { source, control: Some(control) })
    }

    fn serve_with(self, handler: RequestHandler) -> io::Result<ApiHandle> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let seen = Arc::clone(&stop);
        let thread = thread::Builder::new().name("api".to_owned()).spawn(move || run(&self, &handler, &seen))?;
        Ok(ApiHandle { stop, thread: Some(thread) })
    }
}

/// The thread that answers. Dropping it ends the thread and removes the socket's file.
#[derive(Debug)]
pub struct ApiHandle {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ApiHandle {
    fn drop(&mut self) {
        let one = 1_u64.to_ne_bytes();
        // An eventfd refuses a write only when its counter is full, and a full counter wakes the
        // thread, too.
        let _ = rustix::io::write(&*self.stop, &one);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the API's thread had panicked");
        }
    }
}

fn run(server: &ApiServer, handler: &RequestHandler, stop: &OwnedFd) {
    let mut clients: Vec<Connection> = Vec::new();
    let mut accept_from = Instant::now();
    loop {
        let now = Instant::now();
        clients.retain(|client| client.deadline().is_none_or(|deadline| deadline > now));
        let accepting = accepts_more(&clients) && now >= accept_from;

        // The order: stop, clients, streams, and new clients.
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        fds.extend(clients.iter().map(|client| PollFd::new(client.socket(), client.interest())));
        let mut streaming = Vec::new();
        for (at, client) in clients.iter().enumerate() {
            if let Some(stream) = client.waiting_stream() {
                streaming.push(at);
                fds.push(PollFd::from_borrowed_fd(stream.readiness(), PollFlags::IN));
            }
        }
        if accepting {
            fds.push(PollFd::new(&server.socket, PollFlags::IN));
        }
        let pause = (now < accept_from).then_some(accept_from);
        let wake = clients.iter().filter_map(Connection::deadline).chain(pause).min();
        let timeout = wake.and_then(|wake| Timespec::try_from(wake.saturating_duration_since(now)).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => {
                tracing::error!("the API stops: poll: {error}");
                return;
            }
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            return;
        }
        let (mut of_clients, others) = (ready[1..=clients.len()].to_vec(), &ready[1 + clients.len()..]);
        for (at, ready) in streaming.iter().zip(others) {
            of_clients[*at] |= ready;
        }
        let newcomers = accepting && others.last() == Some(&true);

        let now = Instant::now();
        let mut of_clients = of_clients.into_iter();
        let mut streams = clients.iter().filter(|client| client.has_stream()).count();
        clients.retain_mut(|client| of_clients.next() != Some(true) || client.step(handler, &mut streams, now));
        if newcomers && let Err(error) = accept_all(server, &mut clients, now) {
            tracing::warn!("the API accepts no clients for {} s: {error}", PAUSE.as_secs());
            accept_from = now + PAUSE;
        }
    }
}

/// Returns whether there is a free place. A client that has a dynamic port or a stream takes no place
/// from the others.
fn accepts_more(clients: &[Connection]) -> bool {
    let dynamic = clients.iter().filter(|client| client.has_dynamic_port()).count();
    let streams = clients.iter().filter(|client| client.has_stream()).count();
    clients.len() - dynamic - streams < MAX_CLIENTS && dynamic < MAX_DYNAMIC_PORTS
}

fn accept_all(server: &ApiServer, clients: &mut Vec<Connection>, now: Instant) -> rustix::io::Result<()> {
    while accepts_more(clients) {
        match accept_with(&server.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => clients.push(Connection::new(socket, now)),
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

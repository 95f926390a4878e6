//! Answers requests over a Unix socket. One thread accepts clients, and no client can block it.
//!
//! Each client has a thread, because a client can hold the thread that receives from it: it sends a
//! descriptor whose close takes long. The kernel closes a descriptor that nobody takes. It does so in
//! the call that receives the bytes beside it, or in the close of the socket.
//!
//! Places (`places`) bound the number of threads, for each user and for all. When a place is needed,
//! a thread that a client holds is interrupted (`closing`). A stop of the switch leaves threads behind
//! that nothing ends. For sockets that only answer questions, the kernel refuses descriptors where it
//! can.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, TryLockError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{SendFlags, SocketFlags, accept_with, listen, send};
use straightline_graph::{Clock, Permissions, peer};
use straightline_packet::IgnorePoison;
use straightline_port::socket_file::{self, SocketFile};

use super::connection::Connection;
use super::places::Places;
use super::{
    Control, Held, Refusal, Reply, Request, RequestHandler, Right, Source, closing, failure, interrupt, pass_rights,
};
use crate::config::socket_path::{self, SocketPathError, SocketState};

/// The number of clients that wait in the kernel's queue until they are accepted.
const QUEUE: i32 = 256;

/// The maximum number of threads that close connections of refused clients.
const MAX_REFUSING: usize = 64;

/// The maximum time of a stop.
const MAX_STOP: Duration = Duration::from_secs(10);

/// The maximum time for which a stop waits when only threads are left that a client holds.
const MAX_HELD: Duration = Duration::from_secs(1);

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

/// A socket that is not served yet. Dropping it removes its file.
#[derive(Debug)]
pub struct ApiServer {
    /// The socket's file. It is removed with the server, before the socket is closed.
    file: SocketFile,
    socket: OwnedFd,
    path: PathBuf,
    clock: Clock,
}

impl ApiServer {
    /// Takes `path`. Replaces a socket that a dead process left there. Only this process's user may
    /// connect, once the socket is served.
    ///
    /// # Errors
    /// The path is not valid, or it is taken by a running process or by another kind of file.
    pub fn bind(path: &Path) -> Result<Self, ApiError> {
        Self::bind_for(path, &Permissions::default())
    }

    /// Takes a path as [`Self::bind`] does, for other users too.
    ///
    /// # Errors
    /// The errors of [`Self::bind`], and permissions that cannot be set.
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
        file.set_permissions(permissions).map_err(|error| io_error(io::Error::other(error)))?;
        ioctl_fionbio(&socket, true).map_err(|error| io_error(error.into()))?;
        Ok(Self { file, socket, path: path.to_owned(), clock: Clock::real() })
    }

    /// Returns the server with the time limits and answers' times of this clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Listens, and answers from `source` on threads of its own until the handle is dropped.
    ///
    /// # Errors
    /// The system cannot provide a thread or descriptor.
    pub fn serve(self, source: Arc<dyn Source>) -> io::Result<ApiHandle> {
        let clock = self.clock.clone();
        self.serve_with(RequestHandler { right: Right::Read, source, control: None, clock })
    }

    /// Serves as [`Self::serve`] does, and lets clients change the switch through `control`.
    ///
    /// # Errors
    /// The system cannot provide a thread or descriptor.
    pub fn serve_control(self, source: Arc<dyn Source>, control: Arc<dyn Control>) -> io::Result<ApiHandle> {
        let clock = self.clock.clone();
        self.serve_with(RequestHandler { right: Right::All, source, control: Some(control), clock })
    }

    fn serve_with(self, handler: RequestHandler) -> io::Result<ApiHandle> {
        // Only a dynamic port comes with a descriptor. Clients that connect before the socket listens
        // do not exist, and all others inherit this.
        let refuses_descriptors = handler.control.is_none() && pass_rights::refuse(&self.socket)?;
        interrupt::prepare()?;
        listen(&self.socket, QUEUE)?;
        let shared = Arc::new(Shared {
            handler: Mutex::new(Some(handler)),
            places: Arc::default(),
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_stopping: AtomicBool::new(false),
            refuses_descriptors,
            clock: self.clock.clone(),
            closing: AtomicUsize::new(0),
            refusing: AtomicUsize::new(0),
            threads: Mutex::new(0),
            ended: Condvar::new(),
        });
        let seen = Arc::clone(&shared);
        start(&shared, "api", move || accept_until_stop(self, &seen))?;
        Ok(ApiHandle(shared))
    }
}

/// The state that the threads of a socket share.
pub(super) struct Shared {
    /// Answers one request at a time. None when the API stops.
    handler: Mutex<Option<RequestHandler>>,
    places: Arc<Places>,
    /// Readable when the API stops.
    stop: OwnedFd,
    is_stopping: AtomicBool,
    /// The kernel refuses descriptors, so no close has to wait.
    refuses_descriptors: bool,
    clock: Clock,
    /// The number of threads that receive or close now.
    closing: AtomicUsize,
    /// The number of threads that close connections of refused clients.
    refusing: AtomicUsize,
    /// The number of threads.
    threads: Mutex<usize>,
    ended: Condvar,
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) -> &OwnedFd {
        &self.stop
    }

    /// Answers a request of a client that has `held`. Returns none when the API stops.
    ///
    /// # Errors
    /// The request is not executed.
    pub(super) fn answer(&self, request: &Request, fd: Option<OwnedFd>, held: &Held) -> Result<Option<Reply>, Refusal> {
        let handler = self.handler.lock().ignore_poison();
        match &*handler {
            Some(handler) if !self.is_stopping.load(Ordering::Relaxed) => handler.answer(request, fd, held).map(Some),
            _ => Ok(None),
        }
    }

    /// Runs what may close a descriptor of a client, which may take for ever.
    pub(super) fn closing<T>(&self, work: impl FnOnce() -> T) -> T {
        self.closing.fetch_add(1, Ordering::Relaxed);
        let done = closing::closing(&self.clock, work);
        self.closing.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Waits for the end of all threads. Returns the number of those that do not end.
    fn wait_for_ends(&self) -> usize {
        let began = self.clock.now();
        let mut threads = self.threads.lock().ignore_poison();
        while *threads > 0 {
            let are_held = *threads == self.closing.load(Ordering::Relaxed);
            if self.clock.since(began) > if are_held { MAX_HELD } else { MAX_STOP } {
                break;
            }
            closing::interrupt_held();
            let until = self.clock.now() + Duration::from_millis(20);
            let before = *threads;
            threads = self.clock.wait_while(&self.ended, threads, until, |threads| *threads == before);
        }
        *threads
    }

    /// Drops what answers, so that no thread that is left behind keeps the switch. Returns false if
    /// an answer takes too long.
    fn drop_handler(&self) -> bool {
        self.clock.is_within(MAX_STOP, || {
            let mut handler = match self.handler.try_lock() {
                Ok(handler) => handler,
                Err(TryLockError::Poisoned(handler)) => handler.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            let dropped = handler.take();
            drop(handler);
            drop(dropped);
            true
        })
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// The threads that answer. Dropping it ends them and removes the socket's file. Threads that a
/// client's descriptor holds are left behind.
#[derive(Debug)]
pub struct ApiHandle(Arc<Shared>);

#[cfg(test)]
impl ApiHandle {
    /// Returns the state that the threads share.
    pub(super) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl Drop for ApiHandle {
    fn drop(&mut self) {
        let shared = &self.0;
        shared.is_stopping.store(true, Ordering::Relaxed);
        // An eventfd refuses a write only when its counter is full, and a full counter wakes the
        // threads, too.
        let _ = rustix::io::write(&shared.stop, &1_u64.to_ne_bytes());
        shared.places.stop();
        if !shared.drop_handler() {
            tracing::error!("the API stops while a request is executed that does not end");
        }
        let left = shared.wait_for_ends();
        if left > 0 {
            tracing::warn!("{left} threads of the API are left behind: descriptors of clients do not close");
        }
    }
}

/// Starts a thread that is counted.
fn start(shared: &Arc<Shared>, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    /// Counts the thread for as long as it exists.
    struct Counted(Arc<Shared>);
    impl Drop for Counted {
        fn drop(&mut self) {
            *self.0.threads.lock().ignore_poison() -= 1;
            self.0.ended.notify_all();
        }
    }
    *shared.threads.lock().ignore_poison() += 1;
    let counted = Counted(Arc::clone(shared));
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
        // It ends last.
        let _counted = counted;
        work();
    });
    thread.map(drop)
}

fn accept_until_stop(server: ApiServer, shared: &Arc<Shared>) {
    let ApiServer { file, socket, .. } = server;
    let mut pause = None;
    while wait_for_client(&socket, shared, pause) {
        pause = accept_all(&socket, shared).err().map(|error| {
            tracing::warn!("the API accepts no clients for {} s: {error}", PAUSE.as_secs());
            shared.clock.now() + PAUSE
        });
    }
    drop(file);
    // Clients in the kernel's queue may have sent descriptors.
    shared.closing(|| drop(socket));
}

/// Waits for a client, but until the end of `pause` for the stop only. Returns false when the API
/// stops.
fn wait_for_client(socket: &OwnedFd, shared: &Shared, mut pause: Option<Instant>) -> bool {
    loop {
        let mut fds = vec![PollFd::new(&shared.stop, PollFlags::IN)];
        if pause.is_none() {
            fds.push(PollFd::new(socket, PollFlags::IN));
        }
        match shared.clock.poll(&mut fds, pause) {
            Ok(0) => pause = None,
            Ok(_) => return fds[0].revents().is_empty(),
            Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!("the API stops: poll: {error}");
                return false;
            }
        }
    }
}

fn accept_all(socket: &OwnedFd, shared: &Arc<Shared>) -> io::Result<()> {
    while !shared.is_stopping.load(Ordering::Relaxed) {
        if shared.refusing.load(Ordering::Relaxed) >= MAX_REFUSING {
            // All of them are held. The others wait for a few milliseconds.
            closing::interrupt_held();
            let may_refuse = || shared.refusing.load(Ordering::Relaxed) < MAX_REFUSING;
            shared.clock.is_within(Duration::from_millis(5), may_refuse);
            continue;
        }
        match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(client) => serve(client, shared)?,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Serves an accepted client on a thread of its own, or refuses it.
fn serve(client: OwnedFd, shared: &Arc<Shared>) -> io::Result<()> {
    let user = peer(client.as_fd())?.uid;
    match shared.places.connection(user) {
        Ok(place) => {
            let connection = Connection::new(client, place, shared.clock.clone());
            let seen = Arc::clone(shared);
            start(shared, "api client", move || connection.run(&seen))
        }
        Err(refusal) => {
            closing::interrupt_held();
            refuse(client, &refusal, shared)
        }
    }
}

/// Tells a client why it is not served.
fn refuse(client: OwnedFd, refusal: &Refusal, shared: &Arc<Shared>) -> io::Result<()> {
    let line = failure(refusal) + "\n";
    // The buffer of a new connection has space for it. A client that has left needs no answer.
    let _ = send(&client, line.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    if shared.refuses_descriptors {
        return Ok(());
    }
    shared.refusing.fetch_add(1, Ordering::Relaxed);
    let seen = Arc::clone(shared);
    start(shared, "api refusal", move || {
        seen.closing(|| drop(client));
        seen.refusing.fetch_sub(1, Ordering::Relaxed);
    })
    .inspect_err(|_| {
        shared.refusing.fetch_sub(1, Ordering::Relaxed);
    })
}

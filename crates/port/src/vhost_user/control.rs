//! The port's own thread: one frontend at a time, the next waits until this one has left.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use straightline_virtio::vhost_user::{Connection, Stopper};

use super::guest::Guest;
use super::link::Report;
use super::listener::Listener;
use super::{LinkStatus, Shared};

/// How long nobody is accepted after the system could not give us a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Tells the thread to end.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_set: AtomicBool,
    /// The connection that is served: its frontend may be in the middle of a message, or not read our answers.
    connection: Mutex<Option<Stopper>>,
}

impl Stop {
    pub(super) fn set(&self, report: &Report) {
        self.is_set.store(true, Ordering::Release);
        report.wake();
        if let Some(connection) = &*self.connection() {
            connection.stop();
        }
    }

    /// Whoever enters a connection looks at [`Self::is_set`] afterwards, before it waits for the frontend.
    fn enter(&self, connection: Option<Stopper>) {
        *self.connection() = connection;
    }

    fn connection(&self) -> MutexGuard<'_, Option<Stopper>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

/// The thread's state while nobody is connected.
pub(super) struct Control {
    shared: Arc<Shared>,
    listener: Listener,
    stop: Arc<Stop>,
}

impl Control {
    pub(super) fn new(shared: Arc<Shared>, listener: Listener, stop: Arc<Stop>) -> Self {
        shared.state().now.reason = "no frontend has connected yet".to_owned();
        Control { shared, listener, stop }
    }

    pub(super) fn run(self) {
        let name = &self.shared.config.name;
        while !self.stop.is_set() {
            let ready = wait_for(self.listener.socket().as_fd(), self.shared.report.event());
            self.shared.report.take();
            if self.stop.is_set() || !ready {
                continue;
            }
            let accepted = self.listener.socket().accept().and_then(|(stream, _)| {
                let connection = Connection::new(stream);
                let stopper = connection.stopper()?;
                Ok((connection, stopper))
            });
            match accepted {
                Ok((connection, stopper)) => {
                    tracing::info!(port = name, "a frontend has connected");
                    self.stop.enter(Some(stopper));
                    let mut guest = Guest::new(Arc::clone(&self.shared), connection);
                    let why = guest.serve(&self.stop);
                    self.stop.enter(None);
                    guest.leave();
                    tracing::info!(port = name, "the frontend has left: {why}");
                    self.shared.state().now =
                        LinkStatus { reason: format!("{why}; waiting for a frontend"), ..LinkStatus::default() };
                }
                Err(error) => {
                    tracing::warn!(port = name, "cannot accept a frontend: {error}");
                    // Whoever waits still waits; what is missing (descriptors, mostly) comes back or does not.
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }
}

/// Waits until `fd` is readable (`true`) or the port's own event is.
pub(super) fn wait_for(fd: BorrowedFd<'_>, event: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN), PollFd::from_borrowed_fd(event, PollFlags::IN)];
    // An interrupted wait looks at both again.
    let _ = poll(&mut fds, None);
    !fds[0].revents().is_empty()
}

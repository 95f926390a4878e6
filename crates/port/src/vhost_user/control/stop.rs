//! Stop and pause: both make the port's thread leave its frontend.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use straightline_graph::Clock;
use straightline_packet::IgnorePoison;
use straightline_virtio::vhost_user::Stopper;

use crate::vhost_user::inbox::PortInbox;

/// Time limit for accepting a pending connection. If no connection is pending, accepting never
/// returns. That happens when another process handed the listening socket over and still has it:
/// that process may have accepted the connection that woke us.
pub(crate) const ACCEPT_TIME: Duration = Duration::from_millis(100);

/// Tells the port's thread to end, or to pause.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    is_set: AtomicBool,
    /// The port serves no frontend for now, and may continue later.
    is_paused: AtomicBool,
    /// The connection that is served. Its frontend may be in the middle of a message, or not read
    /// our answers.
    connection: Mutex<Option<Stopper>>,
    /// True while the thread accepts a connection; nothing else wakes it then.
    accepting: Mutex<bool>,
    accepted: Condvar,
}

impl Stop {
    pub(crate) fn set(&self, inbox: &PortInbox) {
        self.is_set.store(true, Ordering::Release);
        self.end_connection(inbox);
    }

    /// Makes the thread leave its frontend, and serve no other until [`Self::resume`].
    pub(crate) fn pause(&self, inbox: &PortInbox) {
        self.is_paused.store(true, Ordering::Release);
        self.end_connection(inbox);
    }

    pub(crate) fn resume(&self, inbox: &PortInbox) {
        self.is_paused.store(false, Ordering::Release);
        inbox.wake();
    }

    fn end_connection(&self, inbox: &PortInbox) {
        inbox.wake();
        if let Some(connection) = &*self.connection() {
            connection.stop();
        }
    }

    /// Sets the connection that is served. The caller must check [`Self::leaves`] afterwards,
    /// before it waits for the frontend.
    pub(crate) fn enter(&self, connection: Option<Stopper>) {
        *self.connection() = connection;
    }

    /// Accepts a connection, unless the port stops. It may wait for one: the flags of a socket that
    /// was handed over are also its owner's.
    pub(crate) fn accept(&self, listener: &UnixListener) -> io::Result<Option<UnixStream>> {
        *self.accepting() = true;
        // Checked after the mark is set: the thread that stops the port sets the stop first and
        // reads the mark afterwards.
        let stream = if self.is_set() { Ok(None) } else { listener.accept().map(|(stream, _)| Some(stream)) };
        *self.accepting() = false;
        self.accepted.notify_all();
        stream
    }

    /// Makes sure that the thread does not wait in [`Self::accept`] on a socket that was handed
    /// over. Call it after [`Self::set`].
    ///
    /// If the thread still waits there at `until`, although its socket was readable, another owner
    /// of the socket took the connection. Then only shutting the socket down ends the wait, and no
    /// other owner can accept by it any more.
    pub(crate) fn leave(&self, given: &OwnedFd, clock: &Clock, until: Instant) {
        let accepting = self.accepting();
        let accepting = clock.wait_while(&self.accepted, accepting, until, |accepting| *accepting);
        if *accepting {
            // The thread accepts only on a listening socket, so this cannot fail.
            let _ = shutdown(given, Shutdown::Read);
        }
    }

    fn accepting(&self) -> MutexGuard<'_, bool> {
        self.accepting.lock().ignore_poison()
    }

    pub(crate) fn connection(&self) -> MutexGuard<'_, Option<Stopper>> {
        self.connection.lock().ignore_poison()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Returns whether the thread must leave the frontend that it serves.
    pub(crate) fn leaves(&self) -> bool {
        self.is_set() || self.is_paused()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use straightline_testing::wait_until;

    use super::*;

    /// Returns a listening socket, which another owner has as well, and its path.
    fn listener(name: &str) -> (UnixListener, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("straightline-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        (UnixListener::bind(&path).expect("bind"), path)
    }

    #[test]
    fn a_stop_ends_an_accept_for_which_nobody_is_left() {
        let (listener, path) = listener("accept");
        let given = OwnedFd::from(listener.try_clone().expect("dup"));
        let stop = Arc::new(Stop::default());
        let (ended, end) = mpsc::channel();
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            // Another owner took the connection that woke us.
            let accepted = seen.accept(&listener);
            ended.send(()).expect("somebody waits");
            accepted.is_ok_and(|stream| stream.is_some())
        });
        wait_until("the thread accepts", || *stop.accepting() || thread.is_finished());
        stop.set(&PortInbox::new().expect("eventfd"));
        let clock = Clock::moved();
        thread::scope(|scope| {
            scope.spawn(|| stop.leave(&given, &clock, clock.now() + ACCEPT_TIME));
            wait_until("the thread waits for no connection", || {
                clock.advance(ACCEPT_TIME);
                end.try_recv()
            });
        });
        assert!(!thread.join().expect("it ended"), "nobody had connected");
        std::fs::remove_file(path).expect("its file");
    }

    #[test]
    fn a_stop_leaves_a_socket_alone_where_nobody_accepts() {
        let (listener, path) = listener("alone");
        let given = OwnedFd::from(listener.try_clone().expect("dup"));
        let stop = Stop::default();
        stop.set(&PortInbox::new().expect("eventfd"));
        let clock = Clock::moved();
        stop.leave(&given, &clock, clock.now() + ACCEPT_TIME);
        assert!(stop.accept(&listener).expect("no accept").is_none(), "the port has stopped");
        // The other owner can still use the socket.
        let _client = UnixStream::connect(&path).expect("it listens");
        listener.accept().expect("it accepts");
        std::fs::remove_file(path).expect("its file");
    }
}

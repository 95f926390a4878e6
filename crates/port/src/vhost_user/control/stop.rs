//! What makes the port's thread leave its frontend: a stop or a pause.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use straightline_virtio::vhost_user::Stopper;

use crate::vhost_user::inbox::PortInbox;

/// How long a connection that is there may take to be accepted. One that is not there takes for ever: whoever handed a
/// listening socket over has it too, and may have taken the connection that we were called for.
pub(crate) const ACCEPT_TIME: Duration = Duration::from_millis(100);

/// Tells the thread to end.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    is_set: AtomicBool,
    /// The port serves nobody for now, and may go on later.
    is_paused: AtomicBool,
    /// The connection that is served: its frontend may be in the middle of a message, or not read our answers.
    connection: Mutex<Option<Stopper>>,
    /// The thread accepts a connection, and wakes for nothing else.
    accepting: Mutex<bool>,
    accepted: Condvar,
}

impl Stop {
    pub(crate) fn set(&self, inbox: &PortInbox) {
        self.is_set.store(true, Ordering::Release);
        self.end_connection(inbox);
    }

    /// The thread leaves its frontend, and serves no other until [`Self::resume`].
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

    /// Whoever enters a connection looks at [`Self::leaves`] afterwards, before it waits for the frontend.
    pub(crate) fn enter(&self, connection: Option<Stopper>) {
        *self.connection() = connection;
    }

    /// Accepts a connection, unless the port stops. Whether it waits for one is not ours to say: the mode of a socket is
    /// its owner's as well.
    pub(crate) fn accept(&self, listener: &UnixListener) -> io::Result<Option<UnixStream>> {
        *self.accepting() = true;
        // Behind the mark: who sets the stop looks at that afterwards.
        let stream = if self.is_set() { Ok(None) } else { listener.accept().map(|(stream, _)| Some(stream)) };
        *self.accepting() = false;
        self.accepted.notify_all();
        stream
    }

    /// Sees to it that the thread does not wait in [`Self::accept`] on a socket that was handed over. Behind
    /// [`Self::set`]. A thread that waits there until `until` although its socket was readable has an owner of it beside itself that
    /// took the connection, and nothing ends its wait but an end of the socket: then nobody accepts by it any more.
    pub(crate) fn leave(&self, given: &OwnedFd, until: Instant) {
        let accepting = self.accepting();
        let time = until.saturating_duration_since(Instant::now());
        let left = self.accepted.wait_timeout_while(accepting, time, |accepting| *accepting);
        if *left.unwrap_or_else(PoisonError::into_inner).0 {
            // It is a socket that listens, or the thread would not be there.
            let _ = shutdown(given, Shutdown::Read);
        }
    }

    fn accepting(&self) -> MutexGuard<'_, bool> {
        self.accepting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connection(&self) -> MutexGuard<'_, Option<Stopper>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Whether the frontend that is served is to be left.
    pub(crate) fn leaves(&self) -> bool {
        self.is_set() || self.is_paused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};
    use std::thread;

    /// A listening socket, which somebody else has as well, and its path.
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
            // Its owner took the connection after we were called for it.
            let accepted = seen.accept(&listener);
            ended.send(()).expect("somebody waits");
            accepted.is_ok_and(|stream| stream.is_some())
        });
        while !*stop.accepting() && !thread.is_finished() {
            thread::yield_now();
        }
        stop.set(&PortInbox::new().expect("eventfd"));
        stop.leave(&given, Instant::now() + ACCEPT_TIME);
        end.recv_timeout(Duration::from_secs(20)).expect("the thread waits for a connection for ever");
        assert!(!thread.join().expect("it ended"), "nobody had connected");
        std::fs::remove_file(path).expect("its file");
    }

    #[test]
    fn a_stop_leaves_a_socket_alone_where_nobody_accepts() {
        let (listener, path) = listener("alone");
        let given = OwnedFd::from(listener.try_clone().expect("dup"));
        let stop = Stop::default();
        stop.set(&PortInbox::new().expect("eventfd"));
        stop.leave(&given, Instant::now() + ACCEPT_TIME);
        assert!(stop.accept(&listener).expect("no accept").is_none(), "the port has stopped");
        // Its owner goes on with it.
        let _client = UnixStream::connect(&path).expect("it listens");
        listener.accept().expect("it accepts");
        std::fs::remove_file(path).expect("its file");
    }
}

//! The port's own thread: one frontend at a time, the next waits until this one has left. A frontend connects to us, or
//! we connect to it, for ever.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, Shutdown, SocketType, shutdown};
use straightline_virtio::vhost_user::{Connection, Stopper};
use tracing::Level;

use super::connector::{Connector, Failed};
use super::frontend::Guest;
use super::listener::{Listener, Server};
use crate::vhost_user::data::link::Report;
use crate::vhost_user::{LinkStatus, Shared};

/// How long nobody is accepted after the system could not give us a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long nobody is served after a frontend that led us to a bug of ours: it may come again at once, for ever.
const BUG_PAUSE: Duration = Duration::from_secs(1);

/// How long until a port that cannot listen tries again.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// There is nothing more to do, until the port stops.
const FOR_LONG: Duration = Duration::from_secs(3600);

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
    pub(crate) fn set(&self, report: &Report) {
        self.is_set.store(true, Ordering::Release);
        self.end_connection(report);
    }

    /// The thread leaves its frontend, and serves no other until [`Self::resume`].
    pub(crate) fn pause(&self, report: &Report) {
        self.is_paused.store(true, Ordering::Release);
        self.end_connection(report);
    }

    pub(crate) fn resume(&self, report: &Report) {
        self.is_paused.store(false, Ordering::Release);
        report.wake();
    }

    fn end_connection(&self, report: &Report) {
        report.wake();
        if let Some(connection) = &*self.connection() {
            connection.stop();
        }
    }

    /// Whoever enters a connection looks at [`Self::leaves`] afterwards, before it waits for the frontend.
    fn enter(&self, connection: Option<Stopper>) {
        *self.connection() = connection;
    }

    /// Accepts a connection, unless the port stops. Whether it waits for one is not ours to say: the mode of a socket is
    /// its owner's as well.
    fn accept(&self, listener: &UnixListener) -> io::Result<Option<UnixStream>> {
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

    fn connection(&self) -> MutexGuard<'_, Option<Stopper>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Whether the frontend that is served is to be left.
    pub(crate) fn leaves(&self) -> bool {
        self.is_set() || self.is_paused()
    }
}

/// How the port comes to a frontend.
pub(crate) enum Way {
    /// The frontend connects to a socket of ours.
    Server(Arc<Server>),
    /// The frontend connects to a socket that somebody handed over.
    Listener(Arc<Listener>),
    /// We connect to the frontend.
    Connector(Connector),
    /// The frontend is connected already; none once it was served.
    Stream(Option<UnixStream>),
}

impl Way {
    /// By a socket that somebody else has opened.
    pub(crate) fn given(socket: &OwnedFd) -> io::Result<Self> {
        let is_unix = socket_domain(socket)? == AddressFamily::UNIX && socket_type(socket)? == SocketType::STREAM;
        if !is_unix {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no stream socket of the Unix domain"));
        }
        let own = socket.try_clone()?;
        if socket_acceptconn(socket)? {
            return Ok(Way::Listener(Arc::new(Listener::given(own))));
        }
        let stream = UnixStream::from(own);
        fcntl_setfl(&stream, fcntl_getfl(&stream)? - OFlags::NONBLOCK)?;
        Ok(Way::Stream(Some(stream)))
    }

    /// What is waited for while nobody is connected.
    fn waits(&self) -> String {
        match self {
            Way::Server(_) | Way::Listener(_) => "waiting for a frontend".to_owned(),
            Way::Connector(connector) => format!("connecting to {}", connector.path().display()),
            Way::Stream(_) => "the connection that was handed over is served once".to_owned(),
        }
    }
}

/// The thread's state while nobody is connected.
pub(crate) struct Control {
    shared: Arc<Shared>,
    way: Way,
    stop: Arc<Stop>,
    /// Why the last frontend left.
    left: Option<String>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>, way: Way, stop: Arc<Stop>) -> Self {
        let control = Control { shared, way, stop, left: None };
        control.show(match &control.way {
            Way::Server(_) | Way::Listener(_) => "no frontend has connected yet".to_owned(),
            way => way.waits(),
        });
        control
    }

    pub(crate) fn run(self) {
        let (shared, stop) = (Arc::clone(&self.shared), Arc::clone(&self.stop));
        let server = if let Way::Server(server) = &self.way { Some(Arc::clone(server)) } else { None };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve_all())) {
            // Its socket goes with it: who connects is refused, and does not wait for nobody.
            if let Some(server) = server {
                server.close();
            }
            let reason = format!("the port has ended; only a restart brings it back: {}", a_bug(&*panic));
            tracing::error!(port = shared.config.name, "{reason}");
            if let Some(connection) = &*stop.connection() {
                connection.stop();
            }
            drop(shared.link.swap(None));
            shared.state().show(LinkStatus { reason, ..LinkStatus::default() });
        }
    }

    fn serve_all(mut self) {
        while let Some(stream) = self.next() {
            let began = Instant::now();
            let connection = Connection::new(stream);
            let stopper = match connection.stopper() {
                Ok(stopper) => stopper,
                Err(error) => {
                    self.shared.log(Level::WARN, format_args!("cannot serve a frontend: {error}"));
                    self.pause(ACCEPT_PAUSE);
                    continue;
                }
            };
            self.serve(connection, stopper);
            if let Way::Connector(connector) = &mut self.way {
                let pause = connector.pause_after(began.elapsed());
                self.pause(pause);
            }
        }
    }

    fn serve(&mut self, connection: Connection, stopper: Stopper) {
        self.shared.log(Level::INFO, format_args!("a frontend has connected"));
        self.stop.enter(Some(stopper));
        let mut guest = Guest::new(Arc::clone(&self.shared), connection);
        // A bug that a frontend leads us to takes its own link down. What it left half done goes with the guest.
        let served = catch_unwind(AssertUnwindSafe(|| guest.serve(&self.stop)));
        let is_bug = served.is_err();
        let why = served.unwrap_or_else(|panic| a_bug(&*panic));
        if let (Way::Stream(_), Some(connection)) = (&self.way, &*self.stop.connection()) {
            // Whoever handed it over has it too, so that closing ours would not end it.
            connection.stop();
        }
        self.stop.enter(None);
        guest.leave();
        if is_bug {
            self.shared.log(Level::ERROR, format_args!("its frontend is left: {why}"));
        } else {
            self.shared.log(Level::INFO, format_args!("the frontend has left: {why}"));
        }
        self.left = Some(why);
        // Its connection ends here.
        drop(guest);
        self.show(self.way.waits());
        if is_bug {
            self.pause(BUG_PAUSE);
        }
    }

    /// The next frontend; `None` when the port stops.
    fn next(&mut self) -> Option<UnixStream> {
        while !self.stop.is_set() {
            if self.stop.is_paused() {
                self.wait(None);
                continue;
            }
            match &mut self.way {
                Way::Server(server) => {
                    let server = Arc::clone(server);
                    let Some(listener) = server.listener() else {
                        self.listen_again(&server);
                        continue;
                    };
                    if let Some(stream) = self.accept(&listener) {
                        return Some(stream);
                    }
                }
                Way::Listener(listener) => {
                    let listener = Arc::clone(listener);
                    if let Some(stream) = self.accept(&listener) {
                        return Some(stream);
                    }
                }
                Way::Stream(stream) => match stream.take() {
                    Some(stream) => return Some(stream),
                    None => self.pause(FOR_LONG),
                },
                Way::Connector(connector) => match connector.connect() {
                    Ok(stream) => return Some(stream),
                    Err(Failed { why, is_new, pause }) => {
                        if is_new {
                            self.shared.log(Level::INFO, format_args!("{why}; trying on"));
                        }
                        self.show(why);
                        self.pause(pause);
                    }
                },
            }
        }
        None
    }

    /// Waits until a frontend connects, or the port is woken.
    fn accept(&self, listener: &Listener) -> Option<UnixStream> {
        let fds = [listener.socket().as_fd(), self.shared.report.event()];
        let ready = wait_for_any(fds, self.shared.suppressed_due());
        if !ready {
            self.shared.report_suppressed();
        }
        self.shared.report.take();
        if self.stop.leaves() || !ready {
            return None;
        }
        match self.stop.accept(listener.socket()) {
            Ok(stream) => stream,
            // It was closed meanwhile.
            Err(_) if self.stop.leaves() => None,
            Err(error) => {
                self.shared.log(Level::WARN, format_args!("cannot accept a frontend: {error}"));
                // Whoever waits still waits; what is missing (descriptors, mostly) comes back or does not.
                self.pause(ACCEPT_PAUSE);
                None
            }
        }
    }

    /// Tries to open the socket again; if that fails, waits for a while. The port's status says why.
    fn listen_again(&self, server: &Server) {
        let opened = server.retry().is_ok() && server.listener().is_some();
        if opened {
            self.shared.log(Level::INFO, format_args!("it listens again"));
        } else {
            self.wait(Some(LISTEN_PAUSE));
        }
    }

    /// KickKind why nobody is connected.
    fn show(&self, waits: String) {
        let reason = match &self.left {
            Some(left) => format!("{left}; {waits}"),
            None => waits,
        };
        self.shared.state().show(LinkStatus { reason, ..LinkStatus::default() });
    }

    /// Waits until the port is woken, at most for `time`.
    fn wait(&self, time: Option<Duration>) {
        wait_for_any([self.shared.report.event()], time);
        self.shared.report.take();
    }

    /// Waits for `time`, or until the port stops.
    fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stop.is_set() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut fds = [PollFd::from_borrowed_fd(self.shared.report.event(), PollFlags::IN)];
            let left = self.shared.suppressed_due().map_or(left, |due| left.min(due));
            // What is no span of time for the system (none is so long) would be no wait; an interrupted one goes on.
            let left = Timespec::try_from(left).unwrap_or_default();
            let _ = poll(&mut fds, Some(&left));
            self.shared.report.take();
            self.shared.report_suppressed();
        }
    }
}

/// What a panic said.
fn a_bug(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a bug of the switch: {}", text.unwrap_or("it said nothing"))
}

/// Waits until the first descriptor is readable (`true`), or another is, or the time has passed.
pub(crate) fn wait_for_any<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> bool {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // An interrupted wait looks at all again.
    let _ = poll(&mut fds, timeout.as_ref());
    fds.first().is_some_and(|fd| !fd.revents().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
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
        stop.set(&Report::new().expect("eventfd"));
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
        stop.set(&Report::new().expect("eventfd"));
        stop.leave(&given, Instant::now() + ACCEPT_TIME);
        assert!(stop.accept(&listener).expect("no accept").is_none(), "the port has stopped");
        // Its owner goes on with it.
        let _client = UnixStream::connect(&path).expect("it listens");
        listener.accept().expect("it accepts");
        std::fs::remove_file(path).expect("its file");
    }
}

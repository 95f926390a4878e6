//! The port's own thread. It serves one frontend at a time; the next waits until this one has left.
//! A frontend connects to us, or we connect to it, again and again.

use std::any::Any;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use straightline_graph::{Down, DownCause, LinkStatus};
use straightline_virtio::vhost_user::{Connection, Stopper};
use tracing::Level;

use super::connector::ConnectFailure;
use super::frontend::ConnectedFrontend;
use super::frontend_source::FrontendSource;
use super::poll::wait_for_any;
use super::shared::Shared;
use super::stop::Stop;
use crate::socket::listener::{Listener, ServerSocket};

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a frontend that triggered a bug of ours. Without it, the frontend could come
/// again at once, without end.
const BUG_PAUSE: Duration = Duration::from_secs(1);

/// The pause until a port that cannot listen tries again.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// The pause of a port that has nothing more to do until it stops.
const FOR_LONG: Duration = Duration::from_secs(3600);

/// The state of the thread while no frontend is connected.
pub(crate) struct PortThread {
    shared: Arc<Shared>,
    source: FrontendSource,
    stop: Arc<Stop>,
    /// The reason why the last frontend left.
    left: Option<Down>,
}

impl PortThread {
    pub(crate) fn new(shared: Arc<Shared>, source: FrontendSource, stop: Arc<Stop>) -> Self {
        let thread = PortThread { shared, source, stop, left: None };
        thread.show(match &thread.source {
            FrontendSource::Server(_) | FrontendSource::Listener(_) => {
                Down::new(DownCause::NoFrontend, "no frontend has connected yet")
            }
            source => source.waits(),
        });
        thread
    }

    pub(crate) fn run(self) {
        let shared = Arc::clone(&self.shared);
        let stop = Arc::clone(&self.stop);
        let server = if let FrontendSource::Server(server) = &self.source { Some(Arc::clone(server)) } else { None };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve_all())) {
            // The socket goes with the thread, so that a frontend that connects is refused and does
            // not wait in vain.
            if let Some(server) = server {
                server.close();
            }
            let reason = format!("the port has ended; only a restart brings it back: {}", a_bug(&*panic));
            tracing::error!(port = shared.config.name, "{reason}");
            // The connection closes here, and not where the port is dropped.
            if let Some(connection) = stop.connection().take() {
                connection.stop();
            }
            drop(shared.data.link.swap(None));
            shared.state().show(LinkStatus::down(Down::new(DownCause::Bug, reason)));
        }
    }

    fn serve_all(mut self) {
        while let Some(stream) = self.next() {
            let began = self.shared.clock().now();
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
            if let FrontendSource::Connector(connector) = &mut self.source {
                let pause = connector.pause_after(self.shared.clock().since(began));
                self.pause(pause);
            }
        }
    }

    fn serve(&mut self, connection: Connection, stopper: Stopper) {
        self.shared.log(Level::INFO, format_args!("a frontend has connected"));
        self.stop.enter(Some(stopper));
        let mut frontend = ConnectedFrontend::new(Arc::clone(&self.shared), connection);
        // A bug that a frontend triggers takes only that frontend's link down. Half-done work goes
        // with the frontend.
        let served = catch_unwind(AssertUnwindSafe(|| frontend.serve(&self.stop)));
        let is_bug = served.is_err();
        let down = served.unwrap_or_else(|panic| Down::new(DownCause::Bug, a_bug(&*panic)));
        let why = &down.reason;
        if let (FrontendSource::Stream(_), Some(connection)) = (&self.source, &*self.stop.connection()) {
            // Another process has the connection too, so closing ours would not end it.
            connection.stop();
        }
        self.stop.enter(None);
        frontend.leave();
        if is_bug {
            self.shared.log(Level::ERROR, format_args!("the port left its frontend: {why}"));
        } else {
            self.shared.log(Level::INFO, format_args!("the frontend has left: {why}"));
        }
        self.left = Some(down);
        // The connection ends here.
        drop(frontend);
        self.show(self.source.waits());
        if is_bug {
            self.pause(BUG_PAUSE);
        }
    }

    /// Waits for the next frontend. Returns `None` when the port stops.
    fn next(&mut self) -> Option<UnixStream> {
        while !self.stop.is_set() {
            if self.stop.is_paused() {
                self.wait(None);
                continue;
            }
            match &mut self.source {
                FrontendSource::Server(server) => {
                    let server = Arc::clone(server);
                    let Some(listener) = server.listener() else {
                        self.listen_again(&server);
                        continue;
                    };
                    if let Some(stream) = self.accept(&listener) {
                        return Some(stream);
                    }
                }
                FrontendSource::Listener(listener) => {
                    let listener = Arc::clone(listener);
                    if let Some(stream) = self.accept(&listener) {
                        return Some(stream);
                    }
                }
                FrontendSource::Stream(stream) => match stream.take() {
                    Some(stream) => return Some(stream),
                    None => self.pause(FOR_LONG),
                },
                FrontendSource::Connector(connector) => match connector.connect() {
                    Ok(stream) => return Some(stream),
                    Err(ConnectFailure { why, cause, is_new, pause }) => {
                        if is_new {
                            self.shared.log(Level::INFO, format_args!("{why}; trying again"));
                        }
                        self.show(Down::new(cause, why));
                        self.pause(pause);
                    }
                },
            }
        }
        None
    }

    /// Waits until a frontend connects, or the port is woken.
    fn accept(&self, listener: &Listener) -> Option<UnixStream> {
        let fds = [listener.socket().as_fd(), self.shared.inbox.event()];
        let ready = wait_for_any(self.shared.clock(), fds, self.shared.suppressed_due());
        if !ready {
            self.shared.report_suppressed();
        }
        self.shared.inbox.take_fault();
        if self.stop.leaves() || !ready {
            return None;
        }
        match self.stop.accept(listener.socket()) {
            Ok(stream) => stream,
            // The listener was closed meanwhile. The stop or pause follows, and wakes us.
            Err(_) if self.stop.leaves() || listener.is_closed() => None,
            Err(error) => {
                self.shared.log(Level::WARN, format_args!("cannot accept a frontend: {error}"));
                // The frontend still waits. The missing resource, mostly descriptors, may become
                // free again.
                self.pause(ACCEPT_PAUSE);
                None
            }
        }
    }

    /// Tries to open the socket again. If that fails, waits for a while; the port's status says
    /// why.
    fn listen_again(&self, server: &ServerSocket) {
        let opened = server.retry().is_ok() && server.listener().is_some();
        if opened {
            self.shared.log(Level::INFO, format_args!("listening again"));
        } else {
            self.wait(Some(LISTEN_PAUSE));
        }
    }

    /// Shows operators why no frontend is connected.
    fn show(&self, waits: Down) {
        let down = match &self.left {
            // The end of the last connection says more, unless none can come any more.
            Some(Down { cause, reason }) => {
                let cause = if waits.cause == DownCause::NoFrontend { *cause } else { waits.cause };
                Down::new(cause, format!("{reason}; {}", waits.reason))
            }
            None => waits,
        };
        self.shared.state().show(LinkStatus::down(down));
    }

    /// Waits until the port is woken, at most for `time`.
    fn wait(&self, time: Option<Duration>) {
        let clock = self.shared.clock();
        wait_for_any(clock, [self.shared.inbox.event()], time.map(|time| clock.now() + time));
        self.shared.inbox.take_fault();
    }

    /// Waits for `time`, or until the port stops.
    fn pause(&self, time: Duration) {
        let clock = self.shared.clock();
        let end = clock.now() + time;
        while !self.stop.is_set() && clock.now() < end {
            // An interrupted wait is continued.
            let until = self.shared.suppressed_due().map_or(end, |due| end.min(due));
            wait_for_any(clock, [self.shared.inbox.event()], Some(until));
            self.shared.inbox.take_fault();
            self.shared.report_suppressed();
        }
    }
}

/// Returns the message of a panic.
fn a_bug(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a bug of the switch: {}", text.unwrap_or("no message"))
}

//! Connections: their number, their time-outs and their end.
//!
//! One thread serves all of them. A client that stalls costs one of [`MAX_CONNECTIONS`] places for
//! some seconds, and shares the text that it does not read with others.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use crate::hosts::Hosts;
use crate::routes::{Findings, Routes};
use crate::{Options, WebError};

/// The maximum number of connections. Further clients wait in the kernel's queue.
const MAX_CONNECTIONS: u64 = 512;

/// Descriptors that are not for connections.
const OTHER_DESCRIPTORS: u64 = 32;

/// The maximum time for the headers of a request, from the end of the request before.
const HEADER_TIME: Duration = Duration::from_secs(10);

/// A client that neither sends nor reads anything for this long is disconnected.
const SILENCE: Duration = Duration::from_secs(20);

/// The age at which a connection ends after its present request. So a client that reads a byte now
/// and then does not stay for ever.
const MAX_AGE: Duration = Duration::from_secs(300);

/// The maximum size of a request's headers, and of the buffer for them.
const MAX_HEADERS: usize = 16 << 10;

/// The time without accepting clients after accepting one has failed.
const PAUSE: Duration = Duration::from_millis(200);

/// A server that listens.
pub struct Server {
    listener: StdListener,
    address: SocketAddr,
    hosts: Hosts,
    api: PathBuf,
    findings: Option<Findings>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, hosts, api, .. } = self;
        f.debug_struct("Server")
            .field("address", address)
            .field("hosts", hosts)
            .field("api", api)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Listens. The switch needs not run yet.
    ///
    /// # Errors
    /// The address cannot be listened on, or it is not of the loopback interface and no name is
    /// allowed.
    pub fn bind(options: &Options) -> Result<Self, WebError> {
        let Options { listen, api, allow_hosts } = options;
        if !listen.ip().is_loopback() && allow_hosts.is_empty() {
            return Err(WebError::NotLoopback(*listen));
        }
        let hosts = Hosts::new(*listen, allow_hosts)?;
        let failed = |error| WebError::Listen { address: *listen, error };
        let listener = StdListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, hosts, api: api.clone(), findings: None })
    }

    /// Serves findings about the switch at `/api/doctor`, and shows them on the page. `find` returns
    /// `{"checks":[{"name","result","symptom","detail","fix"}]}`. It runs on a thread of its own,
    /// at most once in 30 seconds, and only while somebody asks.
    #[must_use]
    pub fn with_findings(self, find: impl FnMut() -> Option<String> + Send + 'static) -> Self {
        Self { findings: Some(Box::new(find)), ..self }
    }

    /// Returns the address that is listened on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until SIGTERM or SIGINT. Calls `ready` once these signals end it in order.
    ///
    /// # Errors
    /// The system cannot provide a thread or a descriptor.
    pub fn run(self, ready: impl FnOnce()) -> Result<(), WebError> {
        self.serve_until(async {
            let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            ready();
            poll_fn(|context| match (term.poll_recv(context), int.poll_recv(context)) {
                (Poll::Pending, Poll::Pending) => Poll::Pending,
                _ => Poll::Ready(()),
            })
            .await;
            Ok(())
        })
    }

    /// Serves until `stop` is ready.
    ///
    /// # Errors
    /// The system cannot provide a thread or a descriptor.
    pub fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), WebError> {
        self.serve_until(async {
            stop.await;
            Ok(())
        })
    }

    fn serve_until(self, stop: impl Future<Output = io::Result<()>>) -> Result<(), WebError> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(self.listener)?;
            let routes = Arc::new(Routes::start(self.hosts, self.api, self.findings)?);
            tokio::spawn(serve(listener, routes));
            stop.await?;
            Ok(())
        })
    }
}

/// Accepts connections for ever.
async fn serve(listener: TcpListener, routes: Arc<Routes>) {
    let places = getrlimit(Resource::Nofile).current.unwrap_or(MAX_CONNECTIONS);
    let places = places.saturating_sub(OTHER_DESCRIPTORS).clamp(1, MAX_CONNECTIONS);
    let places = Arc::new(Semaphore::new(places.try_into().unwrap_or(usize::MAX)));
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let routes = Arc::clone(&routes);
                tokio::spawn(async move {
                    // An error ends this connection only, and is the client's.
                    let _ = connection(stream, &routes).await;
                    drop(place);
                });
            }
            Err(error) if is_clients(&error) => {}
            Err(error) => {
                tracing::warn!("no client is accepted for {} ms: {error}", PAUSE.as_millis());
                sleep(PAUSE).await;
            }
        }
    }
}

/// Returns whether the fault is a client's that has left already.
fn is_clients(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// Serves a connection until it ends.
async fn connection(stream: TcpStream, routes: &Routes) -> Result<(), hyper::Error> {
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(SILENCE));
    stream.set_write_timeout(Some(SILENCE));
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| async {
        // A body is not read, so hyper closes the connection behind it.
        let (request, _) = request.into_parts();
        Ok::<_, Infallible>(routes.reply(&request).await)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(MAX_HEADERS);
    let mut connection = pin!(http.serve_connection(TokioIo::new(Box::pin(stream)), service));
    if let Ok(ended) = timeout(MAX_AGE, connection.as_mut()).await {
        return ended;
    }
    connection.as_mut().graceful_shutdown();
    timeout(SILENCE, connection).await.unwrap_or(Ok(()))
}

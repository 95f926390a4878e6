//! Connections: their number, their time-outs and their end.
//!
//! One thread serves all of them. A client that stalls costs one of [`MAX_CONNECTIONS`] places for
//! [`TIMES`]`.last`, and shares the text that it does not read with others.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::hosts::Hosts;
use crate::routes::{Findings, Routes};
use crate::{WebError, WebOptions};

/// The maximum number of connections. Further clients wait in the kernel's queue.
const MAX_CONNECTIONS: u64 = 512;

/// Descriptors that are not for connections.
const OTHER_DESCRIPTORS: u64 = 32;

/// The maximum times of a connection.
struct Times {
    /// The time for the headers of a request, from the end of the request before.
    headers: Duration,
    /// The age at which a connection ends after its present request.
    age: Duration,
    /// The time from the moment in which a connection has to end until it ends. It begins when the
    /// client first makes the server wait for it to read: then the present reply is the last one.
    last: Duration,
}

const TIMES: Times =
    Times { headers: Duration::from_secs(10), age: Duration::from_secs(300), last: Duration::from_secs(10) };

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
    evpn: Option<PathBuf>,
    findings: Option<Findings>,
    clock: Clock,
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
    pub fn bind(options: &WebOptions) -> Result<Self, WebError> {
        let WebOptions { listen, api, allow_hosts, evpn } = options;
        if !listen.ip().is_loopback() && allow_hosts.is_empty() {
            return Err(WebError::NotLoopback(*listen));
        }
        let hosts = Hosts::new(*listen, allow_hosts)?;
        let failed = |error| WebError::Listen { address: *listen, error };
        let listener = StdListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            hosts,
            api: api.clone(),
            evpn: evpn.clone(),
            findings: None,
            clock: Clock::default(),
        })
    }

    /// Serves findings about the switch at `/api/doctor`, and shows them on the page. `find` returns
    /// `{"checks":[{"name","result","symptom","detail","fix"}]}`. It runs on a thread of its own,
    /// at most once in 30 seconds and after each change of a link, and only while somebody asks.
    #[must_use]
    pub fn with_findings(self, find: impl FnMut() -> Option<String> + Send + 'static) -> Self {
        Self { findings: Some(Box::new(find)), ..self }
    }

    /// Takes the ages of answers from another clock than the system's. It is for tests.
    #[must_use]
    pub fn with_clock(self, now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self { clock: Clock::new(now), ..self }
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
            let mut term = signal(SignalKind::terminate())?;
            let mut int = signal(SignalKind::interrupt())?;
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
            let routes = Arc::new(Routes::start(self.hosts, self.api, self.evpn, self.findings, &self.clock)?);
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
                // The system's time: it is tokio's, which a test moves.
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
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| async {
        // A body is not read, so hyper closes the connection behind it.
        let (request, _) = request.into_parts();
        Ok::<_, Infallible>(routes.reply(&request).await)
    });
    serve_connection(stream, service, &TIMES).await
}

/// Serves a connection for these times at most.
async fn serve_connection<S>(stream: TcpStream, service: S, times: &Times) -> Result<(), hyper::Error>
where
    S: HttpService<hyper::body::Incoming, ResBody = Full<Bytes>, Error = Infallible>,
{
    let _ = stream.set_nodelay(true);
    serve_watched(Watched { stream, is_slow: Arc::default() }, service, times).await
}

/// Serves a connection whose flag the caller may share.
async fn serve_watched<S>(stream: Watched, service: S, times: &Times) -> Result<(), hyper::Error>
where
    S: HttpService<hyper::body::Incoming, ResBody = Full<Bytes>, Error = Infallible>,
{
    let is_slow = Arc::clone(&stream.is_slow);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(times.headers).max_buf_size(MAX_HEADERS);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let stays = poll_fn(|context| match connection.as_mut().poll(context) {
        Poll::Pending if !is_slow.load(Ordering::Relaxed) => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
    });
    if let Ok(Some(ended)) = timeout(times.age, stays).await {
        return ended;
    }
    connection.as_mut().graceful_shutdown();
    timeout(times.last, connection).await.unwrap_or(Ok(()))
}

/// A connection that notes whether its client has made the server wait for it to read.
struct Watched {
    stream: TcpStream,
    is_slow: Arc<AtomicBool>,
}

impl Watched {
    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        if written.is_pending() {
            self.is_slow.store(true, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream as Client;

    use straightline_testing::wait_until;
    use tokio::runtime::Runtime;
    use tokio::task::{JoinHandle, yield_now};
    use tokio::time::{Instant, advance};

    use super::*;

    /// More than the buffers of both ends hold.
    const LARGE: usize = 64 << 20;

    const SECOND: Duration = Duration::from_secs(1);

    /// A connection whose server has to wait for its client, with a large reply. Time stands still, unless
    /// the runtime has nothing to do.
    struct Slow {
        client: Client,
        server: JoinHandle<Result<(), hyper::Error>>,
        runtime: Runtime,
    }

    impl Slow {
        fn new() -> Self {
            let runtime =
                runtime::Builder::new_current_thread().enable_io().enable_time().start_paused(true).build().unwrap();
            let listener = StdListener::bind("127.0.0.1:0").unwrap();
            let mut client = Client::connect(listener.local_addr().unwrap()).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            client.set_nonblocking(true).unwrap();
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let is_slow = Arc::new(AtomicBool::new(false));
            let noted = Arc::clone(&is_slow);
            let stream = runtime.block_on(async { TcpStream::from_std(stream).unwrap() });
            let stream = Watched { stream, is_slow };
            let server = runtime.spawn(async move {
                let service = service_fn(|_: hyper::Request<hyper::body::Incoming>| async {
                    Ok::<_, Infallible>(hyper::Response::new(Full::new(Bytes::from(vec![b'x'; LARGE]))))
                });
                serve_watched(stream, service, &TIMES).await
            });
            wait_until("the server waits for its client", || {
                runtime.block_on(yield_now());
                noted.load(Ordering::Relaxed)
            });
            Self { client, server, runtime }
        }
    }

    /// It never stops reading, and never reads everything.
    #[test]
    fn a_client_that_reads_a_little_now_and_then_does_not_stay() {
        let Slow { mut client, server, runtime } = Slow::new();
        runtime.block_on(async {
            // The time is the subject: it is tokio's, which the test moves.
            let begun = Instant::now();
            while begun.elapsed() + SECOND < TIMES.last {
                assert!(client.read(&mut [0; 100]).unwrap() > 0, "the kernel has bytes for it");
                advance(SECOND).await;
                assert!(!server.is_finished(), "it has time to read");
            }
            let _ = timeout(TIMES.last, server).await.expect("the connection ends");
        });
    }

    #[test]
    fn a_client_that_makes_the_server_wait_gets_its_reply_and_no_other() {
        let Slow { mut client, server, runtime } = Slow::new();
        let mut some = vec![0; 1 << 20];
        let mut count = 0;
        // Until the end of the connection.
        wait_until("the client has read everything", || {
            runtime.block_on(yield_now());
            loop {
                match client.read(&mut some) {
                    Ok(0) => return Ok(()),
                    Ok(more) => count += more,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(count),
                    Err(error) => panic!("{error} after {count} bytes"),
                }
            }
        });
        assert!(count > LARGE, "{count} bytes");
        assert!(runtime.block_on(server).unwrap().is_ok());
    }
}

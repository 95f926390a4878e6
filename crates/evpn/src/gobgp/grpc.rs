//! gRPC over hyper's HTTP/2: a request, and a stream of messages behind it
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use std::io;
use std::path::PathBuf;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, TE};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::{TcpStream, UnixStream};

use super::Address;

/// The longest message that is read, in bytes. GoBGP tells the end of a neighbour with all of its
/// routes in one message, each of about 600 bytes.
const MAX_MESSAGE: usize = 1 << 30;

/// Bytes of a stream's window, and of the connection's. While the table is listed, events wait: they fill
/// only the window of their own stream.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// The code of a call that the server does not know (gRPC's status codes).
pub(crate) const UNIMPLEMENTED: u32 = 12;

/// The reason why a call has failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody listens.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// The address of the interface.
        address: Address,
        /// The system's error.
        error: io::Error,
    },
    /// The connection has failed.
    #[error("the connection to GoBGP failed: {0}")]
    Connection(#[from] hyper::Error),
    /// The server refuses the call.
    #[error("GoBGP refuses {method}: {message} (code {code})")]
    Refused {
        /// The method.
        method: &'static str,
        /// The status code of gRPC.
        code: u32,
        /// GoBGP's words.
        message: String,
    },
    /// The server does not answer as gRPC does.
    #[error("the answer to {method} is not that of GoBGP: {why}")]
    Invalid {
        /// The method.
        method: &'static str,
        /// The fault.
        why: String,
    },
    /// The server is silent.
    #[error("GoBGP has not answered {0} in time")]
    Timeout(&'static str),
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    sender: SendRequest<Full<Bytes>>,
}

impl Channel {
    /// Connects. A task of the present runtime serves the connection until it ends.
    pub(crate) async fn connect(address: &Address) -> Result<Self, CallError> {
        let failed = |error| CallError::Connect { address: address.clone(), error };
        match address {
            Address::Unix(path) => Self::over(UnixStream::connect(PathBuf::from(path)).await.map_err(failed)?).await,
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                Self::over(stream).await
            }
        }
    }

    async fn over(
        stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, CallError> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        // Its end is seen by each call.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender })
    }

    /// Calls `method` of `service`. Returns the stream of its answers.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        service: &str,
        method: &'static str,
        message: &impl Message,
    ) -> Result<Answers<A>, CallError> {
        let invalid = |why: String| CallError::Invalid { method, why };
        let length = u32::try_from(message.encoded_len()).map_err(|error| invalid(error.to_string()))?;
        // A message that is not compressed, with its length.
        let mut body = vec![0];
        body.extend(length.to_be_bytes());
        body.extend(message.encode_to_vec());
        let request = Request::post(format!("http://localhost/{service}/{method}"))
            .header(TE, "trailers")
            .header(CONTENT_TYPE, "application/grpc+proto")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| invalid(error.to_string()))?;
        let mut sender = self.sender.clone();
        sender.ready().await?;
        let reply = sender.send_request(request).await?;
        if reply.status() != StatusCode::OK {
            return Err(invalid(format!("HTTP status {}", reply.status())));
        }
        // An answer without messages has its status in front.
        status(method, reply.headers())?;
        Ok(Answers { method, body: reply.into_body(), bytes: Vec::new(), start: 0, kind: std::marker::PhantomData })
    }
}

/// The answers to a call.
#[derive(Debug)]
pub(crate) struct Answers<A> {
    method: &'static str,
    body: Incoming,
    bytes: Vec<u8>,
    /// The first byte that is not read yet.
    start: usize,
    kind: std::marker::PhantomData<A>,
}

impl<A: Message + Default> Answers<A> {
    /// Returns the next answer, or `None` at the end of a call that succeeded.
    pub(crate) async fn next(&mut self) -> Result<Option<A>, CallError> {
        loop {
            if let Some(message) = self.message()? {
                return Ok(Some(message));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            match frame?.into_data() {
                Ok(data) => {
                    self.bytes.drain(..self.start);
                    self.start = 0;
                    self.bytes.extend(data);
                }
                Err(frame) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        status(self.method, trailers)?;
                    }
                }
            }
        }
    }

    /// Takes a whole message from the bytes that are here.
    fn message(&mut self) -> Result<Option<A>, CallError> {
        let invalid = |why: String| CallError::Invalid { method: self.method, why };
        let Some((head, rest)) = self.bytes.get(self.start..).and_then(|bytes| bytes.split_first_chunk::<5>()) else {
            return Ok(None);
        };
        let [compressed, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).map_err(|error| invalid(error.to_string()))?;
        if compressed != 0 || length > MAX_MESSAGE {
            return Err(invalid(format!("a message of {length} bytes, compressed: {compressed}")));
        }
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let message = A::decode(message).map_err(|error| invalid(error.to_string()))?;
        self.start += head.len() + length;
        Ok(Some(message))
    }
}

/// Returns the error that a header block tells, if it tells one.
fn status(method: &'static str, headers: &HeaderMap) -> Result<(), CallError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status").map(str::parse) {
        None | Some(Ok(0)) => Ok(()),
        Some(code) => {
            let message = text("grpc-message").unwrap_or("no message").to_owned();
            Err(CallError::Refused { method, code: code.unwrap_or(u32::MAX), message })
        }
    }
}

//! The ways in which a port comes to a frontend.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use straightline_graph::{Down, DownCause};

use super::connector::Connector;
use crate::socket::listener::{Listener, ServerSocket, raised};

/// The way in which a port comes to a frontend.
pub(crate) enum FrontendSource {
    /// The frontend connects to a socket of ours.
    Server(Arc<ServerSocket>),
    /// The frontend connects to a socket that another process handed over.
    Listener(Arc<Listener>),
    /// We connect to the frontend.
    Connector(Connector),
    /// The frontend is connected already. `None` once it has been served.
    Stream(Option<UnixStream>),
}

impl FrontendSource {
    /// Returns the way to a frontend by a socket that another process has opened.
    pub(crate) fn given(socket: &OwnedFd) -> io::Result<Self> {
        let is_unix = socket_domain(socket)? == AddressFamily::UNIX && socket_type(socket)? == SocketType::STREAM;
        if !is_unix {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a Unix stream socket"));
        }
        let own = socket.try_clone()?;
        if socket_acceptconn(socket)? {
            return Ok(FrontendSource::Listener(Arc::new(Listener::given(raised(own)))));
        }
        let stream = UnixStream::from(own);
        fcntl_setfl(&stream, fcntl_getfl(&stream)? - OFlags::NONBLOCK)?;
        Ok(FrontendSource::Stream(Some(stream)))
    }

    /// Returns what the port waits for while no frontend is connected, for its status.
    pub(crate) fn waits(&self) -> Down {
        match self {
            FrontendSource::Server(_) | FrontendSource::Listener(_) => {
                Down::new(DownCause::NoFrontend, "waiting for a frontend")
            }
            FrontendSource::Connector(connector) => {
                Down::new(DownCause::Connecting, format!("connecting to {}", connector.path().display()))
            }
            FrontendSource::Stream(_) => {
                Down::new(DownCause::HandedOver, "the connection that was handed over is served once")
            }
        }
    }
}

//! Metrics, JSON and a live page of a running switch, over HTTP.
//!
//! The switch has no network. This crate is a second, unprivileged process on the socket of its
//! API. It only asks: no request changes anything.
//!
//! | file | content |
//! |---|---|
//! | `feed` | one poll of the switch for all clients that ask at the same time |
//! | `answers` | the switch's answers of one poll |
//! | `metrics/` | the answers as OpenMetrics: one table of all metrics |
//! | `routes`, `reply` | the paths and their replies, with strict headers |
//! | `hosts` | the check of `Host` values |
//! | `server` | connections: their number, time-outs and end |
//! | `sandbox` | the rights that the process gives up |
//! | `../page/` | the page: HTML, CSS, JavaScript, without any external asset |
//!
//! ```no_run
//! use straightline_web::{WebOptions, Server};
//!
//! let options = WebOptions {
//!     listen: "127.0.0.1:9797".parse()?,
//!     api: straightline_api::DEFAULT_PATH.into(),
//!     allow_hosts: Vec::new(),
//!     evpn: None,
//! };
//! let server = Server::bind(&options)?;
//! let address = server.address();
//! server.run(|| eprintln!("listening on http://{address}/"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answers;
mod clock;
mod feed;
mod hosts;
mod metrics;
mod reply;
mod routes;
mod sandbox;
mod server;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use sandbox::confine;
pub use server::Server;

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// The address to listen on. Port 0 means a free port.
    pub listen: SocketAddr,
    /// The socket of the switch's API.
    pub api: PathBuf,
    /// Names and addresses by which clients may call this server, besides those of the loopback
    /// interface and `listen` itself.
    pub allow_hosts: Vec<String>,
    /// The socket of a `straightline evpn` whose metrics are served, too.
    pub evpn: Option<PathBuf>,
}

/// The reason why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The address is for other machines too, and no name was allowed.
    #[error(
        "{0} can be reached from other machines, and the server asks for no password: add --allow-host NAME for \
         each name or address by which clients may call it, or listen on 127.0.0.1"
    )]
    NotLoopback(SocketAddr),
    /// The value is no name and no address.
    #[error("allowed host {0:?} is not a name or an address: give it without a port and without \"http://\"")]
    Host(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The system cannot provide a thread or a descriptor.
    #[error("cannot serve: {0}")]
    Io(#[from] io::Error),
}

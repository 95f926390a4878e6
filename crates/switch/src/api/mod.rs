//! The API of a running switch: questions about it, and requests that change it.
//!
//! The types are the JSON that scripts read: fields are added, never renamed. A client sends one
//! line, `{"cmd":"ports"}`, over a Unix socket. It gets one line back, `{"ok":{...}}` or
//! `{"error":"..."}`. Each answer has the field `time`: seconds since the epoch, with a fraction.
//!
//! [`ApiServer`] answers from a [`Source`]. Where it has a [`Control`], clients can change the
//! switch as well. [`request`] and its typed siblings ask a switch, and [`table`] renders the
//! answers for people.
//!
//! ```no_run
//! use std::path::Path;
//! use straightline_switch::api;
//!
//! let ports: api::Ports = api::ask(Path::new("/run/straightline/api.sock"))?;
//! println!("{}", api::table::ports(&ports));
//! # Ok::<(), api::RequestError>(())
//! ```

mod client;
mod connection;
mod server;
pub mod table;
mod types;

use std::any::Any;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

pub use client::{AddedPort, Answer, RequestError, add_port, ask, request, set_link};
pub use server::{ApiError, ApiHandle, ApiServer};
pub use types::{
    Addresses, Change, ChangeKind, Changed, Changes, Device, DownReason, DropCount, Drops, Fdb, FdbEntry, Link, Node,
    Packets, Port, PortRequest, Ports, Privileges, Queue, RingKind, Runtime, RxMode, Stalls, Status, Worker,
};

/// The path of the API's socket where a command names none.
pub const DEFAULT_PATH: &str = "/run/straightline/api.sock";

/// The source of the answers. The API's thread calls it, so it must not take long.
pub trait Source: Send + Sync {
    /// Returns the ports, in the configuration's order.
    fn ports(&self) -> Ports;
    /// Returns the use of the workers' time.
    fn runtime(&self) -> Runtime;
    /// Returns the dropped packets by reason.
    fn drops(&self) -> Drops;
    /// Returns the addresses that the bridges know.
    fn fdb(&self) -> Fdb;
    /// Returns the status of the whole switch.
    fn status(&self) -> Status;
}

/// The side of a switch that changes it. The API's thread calls it and answers no other client
/// meanwhile. An error is meant for the client, and means that nothing is changed.
pub trait Control: Send + Sync {
    /// Reads the configuration file again and applies it.
    ///
    /// # Errors
    /// The file has errors, or a change cannot be applied. The message may have several lines.
    fn reload(&self) -> Result<Changes, String>;

    /// Sets a port's link down, or allows it to be up again.
    ///
    /// # Errors
    /// There is no such port.
    fn set_link(&self, port: &str, up: bool) -> Result<(), String>;

    /// Adds a port until the returned guard is dropped.
    ///
    /// # Errors
    /// The request or the socket is not valid.
    fn add_dynamic_port(&self, port_request: &PortRequest, socket: OwnedFd) -> Result<DynamicPortGuard, String>;
}

/// A guard that removes a dynamic port when it is dropped.
pub type DynamicPortGuard = Box<dyn Any + Send>;

/// The two sides of a switch that requests reach.
#[derive(Clone)]
pub(crate) struct RequestHandler {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) control: Option<Arc<dyn Control>>,
}

/// The commands of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// [`Source::status`]
    Status,
    /// [`Source::ports`]
    Ports,
    /// [`Source::fdb`]
    Fdb,
    /// [`Source::runtime`]
    Runtime,
    /// [`Source::drops`]
    Drops,
    /// [`Control::reload`]
    Reload,
    /// [`Control::set_link`]
    Link,
    /// [`Control::add_dynamic_port`]
    Port,
}

impl Command {
    /// All commands.
    pub const ALL: [Self; 8] =
        [Self::Status, Self::Ports, Self::Fdb, Self::Runtime, Self::Drops, Self::Reload, Self::Link, Self::Port];

    /// Returns the command's name in a request.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Ports => "ports",
            Self::Fdb => "fdb",
            Self::Runtime => "runtime",
            Self::Drops => "drops",
            Self::Reload => "reload",
            Self::Link => "link",
            Self::Port => "port",
        }
    }
}

/// A client's request: a command with its arguments.
#[derive(Deserialize)]
pub(super) struct Request {
    cmd: String,
    port: Option<String>,
    up: Option<bool>,
    #[serde(flatten)]
    port_request: Option<PortRequest>,
}

impl RequestHandler {
    /// Returns the answer line to a request, without its newline, or the error. `Port` puts the
    /// guard of the new port into `dynamic_port`.
    fn answer(
        &self,
        request: &Request,
        fd: Option<OwnedFd>,
        dynamic_port: &mut Option<DynamicPortGuard>,
    ) -> Result<String, String> {
        fn good<T: Serialize>(answer: T) -> Result<String, String> {
            #[derive(Serialize)]
            struct Good<T> {
                ok: Timed<T>,
            }
            let ok = Timed { time: since_epoch(SystemTime::now()), answer };
            serde_json::to_string(&Good { ok }).map_err(|error| error.to_string())
        }
        let source = &self.source;
        match request.cmd.parse()? {
            Command::Status => good(source.status()),
            Command::Ports => good(source.ports()),
            Command::Fdb => good(source.fdb()),
            Command::Runtime => good(source.runtime()),
            Command::Drops => good(source.drops()),
            Command::Reload => good(self.control()?.reload()?),
            Command::Link => {
                let port = request.port.as_ref().ok_or("link: \"port\" is missing; it names the port")?;
                self.control()?.set_link(port, request.up.ok_or("link: \"up\" is missing; it is true or false")?)?;
                good(serde_json::Map::new())
            }
            Command::Port => {
                let port_request = request
                    .port_request
                    .as_ref()
                    .ok_or("port: a key is missing; the request needs \"name\", \"join\" and \"socket\"")?;
                if dynamic_port.is_some() {
                    return Err("port: this connection has a port already; open a connection for each port".to_owned());
                }
                let fd = fd.ok_or("port: no socket came with the request; send it as a descriptor (SCM_RIGHTS)")?;
                *dynamic_port = Some(self.control()?.add_dynamic_port(port_request, fd)?);
                good(serde_json::Map::new())
            }
        }
    }

    fn control(&self) -> Result<&dyn Control, String> {
        self.control
            .as_deref()
            .ok_or_else(|| "this switch only answers questions; nothing can be changed through its API".to_owned())
    }
}

/// An answer with the time at which it was made. From two answers a client can compute a rate.
#[derive(Serialize)]
struct Timed<T> {
    time: f64,
    #[serde(flatten)]
    answer: T,
}

/// Returns seconds since the epoch, to the microsecond.
pub(crate) fn since_epoch(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

impl FromStr for Command {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|command| command.as_str() == word);
        known.ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown command {word:?}; commands are {words}")
        })
    }
}

#[cfg(test)]
mod tests;

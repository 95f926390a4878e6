//! What a running switch tells about itself, and how it is asked.
//!
//! The types are the JSON that scripts read: fields are added, never renamed. A client sends one
//! line, `{"cmd":"ports"}`, over a Unix socket and gets one line back, `{"ok":{...}}` or
//! `{"error":"..."}`.
//!
//! [`ApiServer`] answers from a [`Source`], and does what changes the switch through a [`Control`] where it has one.
//! [`request`] and its typed siblings ask, and [`table`] renders the answers for people.
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

use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

pub use client::{Answer, RequestError, ask, request};
pub use server::{ApiError, ApiHandle, ApiServer};
pub use types::{
    Change, ChangeKind, Changed, Changes, DropCount, Drops, Fdb, FdbEntry, Link, Node, Packets, Port, Ports, Queue,
    RingKind, Runtime, RxMode, Status, Worker,
};

/// Where commands look for a switch that they are told nothing about.
pub const DEFAULT_PATH: &str = "/run/straightline/api.sock";

/// Who knows the answers. Asked from the API's thread, so the answers must not take long.
pub trait Source: Send + Sync {
    /// The ports, in the configuration's order.
    fn ports(&self) -> Ports;
    /// Where the workers' time went.
    fn runtime(&self) -> Runtime;
    /// What was dropped, and why.
    fn drops(&self) -> Drops;
    /// The addresses that the bridges know.
    fn fdb(&self) -> Fdb;
    /// The switch as a whole.
    fn status(&self) -> Status;
}

/// Who changes the switch. Called from the API's thread, which answers nobody meanwhile. An error is for the client, and
/// says that nothing is changed.
pub trait Control: Send + Sync {
    /// Reads the configuration again, and goes over to it.
    ///
    /// # Errors
    /// What is wrong with it, or cannot be changed; in lines.
    fn reload(&self) -> Result<Changes, String>;
}

/// Those who answer.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) control: Option<Arc<dyn Control>>,
}

/// What can be asked.
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
}

impl Command {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Status, Self::Ports, Self::Fdb, Self::Runtime, Self::Drops, Self::Reload];

    /// As a request names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Ports => "ports",
            Self::Fdb => "fdb",
            Self::Runtime => "runtime",
            Self::Drops => "drops",
            Self::Reload => "reload",
        }
    }

    /// The answer line to this command, without its newline; or why there is none.
    fn answer(self, desk: &Desk) -> Result<String, String> {
        fn good<T: Serialize>(ok: T) -> Result<String, String> {
            #[derive(Serialize)]
            struct Good<T> {
                ok: T,
            }
            serde_json::to_string(&Good { ok }).map_err(|error| error.to_string())
        }
        let source = &desk.source;
        match self {
            Self::Status => good(source.status()),
            Self::Ports => good(source.ports()),
            Self::Fdb => good(source.fdb()),
            Self::Runtime => good(source.runtime()),
            Self::Drops => good(source.drops()),
            Self::Reload => good(desk.control()?.reload()?),
        }
    }
}

impl Desk {
    fn control(&self) -> Result<&dyn Control, String> {
        self.control
            .as_deref()
            .ok_or_else(|| "this switch only answers; nothing can be changed through its API".to_owned())
    }
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

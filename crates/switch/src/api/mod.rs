//! What a running switch tells about itself, and how it is asked.
//!
//! The types are the JSON that scripts read: fields are added, never renamed. A client sends one
//! line, `{"cmd":"ports"}`, over a Unix socket and gets one line back, `{"ok":{...}}` or
//! `{"error":"..."}`. The API only reads; nothing can be changed through it.
//!
//! [`ApiServer`] answers from a [`Source`], [`request`] and its typed siblings ask, and [`table`]
//! renders the answers for people.
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

use serde::Serialize;

pub use client::{Answer, RequestError, ask, request};
pub use server::{ApiError, ApiHandle, ApiServer};
pub use types::{
    DropCount, Drops, Fdb, FdbEntry, Link, Node, Packets, Port, Ports, Queue, RingKind, Runtime, Status, Worker,
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
}

impl Command {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Status, Self::Ports, Self::Fdb, Self::Runtime, Self::Drops];

    /// As a request names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Ports => "ports",
            Self::Fdb => "fdb",
            Self::Runtime => "runtime",
            Self::Drops => "drops",
        }
    }

    /// The answer line to this command, without its newline.
    fn answer(self, source: &dyn Source) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Good<T> {
            ok: T,
        }
        match self {
            Self::Status => serde_json::to_string(&Good { ok: source.status() }),
            Self::Ports => serde_json::to_string(&Good { ok: source.ports() }),
            Self::Fdb => serde_json::to_string(&Good { ok: source.fdb() }),
            Self::Runtime => serde_json::to_string(&Good { ok: source.runtime() }),
            Self::Drops => serde_json::to_string(&Good { ok: source.drops() }),
        }
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

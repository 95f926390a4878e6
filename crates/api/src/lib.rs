//! The API of a running switch: its types and its client.
//!
//! The types are the JSON that scripts read: fields are added, never renamed. A client sends one
//! line, `{"cmd":"ports"}`, over a Unix socket. It gets one line back, `{"ok":{...}}` or
//! `{"error":"...","code":"..."}`. Each answer has the field `time`: seconds since the epoch, with a
//! fraction. `docs/api.md` describes all of it.
//!
//! [`ask`] and its siblings ask a switch, [`stream`] follows it, and [`table`] renders the answers for
//! people.
//!
//! ```no_run
//! use std::path::Path;
//!
//! let ports: straightline_api::Ports = straightline_api::ask(Path::new(straightline_api::DEFAULT_PATH))?;
//! println!("{}", straightline_api::table::ports(&ports));
//! # Ok::<(), straightline_api::RequestError>(())
//! ```

mod client;
mod commands;
mod layout;
pub mod rates;
mod refusal;
mod request;
mod select;
mod stream;

pub use client::{AddedPort, RequestError, add_port, ask, request, send, send_all, send_long, set_link};
pub use commands::*;
pub use refusal::{ErrorCode, Refusal};
pub use select::{SelectError, distance, nearest_first, select_ports};
pub use stream::{StreamEnd, StreamReader, stream};

/// The path of the API's socket where a command names none.
pub const DEFAULT_PATH: &str = "/run/straightline/api.sock";

/// The version of the API. It grows when a command, a field or a kind of event is added. None of these
/// is ever renamed or removed.
pub const API_VERSION: u32 = 1;

#[cfg(test)]
mod schema;

/// Answers as text for terminals: tables for 100 columns, text for 80.
pub mod table {
    pub use crate::commands::drops::text as drops;
    pub use crate::commands::events::{event, text as events};
    pub use crate::commands::fdb::text as fdb;
    pub use crate::commands::firewall::{explanation_text as explanation, groups_text as groups, sets_text as sets};
    pub use crate::commands::neighbours::text as neighbours;
    pub use crate::commands::networks::{entries_changed, remotes, stations};
    pub use crate::commands::ports::{one_line_each as ports_short, text as ports};
    pub use crate::commands::reload::text as changes;
    pub use crate::commands::runtime::text as runtime;
    pub use crate::commands::status::text as status;
    pub use crate::commands::table::text as rows;
    pub use crate::commands::tables::text as tables;
    pub use crate::commands::trace::traced_packet;
    pub use crate::rates::text as total;
}

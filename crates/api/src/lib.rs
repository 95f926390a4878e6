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
pub mod rates;
mod refusal;
mod request;
mod select;
mod stream;
pub mod table;

pub use client::{AddedPort, RequestError, add_port, ask, request, send, set_link};
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

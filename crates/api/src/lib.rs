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

mod capture;
mod client;
mod commands;
mod event;
mod ping;
pub mod rates;
mod refusal;
mod request;
mod select;
mod stream;
pub mod table;
mod trace;
mod types;

pub use capture::{Capture, CaptureInterface};
pub use client::{AddedPort, RequestError, add_port, ask, request, send, set_link};
pub use commands::{Answer, AnswerText, Command, Request, Right};
pub use event::{Event, EventKind, Events};
pub use ping::{Ping, PingLine};
pub use refusal::{ErrorCode, Refusal};
pub use request::{CaptureRequest, EventsRequest, LinkRequest, PingRequest, PortRequest, TraceRequest};
pub use select::{SelectError, distance, nearest_first, select_ports};
pub use stream::{StreamEnd, StreamReader, stream};
pub use trace::{Trace, TraceAction, TraceLine, TracedDrop, TracedPacket, TracedStep};
pub use types::{
    Addresses, BridgeMoves, Change, ChangeKind, Changed, Changes, ConfigurationFile, Device, Done, DownReason,
    DropCount, Drops, Fdb, FdbEntry, History, Joined, JoinedKind, Link, Neighbour, NeighbourState, Neighbours, Node,
    OwnAddress, Packets, PathMtu, Port, PortHistory, Ports, Privileges, Queue, QueuePairs, RemoteEntry, RingKind,
    Runtime, RxMode, Stalls, Status, Tunnel, Worker,
};

/// The path of the API's socket where a command names none.
pub const DEFAULT_PATH: &str = "/run/straightline/api.sock";

/// The version of the API. It grows when a command, a field or a kind of event is added. None of these
/// is ever renamed or removed.
pub const API_VERSION: u32 = 1;

#[cfg(test)]
mod schema;

//! Captures and traces: packets of a running switch for `straightline capture`, and their ways for
//! `straightline trace`.
//!
//! ```text
//! worker                               API thread             client
//! observer ─▶ filter ─▶ copy ─▶ ring ─▶ records ─▶ socket ─▶ capture file
//! observer ─▶ filter ─▶ steps ─▶ trace ─▶ JSON ─▶ socket ─▶ text
//! ```
//!
//! | module | holds | side |
//! |---|---|---|
//! | `observer` | the copy of a worker's packets into its ring | worker |
//! | `filter` | expressions that select packets | worker, client |
//! | `ring` | the bounded ring between a worker and the API thread | both |
//! | `record` | the bytes that travel to the client | both |
//! | `pcapng` | the writer of capture files | client |
//! | `trace` | the observer that follows packets, and their ways | worker, API thread |
//! | `summary` | a packet in one line | API thread |
//!
//! A capture never delays a packet. A packet that does not fit the ring is delivered as usual, not
//! captured, and counted.
//!
//! This crate does not know the configuration, the API's requests, or ports as control sees them.

#![forbid(unsafe_code)]

mod filter;
mod observer;
pub mod pcapng;
pub mod record;
mod ring;
mod summary;
pub mod trace;

pub use filter::{Filter, FilterError};
pub use observer::{CaptureObserver, Dropped, PortTable, Selection};
pub use ring::{RING_BYTES, Reader};
pub use summary::Summary;

/// The most bytes of a packet that a capture keeps, unless its user asks for fewer. No packet is
/// longer.
pub const SNAPLEN: u32 = 1 << 18;

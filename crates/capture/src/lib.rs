//! Captures: packets of a running switch, copied for `straightline capture`.
//!
//! ```text
//! worker                               API thread             client
//! observer ─▶ filter ─▶ copy ─▶ ring ─▶ records ─▶ socket ─▶ capture file
//! ```
//!
//! | module | holds | side |
//! |---|---|---|
//! | `observer` | the copy of a worker's packets into its ring | worker |
//! | `filter` | expressions that select packets | worker, client |
//! | `ring` | the bounded ring between a worker and the API thread | both |
//! | `record` | the bytes that travel to the client | both |
//! | `pcapng` | the writer of capture files | client |
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

pub use filter::{Filter, FilterError};
pub use observer::{CaptureObserver, Dropped, PortTable, Selection};
pub use ring::{RING_BYTES, Reader};

/// The most bytes of a packet that a capture keeps, unless its user asks for fewer. No packet is
/// longer.
pub const SNAPLEN: u32 = 1 << 18;

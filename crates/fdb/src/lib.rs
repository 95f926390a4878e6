//! The forwarding database: the port behind which each station is.
//!
//! Bridges have one for their ports, and tunnels one for their remotes ([`FdbPort`]). An [`Fdb`] learns addresses from the sources of frames, and forgets those that are not heard for
//! some time. Each port has a share of the table ([`PortShare`]), so no guest fills the table with
//! invented addresses. It knows no packets, no clock and no graph: addresses, ports and times are
//! arguments.
//!
//! ```
//! use straightline_fdb::Fdb;
//! use straightline_packet::PortIndex;
//! use straightline_wire::MacAddr;
//!
//! let (a, b) = (PortIndex(0), PortIndex(1));
//! let fdb = Fdb::new(4096, 300, &[a, b], &[]);
//! let station = MacAddr([2, 0, 0, 0, 0, 1]);
//! fdb.learn(station, a, 0);
//! assert_eq!((fdb.lookup(station, 299), fdb.lookup(station, 300)), (Some(a), None));
//! ```
#![forbid(unsafe_code)]

mod port;
mod shares;
mod table;

pub use port::FdbPort;
pub use shares::PortShare;
pub use table::{Fdb, FdbEntry, FdbMove, LearnOutcome};

//! Connection tracking: the state of each connection of a firewalled port.
//!
//! A [`Table`] has the connections of all firewalled ports, and all workers share it. Each port has a
//! share of it ([`PortShare`]), which no traffic of another port touches. A packet between two ports
//! with groups passes two entries, one of each.
//!
//! The caller parses packets, and asks the policy. For a batch of packets:
//!
//! 1. [`Table::find`] looks up their keys.
//! 2. A found entry that the policy allowed in an earlier generation ([`Entry::is_stale`]) is renewed
//!    or ended, as the policy says now.
//! 3. [`Table::advance`] checks the packet against the connection's state, and changes the state.
//!    [`Table::track`] does steps 1 and 3 at once, for packets whose connection is not stale.
//! 4. A packet without an entry asks the policy. [`Table::open`] makes the entry.
//!
//! The crate knows no packets, no clock, no threads and no policy: keys, times and rules are arguments.
//! Times are milliseconds.
//!
//! ```
//! use straightline_conntrack::{
//!     Direction, Ends, Key, Opened, Opening, PortShare, Secret, Segment, Settings, Side, State, Table, Transport, Verdict,
//! };
//! use straightline_wire::{IpProtocol, tcp::Flags};
//!
//! let table = Table::new(Settings::default(), Secret([1, 2, 3, 4]), &[(7, PortShare::new(1000))]);
//! let ends = Ends { local: [10, 0, 0, 1], remote: [192, 0, 2, 1], local_port: 40_000, remote_port: 443 };
//! let key = Key::v4(7, 0, IpProtocol::TCP, ends);
//! assert_eq!(table.find_one(&key, 0), None);
//!
//! // The policy allows the SYN.
//! let syn = Transport::Tcp(Segment { flags: Flags::SYN.0, seq: 100, window: 64_000, ..Segment::default() });
//! let opening = Opening { direction: Direction::Outbound, opener: 0, is_trusted: false, generation: 1, rule: 3, packet: &syn, pickup: false };
//! let Ok(Opened::New(_)) = table.open(&key, &opening, 0) else { panic!("a new connection") };
//!
//! // The answer needs no rule.
//! let flags = Flags::SYN.with(Flags::ACK).0;
//! let answer = Transport::Tcp(Segment { flags, seq: 500, ack: 101, window: 64_000, ..Segment::default() });
//! let entry = table.find_one(&key, 10).expect("it is known");
//! let Verdict::Pass(passed) = table.advance(entry, Side::Remote, &answer, 10) else { panic!("it is valid") };
//! assert_eq!(passed.state, State::SynRecv);
//! ```
#![forbid(unsafe_code)]

mod buckets;
#[cfg(test)]
mod buckets_tests;
mod connection;
mod entries;
#[cfg(test)]
mod entries_loom;
mod fast;
mod fragments;
mod handle;
mod hash;
mod key;
mod members;
mod port;
mod settings;
mod state;
mod sync;
mod table;
mod tcp;
mod transport;
mod verdict;

pub use fragments::{BadFragment, Fragment};
pub use handle::{Entry, Opened, Opening, Tracked};
pub use hash::Secret;
pub use key::{Direction, Ends, Key, Side};
pub use settings::{PortShare, Settings, Timeouts, Windows};
pub use state::State;
pub use table::{Connection, Counts, Table};
pub use transport::{Segment, Transport};
pub use verdict::{Full, Invalid, Passed, Refusal, Verdict};

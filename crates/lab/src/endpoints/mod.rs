//! The tester's side of a switch under test (RFC 2544's word): ports, and who works on them.
//!
//! | file | holds |
//! |---|---|
//! | `port` | what a port is, and who takes turns on it |
//! | `thread` | several of them on one thread |
//! | `vhost` | a port on a vhost-user socket, ours or anybody's backend |

mod port;
mod thread;
mod vhost;

pub use port::{Endpoint, Received, TestPort};
pub use thread::{Pinned, Work, drive};
#[cfg(test)]
pub(crate) use vhost::tests;
pub(crate) use vhost::{Connection, Look, Memory, Packet, broken, relay, relay_back};
pub use vhost::{Layout, PortCounters, PortOptions, VhostPort};

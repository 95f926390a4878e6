//! A port on a vhost-user socket: the driver half, to any backend.
//!
//! | file | holds |
//! |---|---|
//! | `options` | how a port is made |
//! | `memory` | where rings and buffers lie |
//! | `connection` | the connection to one backend |
//! | `rings` | a receive and a transmit ring of either layout, for bursts |
//! | `packet` | what has come: in one buffer or in several, in memory that the backend still writes to |
//! | `port` | the port itself: frames out and in |
//! | `relay` | packets from one port to another in their buffers |

mod connection;
mod memory;
mod options;
mod packet;
mod port;
mod relay;
mod rings;

pub(crate) use connection::{Connection, broken};
pub(crate) use memory::Memory;
pub use options::{Layout, PortOptions};
pub(crate) use packet::Packet;
#[cfg(test)]
pub(crate) use packet::tests;
pub use port::{PortCounters, VhostPort};
pub(crate) use relay::{Look, relay, relay_back};

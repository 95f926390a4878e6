//! A port on a vhost-user socket: the driver half, for any backend.
//!
//! | file | holds |
//! |---|---|
//! | `options` | options of a port |
//! | `memory` | memory for rings and buffers |
//! | `connection` | the connection to one backend |
//! | `rings` | a receive and a transmit ring of either layout, for bursts |
//! | `packet` | a received packet: in one buffer or in several, in memory that the backend still writes to |
//! | `outbox` | the transmit ring with its buffers, and the frames that wait in it to be published |
//! | `shelves` | free transmit buffers, by their contents |
//! | `port` | the port itself: sends and receives frames |
//! | `relay` | moves packets from one port to another in their buffers |

mod connection;
mod memory;
mod options;
mod outbox;
mod packet;
mod port;
mod relay;
mod rings;
mod shelves;

pub use connection::{Connection, broken};
pub use memory::Memory;
pub use options::{Layout, PortOptions};
pub use packet::Packet;
pub use port::{PortCounters, VhostPort};
pub use relay::{Look, relay, relay_back};

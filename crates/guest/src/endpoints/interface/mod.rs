//! A generator's port on a network interface of this machine.
//!
//! The port is the switch's own port of that kind. The caller's thread serves it, in place of a
//! worker.
//!
//! | file | holds |
//! |---|---|
//! | `name` | an interface and the kind of port that opens it, as text |
//! | `peer` | the other end of a veth interface |
//! | `port` | the port: opens the interface, and tells its state |
//! | `turns` | the turns that send and receive frames on a port of the switch |
//! | `packet` | a received packet |

mod name;
mod packet;
mod peer;
mod port;
mod turns;

pub use name::{Interface, InterfaceKind};
pub use port::InterfacePort;
pub use port::wait_for_links;

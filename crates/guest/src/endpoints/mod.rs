//! Endpoints: the ports through which guests and generators send and receive, and the event loop
//! that runs them. The switch between them is RFC 2544's device under test.
//!
//! | file | holds |
//! |---|---|
//! | `port` | the traits of a port and of an endpoint that takes turns on ports |
//! | `event_loop` | the event loop, which gives endpoints their turns on one thread |
//! | `vhost` | a port on a vhost-user socket of any backend |
//! | `interface` | a port on a network interface of this machine |
//! | `any_port` | a port of the generator, on a socket or on an interface |

mod any_port;
mod event_loop;
mod interface;
mod port;
mod vhost;

pub use any_port::AnyPort;
pub use event_loop::{EventLoop, LoopEnd, NoCpu, Pinned, Round, Work};
pub use interface::wait_for_links;
pub use interface::{Interface, InterfaceKind, InterfacePort};
pub use port::{Endpoint, Received, Receiver, TestPort};
pub use vhost::{Connection, Look, Memory, Packet, broken, relay, relay_back};
pub use vhost::{Layout, PortCounters, PortOptions, VhostPort};

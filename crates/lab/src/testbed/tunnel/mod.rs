//! Tunnels in the laboratory: their kinds, and a switch with a tunnel between two guests.
//!
//! ```text
//! A ─ a ─ patch ─ t1 ─ underlay left ─ nic0 ─ wire ─ nic1 ─ underlay right ─ t2 ─ patch ─ b ─ B
//! ```
//!
//! All ports are vhost-user ports of one switch, and the wire is an embedded guest as well. So this
//! needs no privileges. Without a tunnel, the patches join `a` with `nic0`, and `nic1` with `b`.
//! The wire takes no offloads, so the switch finishes and segments packets at `nic0` and `nic1` in
//! either case.

mod encapsulation;
mod testbed;

pub use encapsulation::Encapsulation;
pub(crate) use testbed::{Sockets, Testbed};

//! Underlays and tunnels: packets of the switch inside packets of another network.
//!
//! An *underlay* is a port with addresses of its own. A *tunnel* is a port whose packets travel
//! inside packets of its underlay.
//!
//! ```text
//!  out:  patch or bridge ─▶ Encap of t1 ─┐
//!        patch or bridge ─▶ Encap of t2 ─┼─▶ UnderlayOutput: prepends, delivers, restores ─▶ port
//!                                Agent ──┘
//!  in:   port ─▶ Decap ─┬─▶ patch or bridge of t1
//!                       ├─▶ patch or bridge of t2
//!                       └─▶ UnderlayOutput (ARP, neighbour discovery and echo, answered in place)
//! ```
//!
//! | folder | holds |
//! |---|---|
//! | `config` | the settings of underlays and tunnels |
//! | `underlay/` | an underlay: its addresses, its next hops, its own packets, and what all its tunnels share |
//! | `tunnel/` | a tunnel: its counters, its remotes, its port; the table that finds it |
//! | `kind/` | the kinds of tunnel: each with its header, its key, its writer and its parser |
//! | `headers/` | the headers of a tunnel; the facts of inner packets that they depend on |
//! | `encap/` | the way out: gather, prepend, deliver, restore; errors to senders whose packets do not fit |
//! | `decap/` | the way in: outer headers, the tunnel, the outer checksum |
//! | `answer/` | answers to packets for the underlay itself |
#![forbid(unsafe_code)]

mod answer;
mod config;
mod decap;
mod encap;
mod headers;
mod kind;
#[cfg(test)]
mod testing;
mod tunnel;
mod underlay;

pub use answer::echo::{Echo, EchoState};
pub use config::{Address, Network, PathMtuErrors, TunnelConfig, UnderlayConfig};
pub use decap::Decap;
pub use encap::output::UnderlayOutput;
pub use encap::{Encap, Gather};
pub use kind::{Cookie, L2tpOver, TunnelKind};
pub use tunnel::lookup::Tunnels;
pub use tunnel::open::{RemoteError, RemoteSpace};
pub use tunnel::port::TunnelPort;
pub use tunnel::remotes::{RemoteMove, RemoteStation};
pub use tunnel::{Tunnel, TunnelStatus};
pub use underlay::Underlay;
pub use underlay::agent::{Agent, OwnPackets};
pub use underlay::conflicts::{AddressConflict, AddressStatus};
pub use underlay::neighbours::{NeighbourState, NeighbourStatus};
pub use underlay::pings::PingError;

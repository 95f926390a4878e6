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
//! | module | holds |
//! |---|---|
//! | `config` | the settings of underlays and tunnels |
//! | `underlay` | an underlay: its addresses and what all its tunnels share |
//! | `neighbours` | the MAC addresses of next hops |
//! | `conflicts` | other stations that have our addresses; announcements of them |
//! | `path_mtu` | the MTU of the way from a tunnel to a remote |
//! | `answer` | answers to packets for the underlay itself |
//! | `agent`, `outbox` | the port by which packets of the underlay's own enter the graph; those that wait for it |
//! | `echo`, `pings` | echo requests of the underlay's own, and the replies to them |
//! | `messages` | these packets |
//! | `too_big` | errors to senders whose packets do not fit a tunnel |
//! | `rate_limit` | the limits of answers and errors in a second |
//! | `tunnel` | a tunnel: its headers, its counters, its remotes |
//! | `headers`, `inner` | the headers of a tunnel; the facts of inner packets that they depend on |
//! | `encap`, `output` | the way out |
//! | `inside` | questions for MAC addresses from the inside of a tunnel that carries IP |
//! | `decap`, `carrier`, `tunnel_header`, `lookup`, `found`, `template` | the way in |
//! | `verify` | the outer checksum of received packets |
//! | `remotes` | the remote behind which each station is |
//! | `face` | the Ethernet face of a tunnel that carries IP |
//! | `port` | the control side of a tunnel port |
#![forbid(unsafe_code)]

mod agent;
mod answer;
mod carrier;
mod config;
mod conflicts;
mod decap;
mod echo;
mod encap;
mod face;
mod found;
mod headers;
mod inner;
mod inside;
mod lookup;
mod messages;
mod neighbours;
mod outbox;
mod output;
mod path_mtu;
mod pings;
mod port;
mod rate_limit;
#[cfg(test)]
mod reference;
mod remotes;
mod template;
#[cfg(test)]
mod testing;
mod too_big;
mod tunnel;
mod tunnel_header;
mod underlay;
mod verify;

pub use agent::{Agent, OwnPackets};
pub use config::{Address, Cookie, L2tpOver, PathMtuErrors, TunnelConfig, TunnelKind, UnderlayConfig};
pub use conflicts::{AddressConflict, AddressStatus};
pub use decap::Decap;
pub use echo::{Echo, EchoState};
pub use encap::{Encap, Gather};
pub use lookup::Tunnels;
pub use neighbours::{NeighbourState, NeighbourStatus};
pub use output::UnderlayOutput;
pub use pings::PingError;
pub use port::TunnelPort;
pub use remotes::{RemoteMove, RemoteStation};
pub use tunnel::{Tunnel, TunnelStatus};
pub use underlay::Underlay;

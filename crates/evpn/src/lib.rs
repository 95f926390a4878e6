//! EVPN for a Straightline switch: a process between the switch's API and GoBGP's, which joins bridges
//! of many hosts (RFC 7432, RFC 8365). It is no BGP daemon, and it forwards no packet: GoBGP speaks
//! BGP, and the switch's tunnels carry the packets.
//!
//! | module | content |
//! |---|---|
//! | [`route`](Route) | routes of types 2 and 3, distinguishers, targets |
//! | `encode` | these routes as bytes of BGP |
//! | [`gobgp`] | GoBGP's API in both versions: gRPC, messages, the paths that it tells |
//! | [`machine`] | the decisions: a state machine without I/O or clock |
//! | [`config`] | the configuration file, and one for gobgpd |
//! | [`process`] | tasks and threads around the machine; answers to `straightline evpn status` |
//!
//! ```no_run
//! use std::path::Path;
//!
//! use straightline_evpn::{config::Config, process};
//!
//! let config = Config::load(Path::new("evpn.toml"))?;
//! process::run(config, || println!("ready"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Ownership of the sequence number
//!
//! The machine owns it. GoBGP has a will of its own, so `tests/gobgp` asks real daemons of versions
//! 3.10 and 4.8. They agree in all but one point:
//!
//! - **A path with a sequence number** is taken if no other path of that station in the table has a
//!   higher one, and no *remote* one an equal one. Otherwise GoBGP refuses the call. Version 3 looks at
//!   all networks; version 4 at those with a common route target. So a number may be refused that is
//!   right: [`machine::Machine::refused`] then raises it.
//! - **A path without the community** is always taken. GoBGP adds the community with a number
//!   of its own: our path's number, or one more than the best remote path's number. The machine
//!   sends none only for the number 0, when it knows of no other path.
//! - **A better remote route** neither withdraws nor hides our path, if its Ethernet segment has ten
//!   bytes of zero as on the wire. (GoBGP withdraws it if the segments differ. A path that is sent
//!   without a segment's bytes has an empty one, which differs.) So the machine withdraws it.
//! - **Equal keys** replace each other only if they come from one source. Two hosts have different
//!   distinguishers, so both paths stay in the table, and the machine chooses. A host with our
//!   distinguisher is refused (`own-distinguisher`).
//! - **The end of a session** withdraws its routes at once. With graceful restart neighbours keep them,
//!   but GoBGP 3.10 itself ends with a fault when a neighbour restarts so; 3.11 has this mended.
//!
//! # Trust
//!
//! The switch and GoBGP are trusted; guests and routes are not. A guest makes routes no faster than its
//! port's limits, and only of addresses that the switch vouches for. A route is checked before it is
//! kept, all of them have a limit, and each refusal has a reason and a count
//! ([`machine::Refusal`]).

pub mod config;
mod encode;
pub mod gobgp;
pub mod machine;
pub mod process;
mod route;

pub use route::{
    Distinguisher, INGRESS_REPLICATION, MAX_VNI, Mobility, ParseValueError, Pmsi, Route, RouteKey, Target, VXLAN,
};

/// The default socket on which the process answers questions.
pub const DEFAULT_SOCKET: &str = "/run/straightline-evpn/status.sock";

//! EVPN for a Straightline switch.

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

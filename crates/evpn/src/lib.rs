//! EVPN for a Straightline switch.

mod encode;
pub mod gobgp;
pub mod machine;
mod route;

pub use route::{
    Distinguisher, INGRESS_REPLICATION, MAX_VNI, Mobility, ParseValueError, Pmsi, Route, RouteKey, Target, VXLAN,
};

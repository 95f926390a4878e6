//! The nodes: one a file, each a step on a packet's way.
//!
//! They see heads, never bodies; they ask no clock and allocate nothing for a packet.
//!
//! ```
//! use straightline_graph::Graph;
//! use straightline_nodes::Patch;
//! use straightline_packet::PortIndex;
//! use straightline_port::Null;
//! use std::sync::Arc;
//!
//! let mut graph = Graph::new();
//! let (a, b) = (Arc::new(Null::new("a")), Arc::new(Null::new("b")));
//! let (to_a, to_b) = (graph.output(a, false), graph.output(b, false));
//! graph.node("patch.x", Box::new(Patch::new(PortIndex(0))), &[to_a, to_b]);
//! ```
#![forbid(unsafe_code)]

mod bridge;
mod fdb;
mod mirror;
mod patch;
mod prefix;
mod shares;
mod sink;
mod source_check;

pub use bridge::Bridge;
pub use fdb::{Fdb, FdbEntry};
pub use mirror::Mirror;
pub use patch::Patch;
pub use prefix::{IpPrefix, MacPrefix};
pub use shares::PortShare;
pub use sink::Sink;
pub use source_check::SourceCheck;

//! The vector graph: packets go through nodes in batches, once a turn, in one direction.
//!
//! A turn of a [`Worker`]: take packets from each input, run the nodes that have packets, in their order, end the turn
//! (everything borrowed is given back, then guests are notified). Each step is timed; what is not explained shows.
//!
//! It does not know protocols, port kinds, or the configuration.
//!
//! ```
//! use std::sync::Arc;
//! use straightline_graph::{Graph, Next, Node};
//! use straightline_packet::{Batch, Packets};
//! use straightline_port::Null;
//!
//! /// Sends everything along its first edge.
//! struct Pass;
//! impl Node for Pass {
//!     fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
//!         for &id in batch.ids() {
//!             next.push(0, id);
//!         }
//!     }
//! }
//!
//! let mut graph = Graph::new();
//! let end = graph.output(Arc::new(Null::new("end")), false);
//! let pass = graph.node("pass", Box::new(Pass), &[end]);
//! graph.input(Arc::new(Null::new("start")), pass);
//! assert_eq!(graph.stats().len(), 4, "an input, a node, an output and the turn's end");
//! ```

pub mod clock;
mod graph;
mod mailbox;
mod node;
mod stats;
mod watchdog;
mod worker;

pub use graph::{Graph, NodeIndex};
pub use mailbox::{Mailbox, Work};
pub use node::{Next, Node};
pub use stats::{NodeStats, WorkerStats};
pub use watchdog::{Progress, Stall, Watchdog};
pub use worker::{Idle, Worker};

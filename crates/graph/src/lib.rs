//! The packet graph: batches of packets go from ports through nodes to ports, in one direction.
//!
//! Each turn of a [`Worker`] has these steps:
//!
//! 1. Each input port receives packets.
//! 2. Each node that has packets runs once, in the order of the graph.
//! 3. Packets that cost much are charged to their inputs; those that are too many stay in their rings.
//! 4. Each output that has packets runs once.
//! 5. The turn ends: source queues get their buffers back, and guests are notified.
//!
//! Each step is measured in cycles of the time-stamp counter. Time that no measurement covers is
//! reported as unexplained.
//!
//! This crate does not know protocols, port kinds or the configuration.
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

mod graph;
mod mailbox;
mod node;
mod shares;
mod stats;
mod watchdog;
mod worker;

pub use straightline_port::clock;

pub use graph::{Graph, NodeIndex};
pub use mailbox::{Mailbox, Observation, Work};
pub use node::{Next, Node};
pub use stats::{NodeStats, WorkerStats};
pub use watchdog::{Progress, Stall, Watchdog};
pub use worker::{Idle, Worker};

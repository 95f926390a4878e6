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
//! A [`Port`] is what a worker sees of a port, a [`PortControl`] what all other code sees of it. The
//! kinds of ports are crates above this one. This crate does not know protocols, port kinds or the
//! configuration.
//!
//! ```
//! use std::sync::Arc;
//! use straightline_graph::{Graph, Next, Node, Null};
//! use straightline_packet::{Batch, Packets};
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
mod control;
mod epoll_waiter;
mod expedited;
mod graph;
mod mailbox;
mod police;
mod port;
mod rate;
mod rate_limit;
mod shares;
mod signal;
mod stats;
mod watchdog;
mod worker;

pub use clock::Clock;
pub use control::{NodeControl, RefusalNotes, Rows, TableEvent, TableView, Told, Unprepared};
pub use epoll_waiter::{EpollWaiter, Token, Watch, is_eventfd};
pub use graph::{Departs, Form, Graph, Next, Node, NodeIndex};
pub use mailbox::{Mailbox, Observation, Work};
pub use police::Police;
pub use port::{
    Counter, DeviceFacts, DeviceStatus, Down, DownCause, LinkEvent, LinkHistory, LinkNote, LinkState, LinkStatus,
    ListenError, Null, OWN_MODE, Peer, Permissions, Port, PortControl, QueueAssignment, QueueCounters, RingCounters,
    RingStatus, RxFilter, Waiters, newest_link_note, peer, stop_all, wait_for_ends,
};
pub use rate::{Cost, Limit, Meter, Policer, RateBucket, RateLimits, RateOwner, RateStats, RateTable, TokenBucket};
pub use rate_limit::{RateLimit, SharedLimit};
pub use signal::{Signals, signal};
pub use stats::{NodeStats, WorkerStats};
pub use watchdog::{Progress, Stall, Watchdog};
pub use worker::{Idle, Worker};

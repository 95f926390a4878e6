//! Ports: where packets enter and leave the switch.
//!
//! A port takes packets into a turn and delivers a batch of them; how is its own matter. It does not know the
//! configuration, the graph, or other ports.
//!
//! ```
//! use straightline_packet::{Arena, Batch, Rcu, Settings};
//! use straightline_port::{Null, Port};
//!
//! let rcu = Rcu::new();
//! let mut arena = Arena::new(rcu.reader(), Settings::default(), Vec::new());
//! let nowhere = Null::new("nowhere");
//! arena.turn(|turn| {
//!     let mut batch = Batch::new();
//!     nowhere.receive(turn, &mut batch, 32);
//!     assert!(batch.is_empty());
//! });
//! ```

mod call_helper;
mod control;
mod counters;
mod epoll_waiter;
mod kick_routing;
mod link_history;
mod link_status;
mod listener;
mod notifier;
mod null;
mod peer;
mod queue_assignment;
mod signal;
pub mod socket_file;
pub mod socket_path;
pub mod vhost_user;

use std::fmt;

use straightline_packet::{Batch, PortIndex, Turn};

pub use control::{PortControl, stop_all, wait_for_ends};
pub use counters::{Counter, QueueCounters, RingCounters};
pub use epoll_waiter::{EpollWaiter, Token};
pub use link_history::LinkHistory;
pub use link_status::{LinkStatus, RingStatus};
pub use listener::{ListenError, Listener, Permissions};
pub use null::Null;
pub use peer::Peer;
pub use queue_assignment::{QueueAssignment, Waiters};
pub use signal::Signals;

/// What a worker does with a port. All of it happens within turns, on the worker's thread.
pub trait Port: Send + Sync + fmt::Debug {
    /// The name from the configuration.
    fn name(&self) -> &str;

    /// Its place in tables of ports, if it has one.
    fn index(&self) -> Option<PortIndex> {
        None
    }

    /// Takes at most `max` packets into the turn and adds them to `into`.
    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize);

    /// Delivers the batch's packets, or drops them with a reason. What a full destination leaves over is either
    /// dropped or left in its source's ring (`wait`).
    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool);

    /// Asks to be woken (through the worker's [`EpollWaiter`]) when there is something to receive, or, where `room` says
    /// so, when there is room again. `true` if there is something already, other than what was left for want of room in
    /// this [round](Turn::round).
    fn arm(&self, turn: &Turn<'_>, room: bool) -> bool;

    /// Takes the wish back: the worker polls again.
    fn disarm(&self, turn: &Turn<'_>, room: bool);
}

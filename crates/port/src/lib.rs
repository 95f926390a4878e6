//! Ports: where packets enter and leave the switch.
//!
//! A port has two sides. The data side is a [`Port`]: a worker takes packets from it into a turn
//! and delivers batches to it. The control side is a [`PortControl`]: any thread opens, changes,
//! queries and stops the port through it.
//!
//! A port does not know the configuration, the graph, or other ports.
//!
//! | module | holds |
//! |---|---|
//! | `vhost_user` | the port whose peer is a guest's network device |
//! | `device` | ports whose peer is a network interface of this machine |
//! | `null` | a port for tests and measurements |
//! | `control` | the control side of ports of any kind |
//! | `queue_assignment`, `kick_routing` | which worker serves which queue, and which kick wakes it |
//! | `link_status`, `link_history`, `counters`, `peer` | what operators see |
//! | `listener`, `socket_file`, `socket_path` | listening sockets and their files |
//! | `epoll_waiter` | the wait of a worker that finds nothing to do |
//! | `notifier`, `signal`, `call_helper` | notifications that never hold a worker up |
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

mod af_packet;
mod af_xdp;
mod backoff;
mod call_helper;
mod control;
mod counters;
pub mod device;
mod epoll_waiter;
mod frames;
mod kick_routing;
mod link_history;
mod link_status;
mod listener;
mod notifier;
mod null;
mod peer;
mod pool;
mod queue_assignment;
mod signal;
pub mod socket_file;
pub mod socket_path;
mod tap;
mod vectored;
pub mod vhost_user;
mod vnet;

use std::fmt;

use straightline_packet::{Batch, PortIndex, Turn};

pub use control::{PortControl, stop_all, wait_for_ends};
pub use counters::{Counter, QueueCounters, RingCounters};
pub use epoll_waiter::{EpollWaiter, Token};
pub use link_history::LinkHistory;
pub use link_status::{DeviceStatus, LinkStatus, RingStatus};
pub use listener::{ListenError, Listener, Permissions};
pub use null::Null;
pub use peer::Peer;
pub use queue_assignment::{QueueAssignment, Waiters};
pub use signal::Signals;

/// The data side of a port: what a worker does with it. All of it happens within turns, on the
/// worker's thread.
pub trait Port: Send + Sync + fmt::Debug {
    /// Returns the name from the configuration.
    fn name(&self) -> &str;

    /// Returns its index in tables of ports, if it has one.
    fn index(&self) -> Option<PortIndex> {
        None
    }

    /// Takes at most `max` packets into the turn and adds them to `into`.
    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize);

    /// Delivers the batch's packets, or drops each with a reason. With `wait`, packets for which
    /// the destination has too few free buffers stay in their source's ring. Otherwise they are
    /// dropped.
    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool);

    /// Asks to be woken (through the worker's [`EpollWaiter`]) when there is something to receive,
    /// or, with `for_buffers`, when there are free buffers again. Returns true if there is
    /// something already. Packets that were left in this [round](Turn::round) because their
    /// destination is full do not count.
    fn arm(&self, turn: &Turn<'_>, for_buffers: bool) -> bool;

    /// Stops asking to be woken: the worker polls again.
    fn disarm(&self, turn: &Turn<'_>, for_buffers: bool);
}

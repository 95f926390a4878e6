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
//! | `descriptor_share` | the descriptors that peers may have the process keep |
//! | `epoll_waiter` | the wait of a worker that finds nothing to do |
//! | `notifier`, `signal`, `call_helper`, `call_cost` | notifications that never hold a worker up |
//! | `clock` | the time-stamp counter |
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
mod call_cost;
mod call_helper;
pub mod clock;
mod closing;
mod control;
mod counters;
mod descriptor_share;
pub mod device;
mod down_cause;
mod epoll_waiter;
mod frames;
mod helper_channel;
mod kick_routing;
mod link_history;
mod link_status;
mod listener;
mod log_limit;
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

use straightline_packet::{Batch, PacketId, PortIndex, Turn};

pub use closing::ClosedApart;
pub use control::{PortControl, stop_all, wait_for_ends};
pub use counters::{Counter, QueueCounters, RingCounters};
pub use descriptor_share::{descriptors_free, descriptors_taken, set_descriptor_limit};
pub use down_cause::{Down, DownCause};
pub use epoll_waiter::{EpollWaiter, Token};
pub use helper_channel::{HelperError, HelperProcess, HelperSandbox};
pub use link_history::{LinkEvent, LinkHistory, LinkNote, newest_link_note};
pub use link_status::{DeviceStatus, LinkState, LinkStatus, RingStatus};
pub use listener::{ListenError, Listener, Permissions, raised};
pub use null::Null;
pub use peer::{Peer, peer};
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

    /// Returns the MAC address of the port's interface, if the switch is to send by it and it is
    /// known. A guest's address is the guest's own, and so is that of a tap the host's.
    fn mac(&self, _turn: &Turn<'_>) -> Option<[u8; 6]> {
        None
    }

    /// Returns the bytes of the longest IP packet that the port's interface takes, if it is known and
    /// may be less than the configured MTU.
    fn mtu(&self, _turn: &Turn<'_>) -> Option<u16> {
        None
    }

    /// Returns whether checksums inside received packets may be unfinished, although nothing says
    /// so. The port itself has looked at the outermost TCP or UDP header.
    fn leaves_unfinished(&self, _turn: &Turn<'_>) -> bool {
        false
    }

    /// Returns whether packets that were received can be left in the port's rings
    /// ([`Turn::leave_tail`]).
    fn takes_back(&self) -> bool {
        false
    }

    /// Takes at most `max` packets into the turn and adds them to `into`.
    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize);

    /// Delivers the batch's packets, or drops each with a reason. With `wait`, packets for which
    /// the destination has too few free buffers stay in their source's ring. Otherwise they are
    /// dropped.
    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool);

    /// Returns whether the port sends by system calls, so that the graph charges packets for it by
    /// what a send costs.
    fn makes_calls(&self) -> bool {
        false
    }

    /// Returns the number of sends that a packet takes, for a port that makes calls: 1, or its GSO
    /// segments if the port segments it.
    fn sends(&self, _turn: &Turn<'_>, _id: PacketId) -> u32 {
        1
    }

    /// Returns the number of packets that [`Self::deliver`] of this batch delivers. It may be larger
    /// than the batch: an output of several tunnels delivers a packet once for each.
    fn deliveries(&self, batch: &Batch) -> usize {
        batch.len()
    }

    /// Calls `each` for each packet that [`Self::deliver`] of this batch delivers.
    fn for_each_delivery(&self, batch: &Batch, each: &mut dyn FnMut(PacketId)) {
        batch.ids().iter().for_each(|&id| each(id));
    }

    /// Forgets the packets that are left in their ring ([`Turn::is_left`]), if the port has a list
    /// of packets beside the batch that [`Self::deliver`] gets.
    fn withdraw_left(&self, _turn: &Turn<'_>) {}

    /// Returns whether [`Self::deliver`] itself tells observers of the turn which packets it delivers
    /// ([`Turn::observe_delivery`]). Otherwise the graph does it.
    fn observes_deliveries(&self) -> bool {
        false
    }

    /// Sends packets that were delivered and have not left the switch yet, if there are any. Returns
    /// true if some must wait longer: the worker does not sleep then.
    fn send_waiting(&self, _turn: &Turn<'_>) -> bool {
        false
    }

    /// Asks to be woken (through the worker's [`EpollWaiter`]) when there is something to receive,
    /// or, with `for_buffers`, when there are free buffers again. Returns true if there is
    /// something already. Packets that were left in this [round](Turn::round) because their
    /// destination is full do not count.
    fn arm(&self, turn: &Turn<'_>, for_buffers: bool) -> bool;

    /// Stops asking to be woken: the worker polls again.
    fn disarm(&self, turn: &Turn<'_>, for_buffers: bool);
}

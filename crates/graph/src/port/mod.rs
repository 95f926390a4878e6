//! Ports, as workers and control see them.
//!
//! A port has two sides. The data side is a [`Port`]: a worker takes packets from it into a turn
//! and delivers batches to it. The control side is a [`PortControl`]: any thread changes, queries
//! and stops the port through it. Each kind of port implements both.

mod control;
mod counters;
mod down_cause;
mod link_history;
mod link_status;
mod listen;
mod null;
mod peer;
mod queue_assignment;

use std::fmt;

use straightline_packet::{Batch, PacketId, PortIndex, Turn};

pub use control::{PortControl, stop_all, wait_for_ends};
pub use counters::{Counter, QueueCounters, RingCounters};
pub use down_cause::{Down, DownCause};
pub use link_history::{LinkEvent, LinkHistory, LinkNote, newest_link_note};
pub use link_status::{DeviceFacts, DeviceStatus, LinkState, LinkStatus, RingStatus, RxFilter};
pub use listen::{ListenError, OWN_MODE, Permissions};
pub use null::Null;
pub use peer::{Peer, peer};
pub use queue_assignment::{QueueAssignment, Waiters};

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
    /// known. A vhost-user port and a tap have none: their addresses belong to the guest and the host.
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

    /// Returns whether the port drops all that it receives, because its link is set down. Its `rate-in`
    /// does not hold then.
    fn drains(&self) -> bool {
        false
    }

    /// Takes at most `max` packets into the turn and adds them to `into`.
    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize);

    /// Delivers the batch's packets, or drops each with a reason. With `wait`, packets for which
    /// the destination has too few free buffers stay in their source's ring. Otherwise they are
    /// dropped.
    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool);

    /// Delivers the batch's packets as [`Self::deliver`] does without `wait`, but leaves some of the
    /// port's free buffers to packets that are delivered before others
    /// ([`Graph::expedite`](crate::Graph::expedite)). A port that does not know its free buffers uses all.
    fn deliver_sparing(&self, turn: &mut Turn<'_>, batch: &Batch) {
        self.deliver(turn, batch, false);
    }

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

    /// Asks to be woken (through the worker's [`EpollWaiter`](crate::EpollWaiter)) when there is something to receive,
    /// or, with `for_buffers`, when there are free buffers again. Returns true if there is
    /// something already. Packets that were left in this [round](Turn::round) because their
    /// destination is full do not count.
    fn arm(&self, turn: &Turn<'_>, for_buffers: bool) -> bool;

    /// Stops asking to be woken: the worker polls again.
    fn disarm(&self, turn: &Turn<'_>, for_buffers: bool);
}

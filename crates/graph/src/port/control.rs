//! The control side of ports: how the switch opens, changes, queries and stops a port of any kind.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use straightline_packet::Drops;

use crate::{Clock, LinkHistory, LinkStatus, ListenError, Permissions, Port, QueueAssignment, QueueCounters, Waiters};

/// Time that all ports together may take to stop. A port's thread ends at once, or when a transfer
/// of device state has failed (5 s). Closing a descriptor can take for ever: the descriptor of a
/// pipe whose lock its frontend keeps, or of a file that the frontend serves.
const END_TIME: Duration = Duration::from_secs(6);

/// The control side of a port of any kind. Any thread may call it.
///
/// A port has two sides. Workers see a [`Port`], which [`Self::for_worker`] returns. All other code
/// sees this trait. Each kind of port has a type of its own that opens it; after that the switch
/// knows it by this trait alone.
pub trait PortControl: Send + Sync + fmt::Debug {
    /// Returns the name from the configuration.
    fn name(&self) -> &str;

    /// Returns the port as this worker serves it, by the present queue assignment.
    fn for_worker(&self, worker: usize) -> Arc<dyn Port>;

    /// Sets which worker serves which queue. A [`Port`] that [`Self::for_worker`] returned before
    /// must not be used any more. The port's thread gives the receive rings to their workers soon,
    /// not at once. Until then workers may wait for one another's rings.
    ///
    /// # Panics
    /// If no worker delivers to the port.
    fn assign_queues(&self, assignment: QueueAssignment);

    /// Routes kicks to these workers from now on. `waits` says whether workers also want to wake
    /// when there are free buffers again (`full = "wait"`). A worker that still polls the port may
    /// miss a kick until it is woken.
    ///
    /// # Errors
    /// The system's error. The routing stays as it was.
    fn route_kicks(&self, waiters: Waiters, waits: bool) -> io::Result<()>;

    /// Sets whether packets for a full destination stay in this port's rings (`full = "wait"`). No
    /// worker may use the port during the call.
    fn set_waits(&self, waits: bool);

    /// Sets the link up or down for an administrator. While the port is down, packets from it and
    /// for it are dropped. The port tells its peer if its kind can do that. Workers see the change
    /// from now on; a packet that one of them holds may still pass.
    fn set_link(&self, up: bool);

    /// Returns whether an administrator has set the link down.
    fn is_set_down(&self) -> bool;

    /// Sets who may connect from now on.
    ///
    /// # Errors
    /// The step that failed.
    fn set_permissions(&self, permissions: &Permissions) -> Result<(), ListenError>;

    /// Returns the link's status. Facts that a kind of port does not have are left at their
    /// defaults.
    fn status(&self) -> LinkStatus;

    /// Returns when the link changed, and why it was down.
    fn history(&self) -> LinkHistory;

    /// Returns the counters of the queue pairs that operators see.
    fn counters(&self) -> Vec<Arc<QueueCounters>>;

    /// Returns the drop counters: packets from the port, and packets for it, by reason.
    fn drops(&self) -> &Arc<Drops>;

    /// Frees resources that only one port can have, such as a socket's path, and closes
    /// connections, until [`Self::resume`]. Does not wait for the port's thread, which a peer may
    /// hold.
    fn pause(&self);

    /// Serves peers again after [`Self::pause`]. If the port cannot listen, it tries again every
    /// second, and [`Self::status`] says why. If the port is trying already, the call makes one
    /// more attempt.
    ///
    /// # Errors
    /// The reason why the port cannot listen now.
    fn resume(&self) -> Result<(), ListenError>;

    /// Returns why the port cannot listen, or `None` if it can.
    fn listen_failure(&self) -> Option<String>;

    /// Begins to stop and does not wait: the port frees its path, closes its connections, and its
    /// thread ends soon.
    fn begin_stop(&self);

    /// Returns whether the port's thread has ended.
    fn has_ended(&self) -> bool;

    /// Ends a wait of the port's thread that [`Self::begin_stop`] alone cannot end. Takes until 100
    /// ms after `began` at most.
    fn end_wait(&self, began: Instant);

    /// Joins the port's thread if it has ended. Returns `false` if it has not: the thread is left
    /// behind.
    fn join(&self) -> bool;
}

/// Stops ports: begins to stop all of them, then waits for all of them together, at most 6 s.
/// Returns the names of ports whose thread is left behind because a peer holds it.
pub fn stop_all<'a>(ports: impl IntoIterator<Item = &'a dyn PortControl>, clock: &Clock) -> Vec<String> {
    let ports: Vec<_> = ports.into_iter().collect();
    ports.iter().for_each(|port| port.begin_stop());
    wait_for_ends(&ports, END_TIME, clock);
    let left = ports.into_iter().filter(|port| !port.join());
    left.map(|port| {
        // No graph uses the port's link any more, or the last graph will stop soon.
        let name = port.name();
        tracing::error!(
            port = name,
            "a descriptor that its frontend sent blocks its thread; the thread is left behind"
        );
        name.to_owned()
    })
    .collect()
}

/// Waits until the threads of ports that have begun to stop have ended, for all of them together at
/// most for `limit`. A thread that waits for a connection on a socket that was handed over is
/// freed, which takes 100 ms at most.
pub fn wait_for_ends(ports: &[&dyn PortControl], limit: Duration, clock: &Clock) {
    let began = clock.now();
    for port in ports.iter().filter(|port| !port.has_ended()) {
        port.end_wait(began);
        clock.is_within(limit.saturating_sub(clock.since(began)), || port.has_ended());
    }
}

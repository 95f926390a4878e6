//! The state that the port's own thread and its users share.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use straightline_packet::Rcu;

use super::log_limit::LogLimit;
use crate::kick_routing::KickRouting;
use crate::link_status::LinkState;
use crate::vhost_user::VhostUserConfig;
use crate::vhost_user::data::port_data::PortData;
use crate::vhost_user::inbox::PortInbox;
use crate::{EpollWaiter, QueueAssignment};

/// The state that the port's own thread and its users share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: VhostUserConfig,
    /// The part that workers read.
    pub(crate) data: Arc<PortData>,
    /// Queue pairs that operators see: those that the guest is told of, and all that a frontend has
    /// ever started.
    pub(crate) pairs_shown: AtomicU16,
    pub(crate) rcu: Rcu,
    /// The thread of the last transfer of device state.
    pub(crate) transfer_thread: Mutex<Option<JoinHandle<()>>>,
    /// Waits for kicks of the control ring.
    pub(crate) control_kicks: Arc<EpollWaiter>,
    pub(crate) routing: Arc<KickRouting>,
    /// The queue assignment. The port's thread publishes it with the next link.
    pub(crate) assignment: Mutex<Arc<QueueAssignment>>,
    /// Packets may stay in the guest's transmit rings (`full = "wait"`).
    pub(crate) waits: Arc<AtomicBool>,
    pub(crate) inbox: Arc<PortInbox>,
    pub(crate) log_limit: Mutex<LogLimit>,
    pub(crate) state: Mutex<LinkState>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn assignment(&self) -> Arc<QueueAssignment> {
        Arc::clone(&self.assignment.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

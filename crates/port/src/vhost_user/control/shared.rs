//! The state that the port's own thread and its users share.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use az::SaturatingAs;
use straightline_graph::{Clock, EpollWaiter, LinkState, QueueAssignment};
use straightline_packet::{IgnorePoison, Rcu};
use tracing::Level;

use crate::descriptor_share::DescriptorShare;
use crate::log_limit::{PortLogLimit, log_limited};
use crate::notify::call_cost::CallCost;
use crate::notify::kick_routing::KickRouting;
use crate::vhost_user::VhostUserConfig;
use crate::vhost_user::data::port_data::PortData;
use crate::vhost_user::inbox::PortInbox;

/// The module's name in the log.
const TARGET: &str = "straightline_port::vhost_user";

/// The state that the port's own thread and its users share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: VhostUserConfig,
    /// The part that workers read.
    pub(crate) data: Arc<PortData>,
    /// Queue pairs that operators see: those offered to the guest, and all that a frontend has ever
    /// started.
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
    /// The time that notifications of the guest take.
    pub(crate) call_cost: Arc<CallCost>,
    /// The descriptors that the frontend may have the switch keep.
    pub(crate) descriptors: Mutex<DescriptorShare>,
    pub(crate) log_limit: PortLogLimit,
    pub(crate) state: Mutex<LinkState>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().ignore_poison()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.config.clock
    }

    pub(crate) fn assignment(&self) -> Arc<QueueAssignment> {
        Arc::clone(&self.assignment.lock().ignore_poison())
    }
}

impl Shared {
    /// Logs a line that a frontend can cause, unless the port has logged too many.
    pub(crate) fn log(&self, level: Level, text: fmt::Arguments<'_>) {
        log_limited!(self.log_limit, target: TARGET, port = self.config.name, level, text);
    }

    /// Returns how many descriptors of rings a session may have that wants `wanted` of them.
    pub(crate) fn admit_ring_fds(&self, wanted: usize) -> usize {
        let besides = VhostUserConfig::OTHER_DESCRIPTORS;
        let mut share = self.descriptors.lock().ignore_poison();
        let admitted = share.resize(wanted as u64 + besides).saturating_sub(besides);
        admitted.saturating_as::<usize>()
    }

    /// Returns the time from which the port's thread is to call [`Self::report_suppressed`].
    pub(crate) fn suppressed_due(&self) -> Option<Instant> {
        self.log_limit.due()
    }

    /// Reports suppressed lines at a pause, when no later line reports them.
    pub(crate) fn report_suppressed(&self) {
        if let Some(suppressed_before) = self.log_limit.report() {
            let port = &self.config.name;
            tracing::warn!(target: TARGET, port, suppressed_before, "the frontend caused too many log lines");
        }
    }
}

//! The link to a connected guest: its memory and its rings. Control publishes a link and withdraws
//! it.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use straightline_packet::PortIndex;
use straightline_virtio::memory::{DirtyLog, GuestMemory};
use straightline_virtio::net_header::Receiver;

use super::queue::Queue;
use super::steering::Steering;
use crate::vhost_user::inbox::PortInbox;

/// The reason why a port stops when its guest's memory has vanished.
pub(crate) const VANISHED: &str = "guest memory: its file was truncated while it was mapped";

/// A guest that can be served. A link is immutable: any change makes a new one.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) index: PortIndex,
    pub(crate) memory: Arc<GuestMemory>,
    /// The log of writes to the guest's memory, while the guest is being migrated.
    pub(crate) log: Option<Arc<DirtyLog>>,
    /// The negotiated features.
    pub(crate) acked: u64,
    pub(crate) receiver: Receiver,
    pub(crate) mergeable: bool,
    /// A header from the guest may ask for an offload.
    pub(crate) reads_header: bool,
    /// Bytes of the longest packet that may be delivered unsegmented.
    pub(crate) max_len: u32,
    /// The guest's transmit rings, by queue pair; `None` where one does not run. The switch
    /// receives from them.
    pub(crate) rx: Box<[Option<Arc<Queue>>]>,
    /// The guest's receive rings, into which the switch delivers. One entry for each worker that
    /// delivers, at least one.
    pub(crate) tx: Box<[Steering]>,
    pub(crate) broken: AtomicBool,
    /// The number of the link among its port's links.
    pub(crate) generation: u64,
    pub(crate) inbox: Arc<PortInbox>,
}

impl Link {
    /// Returns whether workers may use the link.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    /// Returns a pair's transmit ring, or `None` if it does not run.
    #[inline]
    pub(crate) fn rx(&self, pair: usize) -> Option<&Queue> {
        self.rx.get(pair)?.as_deref()
    }

    /// Returns the receive rings that a worker delivers to. A worker that came after this link was
    /// made shares the rings of the first worker.
    #[inline]
    pub(crate) fn tx(&self, tx_index: usize) -> &Steering {
        self.tx.get(tx_index).unwrap_or(&self.tx[0])
    }

    /// Stops the port, because its guest can no longer be trusted to be consistent. Reports it to
    /// control.
    #[cold]
    pub(crate) fn fail(&self, which: impl Display, fault: &dyn Display) {
        if !self.broken.swap(true, Ordering::Relaxed) {
            // Zeros in place of vanished memory look like other faults.
            let why = if self.memory.poisoned() { VANISHED.to_owned() } else { format!("{which}: {fault}") };
            self.inbox.report_fault(self.generation, why);
        }
    }

    /// Returns whether every write so far is marked in the dirty log, if there is one. Stops the
    /// port if a mark is missing.
    #[inline]
    pub(crate) fn is_logged(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.is_intact() || self.fail_unlogged())
    }

    #[cold]
    fn fail_unlogged(&self) -> bool {
        self.fail("dirty log", &"it has no bit for a write, or its file was truncated while it was mapped");
        false
    }

    /// Stops the port, because its guest's memory has vanished.
    #[cold]
    pub(crate) fn fail_vanished(&self) {
        self.fail("guest memory", &"it vanished");
    }
}

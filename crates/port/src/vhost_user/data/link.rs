//! What workers see of a connected guest: its memory and its rings. Control publishes a link, and takes it away.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use straightline_packet::{Drops, PortIndex};
use straightline_virtio::memory::{DirtyLog, GuestMemory};
use straightline_virtio::net_header::Receiver;

use super::queue::Queue;
use super::steering::Steering;
use crate::vhost_user::inbox::PortInbox;

/// Why a port whose guest's memory has vanished stops.
pub(crate) const VANISHED: &str = "guest memory: its file was truncated while it was mapped";

/// A guest that can be served. Immutable: a change makes a new link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) index: PortIndex,
    pub(crate) memory: Arc<GuestMemory>,
    /// Where what is written to it is marked, while the guest is being moved.
    pub(crate) log: Option<Arc<DirtyLog>>,
    /// An administrator has set it down: nothing passes.
    pub(crate) set_down: bool,
    /// The negotiated features.
    pub(crate) acked: u64,
    pub(crate) receiver: Receiver,
    pub(crate) mergeable: bool,
    /// A header from the guest may ask for something.
    pub(crate) reads_header: bool,
    /// Bytes of the longest frame that is not to be segmented.
    pub(crate) max_len: u32,
    pub(crate) drops: Arc<Drops>,
    /// By pair, the guest's transmit rings, where they run: the switch receives from them.
    pub(crate) rx: Box<[Option<Arc<Queue>>]>,
    /// The guest's receive rings that packets may go to: the switch delivers into them. One for each worker that does,
    /// at least one.
    pub(crate) tx: Box<[Steering]>,
    pub(crate) broken: AtomicBool,
    /// Which link of its port this is.
    pub(crate) generation: u64,
    pub(crate) inbox: Arc<PortInbox>,
}

impl Link {
    /// Whether workers may touch it.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    /// A pair's transmit ring, where it runs.
    #[inline]
    pub(crate) fn rx(&self, pair: usize) -> Option<&Queue> {
        self.rx.get(pair)?.as_deref()
    }

    /// The receive rings that a worker delivers to. One that came after this link was made shares somebody's.
    #[inline]
    pub(crate) fn tx(&self, tx_index: usize) -> &Steering {
        self.tx.get(tx_index).unwrap_or(&self.tx[0])
    }

    /// Stops the port: its guest did what leaves nothing to rely on. Control hears of it.
    #[cold]
    pub(crate) fn fail(&self, which: impl Display, fault: &dyn Display) {
        if !self.broken.swap(true, Ordering::Relaxed) {
            // Zeros in the place of vanished memory look like other faults.
            let why = if self.memory.poisoned() { VANISHED.to_owned() } else { format!("{which}: {fault}") };
            self.inbox.report_fault(self.generation, why);
        }
    }

    /// Whether what was written is marked, if it is to be; if it cannot be, the port stops.
    #[inline]
    pub(crate) fn is_logged(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.is_intact() || self.fail_unlogged())
    }

    #[cold]
    fn fail_unlogged(&self) -> bool {
        self.fail("dirty log", &"it has no bit for a write, or its file was truncated while it was mapped");
        false
    }

    /// Stops the port: its memory is not there any more.
    #[cold]
    pub(crate) fn fail_vanished(&self) {
        self.fail("guest memory", &"it vanished");
    }
}

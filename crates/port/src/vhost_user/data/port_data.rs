//! The state of a port that its workers read: its link and its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use straightline_packet::{Batch, Drops, PortIndex, RcuCell, Reason, Turn};

use super::announcement::{self, Announcement};
use super::link::Link;
use crate::pair_counters::PairCounters;

/// The state of a port that its workers read.
#[derive(Debug)]
pub(crate) struct PortData {
    /// The port's name.
    pub(crate) name: String,
    pub(crate) index: PortIndex,
    pub(crate) drops: Arc<Drops>,
    /// The counters of each queue pair.
    pub(crate) counters: PairCounters,
    pub(crate) link: RcuCell<Link>,
    pub(crate) announcement: Announcement,
    /// An administrator has set the link down.
    pub(crate) set_down: AtomicBool,
}

impl PortData {
    pub(crate) fn is_set_down(&self) -> bool {
        self.set_down.load(Ordering::Acquire)
    }

    /// Returns the link, if there is one and it can be served.
    #[inline]
    pub(crate) fn usable_link<'t>(&self, turn: &Turn<'t>) -> Option<&'t Link> {
        self.link.load(turn).filter(|link| link.is_usable())
    }

    /// Takes the announcement that is due into the turn, as if the guest had sent it.
    #[cold]
    pub(crate) fn announce(&self, turn: &mut Turn<'_>, into: &mut Batch) {
        if let Some(id) = self.announcement.take(self.index, turn) {
            if self.is_set_down() {
                return turn.discard(id, Reason::SetDown);
            }
            into.push(id);
            if let Some(counters) = self.counters.of_pair(0) {
                counters.rx.packets.add(1);
                counters.rx.bytes.add(announcement::LEN as u64);
            }
        }
    }
}

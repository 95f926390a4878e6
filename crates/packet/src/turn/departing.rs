//! The packets of a turn that leave their source's ring, for outputs that deliver copies.

use super::{Disposition, Turn};
use crate::{Batch, MAX_BATCH, SourceQueueId};

impl Turn<'_> {
    /// Returns the packets of `batch` that leave their source's ring in this turn, or `None` if all
    /// of them do.
    ///
    /// The other packets go back at the end of the turn ([`Turn::roll_back`]). These are the
    /// packets that are left in their ring, and all packets of the same source behind them. They
    /// pass the graph again in a later turn. The answer is final only after all outputs that leave
    /// packets have run.
    pub fn departing(&self, batch: &Batch) -> Option<Batch> {
        if self.left == 0 {
            return None;
        }
        let mut departing = Batch::new();
        // Packets of one source are consecutive, so the answer for the last packet usually holds
        // for the next one.
        let mut source = SourceQueueId::NONE;
        let mut end = self.used;
        for &id in batch.ids() {
            if self.source(id) != source {
                source = self.source(id);
                end = self.departures(source);
            }
            if id.index() < end {
                departing.push(id);
            }
        }
        Some(departing)
    }

    /// Returns for each packet of the turn, by its index, whether it leaves its source's ring, or
    /// `None` if all of them do. See [`Self::departing`].
    pub fn departs(&self) -> Option<[bool; MAX_BATCH]> {
        if self.left == 0 {
            return None;
        }
        let mut departs = [true; MAX_BATCH];
        let mut source = None;
        let mut end = self.used;
        for (at, departs) in departs.iter_mut().enumerate().take(self.used) {
            let own = self.slots[at].source;
            if source != Some(own) {
                source = Some(own);
                end = self.departures(own);
            }
            *departs = at < end;
        }
        Some(departs)
    }

    /// Returns the slot of the first packet that goes back to the ring of `source`, or the number
    /// of slots in use.
    fn departures(&self, source: SourceQueueId) -> usize {
        let slots = &self.slots[..self.used];
        let is_at = |at: usize, disposition| slots[at].source == source && slots[at].disposition == disposition;
        // A ring has no gaps: nothing before a packet that was sent can go back.
        let tail = (0..slots.len()).rposition(|at| is_at(at, Disposition::Sent)).map_or(0, |last| last + 1);
        (tail..slots.len()).find(|&at| is_at(at, Disposition::Left)).unwrap_or(slots.len())
    }
}

//! The credit of one input or output of one worker's graph.

use std::sync::Arc;

use az::SaturatingAs;
use straightline_packet::{Batch, MAX_BATCH, PacketId, Packets, Turn};
use straightline_wire::DscpSet;

use super::bucket::{Cost, RateLimits};
use super::shared::RateBucket;
use crate::{Counter, expedited};

/// Waits of at least this time end at multiples of it, in nanoseconds. So a worker wakes once for all of
/// its inputs that wait. Long waits end at multiples of an eighth to a sixteenth of their time.
const GRID: u64 = 500_000;

/// Counters of a rate. The meters of several workers may add to them.
#[derive(Debug, Default)]
pub struct RateStats {
    /// Bytes that have passed, as the rate counts them.
    pub bytes: Counter,
    /// Packets that have passed; a GSO packet counts as its segments.
    pub packets: Counter,
    /// Times that packets waited for tokens.
    pub waits: Counter,
    /// Nanoseconds of these waits.
    pub waited: Counter,
    /// Packets that were dropped.
    pub dropped: Counter,
}

impl RateStats {
    /// Takes over the counts of the statistics before it. Nobody may count meanwhile.
    pub fn continue_from(&self, before: &RateStats) {
        let RateStats { bytes, packets, waits, waited, dropped } = before;
        self.bytes.add(bytes.get());
        self.packets.add(packets.get());
        self.waits.add(waits.get());
        self.waited.add(waited.get());
        self.dropped.add(dropped.get());
    }
}

/// The tokens that a packet has taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    id: PacketId,
    cost: Cost,
    /// The bucket has lent them.
    is_lent: bool,
}

/// The credit of one input or output of one worker's graph: a member of a [`RateBucket`].
#[derive(Debug)]
pub struct Meter {
    bucket: Arc<RateBucket>,
    stats: Arc<RateStats>,
    limits: RateLimits,
    member: usize,
    credit: Cost,
    /// Time at which there may be credit again; 0 if the meter does not wait. In nanoseconds, as all
    /// times of a meter.
    ready_at: u64,
    /// Time at which the credit was used up, until packets pass again; 0 before.
    waits_since: u64,
    /// Bytes of a packet in the last batch that had packets.
    mean: i64,
    /// Packets of this turn that have taken tokens.
    taken: Vec<Taken>,
    /// The classes of service that pass before others when the meter polices.
    expedited: DscpSet,
}

impl Meter {
    /// Returns a new member of the bucket.
    #[must_use]
    pub fn new(bucket: Arc<RateBucket>, stats: Arc<RateStats>) -> Self {
        let limits = bucket.limits();
        let member = bucket.join();
        Meter {
            bucket,
            stats,
            limits,
            member,
            credit: Cost::default(),
            ready_at: 0,
            waits_since: 0,
            mean: 1514,
            taken: Vec::with_capacity(MAX_BATCH),
            expedited: DscpSet::default(),
        }
    }

    /// Lets packets of these classes of service pass before others where the meter polices.
    ///
    /// Without credit, the bucket lends them tokens, up to one burst. Other packets pass again once that is
    /// paid. So expedited packets within the rate lose nothing, whatever the others send.
    #[must_use]
    pub fn expediting(mut self, classes: DscpSet) -> Self {
        self.expedited = classes;
        self
    }

    /// Returns the time until which nothing passes, or `None` if the meter does not wait.
    pub(crate) fn waits_until(&self) -> Option<u64> {
        (self.ready_at > 0).then_some(self.ready_at)
    }

    /// Returns whether packets may be received at the time `now`.
    pub(crate) fn is_ready(&mut self, now: u64) -> bool {
        if self.ready_at == 0 {
            return true;
        }
        if now < self.ready_at {
            return false;
        }
        let is_ready = self.ask(now);
        self.wait_together(now);
        is_ready
    }

    /// Moves the end of a long wait to the grid.
    fn wait_together(&mut self, now: u64) {
        let wait = self.ready_at.saturating_sub(now);
        if wait >= GRID && self.ready_at < u64::MAX / 2 {
            let grid = GRID << (wait / (8 * GRID)).max(1).ilog2();
            self.ready_at = self.ready_at.next_multiple_of(grid);
        }
    }

    /// Returns the number of packets that the credit lets pass, estimated from those before: at most
    /// `most`. If it is too large, packets are taken in vain; if it is too small, the next turn takes more.
    pub(crate) fn estimate(&self, most: usize) -> usize {
        let credit = if self.limits.lets_pass(self.credit) { self.credit } else { self.limits.quantum() };
        let by_bytes = self.limits.bytes.map_or(most, |_| (credit.bytes / self.mean).saturating_as::<usize>() + 1);
        let by_packets = self.limits.packets.map_or(most, |_| credit.packets.saturating_as::<usize>().max(1));
        most.min(by_bytes).min(by_packets)
    }

    /// Takes the tokens of received packets at the time `now`. Returns the number of packets that pass.
    /// The others must be left in their ring.
    pub(crate) fn admit(&mut self, packets: &Packets<'_>, ids: &[PacketId], now: u64) -> usize {
        let passed = ids.iter().take_while(|&&id| self.admits(packets, id, now)).count();
        // A meter without credit waits at once, so that the next turn takes no packets in vain.
        if !ids.is_empty() && self.ready_at == 0 && !self.limits.lets_pass(self.credit) {
            self.ask(now);
        }
        self.wait_together(now);
        passed
    }

    /// Splits a batch at the time `now`: takes the tokens of packets that pass, and returns those that
    /// are beyond the rate.
    pub(crate) fn police(&mut self, packets: &Packets<'_>, batch: &mut Batch, now: u64) -> Batch {
        let (first, rest) = expedited::split(packets, batch, self.expedited);
        let mut passes = [false; MAX_BATCH];
        // Once a packet has borrowed in vain, the others of the batch need not ask.
        let mut lends = true;
        for &id in first.ids() {
            passes[id.index()] = self.admits(packets, id, now) || {
                lends = lends && self.borrows(packets, id, now);
                lends
            };
        }
        for &id in rest.ids() {
            passes[id.index()] = self.admits(packets, id, now);
        }
        let mut beyond = Batch::new();
        batch.retain(|id| {
            if !passes[id.index()] {
                beyond.push(id);
            }
            passes[id.index()]
        });
        // Nothing has waited.
        self.waits_since = 0;
        beyond
    }

    /// Counts packets beyond the rate that were dropped.
    pub(crate) fn count_dropped(&self, packets: usize) {
        self.stats.dropped.add_shared(packets as u64);
    }

    /// Counts the packets of a batch that was policed, and those of it that were dropped.
    pub(crate) fn settle_policed(&mut self, turn: &Turn<'_>, dropped: usize) {
        self.settle(turn);
        self.count_dropped(dropped);
    }

    fn admits(&mut self, packets: &Packets<'_>, id: PacketId, now: u64) -> bool {
        if !self.limits.lets_pass(self.credit) && (now < self.ready_at || !self.ask(now)) {
            return false;
        }
        if self.waits_since > 0 {
            self.stats.waits.add_shared(1);
            self.stats.waited.add_shared(now.saturating_sub(self.waits_since));
            self.waits_since = 0;
        }
        let cost = cost(packets, id);
        self.credit -= cost;
        self.taken.push(Taken { id, cost, is_lent: false });
        true
    }

    /// Takes the tokens of an expedited packet for which there is no credit. Returns false if too many are
    /// lent already.
    fn borrows(&mut self, packets: &Packets<'_>, id: PacketId, now: u64) -> bool {
        let cost = cost(packets, id);
        let lends = self.bucket.lend(cost, now);
        if lends {
            self.taken.push(Taken { id, cost, is_lent: true });
        }
        lends
    }

    /// Asks for credit. Notes when to ask again if there is none.
    fn ask(&mut self, now: u64) -> bool {
        match self.bucket.ask(self.member, &mut self.credit, now) {
            Ok(()) => {
                self.ready_at = 0;
                true
            }
            Err(at) => {
                self.ready_at = at;
                if self.waits_since == 0 {
                    self.waits_since = now.max(1);
                }
                false
            }
        }
    }

    /// Forgets a wait that no packet has noticed.
    pub(crate) fn note_empty(&mut self) {
        self.waits_since = 0;
    }

    /// Returns unused credit to the bucket, because no packets come.
    pub(crate) fn relax(&mut self) {
        if self.ready_at == 0 && (self.credit.bytes > 0 || self.credit.packets > 0) {
            self.bucket.give_back(&mut self.credit);
        }
    }

    /// Counts the packets of this turn. Those that stay in their ring get their tokens back. Call it once
    /// the outputs have run. Returns the number of packets that have passed.
    pub(crate) fn settle(&mut self, turn: &Turn<'_>) -> usize {
        if self.taken.is_empty() {
            return 0;
        }
        let mut passed = Cost::default();
        let mut packets = 0;
        let mut bytes = 0;
        let departs = turn.departs();
        for Taken { id, cost, is_lent } in self.taken.drain(..) {
            if departs.as_ref().is_none_or(|departs| departs[id.index()]) {
                passed += cost;
            } else if is_lent {
                self.bucket.return_loan(cost);
            } else {
                self.bucket.refund(self.member, &mut self.credit, cost);
                // It may have credit again.
                self.ready_at = self.ready_at.min(1);
            }
            packets += 1;
            bytes += cost.bytes;
        }
        self.mean = (bytes / packets.max(1)).max(1);
        self.stats.bytes.add_shared(passed.bytes.saturating_as::<u64>());
        self.stats.packets.add_shared(passed.packets.saturating_as::<u64>());
        packets.saturating_as::<usize>()
    }

    /// Counts the packets that have passed a node. Their tokens do not come back.
    pub(crate) fn settle_all(&mut self) {
        let (bytes, packets) = self
            .taken
            .drain(..)
            .fold((0, 0), |(bytes, packets), taken| (bytes + taken.cost.bytes, packets + taken.cost.packets));
        self.stats.bytes.add_shared(bytes.saturating_as::<u64>());
        self.stats.packets.add_shared(packets.saturating_as::<u64>());
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bucket.leave(self.member, self.credit);
    }
}

/// Returns the tokens of a packet: those of its segments, if it is still to be segmented.
pub(super) fn cost(packets: &Packets<'_>, id: PacketId) -> Cost {
    let segments = i64::from(packets.segments(id));
    let headers = packets.offload(id).gso.map_or(0, |gso| i64::from(gso.header_len));
    Cost { bytes: i64::from(packets.len(id)) + (segments - 1) * headers, packets: segments }
}

#[cfg(test)]
mod tests;

//! The choice of a receive ring for a flow, so that each flow stays in order on one ring.
//!
//! A flow's hash picks an entry of an indirection table, and the entry names a ring. Each link has
//! its table. A pair that the frontend disables hands its entries to the others, and gets them back
//! when it is enabled. All other flows stay where they are.
//!
//! A flow is not steered by its last transmit ring (virtio 1.2, 5.1.6.5.6, a SHOULD). It would
//! overtake itself whenever its guest's process moves to another CPU. Guests could also fill the
//! table.

use std::sync::Arc;

use straightline_packet::{MAX_BATCH, PacketId, Turn};

use super::queue::Queue;

/// Entries of the table: many for each pair, so that the pairs' shares are about equal.
const ENTRIES: usize = 1024;

/// The most pairs. A set of pairs fits into a `u128`.
pub(crate) const PAIRS: usize = 128;

/// The receive rings that packets may go to, and the indirection table that chooses among them.
#[derive(Debug)]
pub(crate) struct Steering {
    /// The rings that are enabled.
    queues: Box<[Arc<Queue>]>,
    /// Positions in `queues`, by flow hash. Empty where there are fewer than two rings.
    table: Box<[u8]>,
    any_runs: bool,
}

impl Steering {
    /// Chooses among the receive rings of all pairs that run and are enabled. If the worker has
    /// such rings of its own, chooses only among these.
    pub(crate) fn new(
        pairs: impl ExactSizeIterator<Item = Option<Arc<Queue>>>,
        is_own: impl Fn(usize) -> bool,
    ) -> Self {
        let count = pairs.len().min(PAIRS);
        let mut running: Vec<Option<Arc<Queue>>> = pairs.take(PAIRS).collect();
        let any_runs = running.iter().any(Option::is_some);
        let is_there = |(pair, queue): (usize, &Option<Arc<Queue>>)| {
            is_own(pair) && queue.as_ref().is_some_and(|queue| queue.enabled())
        };
        if running.iter().enumerate().any(is_there) {
            running.iter_mut().enumerate().filter(|(pair, _)| !is_own(*pair)).for_each(|(_, other)| *other = None);
        }
        // The position of each pair's ring among those that are enabled.
        let mut places: Vec<Option<u8>> = Vec::with_capacity(count);
        let mut queues = Vec::with_capacity(count);
        for queue in running {
            // Cites vhost-user-ring-states-3.
            let queue = queue.filter(|queue| queue.enabled());
            places.push(queue.as_ref().and_then(|_| queues.len().try_into().ok()));
            queues.extend(queue);
        }
        Steering { table: table(&places), queues: queues.into(), any_runs }
    }

    /// Returns the rings that packets may go to.
    pub(crate) fn queues(&self) -> &[Arc<Queue>] {
        &self.queues
    }

    /// Returns whether any ring runs, enabled or not.
    pub(crate) fn any_runs(&self) -> bool {
        self.any_runs
    }

    /// Returns the position of each packet's ring in [`Self::queues`].
    pub(crate) fn ring_positions(&self, turn: &mut Turn<'_>, ids: &[PacketId]) -> [u8; MAX_BATCH] {
        let mut places = [0; MAX_BATCH];
        for (place, &id) in places.iter_mut().zip(ids) {
            // Scales the hash to the number of entries.
            let entry = (u64::from(turn.flow_hash(id)) * (self.table.len() as u64)) >> 32;
            *place = usize::try_from(entry).ok().and_then(|at| self.table.get(at)).copied().unwrap_or(0);
        }
        places
    }
}

/// Makes the table for pairs with these positions. Each pair keeps the same entries when other
/// pairs change. Entries of a pair without a position are dealt out to the others.
fn table(places: &[Option<u8>]) -> Box<[u8]> {
    let there: Vec<u8> = places.iter().copied().flatten().collect();
    if there.len() < 2 {
        return Box::default();
    }
    let mut others = there.iter().copied().cycle();
    let own = places.iter().copied().cycle();
    own.take(ENTRIES).map(|place| place.or_else(|| others.next()).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of entries of each position.
    fn shares(table: &[u8], places: usize) -> Vec<usize> {
        (0..places).map(|place| table.iter().filter(|&&p| usize::from(p) == place).count()).collect()
    }

    #[test]
    fn pairs_have_equal_shares_and_keep_their_entries() {
        let four = table(&[Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(shares(&four, 4), [256; 4]);
        // The third pair is disabled: the fourth has its position now.
        let three = table(&[Some(0), Some(1), None, Some(2)]);
        let name = [0, 1, 3];
        for (before, after) in four.iter().zip(&three) {
            assert!(*before == 2 || *before == name[usize::from(*after)], "{before} moved to {after}");
        }
        assert!(shares(&three, 3).into_iter().all(|n| (341..=342).contains(&n)));
        let many: Vec<_> = (0..127).map(Some).collect();
        assert!(shares(&table(&many), 127).into_iter().all(|n| n >= 8));
    }

    #[test]
    fn one_pair_needs_no_table() {
        assert!(table(&[Some(0)]).is_empty() && table(&[None, Some(0), None]).is_empty() && table(&[]).is_empty());
    }
}

//! Several receive rings: which flow goes to which, so that each stays in order on one of them.
//!
//! A flow's hash picks an entry of a table, the entry a ring. The table is made with each link: a pair that the frontend
//! disables hands its entries to the others and gets them back when it is enabled; all other flows stay where they are.

use std::sync::Arc;

use straightline_packet::{MAX_BATCH, PacketId, Turn};
use straightline_wire::flow_hash;

use super::queue::Queue;

/// Entries: many for each pair, so that the pairs' shares are about the same.
const ENTRIES: usize = 1024;

/// Most pairs; a set of them is a `u128`.
pub(crate) const PAIRS: usize = 128;

/// The receive rings that packets may go to, and which flow goes to which.
#[derive(Debug)]
pub(crate) struct Steering {
    /// Those that are enabled.
    queues: Box<[Arc<Queue>]>,
    /// Places in `queues`; empty where there are fewer than two.
    table: Box<[u8]>,
    any_runs: bool,
}

impl Steering {
    /// Over the receive rings of all pairs, as far as they run and are enabled, and are one worker's own where any is.
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
        // Where each pair's ring stands among those that are enabled.
        let mut places: Vec<Option<u8>> = Vec::with_capacity(count);
        let mut queues = Vec::with_capacity(count);
        for queue in running {
            let queue = queue.filter(|queue| queue.enabled());
            places.push(queue.as_ref().and_then(|_| queues.len().try_into().ok()));
            queues.extend(queue);
        }
        Steering { table: table(&places), queues: queues.into(), any_runs }
    }

    /// The rings that packets may go to.
    pub(crate) fn queues(&self) -> &[Arc<Queue>] {
        &self.queues
    }

    /// Whether there are rings, enabled or not.
    pub(crate) fn any_runs(&self) -> bool {
        self.any_runs
    }

    /// For each packet: the place of its ring.
    pub(crate) fn ring_positions(&self, turn: &Turn<'_>, ids: &[PacketId]) -> [u8; MAX_BATCH] {
        let mut places = [0; MAX_BATCH];
        for (place, &id) in places.iter_mut().zip(ids) {
            // The hash as a fraction of all entries.
            let entry = (u64::from(flow_hash(turn.head(id))) * (self.table.len() as u64)) >> 32;
            *place = usize::try_from(entry).ok().and_then(|at| self.table.get(at)).copied().unwrap_or(0);
        }
        places
    }
}

/// Entries for pairs with these places: each pair has the same ones whatever becomes of the others, and those of a pair
/// without a place are dealt out.
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

    /// How many entries each place has, and how many differ between two tables of pairs.
    fn shares(table: &[u8], places: usize) -> Vec<usize> {
        (0..places).map(|place| table.iter().filter(|&&p| usize::from(p) == place).count()).collect()
    }

    #[test]
    fn pairs_have_equal_shares_and_keep_their_entries() {
        let four = table(&[Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(shares(&four, 4), [256; 4]);
        // The third one is disabled: the fourth stands in its place now.
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

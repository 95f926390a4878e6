//! The counters of a port's queue pairs.

use std::sync::{Arc, Mutex};

use straightline_graph::QueueCounters;
use straightline_packet::IgnorePoison;

/// The counters of a port's queue pairs. They are made when a pair is first used: a port may have a
/// hundred pairs, and most guests use one.
#[derive(Debug)]
pub(crate) struct PairCounters {
    made: Mutex<Vec<Arc<QueueCounters>>>,
    most: usize,
}

impl PairCounters {
    /// Creates the counters of a port with at most so many pairs.
    pub(crate) fn new(most: u16) -> Self {
        PairCounters { made: Mutex::default(), most: most.into() }
    }

    /// Returns the counters of a pair, or `None` if the port cannot have so many pairs.
    pub(crate) fn of_pair(&self, pair: usize) -> Option<Arc<QueueCounters>> {
        self.first(pair + 1).get(pair).cloned()
    }

    /// Returns the counters of the first pairs, `count` of them, or all that the port can have.
    pub(crate) fn first(&self, count: usize) -> Vec<Arc<QueueCounters>> {
        let count = count.min(self.most);
        let mut made = self.made.lock().ignore_poison();
        if made.len() < count {
            made.resize_with(count, Arc::default);
        }
        made[..count].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_keeps_its_counters_and_only_used_pairs_have_some() {
        let pairs = PairCounters::new(127);
        let made = || pairs.made.lock().expect("no panic").len();
        pairs.of_pair(0).expect("a pair").rx.packets.add(1);
        assert_eq!((made(), pairs.first(1)[0].rx.packets.get()), (1, 1));
        pairs.of_pair(3).expect("a pair").rx.packets.add(3);
        let counts: Vec<_> = pairs.first(4).iter().map(|pair| pair.rx.packets.get()).collect();
        assert_eq!((made(), counts), (4, vec![1, 0, 0, 3]));
        assert!(pairs.of_pair(127).is_none());
        assert_eq!(pairs.first(1000).len(), 127);
    }
}

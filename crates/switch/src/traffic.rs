//! The traffic of the last two minutes: the counters of each port, once a second. So a reader that
//! comes after an outage sees it.

use std::collections::{BTreeMap, VecDeque};

use crate::api::{History, PortHistory};

/// The number of kept times: two minutes, at one a second.
const LENGTH: usize = 121;

/// The kept counters.
#[derive(Debug, Default)]
pub(crate) struct TrafficHistory {
    /// Seconds since the epoch, oldest first.
    times: VecDeque<f64>,
    /// Bytes that were received and delivered at the last of these times, by port.
    ports: BTreeMap<String, VecDeque<[u64; 2]>>,
}

impl TrafficHistory {
    /// Adds the received and delivered bytes of all ports. Those of other ports are forgotten.
    pub(crate) fn add<'a>(&mut self, time: f64, ports: impl Iterator<Item = (&'a str, [u64; 2])>) {
        keep(&mut self.times, time);
        let mut before = std::mem::take(&mut self.ports);
        for (name, bytes) in ports {
            let (name, mut kept) = before.remove_entry(name).unwrap_or_else(|| (name.to_owned(), VecDeque::new()));
            keep(&mut kept, bytes);
            self.ports.insert(name, kept);
        }
    }

    /// Returns the history as the API has it.
    pub(crate) fn answer(&self) -> History {
        let port = |(name, kept): (&String, &VecDeque<[u64; 2]>)| PortHistory {
            name: name.clone(),
            rx_bytes: kept.iter().map(|[rx, _]| *rx).collect(),
            tx_bytes: kept.iter().map(|[_, tx]| *tx).collect(),
        };
        History { times: self.times.iter().copied().collect(), ports: self.ports.iter().map(port).collect() }
    }
}

/// Adds a value, and forgets the oldest beyond the length.
fn keep<T>(kept: &mut VecDeque<T>, value: T) {
    if kept.len() == LENGTH {
        kept.pop_front();
    }
    kept.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_minutes_are_kept() {
        let mut history = TrafficHistory::default();
        for second in 0..200_u32 {
            let counters = [("old", [7, 7]), ("vm1", [second.into(), 0]), ("vm2", [0, 1])];
            // One port goes, another one comes.
            let ports = counters.into_iter().filter(|(name, _)| match *name {
                "old" => second < 150,
                "vm2" => second >= 190,
                _ => true,
            });
            history.add(second.into(), ports);
        }
        let History { times, ports } = history.answer();
        assert_eq!((times.len(), times.first(), times.last()), (121, Some(&79.0), Some(&199.0)));
        assert_eq!(ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(), ["vm1", "vm2"]);
        assert_eq!(ports[0].rx_bytes, (79..200).collect::<Vec<_>>());
        assert_eq!((ports[0].tx_bytes.len(), &ports[1].tx_bytes), (121, &vec![1; 10]));
    }
}

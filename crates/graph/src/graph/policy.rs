//! Policies of outputs: the rate of what passes, and the classes of service that go first.

use straightline_packet::{Batch, Reason, Turn};
use straightline_wire::DscpSet;

use super::{Action, Entry, Graph, NodeIndex};
use crate::clock::{cycles, nanoseconds};
use crate::{Meter, Port, expedited};

/// Decides which of an output's packets pass, and which of them go first.
#[derive(Debug, Default)]
pub(super) struct OutputPolicy {
    pub(super) rate: Option<Meter>,
    /// The classes of service that are delivered before others. Empty: packets keep their order.
    pub(super) expedited: DscpSet,
}

impl OutputPolicy {
    /// Delivers a batch to the output's port, expedited packets first.
    #[cold]
    pub(super) fn deliver(&self, turn: &mut Turn<'_>, port: &dyn Port, batch: &Batch, wait: bool) {
        // A packet that waits in its ring must not be overtaken by others of that ring.
        if wait || self.expedited.is_empty() {
            return port.deliver(turn, batch, wait);
        }
        let (first, rest) = expedited::split(turn.packets(), batch, self.expedited);
        if !first.is_empty() {
            port.deliver(turn, &first, false);
        }
        if !rest.is_empty() {
            port.deliver_sparing(turn, &rest);
        }
    }
}

impl Graph {
    /// Limits the packets of an output to a rate. Those beyond it are dropped.
    ///
    /// # Panics
    /// If `output` is a node.
    pub fn limit_output(&mut self, output: NodeIndex, rate: Meter) {
        self.policy(output).rate = Some(rate);
    }

    /// Has an output deliver packets of these classes of service before others, and keep some of its
    /// port's free buffers for them ([`Port::deliver_sparing`]). It does nothing where packets wait for
    /// buffers: there none is lost.
    ///
    /// # Panics
    /// If `output` is a node.
    pub fn expedite(&mut self, output: NodeIndex, classes: DscpSet) {
        self.policy(output).expedited = classes;
    }

    fn policy(&mut self, output: NodeIndex) -> &mut OutputPolicy {
        let entry = &mut self.entries[output.0];
        assert!(!matches!(entry.action, Action::Node(_)), "a node has no policy of an output");
        entry.policy.get_or_insert_default()
    }
}

impl Entry {
    /// Takes the packets out of an output's batch that are beyond its rate, and returns them.
    #[cold]
    pub(super) fn police(&mut self, turn: &mut Turn<'_>) -> Batch {
        let now = nanoseconds(cycles());
        let rate = self.policy.as_mut().and_then(|policy| policy.rate.as_mut());
        rate.map_or_else(Batch::new, |rate| rate.police(turn.packets(), &mut self.pending, now))
    }

    /// Counts the packets of an output once they are delivered, and drops those beyond its rate. Packets
    /// behind one that stays in its ring come again with it, and are counted then.
    #[cold]
    pub(super) fn settle_rate(&mut self, turn: &mut Turn<'_>, beyond: &Batch) {
        let (Action::Output { port, .. } | Action::CopyOutput { port }) = &self.action else { return };
        let Some(rate) = self.policy.as_mut().and_then(|policy| policy.rate.as_mut()) else { return };
        let mut dropped = beyond.clone();
        dropped.retain(|id| {
            let comes_again = turn.leaves_earlier(id);
            if comes_again {
                turn.leave(id);
            }
            !comes_again
        });
        rate.settle_policed(turn, dropped.len());
        if let Some(port) = port.index().filter(|_| !dropped.is_empty()) {
            turn.drop_at(port, dropped.ids(), Reason::Rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use straightline_packet::{Arena, PortIndex, Rcu, Settings};
    use straightline_wire::Dscp;

    use super::*;

    /// Notes what is delivered, and how.
    #[derive(Debug, Default)]
    struct Noting(Mutex<Vec<(&'static str, Vec<usize>)>>);

    impl Noting {
        fn note(&self, how: &'static str, batch: &Batch) {
            self.0.lock().unwrap().push((how, batch.ids().iter().map(|id| id.index()).collect()));
        }
    }

    impl Port for Noting {
        fn name(&self) -> &'static str {
            "noting"
        }

        fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

        fn deliver(&self, _turn: &mut Turn<'_>, batch: &Batch, wait: bool) {
            self.note(if wait { "waits" } else { "all" }, batch);
        }

        fn deliver_sparing(&self, _turn: &mut Turn<'_>, batch: &Batch) {
            self.note("sparing", batch);
        }

        fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
            false
        }

        fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
    }

    /// Delivers a batch of these classes of service by a policy that expedites class 46.
    fn delivered(classes: &[u8], wait: bool) -> Vec<(&'static str, Vec<usize>)> {
        let policy = OutputPolicy { rate: None, expedited: Dscp::new(46).into_iter().collect() };
        let port = Noting::default();
        let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
        arena.turn(|turn| {
            let mut batch = Batch::new();
            for class in classes {
                let mut frame = [0; 60];
                frame[12..18].copy_from_slice(&[8, 0, 0x45, class << 2, 0, 46]);
                batch.push(turn.accept_owned(PortIndex(0), &frame).unwrap());
            }
            policy.deliver(turn, &port, &batch, wait);
        });
        port.0.into_inner().unwrap()
    }

    #[test]
    fn expedited_packets_are_delivered_first_and_the_others_spare_buffers() {
        assert_eq!(delivered(&[0, 46, 0, 46, 8], false), [("all", vec![1, 3]), ("sparing", vec![0, 2, 4])]);
        assert_eq!(delivered(&[46, 46], false), [("all", vec![0, 1])]);
        assert_eq!(delivered(&[0, 8], false), [("sparing", vec![0, 1])]);
    }

    #[test]
    fn packets_that_may_wait_keep_their_order() {
        assert_eq!(delivered(&[0, 46, 0], true), [("waits", vec![0, 1, 2])]);
    }
}

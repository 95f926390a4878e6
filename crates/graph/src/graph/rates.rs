//! Rates of inputs and outputs (see [`rate`](crate::rate)), and the order in which outputs deliver.

use straightline_packet::{Batch, Reason, Turn};
use straightline_wire::DscpSet;

use super::inputs::{Input, InputRate};
use super::{Action, Entry, Graph};
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
    /// Counts the packets of limited inputs, once the turn has ended. Disarms the inputs that wait from
    /// now on. `taken` packets came in with this turn.
    #[cold]
    pub(super) fn settle(&mut self, turn: &Turn<'_>, taken: usize) {
        let mut waiting = 0;
        for input in self.inputs.limited() {
            let Some(rate) = &mut input.rate else { continue };
            let packets = rate.meter.settle(turn);
            if packets > 0 && rate.shapes && rate.meter.waits_until().is_some() {
                waiting += packets;
                input.port.disarm(turn, false);
            }
        }
        self.waits_only = waiting >= taken;
    }

    /// Returns the time at which the first input that waits for its rate is ready, in nanoseconds of
    /// [`nanoseconds`]. `None` if none waits.
    pub(crate) fn ready_at(&self) -> Option<u64> {
        self.inputs.ready_at()
    }

    /// Returns whether all packets of the last turn came from inputs that wait for their rate now. More
    /// packets do not come from them soon.
    pub(crate) fn waits_only(&self) -> bool {
        self.waits_only
    }
}

impl Input {
    /// Returns whether kicks of the port are armed before the worker sleeps.
    #[inline]
    pub(super) fn arms(&mut self) -> bool {
        let waits = self.waits_until().is_some();
        if let Some(rate) = &mut self.rate {
            rate.is_armed = !waits;
            // Other ports may use the credit meanwhile.
            rate.meter.relax();
        }
        !waits
    }

    /// Returns whether kicks of the port may be armed, once the worker is awake.
    #[inline]
    pub(super) fn disarms(&mut self) -> bool {
        self.rate.as_mut().is_none_or(|rate| std::mem::replace(&mut rate.is_armed, false))
    }
}

impl InputRate {
    /// Applies the rate at the time `now` to the packets that were received last: those of `pending` from
    /// `had` on. Returns the number of packets that are left in their ring.
    #[cold]
    pub(super) fn apply(&mut self, turn: &mut Turn<'_>, pending: &mut Batch, had: usize, now: u64) -> usize {
        let mut left = 0;
        let mut before = Batch::new();
        before.extend(&pending.ids()[..had]);
        let mut received = Batch::new();
        received.extend(&pending.ids()[had..]);
        if self.shapes {
            let passed = self.meter.admit(turn.packets(), received.ids(), now);
            if let Some(first) = received.ids().get(passed) {
                turn.leave_tail(first.index()..turn.accepted());
            }
            // A packet that cannot stay in its ring passes.
            let all = received.len();
            received.retain(|id| !turn.is_left(id));
            left = all - received.len();
        } else {
            let beyond = self.meter.police(turn.packets(), &mut received, now);
            self.meter.count_dropped(beyond.len());
            beyond.ids().iter().for_each(|&id| turn.discard(id, Reason::Rate));
        }
        before.extend(received.ids());
        pending.clone_from(&before);
        left
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

//! Rates of inputs: see [`rate`](crate::rate).

use straightline_packet::{Batch, Reason, Turn};

use super::Graph;
use super::inputs::{Input, InputRate};

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

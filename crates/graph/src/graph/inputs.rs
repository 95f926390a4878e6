//! The inputs of a graph, and which of them a turn receives from.
//!
//! To look into a ring costs some hundred cycles, mostly for cache lines that a guest has. Beside a
//! hundred ports that send nothing, that would be more than the work for those that send. So there
//! are two lists:
//!
//! - *active* inputs had packets lately. Each turn receives from all of them.
//! - *quiet* inputs had none in their last [`PATIENCE`] turns. While the worker has packets, it looks
//!   at one of them in [`QUIET_INTERVAL`], one after the other. A turn that follows one without
//!   packets looks at [`IDLE_LOOKS`] of them.
//!
//! So a packet of a quiet input waits for at most `n * QUIET_INTERVAL` and a turn, with n quiet
//! inputs, and only while others keep the worker busy. Else it waits for `n / IDLE_LOOKS` turns
//! without packets, which take some hundred nanoseconds each. Before it sleeps, the worker looks at
//! all inputs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use straightline_packet::{InputRules, Served};
use straightline_port::Port;

use crate::NodeStats;
use crate::clock::{hertz, in_cycles};
use crate::shares::Account;

/// Consecutive looks without packets after which an input is quiet.
const PATIENCE: u8 = 64;

/// Time between two looks at quiet inputs while the worker is busy. A look takes a tenth of it at
/// most.
const QUIET_INTERVAL: Duration = Duration::from_micros(3);

/// Quiet inputs that a turn looks at if the last one had no packets.
const IDLE_LOOKS: usize = 8;

/// An input of a graph: a port, and the entry to which its packets go.
pub(super) struct Input {
    pub(super) port: Arc<dyn Port>,
    pub(super) to: usize,
    pub(super) stats: Arc<NodeStats>,
    pub(super) served: Served,
    pub(super) rules: InputRules,
    pub(super) account: Account,
    /// Consecutive looks that found no packets.
    empty: u8,
    /// Number of the last turn that looked at the input.
    turn: u64,
}

impl Input {
    pub(super) fn new(
        port: Arc<dyn Port>,
        to: usize,
        stats: Arc<NodeStats>,
        served: Served,
        rules: InputRules,
    ) -> Self {
        Input { port, to, stats, served, rules, account: Account::default(), empty: 0, turn: 0 }
    }

    /// Notes what a look has found: the number of packets, and the indexes of the packets in the
    /// turn.
    #[inline]
    pub(super) fn note(&mut self, got: usize, packets: Range<usize>) {
        self.empty = if got > 0 { 0 } else { self.empty.saturating_add(1) };
        self.account.note(packets);
    }
}

/// The inputs of a graph.
#[derive(Default)]
pub(super) struct Inputs {
    all: Vec<Input>,
    /// Indexes of the active inputs.
    active: Vec<usize>,
    /// Indexes of the quiet inputs.
    quiet: Vec<usize>,
    /// Position in `active` that comes first. It changes from turn to turn, so that no input is
    /// always the last when free slots are scarce.
    first: usize,
    /// Position in `quiet` that comes first.
    first_quiet: usize,
    /// Number of active inputs that this turn has looked at, and of quiet ones.
    looked: (usize, usize),
    /// Number of quiet inputs that this turn may look at.
    looks: usize,
    /// Cycles of [`QUIET_INTERVAL`].
    interval: u64,
    /// Time of the last look at a quiet input.
    last_look: u64,
    /// True if the last turn had packets.
    is_busy: bool,
    /// Number of the present turn.
    turn: u64,
}

impl Inputs {
    /// Adds an input. It is active at first.
    pub(super) fn add(&mut self, input: Input) {
        self.interval = in_cycles(QUIET_INTERVAL, hertz()).max(1);
        self.active.push(self.all.len());
        self.all.push(input);
        // Later moves between the lists do not allocate.
        self.active.reserve(self.all.len() - self.active.len());
        self.quiet.reserve(self.all.len() - self.quiet.len());
    }

    /// Returns all inputs, in the order in which they were added.
    pub(super) fn all(&self) -> &[Input] {
        &self.all
    }

    pub(super) fn all_mut(&mut self) -> &mut [Input] {
        &mut self.all
    }

    /// Returns the inputs whose packets are in the present turn.
    pub(super) fn received(&mut self) -> impl Iterator<Item = &mut Input> {
        let turn = self.turn;
        self.all.iter_mut().filter(move |input| input.turn == turn && !input.account.packets.is_empty())
    }

    /// Returns the number of active inputs.
    pub(super) fn active(&self) -> usize {
        self.active.len()
    }

    /// Begins a turn at the time `now`.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: u64) {
        self.turn += 1;
        self.looked = (0, 0);
        self.looks = 0;
        if self.quiet.is_empty() {
            return;
        }
        let due = usize::try_from(now.saturating_sub(self.last_look) / self.interval).unwrap_or(usize::MAX);
        let looks = if self.is_busy { due } else { due.max(IDLE_LOOKS) };
        self.looks = looks.min(self.quiet.len());
        if self.looks > 0 {
            self.last_look = now;
        }
    }

    /// Returns the next input that this turn receives from. Inputs in debt are left out.
    #[inline]
    pub(super) fn next(&mut self) -> Option<&mut Input> {
        loop {
            let (active, quiet) = &mut self.looked;
            let index = if *active < self.active.len() {
                *active += 1;
                self.active[(self.first + *active - 1) % self.active.len()]
            } else if *quiet < self.looks {
                *quiet += 1;
                self.quiet[(self.first_quiet + *quiet - 1) % self.quiet.len()]
            } else {
                return None;
            };
            let input = &mut self.all[index];
            if !input.account.is_in_debt() {
                input.turn = self.turn;
                return Some(&mut self.all[index]);
            }
        }
    }

    /// Ends the receiving of a turn that has taken so many packets.
    #[inline]
    pub(super) fn end_turn(&mut self, taken: usize) {
        self.is_busy = taken > 0;
        let (active, quiet) = self.looked;
        // An input that found no free slots comes first in the next turn.
        let step = if active < self.active.len() { active } else { 1 };
        self.first = (self.first + step) % self.active.len().max(1);
        let mut looked = (0..quiet).map(|nth| self.quiet[(self.first_quiet + nth) % self.quiet.len()]);
        let wakes = looked.any(|index| self.all[index].empty == 0);
        self.first_quiet = (self.first_quiet + quiet) % self.quiet.len().max(1);
        if wakes || taken > 0 && self.active.iter().any(|&index| self.all[index].empty >= PATIENCE) {
            self.sort();
        }
    }

    /// Moves inputs to the list where they belong now.
    #[cold]
    fn sort(&mut self) {
        self.active.clear();
        self.quiet.clear();
        for (index, input) in self.all.iter().enumerate() {
            if input.empty < PATIENCE { self.active.push(index) } else { self.quiet.push(index) }
        }
        (self.first, self.first_quiet) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use straightline_port::Null;

    /// Returns inputs: the first is active, all others are quiet.
    fn quiet_but_one(count: usize) -> Inputs {
        let mut inputs = Inputs::default();
        for at in 0..count {
            let port: Arc<dyn Port> = Arc::new(Null::new("in"));
            inputs.add(Input::new(port, at, Arc::default(), Served::Nobody, InputRules::RETURNING));
        }
        for _ in 0..PATIENCE {
            turn(&mut inputs, 0, |at| usize::from(at == 0));
        }
        assert_eq!((inputs.active.as_slice(), inputs.quiet.len()), ([0].as_slice(), count - 1));
        inputs
    }

    /// Runs a turn at `now`, in which each input has `packets`. Returns the inputs that were looked
    /// at.
    fn turn(inputs: &mut Inputs, now: u64, packets: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut looked = Vec::new();
        let mut taken = 0;
        inputs.begin_turn(now);
        while let Some(input) = inputs.next() {
            let at = input.to;
            input.note(packets(at), 0..packets(at));
            taken += packets(at);
            looked.push(at);
        }
        inputs.end_turn(taken);
        looked
    }

    #[test]
    fn a_busy_worker_looks_at_one_quiet_input_in_each_interval() {
        let mut inputs = quiet_but_one(100);
        let interval = inputs.interval;
        let busy = |at| usize::from(at == 0);
        let start = inputs.last_look + 1000 * interval;
        turn(&mut inputs, start, busy);
        assert_eq!(turn(&mut inputs, start + interval / 2, busy), [0], "none is due");
        let mut seen = BTreeSet::new();
        for n in 1..=99 {
            let looked = turn(&mut inputs, start + n * interval, busy);
            assert_eq!((looked.len(), looked[0]), (2, 0), "{looked:?}");
            seen.extend(looked);
        }
        assert_eq!(seen.len(), 100, "each has its turn");
    }

    #[test]
    fn an_idle_worker_looks_at_some_quiet_inputs_in_each_turn() {
        let mut inputs = quiet_but_one(100);
        let now = inputs.last_look;
        turn(&mut inputs, now, |_| 0);
        let mut seen = BTreeSet::new();
        for _ in 0..99_usize.div_ceil(IDLE_LOOKS) {
            seen.extend(turn(&mut inputs, now, |_| 0));
        }
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn a_quiet_input_with_packets_is_active_again() {
        let mut inputs = quiet_but_one(10);
        let now = inputs.last_look + 1000 * inputs.interval;
        assert_eq!(turn(&mut inputs, now, |at| usize::from(at == 7)).len(), 10, "all are due");
        assert_eq!(inputs.active, [0, 7]);
        assert_eq!(turn(&mut inputs, now, |at| usize::from(at == 7)), [0, 7]);
    }

    #[test]
    fn an_input_in_debt_is_left_out() {
        let mut inputs = quiet_but_one(3);
        inputs.all_mut()[0].account.balance = 0;
        let now = inputs.last_look + 1000 * inputs.interval;
        assert_eq!(turn(&mut inputs, now, |_| 0), [1, 2]);
        assert_eq!(inputs.received().count(), 0);
    }
}

//! The inputs of a graph, and which of them a turn receives from.
//!
//! To look into a ring costs some hundred cycles, mostly for cache lines that a guest has. Beside a
//! hundred ports that send nothing, that would be more than the work for those that send. So there
//! are two lists:
//!
//! - *active* inputs had packets lately. Each turn receives from all of them.
//! - *quiet* inputs had none in their last [`PATIENCE`] turns. Each turn looks at some of them, once
//!   it has received from the active ones, one after the other from turn to turn. If these had
//!   packets, looks have 1/[`LOOKS_PART`] of the worker's time. If not, the turn looks at
//!   [`IDLE_LOOKS`].
//!
//! So a packet of a quiet input waits for the time of `n * LOOKS_PART` looks and a turn at most, with
//! n quiet inputs, and only while others keep the worker busy: with a hundred guests and 100 ns a
//! look that is a third of a millisecond. Else it waits for `n / IDLE_LOOKS` turns without packets,
//! which take some hundred nanoseconds each. Before it sleeps, the worker looks at all inputs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use az::SaturatingAs;
use straightline_packet::{Batch, InputRules, PacketId, Served, Turn};

use super::deficit::{Deficit, Load, ShareRound};
use crate::clock::{hertz, in_cycles, nanoseconds};
use crate::shares::Account;
use crate::{Meter, NodeStats, Port};

/// Consecutive looks without packets after which an input is quiet.
const PATIENCE: u8 = 64;

/// While active inputs have packets, looks at quiet ones have this part of the worker's time.
const LOOKS_PART: i64 = 32;

/// Time of looks that a worker can save up.
const LOOKS_SAVED: Duration = Duration::from_micros(1);

/// Quiet inputs that a turn looks at if no active input had packets.
const IDLE_LOOKS: usize = 8;

/// An input of a graph: a port, and the entry to which its packets go.
pub(super) struct Input {
    pub(super) port: Arc<dyn Port>,
    pub(super) to: usize,
    pub(super) stats: Arc<NodeStats>,
    pub(super) served: Served,
    pub(super) rules: InputRules,
    pub(super) account: Account,
    pub(super) deficit: Deficit,
    /// The rate of the port, if it is limited.
    pub(super) rate: Option<Box<InputRate>>,
    /// Consecutive looks that found no packets.
    empty: u8,
    /// Number of the last turn that looked at the input.
    turn: u64,
}

/// The rate of an input.
pub(super) struct InputRate {
    pub(super) meter: Meter,
    /// True if packets wait in their ring. Otherwise those beyond the rate are dropped.
    pub(super) shapes: bool,
    /// True if the port's kicks may be armed.
    pub(super) is_armed: bool,
}

impl Input {
    pub(super) fn new(
        port: Arc<dyn Port>,
        to: usize,
        stats: Arc<NodeStats>,
        served: Served,
        rules: InputRules,
        weight: u16,
    ) -> Self {
        let deficit = Deficit::new(weight);
        Input { port, to, stats, served, rules, account: Account::default(), deficit, rate: None, empty: 0, turn: 0 }
    }

    /// Notes what a look has found: the number of packets, and the indexes of the packets in the
    /// turn.
    #[inline]
    pub(super) fn note(&mut self, got: usize, packets: Range<usize>) {
        self.empty = if got > 0 { 0 } else { self.empty.saturating_add(1) };
        self.account.note(packets);
        if let Some(rate) = &mut self.rate
            && got == 0
        {
            rate.note_empty(self.empty >= PATIENCE);
        }
    }

    /// Returns the number of packets that the input may receive by its share.
    #[inline]
    pub(super) fn fair(&self) -> usize {
        self.deficit.most(usize::from(self.account.burst))
    }

    /// Returns the number of packets that the input may receive, if it may by its share receive `most`.
    #[inline]
    pub(super) fn within_rate(&self, most: usize) -> usize {
        match &self.rate {
            Some(rate) if rate.shapes && !self.port.drains() => rate.meter.estimate(most),
            _ => most,
        }
    }

    /// Leaves packets in their ring that are beyond the input's share: some of those in `pending` from
    /// `had` on. Returns their number, and the load of the others in `load`.
    #[cold]
    pub(super) fn cut(&mut self, turn: &mut Turn<'_>, pending: &mut Batch, had: usize, load: &mut Load) -> usize {
        let fitting = self.deficit.fitting(pending.ids()[had..].iter().map(|&id| load_of(turn, id)));
        let Some(&first) = pending.ids()[had..].get(fitting) else { return 0 };
        turn.leave_tail(first.index()..turn.accepted());
        let before = pending.len();
        pending.retain(|id| !turn.is_left(id));
        // Packets that cannot stay in their ring pass. All descriptors were followed.
        *load = Load { descriptors: load.descriptors, ..sum_of(turn, &pending.ids()[had..]) };
        before - pending.len()
    }

    /// Returns whether the rate of the port lets it receive at the time `now`, in nanoseconds.
    #[inline]
    fn is_within_rate(&mut self, now: u64) -> bool {
        match &mut self.rate {
            Some(rate) if rate.shapes => rate.meter.is_ready(now) || self.port.drains(),
            _ => true,
        }
    }

    /// Returns the time until which the packets of the port wait for its rate, if they do.
    pub(super) fn waits_until(&self) -> Option<u64> {
        let rate = self.rate.as_ref().filter(|rate| rate.shapes && !self.port.drains())?;
        rate.meter.waits_until()
    }
}

impl InputRate {
    /// Notes a look that found no packets. An input that is quiet gives its credit back.
    #[cold]
    fn note_empty(&mut self, is_quiet: bool) {
        self.meter.note_empty();
        if is_quiet {
            self.meter.relax();
        }
    }
}

/// Returns the load of a packet. A chain may have descriptors that no memory segment of the body shows.
fn load_of(turn: &Turn<'_>, id: PacketId) -> Load {
    let segments = if turn.is_gso(id) { turn.segments(id) } else { 0 };
    let descriptors = turn.body_segments(id).saturating_sub(1);
    Load { packets: 1, bytes: turn.body_len(id), segments, descriptors }
}

/// Returns the load of some packets.
pub(super) fn sum_of(turn: &Turn<'_>, ids: &[PacketId]) -> Load {
    ids.iter().fold(Load::default(), |sum, &id| sum.and(load_of(turn, id)))
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
    /// True if the last look was at a quiet input.
    is_quiet_look: bool,
    /// True until the turn has looked at all inputs that are due.
    is_cut_short: bool,
    /// True if quiet inputs come first: the last turn was full before it came to them.
    has_quiet_first: bool,
    /// Number of active inputs that it had looked at before the first that it passed over because it
    /// was full.
    passed_over: Option<usize>,
    /// Packets of backlogged inputs that a turn takes at most.
    slots: usize,
    /// Cycles that looks at quiet inputs may still take. One look may make it negative.
    credit: i64,
    /// Cycles of [`LOOKS_SAVED`].
    saved: i64,
    /// Time at which the present turn began.
    began: u64,
    /// True if the last turn had packets.
    is_busy: bool,
    /// Number of the present turn.
    turn: u64,
    /// Indexes of the inputs that have a rate.
    limited: Vec<usize>,
    /// Time at which the present turn began, in nanoseconds; 0 without such inputs.
    pub(super) now: u64,
}

impl Inputs {
    /// Adds an input. It is active at first.
    pub(super) fn add(&mut self, input: Input) {
        self.saved = in_cycles(LOOKS_SAVED, hertz()).try_into().unwrap_or(i64::MAX);
        self.active.push(self.all.len());
        if input.rate.is_some() {
            self.limited.push(self.all.len());
        }
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

    /// Returns whether any input has a rate.
    #[inline]
    pub(super) fn has_rates(&self) -> bool {
        !self.limited.is_empty()
    }

    /// Returns the inputs that have a rate.
    pub(super) fn limited(&mut self) -> impl Iterator<Item = &mut Input> {
        let mut limited = self.limited.iter().copied().peekable();
        self.all.iter_mut().enumerate().filter(move |(at, _)| limited.next_if_eq(at).is_some()).map(|(_, input)| input)
    }

    /// Returns the time at which the first input that waits for its rate is ready, in nanoseconds.
    pub(super) fn ready_at(&self) -> Option<u64> {
        self.limited.iter().filter_map(|&at| self.all[at].waits_until()).min()
    }

    /// Returns the number of active inputs.
    pub(super) fn active(&self) -> usize {
        self.active.len()
    }

    /// Returns whether the last turn passed over no input because it was full.
    #[inline]
    pub(super) fn are_all_served(&self) -> bool {
        self.passed_over.is_none()
    }

    /// Begins a turn at the time `now`, with so many free slots.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: u64, slots: usize) {
        self.turn += 1;
        self.looked = (0, 0);
        self.is_cut_short = true;
        self.passed_over = None;
        self.slots = slots - slots / 4;
        if self.has_rates() {
            self.now = nanoseconds(now);
        }
        if self.is_busy && !self.quiet.is_empty() {
            let passed = now.saturating_sub(self.began).saturating_as::<i64>();
            self.credit = (self.credit + passed / LOOKS_PART).min(self.saved);
        }
        self.began = now;
    }

    /// Notes the cycles of a look at the last input, which had no packets.
    #[inline]
    pub(super) fn note_vain_look(&mut self, cycles: u64) {
        if self.is_quiet_look && self.credit > 0 {
            // A worker that was descheduled has not looked all the time.
            self.credit -= cycles.saturating_as::<i64>().min(self.saved);
        }
    }

    /// Returns the next input that this turn receives from, after it has taken so many packets.
    /// Inputs in debt are left out, those that wait for their rate, and those that have had their share.
    /// A full turn leaves out the backlogged ones.
    #[inline]
    pub(super) fn next(&mut self, taken: usize, round: &ShareRound) -> Option<&mut Input> {
        loop {
            let (active, quiet) = &mut self.looked;
            let has_active = *active < self.active.len();
            let has_quiet = *quiet < self.quiet.len();
            self.is_quiet_look = if has_active {
                self.has_quiet_first && has_quiet && self.credit > 0
            } else {
                has_quiet && (self.credit > 0 || taken == 0 && *quiet < IDLE_LOOKS)
            };
            let index = if self.is_quiet_look {
                *quiet += 1;
                self.quiet[(self.first_quiet + *quiet - 1) % self.quiet.len()]
            } else if has_active {
                *active += 1;
                self.active[(self.first + *active - 1) % self.active.len()]
            } else {
                self.is_cut_short = false;
                return None;
            };
            let input = &mut self.all[index];
            if input.deficit.is_backlogged && (round.is_full() || taken >= self.slots) {
                // It comes first in the next turn.
                self.passed_over.get_or_insert(self.looked.0.saturating_sub(1));
                continue;
            }
            if !input.account.is_in_debt() && input.is_within_rate(self.now) && input.deficit.fill(round) {
                input.turn = self.turn;
                return Some(&mut self.all[index]);
            }
        }
    }

    /// Ends the receiving of a turn that has taken so many packets.
    #[inline]
    pub(super) fn end_turn(&mut self, taken: usize) {
        self.is_busy = taken > 0;
        self.has_quiet_first = self.is_cut_short;
        let (active, quiet) = self.looked;
        // An input that found no free slots comes first in the next turn.
        let step = self.passed_over.unwrap_or(if active < self.active.len() { active } else { 1 });
        self.first = (self.first + step) % self.active.len().max(1);
        let mut looked = (0..quiet).map(|nth| self.quiet[(self.first_quiet + nth) % self.quiet.len()]);
        let wakes = looked.any(|index| self.all[index].empty == 0);
        self.first_quiet = (self.first_quiet + quiet) % self.quiet.len().max(1);
        if wakes || taken > 0 && self.active.iter().any(|&index| self.all[index].empty >= PATIENCE) {
            self.sort();
        }
    }

    /// Moves inputs to the list where they belong now. Both lists are in the order of `all`, and the
    /// inputs that come next stay the same.
    #[cold]
    fn sort(&mut self) {
        let next_active = self.active.get(self.first).copied().unwrap_or_default();
        let next_quiet = self.quiet.get(self.first_quiet).copied().unwrap_or_default();
        self.active.clear();
        self.quiet.clear();
        for (index, input) in self.all.iter().enumerate() {
            if input.empty < PATIENCE { self.active.push(index) } else { self.quiet.push(index) }
        }
        self.first = position_from(&self.active, next_active);
        self.first_quiet = position_from(&self.quiet, next_quiet);
    }
}

/// Returns the position of the first index from `least` on in a sorted list; 0 if there is none.
fn position_from(list: &[usize], least: usize) -> usize {
    let position = list.partition_point(|&index| index < least);
    if position < list.len() { position } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Null;

    /// Returns inputs: the first is active, all others are quiet.
    fn quiet_but_one(count: usize) -> Inputs {
        let mut inputs = Inputs::default();
        for at in 0..count {
            let port: Arc<dyn Port> = Arc::new(Null::new("in"));
            inputs.add(Input::new(port, at, Arc::default(), Served::Nobody, InputRules::RETURNING, 1));
        }
        for _ in 0..PATIENCE {
            turn(&mut inputs, 0, |at| usize::from(at == 0));
        }
        assert_eq!((inputs.active.as_slice(), inputs.quiet.len()), ([0].as_slice(), count - 1));
        inputs
    }

    /// Runs a turn at `now`, in which each input has `packets` and each look takes [`LOOK`]. Returns
    /// the inputs that were looked at.
    fn turn(inputs: &mut Inputs, now: u64, packets: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut looked = Vec::new();
        let mut taken = 0;
        inputs.begin_turn(now, 256);
        let mut round = ShareRound::default();
        round.begin(true);
        while let Some(input) = inputs.next(taken, &round) {
            let at = input.to;
            input.note(packets(at), 0..packets(at));
            if packets(at) == 0 {
                inputs.note_vain_look(LOOK);
            }
            taken += packets(at);
            looked.push(at);
        }
        inputs.end_turn(taken);
        looked
    }

    /// Cycles of a look.
    const LOOK: u64 = 10;

    #[test]
    fn looks_have_a_part_of_a_busy_workers_time() {
        let mut inputs = quiet_but_one(100);
        let busy = |at| usize::from(at == 0);
        let interval = LOOK * LOOKS_PART.cast_unsigned();
        let mut now = inputs.began;
        inputs.credit = 0;
        assert_eq!(turn(&mut inputs, now, busy), [0], "no time has passed");
        let mut seen = BTreeSet::new();
        for _ in 1..=99 {
            now += interval;
            let looked = turn(&mut inputs, now, busy);
            assert_eq!((looked.len(), looked[0]), (2, 0), "{looked:?}");
            seen.extend(looked);
        }
        assert_eq!(seen.len(), 100, "each has its turn");
        let in_credit = inputs.saved.cast_unsigned().div_ceil(LOOK).min(99);
        let looked = turn(&mut inputs, now + 1_000_000 * interval, busy);
        assert_eq!(looked.len() as u64, 1 + in_credit, "it saves up a few looks only");
    }

    #[test]
    fn a_turn_without_packets_looks_at_some_quiet_inputs() {
        let mut inputs = quiet_but_one(100);
        let now = inputs.began;
        inputs.credit = 0;
        let mut seen = BTreeSet::new();
        for _ in 0..99_usize.div_ceil(IDLE_LOOKS) {
            seen.extend(turn(&mut inputs, now, |_| 0));
        }
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn a_quiet_input_with_packets_is_active_again() {
        let mut inputs = quiet_but_one(10);
        let now = inputs.began;
        inputs.credit = 10 * LOOK.cast_signed();
        assert_eq!(turn(&mut inputs, now, |at| usize::from(at == 7)).len(), 10, "all are due");
        assert_eq!(inputs.active, [0, 7]);
        inputs.credit = 0;
        assert_eq!(turn(&mut inputs, now, |at| usize::from(at == 7)), [0, 7]);
    }

    #[test]
    fn a_full_turn_takes_only_packets_of_inputs_that_are_not_backlogged() {
        let mut inputs = Inputs::default();
        for at in 0..4 {
            let port: Arc<dyn Port> = Arc::new(Null::new("in"));
            inputs.add(Input::new(port, at, Arc::default(), Served::Nobody, InputRules::RETURNING, 1));
        }
        let mut round = ShareRound::default();
        // Each packet of the first three takes two turns; the last input has a small one.
        let mut turn = |inputs: &mut Inputs| {
            let mut looked = Vec::new();
            round.begin(inputs.are_all_served());
            inputs.begin_turn(0, 256);
            while let Some(input) = inputs.next(0, &round) {
                let at = input.to;
                let bytes = if at < 3 { 2_000_000 } else { 0 };
                let most = if at < 3 { 1 } else { 64 };
                input.deficit.charge(Load { packets: 1, bytes, segments: 0, descriptors: 0 }, most, &mut round);
                input.note(1, 0..1);
                looked.push(at);
            }
            inputs.end_turn(looked.len());
            looked
        };
        turn(&mut inputs);
        let turns: Vec<_> = (0..40).map(|_| turn(&mut inputs)).collect();
        assert!(turns.iter().all(|looked| looked.contains(&3) && looked.len() <= 2), "{turns:?}");
        let count = |at: usize| turns.iter().filter(|looked| looked.contains(&at)).count();
        let counts = [0, 1, 2].map(count);
        assert!(counts.iter().all(|count| count.abs_diff(counts[0]) <= 1), "{counts:?}");
    }

    /// Otherwise inputs at the end of the list would starve beside others that move between the lists.
    #[test]
    fn the_order_goes_on_after_inputs_have_moved() {
        let mut inputs = quiet_but_one(6);
        inputs.all.iter_mut().for_each(|input| input.empty = 0);
        inputs.sort();
        (inputs.first, inputs.first_quiet) = (4, 0);
        inputs.all[1].empty = PATIENCE;
        inputs.sort();
        assert_eq!((inputs.active[inputs.first], inputs.quiet.as_slice()), (4, [1].as_slice()));
        inputs.all[4].empty = PATIENCE;
        inputs.sort();
        assert_eq!((inputs.active[inputs.first], inputs.quiet[inputs.first_quiet]), (5, 1));
        inputs.all[5].empty = PATIENCE;
        inputs.sort();
        assert_eq!((inputs.active[inputs.first], inputs.quiet.as_slice()), (0, [1, 4, 5].as_slice()));
        inputs.first_quiet = 2;
        inputs.all[1].empty = 0;
        inputs.sort();
        assert_eq!(inputs.quiet[inputs.first_quiet], 5);
    }

    #[test]
    fn a_turn_begins_with_quiet_inputs_if_the_last_one_was_full_before_them() {
        let mut inputs = quiet_but_one(4);
        let mut full_turn = |now: u64| {
            let mut round = ShareRound::default();
            round.begin(true);
            inputs.begin_turn(now, 1);
            let mut looked = Vec::new();
            // The active input fills the turn.
            while looked.last() != Some(&0)
                && let Some(input) = inputs.next(0, &round)
            {
                let at = input.to;
                input.note(usize::from(at == 0), 0..usize::from(at == 0));
                if at != 0 {
                    inputs.note_vain_look(LOOK);
                }
                looked.push(at);
            }
            inputs.end_turn(1);
            looked
        };
        let interval = LOOK * LOOKS_PART.cast_unsigned();
        let now = 1_000_000 * interval;
        assert_eq!(full_turn(now), [0]);
        let all = full_turn(now + interval);
        assert_eq!(all.len(), 4, "{all:?}");
        assert_eq!(all.last(), Some(&0));
    }

    #[test]
    fn an_input_in_debt_is_left_out() {
        let mut inputs = quiet_but_one(3);
        inputs.all_mut()[0].account.balance = 0;
        let now = inputs.began;
        assert_eq!(turn(&mut inputs, now, |_| 0), [1, 2]);
        assert_eq!(inputs.received().count(), 0);
    }
}

//! Fair shares of a turn: deficit round robin (Shreedhar and Varghese 1995), in cycles.
//!
//! An input whose ring always has packets is *backlogged*. Each round gives every input a *quantum* of
//! cycles for each unit of its weight, and an input receives while its credit is positive. A burst may
//! make the credit negative, by a packet in most cases, and then the input is left out for some turns. So
//! backlogged inputs share the worker's time by their weights, whatever their packets are.
//!
//! ```text
//! quantum    what 64 packets of the cheapest backlogged input cost, but at most TURN / their weights
//! a turn     takes packets of backlogged inputs up to TURN and three quarters of its slots,
//!            and those of all other inputs
//! a round    ends with the turn in which no backlogged input is passed over: mostly the first
//! credit     at most a quantum for each unit of weight: nobody saves up
//! ```
//!
//! So a turn is short, and one packet of a port that sends seldom waits for one turn and passes in the
//! next one. Costs are estimates, since the packets of all inputs pass nodes and outputs together.

use std::time::Duration;

use az::SaturatingAs;

use crate::clock::{hertz, in_cycles};
use crate::shares::BURST;

/// The time of a turn's packets, by estimate. A paced packet waits for two turns at most.
const TURN: Duration = Duration::from_micros(15);

/// The least quantum in cycles, with many inputs.
const LEAST: i64 = 600;

/// The time of a turn divides no burst that costs less, in cycles: packets that come together may be
/// coalesced.
const UNDIVIDED: i64 = 6000;

/// Cycles of a packet beside its bytes.
const PACKET: i64 = 100;

/// Cycles of a body's bytes: 5/64 for each.
const BYTES: (i64, u32) = (5, 6);

/// Cycles of a GSO segment, whether or not an output makes it.
const SEGMENT: i64 = 40;

/// Cycles of a descriptor in a chain of several: to follow it, and to copy from one more place.
const DESCRIPTOR: i64 = 26;

/// Packets that an input has received in a turn: the facts that decide on their cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) packets: usize,
    /// Bytes of all bodies.
    pub(super) bytes: u32,
    /// GSO segments that they may become.
    pub(super) segments: u32,
    /// Descriptors of chains that have several.
    pub(super) descriptors: u32,
}

impl Load {
    /// Returns the load of both.
    pub(super) fn and(self, other: Self) -> Self {
        Load {
            packets: self.packets + other.packets,
            bytes: self.bytes.saturating_add(other.bytes),
            segments: self.segments.saturating_add(other.segments),
            descriptors: self.descriptors.saturating_add(other.descriptors),
        }
    }

    /// Returns the cycles of these packets, by estimate.
    #[inline]
    pub(super) fn cost(self) -> i64 {
        let (factor, shift) = BYTES;
        PACKET * self.packets.saturating_as::<i64>()
            + ((factor * i64::from(self.bytes)) >> shift)
            + SEGMENT * i64::from(self.segments)
            + DESCRIPTOR * i64::from(self.descriptors)
    }
}

/// A round: the quantum of all inputs, and the sum of what they have spent.
#[derive(Debug)]
pub(super) struct ShareRound {
    /// Cycles of [`TURN`].
    time: i64,
    /// The estimated cycles of packets that take this time.
    turn: i64,
    quantum: i64,
    /// The sum of all quanta.
    sum: i64,
    /// Cycles of the present turn's packets.
    spent: i64,
    /// The weights of the inputs that were backlogged in this round.
    weights: i64,
    /// The least cost of 64 packets of a backlogged input, for a unit of weight.
    least: i64,
}

impl Default for ShareRound {
    fn default() -> Self {
        let time = in_cycles(TURN, hertz()).saturating_as::<i64>().min(i64::MAX / 4);
        ShareRound { time, turn: time, quantum: time, sum: 0, spent: 0, weights: 0, least: i64::MAX }
    }
}

impl ShareRound {
    /// Begins a turn. It begins a round as well if `is_new`.
    #[inline]
    pub(super) fn begin(&mut self, is_new: bool) {
        self.spent = 0;
        if is_new {
            self.quantum = (self.turn / self.weights.max(1)).max(UNDIVIDED).min(self.least).max(LEAST);
            self.sum = self.sum.wrapping_add(self.quantum);
            (self.weights, self.least) = (0, i64::MAX);
        }
    }

    /// Learns that the packets of a turn took `cycles`. The estimate of later turns follows.
    #[inline]
    pub(super) fn learn(&mut self, cycles: u64) {
        // Others are short anyway, and mostly of the work that each turn has.
        if self.spent >= self.turn / 4 {
            self.follow(cycles);
        }
    }

    /// A worker may be descheduled in a turn, so that a single turn counts little.
    #[cold]
    fn follow(&mut self, cycles: u64) {
        let cycles = cycles.saturating_as::<i64>().max(1);
        let fits = self.spent.saturating_mul(self.time) / cycles;
        let next = self.turn + (fits.clamp(self.turn / 2, self.turn * 2) - self.turn) / 8;
        self.turn = next.clamp(self.time / 8, self.time * 2);
    }

    /// Returns whether the turn has enough packets of backlogged inputs.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.spent >= self.turn
    }
}

/// The credit of an input.
#[derive(Debug)]
pub(super) struct Deficit {
    weight: i64,
    /// Cycles that its packets may still cost.
    credit: i64,
    /// The sum of all quanta when the credit was last filled up.
    sum: i64,
    /// Packets of its last burst, and their cost.
    last: (i64, i64),
    /// Its last burst had as many packets as it might.
    pub(super) is_backlogged: bool,
}

impl Deficit {
    /// Returns the credit of an input with this weight. 0 counts as 1.
    pub(super) fn new(weight: u16) -> Self {
        Deficit { weight: weight.max(1).into(), credit: 0, sum: 0, last: (0, 0), is_backlogged: false }
    }

    /// Fills the credit up. Returns whether the input may receive.
    #[inline]
    pub(super) fn fill(&mut self, round: &ShareRound) -> bool {
        let passed = round.sum.wrapping_sub(self.sum);
        self.sum = round.sum;
        let earned = passed.saturating_mul(self.weight);
        let most = round.quantum.saturating_mul(self.weight);
        self.credit = self.credit.saturating_add(earned).min(most);
        self.credit > 0
    }

    /// Returns the number of packets that the input may receive: for a backlogged one so many as the
    /// credit is enough for, if they are like those of the last burst, and at least 1. Packets that come
    /// together after a pause need not be like those before.
    #[inline]
    pub(super) fn most(&self, burst: usize) -> usize {
        let (packets, cost) = self.last;
        let burst_cost = cost.saturating_mul(burst.saturating_as::<i64>());
        let fits = !self.is_backlogged || burst_cost <= self.credit.saturating_mul(packets);
        if fits { burst } else { self.limited(burst) }
    }

    #[cold]
    fn limited(&self, burst: usize) -> usize {
        let (packets, cost) = self.last;
        let most = self.credit.saturating_mul(packets).checked_div(cost).unwrap_or(0);
        most.saturating_as::<usize>().saturating_add(1).min(burst)
    }

    /// Charges a burst. The input is backlogged from now on if it has `most` packets.
    #[inline]
    pub(super) fn charge(&mut self, load: Load, most: usize, round: &mut ShareRound) {
        let cost = load.cost();
        self.credit -= cost;
        self.is_backlogged = load.packets > 0 && load.packets >= most;
        round.spent += cost;
        if load.packets > 0 {
            let packets = load.packets.saturating_as::<i64>();
            self.last = (packets, cost);
            if self.is_backlogged {
                round.weights += self.weight;
                round.least = round.least.min(i64::from(BURST) * cost / (packets * self.weight));
            }
        }
    }

    /// Returns whether this load is more than the credit, and not by its last packet alone.
    #[inline]
    pub(super) fn is_exceeded_by(&self, load: Load) -> bool {
        load.packets > 1 && load.cost() > self.credit.saturating_mul(2)
    }

    /// Returns the number of packets that pass with these loads, in order: the last one may exceed the
    /// credit.
    pub(super) fn fitting(&self, loads: impl Iterator<Item = Load>) -> usize {
        let sums = loads.scan(Load::default(), |sum, load| Some(std::mem::replace(sum, sum.and(load))));
        sums.take_while(|before| before.cost() < self.credit).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns with backlogged inputs of these weights and packets. Returns the cost of each one's
    /// packets.
    fn run<const N: usize>(inputs: [(u16, Load); N], turns: usize) -> [i64; N] {
        let mut round = ShareRound::default();
        let mut deficits = inputs.map(|(weight, _)| Deficit::new(weight));
        let mut costs = [0; N];
        let mut first = 0;
        let mut passed_over = None;
        for _ in 0..turns {
            round.begin(passed_over.take().is_none());
            for nth in 0..N {
                let at = (first + nth) % N;
                let deficit = &mut deficits[at];
                if deficit.is_backlogged && round.is_full() {
                    passed_over.get_or_insert(nth);
                } else if deficit.fill(&round) {
                    let packet = inputs[at].1;
                    let most = deficit.most(BURST.into());
                    let packets = most.min(deficit.fitting(std::iter::repeat_n(packet, most)));
                    let load = std::iter::repeat_n(packet, packets).fold(Load::default(), Load::and);
                    deficit.charge(load, packets, &mut round);
                    costs[at] += load.cost();
                }
            }
            first = (first + passed_over.unwrap_or(1)) % N;
        }
        costs
    }

    fn assert_shares<const N: usize>(inputs: [(u16, Load); N]) {
        let costs = run(inputs, 20_000);
        let of_weight = |at: usize| costs[at] as f64 / f64::from(inputs[at].0);
        let all: Vec<_> = (0..N).map(of_weight).collect();
        assert!(all.iter().all(|cost| (cost / all[0] - 1.0).abs() < 0.03), "{all:?}");
    }

    const SMALL: Load = Load { packets: 1, bytes: 0, segments: 0, descriptors: 0 };
    const FULL: Load = Load { packets: 1, bytes: 1258, segments: 0, descriptors: 0 };
    const HUGE: Load = Load { packets: 1, bytes: 64_000, segments: 650, descriptors: 0 };
    const LARGE: Load = Load { packets: 1, bytes: 64_000, segments: 45, descriptors: 0 };

    const CHAINED: Load = Load { packets: 1, bytes: 1258, segments: 0, descriptors: 1024 };

    #[test]
    fn backlogged_inputs_share_the_time_whatever_their_packets_are() {
        assert_shares([(1, SMALL); 2]);
        assert_shares([(1, SMALL), (1, LARGE)]);
        assert_shares([(1, SMALL), (1, FULL), (1, LARGE), (1, LARGE)]);
        assert_shares([(1, LARGE); 8]);
        // These are in debt most of the time, and the other one is alone meanwhile.
        assert_shares([(1, SMALL), (1, HUGE)]);
        assert_shares([(1, SMALL), (1, CHAINED)]);
    }

    #[test]
    fn weights_divide_it() {
        assert_shares([(1, SMALL), (2, SMALL)]);
        assert_shares([(1, LARGE), (2, LARGE)]);
        assert_shares([(1, LARGE), (2, SMALL), (16, FULL)]);
    }
}

//! Shares of a turn: what an input's packets may cost, so that a turn stays short for all others.
//!
//! Most packets cost little more than their copy, and the turn's limits bound those. Three kinds of
//! packets can cost hundreds of times as much:
//!
//! - packets for an output that sends by system calls (a tap, a packet socket, AF_XDP): a GSO packet
//!   may become hundreds of sends;
//! - packets that go to many outputs: each is a copy;
//! - packets that go to many nodes with state (groups of ports), although none may let them pass.
//!
//! The graph charges these packets to their input after the nodes have run and before any output
//! delivers:
//!
//! ```text
//! balance of an input:   at most its share of TURN_TIME; grows by the share with each turn
//! a packet passes        while the balance is positive, and may make it negative (debt)
//! all packets behind it  stay in their ring, if the input takes packets back
//! an input in debt       is not received from
//! ```
//!
//! One packet can cost a hundred shares: 65 000 bytes in segments of 48. Turns that take microseconds
//! would soon repay that, and the next such packet would hold the worker again. So a *long* debt counts
//! twice, and only the time that passes repays it, while other inputs have packets: see
//! [`debts`](crate::graph::debts).
//!
//! Shares of all other packets' time are in [`deficit`](crate::graph::deficit).
//!
//! The cost of a send is measured: see [`SendCost`]. A turn without costly packets pays one
//! comparison for this, and one for each input.

use std::ops::Range;
use std::time::Duration;

use az::SaturatingAs;

/// The time that all costly packets of a turn may take, by estimate. Each active input has an equal
/// share.
pub(crate) const TURN_TIME: Duration = Duration::from_micros(25);

/// The least share, as a part of [`TURN_TIME`]: with more inputs, turns get longer instead.
const MIN_SHARE: i64 = 16;

/// Largest number of packets received from one input in one turn.
pub(crate) const BURST: u16 = 64;

/// Cycles of a copy beside its bytes, or of the making of a GSO segment: measured 105 to 160.
const COPY_CYCLES: u64 = 150;

/// Bytes that a copy moves in a cycle, at least.
const COPY_BYTES: u64 = 8;

/// Returns the cycles of one copy of a packet, by estimate.
#[inline]
pub(crate) fn copy_cycles(body: u32, segments: u32) -> u64 {
    u64::from(body) / COPY_BYTES + u64::from(segments) * COPY_CYCLES
}

/// The account of an input.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// Cycles that the input's packets may still cost. Negative: a debt.
    pub(crate) balance: i64,
    /// Packets that are received at most. Less than [`BURST`] if more could not pass.
    pub(crate) burst: u16,
    /// Indexes of the packets in the present turn.
    pub(crate) packets: Range<usize>,
}

impl Default for Account {
    fn default() -> Self {
        // The first charge limits the balance to the share.
        Account { balance: i64::MAX, burst: BURST, packets: 0..0 }
    }
}

impl Account {
    /// Limits the balance to a share: nobody saves up.
    pub(crate) fn limit(&mut self, share: i64) {
        self.balance = self.balance.min(share);
    }

    /// Charges the packets, by `cost`. Returns the indexes of those that are too many.
    pub(crate) fn charge(&mut self, cost: impl Fn(usize) -> u64) -> Range<usize> {
        let mut at = self.packets.start;
        while at < self.packets.end && self.balance > 0 {
            self.pay(cost(at));
            at += 1;
        }
        if at < self.packets.end {
            let passed = u16::try_from(at - self.packets.start).unwrap_or(BURST);
            self.burst = passed.clamp(1, BURST);
        }
        at..self.packets.end
    }

    /// Notes the packets that were received in this turn.
    #[inline]
    pub(crate) fn note(&mut self, packets: Range<usize>) {
        self.packets = packets;
        self.burst = (self.burst * 2).min(BURST);
    }

    /// Returns whether the input's packets have cost more than they might: it is not received from.
    #[inline]
    pub(crate) fn is_in_debt(&self) -> bool {
        self.balance <= 0
    }

    /// Charges for a packet.
    pub(crate) fn pay(&mut self, cycles: u64) {
        self.balance = self.balance.saturating_sub(cycles.saturating_as::<i64>());
    }
}

/// Returns the share of each of `active` inputs.
pub(crate) fn share(turn: i64, active: usize) -> i64 {
    turn / active.saturating_as::<i64>().clamp(1, MIN_SHARE)
}

/// The measured cost of a send of an output: a moving mean that follows a rise quickly, because an
/// estimate that is too low lets turns become long. It never more than doubles at once, because a
/// worker may be descheduled while it delivers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendCost(u64);

/// Cycles of a send before any was measured: the order of a system call.
const FIRST_COST: u64 = 3000;

impl Default for SendCost {
    fn default() -> Self {
        SendCost(FIRST_COST)
    }
}

impl SendCost {
    /// Returns the cycles of `sends`.
    #[inline]
    pub(crate) fn cycles(self, sends: u32) -> u64 {
        self.0.saturating_mul(sends.into())
    }

    /// Learns that `sends` took `cycles`.
    pub(crate) fn learn(&mut self, sends: u64, cycles: u64) {
        let Some(each) = cycles.checked_div(sends) else { return };
        self.0 = if each > self.0 {
            self.0.midpoint(each).min(self.0.saturating_mul(2)).max(1)
        } else {
            // Rounded up, so that it reaches each lower value.
            self.0 - (self.0 - each).div_ceil(16)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_passes_what_its_share_covers_and_one_packet_more() {
        let mut account = Account { packets: 10..20, balance: 100, ..Account::default() };
        assert_eq!(account.charge(|_| 30), 14..20, "three cost 90, and the fourth makes a debt");
        assert_eq!(account.balance, -20);
        account.balance = 100;
        account.packets = 0..1;
        assert_eq!(account.charge(|_| 1_000), 1..1, "one packet always passes");
        assert_eq!(account.balance, -900);
    }

    #[test]
    fn free_packets_all_pass() {
        let mut account = Account { packets: 0..64, balance: 100, ..Account::default() };
        assert!(account.charge(|_| 0).is_empty());
        assert_eq!(account.balance, 100);
    }

    #[test]
    fn shares_divide_the_turn() {
        assert_eq!([0, 1, 2, 16, 1000].map(|active| share(1600, active)), [1600, 1600, 800, 100, 100]);
    }

    #[test]
    fn a_send_cost_follows_rises_and_falls() {
        let mut cost = SendCost::default();
        cost.learn(0, 500);
        assert_eq!(cost.cycles(2), 2 * FIRST_COST);
        (0..200).for_each(|_| cost.learn(10, 1000));
        assert_eq!(cost.cycles(1), 100);
        cost.learn(1, u64::MAX);
        assert_eq!(cost.cycles(1), 200, "a worker that was descheduled does not spoil the estimate");
        (0..20).for_each(|_| cost.learn(1, 50_000));
        assert!(cost.cycles(1) > 49_000, "{cost:?}");
    }
}

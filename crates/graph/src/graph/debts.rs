//! Debts of inputs whose packets have cost more than their shares.
//!
//! A debt is repaid by a share with each turn. A turn that serves others takes some microseconds, and
//! repays up to 100. So an input whose packets cost a hundred shares each would have nearly all of the
//! worker's time. Such *long* debts are repaid in another way while other inputs have packets:
//!
//! ```text
//! a long debt counts twice
//! each cycle that passes repays one cycle, divided among all inputs in long debt
//! ```
//!
//! So the packets of these inputs take half of the time at most, and the other inputs have the other
//! half.

use std::time::Duration;

use super::inputs::Input;
use crate::clock::in_cycles;
use crate::shares::Account;

/// A debt is long from so many times the turn's time on. Packets of 64 KiB with 1448 bytes in each
/// segment seldom cost as much, so a bulk sender is not held up by its own acknowledgements.
const LONG: i64 = 2;

/// Time after its last packets for which an input may not be held up.
const BUSY: Duration = Duration::from_millis(1);

/// The debts of a graph's inputs.
#[derive(Debug)]
pub(super) struct Debts {
    /// True if an input's balance is less than its share.
    pub(super) any: bool,
    /// A balance below this is a long debt.
    long: i64,
    /// Cycles of [`BUSY`].
    busy: u64,
    repaid_at: u64,
    /// Last time at which an input without a long debt had packets.
    others_at: u64,
}

impl Debts {
    /// `turn_time` is in cycles.
    pub(super) fn new(turn_time: i64, hertz: f64) -> Self {
        let busy = in_cycles(BUSY, hertz);
        Debts { any: false, long: -LONG * turn_time, busy, repaid_at: 0, others_at: 0 }
    }

    /// Notes at the time `now` that inputs are charged.
    pub(super) fn begin(&mut self, now: u64) {
        if !self.any {
            (self.any, self.repaid_at) = (true, now);
        }
    }

    /// Notes an input that has been charged for all of its packets of a turn.
    pub(super) fn note(&mut self, account: &mut Account, now: u64) {
        if account.balance < self.long {
            account.balance = account.balance.saturating_mul(2);
        } else {
            self.others_at = now;
        }
    }

    /// Repays at the time `now`, once a turn.
    pub(super) fn repay(&mut self, now: u64, share: i64, inputs: &mut [Input]) {
        let passed = now.saturating_sub(self.repaid_at);
        self.repaid_at = now;
        let is_held = |account: &Account| account.balance < self.long;
        let others_wait = now.saturating_sub(self.others_at) < self.busy;
        let held = if others_wait { inputs.iter().filter(|input| is_held(&input.account)).count() } else { 0 };
        let each = u64::try_from(held).ok().and_then(|held| passed.checked_div(held)).unwrap_or(0);
        self.any = false;
        for Input { account, .. } in inputs {
            let earned = if others_wait && is_held(account) { each.try_into().unwrap_or(i64::MAX) } else { share };
            account.balance = account.balance.saturating_add(earned).min(share);
            self.any |= account.balance < share;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use straightline_packet::{InputRules, Served};

    use super::*;
    use crate::Null;

    const TURN: i64 = 1000;

    /// Returns debts at a clock of 1 MHz, so that an input is busy for 1000 cycles, and inputs with
    /// these balances.
    fn debts(balances: &[i64]) -> (Debts, Vec<Input>) {
        let input = |&balance: &i64| {
            let port = Arc::new(Null::new("in"));
            let mut input = Input::new(port, 0, Arc::default(), Served::Nobody, InputRules::RETURNING, 1);
            input.account.balance = balance;
            input
        };
        let mut debts = Debts::new(TURN, 1e6);
        debts.begin(10_000);
        (debts, balances.iter().map(input).collect())
    }

    fn balances(inputs: &[Input]) -> Vec<i64> {
        inputs.iter().map(|input| input.account.balance).collect()
    }

    #[test]
    fn a_turn_repays_a_share_of_a_short_debt() {
        let (mut debts, mut inputs) = debts(&[-2000, -100, 400, 500]);
        debts.note(&mut inputs[3].account, 10_000);
        debts.repay(10_001, 500, &mut inputs);
        assert_eq!(balances(&inputs), [-1500, 400, 500, 500], "nobody saves up");
        assert!(debts.any);
        (0..4).for_each(|_| debts.repay(10_002, 500, &mut inputs));
        assert_eq!(balances(&inputs), [500; 4]);
        assert!(!debts.any);
    }

    #[test]
    fn only_time_repays_a_long_debt_while_others_have_packets() {
        let (mut debts, mut inputs) = debts(&[-5000, -5000, 500]);
        for Input { account, .. } in &mut inputs {
            debts.note(account, 10_000);
        }
        assert_eq!(balances(&inputs), [-10_000, -10_000, 500], "it counts twice");
        debts.repay(10_000, 500, &mut inputs);
        assert_eq!(balances(&inputs), [-10_000, -10_000, 500], "no time has passed");
        debts.repay(10_900, 500, &mut inputs);
        assert_eq!(balances(&inputs), [-9550, -9550, 500], "all of them repay the time that passed");
        debts.note(&mut inputs[2].account, 10_900);
        debts.repay(11_500, 500, &mut inputs);
        assert_eq!(balances(&inputs), [-9250, -9250, 500]);
        debts.repay(12_000, 500, &mut inputs);
        assert_eq!(balances(&inputs), [-8750, -8750, 500], "the others have no packets any more");
    }

    #[test]
    fn inputs_in_long_debt_do_not_hold_up_each_other() {
        let (mut debts, mut inputs) = debts(&[-5000, -5000]);
        for Input { account, .. } in &mut inputs {
            debts.note(account, 10_000);
        }
        debts.repay(10_000, 500, &mut inputs);
        assert_eq!(balances(&inputs), [-9500, -9500]);
    }
}

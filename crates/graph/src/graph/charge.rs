//! Charges packets that cost much to their inputs, once the nodes have run: see
//! [`shares`](crate::shares).

use az::SaturatingAs;
use straightline_packet::{Batch, MAX_BATCH, PacketId, Served, Turn};

use super::{Action, Entry, Graph};
use crate::clock::cycles;
use crate::shares::{copy_cycles, share};

/// A turn whose costly packets take less than this part of their time is not looked at closer.
const CHEAP: i64 = 4;

/// Visits of a packet that cost nothing: the groups of its sender and of its receiver decide about it, and
/// the flows of its bridge.
const FREE_VISITS: u32 = 3;

/// Visits of packets to nodes with state, which take as long as a copy. A flood visits such a node of
/// each port, and it costs as much where none of them lets it pass.
pub(super) struct Visits {
    /// Visits of all packets.
    total: usize,
    /// Visits of each packet, by its index.
    of: [u32; MAX_BATCH],
}

impl Default for Visits {
    fn default() -> Self {
        Visits { total: 0, of: [0; MAX_BATCH] }
    }
}

impl Visits {
    /// Counts a visit of each packet.
    #[inline]
    pub(super) fn add(&mut self, batch: &Batch) {
        self.total += batch.len();
        batch.ids().iter().for_each(|id| self.of[id.index()] += 1);
    }

    fn clear(&mut self) {
        if self.total > 0 {
            *self = Self::default();
        }
    }

    /// Returns the cycles of the visits of a packet, by estimate.
    fn cycles(&self, packet: usize) -> u64 {
        copy_cycles(0, self.of[packet].saturating_sub(FREE_VISITS))
    }

    /// Returns the cycles of all visits. With one visit for each taken packet, none is looked at.
    #[inline]
    fn all_cycles(&self, taken: usize) -> u64 {
        if self.total > taken { (0..MAX_BATCH).map(|packet| self.cycles(packet)).sum() } else { 0 }
    }
}

impl Graph {
    /// Repays debts of inputs, at the time `now`.
    #[cold]
    pub(super) fn repay(&mut self, turn: &Turn<'_>, now: u64) {
        turn.blame(Served::Nobody);
        let share = share(self.turn_time, self.inputs.active());
        self.debts.repay(now, share, self.inputs.all_mut());
    }

    /// Notes which inputs of this turn are in long debt, at the time `now`, once all are charged.
    #[cold]
    pub(super) fn note_debts(&mut self, now: u64) {
        for input in self.inputs.received() {
            self.debts.note(&mut input.account, now);
        }
    }

    /// Charges packets that cost much to their inputs, if this turn has such packets.
    #[inline]
    pub(super) fn charge(&mut self, turn: &mut Turn<'_>, taken: usize) {
        self.charge_beyond(turn, taken, true);
    }

    /// Charges the packets of a further round. They have been delivered before, so none can stay in its
    /// ring.
    pub(super) fn charge_round(&mut self, turn: &mut Turn<'_>) {
        self.charge_beyond(turn, 0, false);
    }

    /// Charges packets that cost much. The first `taken` deliveries are no copies.
    #[inline]
    fn charge_beyond(&mut self, turn: &mut Turn<'_>, taken: usize, may_leave: bool) {
        let mut deliveries = 0;
        let mut outputs = 0;
        let mut sends = 0_u64;
        for index in self.outputs.iter() {
            let entry = &self.entries[index];
            let mut add = |entry: &Entry, count: usize| {
                deliveries += count;
                outputs += 1;
                if let Some(cost) = entry.send_cost {
                    sends += cost.cycles(count.saturating_as::<u32>().saturating_add(turn.gso_segments()));
                }
            };
            if !entry.is_special || entry.behind.is_empty() {
                add(entry, entry.action.deliveries(&entry.pending));
                continue;
            }
            // Enclosed nodes have not run yet. They may send each packet to all outputs behind them.
            entry.behind.iter().for_each(|&output| add(&self.entries[output], entry.pending.len()));
        }
        // Most turns are far below the bound, so an upper limit of their costs is enough.
        let further = deliveries.saturating_sub(taken).saturating_as::<u32>();
        let copies = if further > 0 { further_copies(turn, further, outputs) } else { 0 };
        let visits = self.visits.as_ref().map_or(0, |visits| visits.all_cycles(taken));
        let all = sends.saturating_add(copies).saturating_add(visits);
        if all.saturating_as::<i64>() > self.turn_time / CHEAP {
            self.charge_each(turn, may_leave);
        }
        if let Some(visits) = &mut self.visits {
            visits.clear();
        }
    }

    /// Charges each packet for its sends, its visits, and its copies beyond the first. Packets that are
    /// too many stay in their rings, if they may. They pay for their visits, which have taken place.
    #[cold]
    fn charge_each(&mut self, turn: &mut Turn<'_>, may_leave: bool) {
        let visits = self.visits.as_deref();
        let of_visits = |packet| visits.map_or(0, |visits| visits.cycles(packet));
        let mut costs: [u64; MAX_BATCH] = std::array::from_fn(of_visits);
        let mut has_copy = [!may_leave; MAX_BATCH];
        for index in self.outputs.iter() {
            let entry = &self.entries[index];
            let mut add = |entry: &Entry, id: PacketId| {
                let is_further = std::mem::replace(&mut has_copy[id.index()], true);
                let copy = if is_further { copy_cycles(turn.body_len(id), turn.segments(id)) } else { 0 };
                let calls = entry.send_cost.map_or(0, |cost| cost.cycles(entry.action.sends_of(turn, id)));
                costs[id.index()] += copy + calls;
            };
            entry.action.for_each_delivery(&entry.pending, &mut |id| add(entry, id));
            for &output in &entry.behind {
                entry.pending.ids().iter().for_each(|&id| add(&self.entries[output], id));
            }
        }
        let share = share(self.turn_time, self.inputs.active());
        self.debts.begin(cycles());
        let mut most = 0;
        for input in self.inputs.received() {
            input.account.limit(share);
            let before = input.account.balance;
            let too_many = input.account.charge(|packet| costs[packet]);
            if input.rules.returns && may_leave {
                turn.leave_tail(too_many.clone());
            }
            // The packets that cannot go back pass, and make a debt.
            for id in turn.ids(too_many) {
                let packet = id.index();
                input.account.pay(if turn.is_left(id) { of_visits(packet) } else { costs[packet] });
            }
            let paid = before.saturating_sub(input.account.balance);
            if paid > most {
                most = paid;
                turn.blame(input.served);
            }
        }
        if may_leave && turn.leaves_packets() {
            self.withdraw_left(turn);
        }
    }

    /// Charges the sends of an output that runs early, and names the input whose sends cost most. Its
    /// packets cannot be left.
    pub(super) fn charge_sends(&mut self, turn: &Turn<'_>, output: usize) {
        let entry = &self.entries[output];
        let Some(cost) = entry.send_cost else { return };
        let share = share(self.turn_time, self.inputs.active());
        self.debts.begin(cycles());
        let mut most = 0;
        for input in self.inputs.received() {
            let packets = input.account.packets.clone();
            let sent = entry.pending.ids().iter().filter(|id| packets.contains(&id.index()));
            let cycles = sent.map(|&id| cost.cycles(entry.action.sends_of(turn, id))).fold(0, u64::saturating_add);
            if cycles == 0 {
                continue;
            }
            input.account.limit(share);
            input.account.pay(cycles);
            if cycles > most {
                most = cycles;
                turn.blame(input.served);
            }
        }
    }

    /// Removes the packets that stay in their rings from all outputs.
    fn withdraw_left(&mut self, turn: &Turn<'_>) {
        for index in self.outputs.iter() {
            let entry = &mut self.entries[index];
            entry.pending.retain(|id| !turn.is_left(id));
            if let Action::Output { port, .. } | Action::CopyOutput { port } = &entry.action {
                port.withdraw_left(turn);
            }
        }
    }
}

/// Returns an upper limit of the cycles of all copies beyond the first of each packet: there are
/// `further` of them, and no packet has more than `outputs`.
#[cold]
fn further_copies(turn: &Turn<'_>, further: u32, outputs: u32) -> u64 {
    let most = outputs.saturating_sub(1);
    let bytes = turn.borrowed().saturating_mul(most);
    let segments = turn.gso_segments().saturating_mul(most);
    copy_cycles(bytes, segments.saturating_add(further))
}

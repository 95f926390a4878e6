//! Rounds: a node changes a packet between two of its outputs.
//!
//! All nodes of a turn run before all outputs, so each packet is delivered as the last node has left
//! it. A node that wants a packet delivered in two versions keeps the second one for another round:
//!
//! ```text
//! all nodes run, all outputs run                 (the first round, as in each turn)
//! next_round of each node that has rounds        (changes packets, sends them again)
//! all nodes behind it run, all outputs run       (the second round)
//! …                                              until no node sends a packet
//! ```

use straightline_packet::Turn;

use super::{Action, Graph, Next};

impl Graph {
    /// Runs further rounds until no node has packets for one. Each node ends its rounds by itself.
    #[cold]
    pub(super) fn run_rounds(&mut self, turn: &mut Turn<'_>, at: &mut u64) {
        let departs = turn.departs();
        loop {
            let mut goes_on = false;
            for nth in 0..self.rounds.len() {
                // Edges lead to lower indexes.
                let (later, rest) = self.entries.split_at_mut(self.rounds[nth]);
                let entry = &mut rest[0];
                let Action::Node(node) = &mut entry.action else { continue };
                turn.serve(entry.served);
                let mut next = Next { edges: &entry.edges, later, ready: &mut self.ready };
                goes_on |= node.next_round(turn.packets(), departs.as_ref(), &mut next);
            }
            if !goes_on {
                return;
            }
            self.run_nodes(turn, at);
            self.charge_round(turn);
            if self.debts.any {
                self.note_debts(*at);
            }
            self.run_outputs(turn, at);
        }
    }
}

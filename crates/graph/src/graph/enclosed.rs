//! Nodes in front of one output of a flood: they may change packets, and other outputs do not see it.

use straightline_packet::Turn;

use super::{Action, Graph, NodeIndex};

impl Graph {
    /// Encloses the nodes from `first` to their outputs: only these outputs see how the nodes change
    /// packets. Packets come to these nodes through `first` alone.
    ///
    /// Enclosed nodes run after all other nodes, one enclosure after the other. Their packets are
    /// kept before, and restored after their outputs have run ([`KeptPackets`]). A packet that such
    /// a node drops is dropped for these outputs only.
    ///
    /// [`KeptPackets`]: straightline_packet::KeptPackets
    pub fn enclose(&mut self, first: NodeIndex) {
        let NodeIndex(first) = first;
        // Edge 0 leads on to the output, which is therefore the first one found.
        let mut behind = Vec::new();
        self.collect_outputs(first, &mut behind);
        let entry = &mut self.entries[first];
        if matches!(entry.action, Action::Node(_)) {
            entry.behind = behind;
            entry.leads_to_early = false;
            entry.is_special = true;
            self.kept.get_or_insert_default();
        }
    }

    fn collect_outputs(&self, index: usize, into: &mut Vec<usize>) {
        let entry = &self.entries[index];
        if !matches!(entry.action, Action::Node(_)) && !into.contains(&index) {
            into.push(index);
        }
        entry.edges.iter().for_each(|&edge| self.collect_outputs(edge, into));
    }

    /// Runs an entry that runs after all nodes: an output, or enclosed nodes.
    pub(super) fn run_enclosed_or_output(&mut self, turn: &mut Turn<'_>, index: usize, at: &mut u64) {
        if self.entries[index].behind.is_empty() {
            self.run_output(turn, index, at);
        } else {
            self.run_enclosed(turn, index, at);
        }
    }

    /// Runs enclosed nodes and their outputs.
    fn run_enclosed(&mut self, turn: &mut Turn<'_>, first: usize, at: &mut u64) {
        let Some(mut kept) = self.kept.take() else { return };
        // Tunnels share the output of their underlay. It first delivers the packets of others.
        for nth in 0..self.entries[first].behind.len() {
            let output = self.entries[first].behind[nth];
            if self.outputs.remove(output) {
                self.run_output(turn, output, at);
            }
        }
        kept.keep(turn.packets(), &self.entries[first].pending);
        self.run_node(turn, first, at);
        while let Some(index) = self.ready.take_last() {
            match self.entries[index].action {
                Action::Node(_) => self.run_node(turn, index, at),
                Action::Output { .. } | Action::CopyOutput { .. } => self.run_output(turn, index, at),
            }
        }
        kept.restore(turn.packets());
        self.kept = Some(kept);
    }
}

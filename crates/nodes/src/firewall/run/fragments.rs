//! Fragments: the first one of a datagram is a packet of a connection, and the others follow it.

use straightline_conntrack::Entry;
use straightline_packet::{Batch, Packets, PortIndex, Reason};

use super::{Decision, Run, Work};
use crate::firewall::facts::{Facts, Flow, Fragment};

impl Run<'_> {
    /// Decides about fragments, in their order: a datagram that is complete makes place for the next.
    #[cold]
    pub(super) fn follow_fragments(&mut self, packets: &Packets<'_>, batch: &Batch) {
        let Work { fragments, .. } = &mut *self.work;
        fragments.sort_unstable_by_key(|(at, _)| *at);
        for nth in 0..self.work.fragments.len() {
            let (at, entry) = self.work.fragments[nth];
            let from = packets.port(batch.ids()[at]);
            self.work.decisions[at] = match (self.work.facts[at], entry) {
                (Some(Facts::Packet(flow)), Some(entry)) => self.first_fragment(&flow, entry, from),
                (Some(Facts::LaterFragment { flow, fragment }), None) => self.next_fragment(&flow, &fragment, from, at),
                _ => Decision::Drop(Reason::Denied),
            };
        }
    }

    /// Notes a packet of a connection that passes, if it is the first fragment of a datagram.
    fn first_fragment(&self, flow: &Flow, entry: Entry, from: PortIndex) -> Decision {
        let Some(place) = flow.fragment else { return Decision::Pass };
        let key = flow.fragments_key(self.port.0, self.sender, &place);
        let fragment = place.noted(self.sender, from.0);
        match self.rules.table.first_fragment(&key, &fragment, Some(place.header.into()), Some(entry), self.now) {
            Ok(()) => Decision::Pass,
            Err(_) => Decision::Drop(Reason::FragmentRefused),
        }
    }

    /// Decides about a fragment behind the first one, which has no ports.
    fn next_fragment(&mut self, flow: &Flow, place: &Fragment, from: PortIndex, at: usize) -> Decision {
        let key = flow.fragments_key(self.port.0, self.sender, place);
        match self.rules.table.next_fragment(&key, &place.noted(self.sender, from.0), self.now) {
            Ok(Some(entry)) if self.is_still_allowed(entry, flow, at) => Decision::Pass,
            Ok(_) => Decision::Drop(Reason::Denied),
            Err(_) => Decision::Drop(Reason::FragmentRefused),
        }
    }

    /// Returns whether the connection of a datagram is allowed. If the policy has changed since its first
    /// fragment, it decides about the connection.
    fn is_still_allowed(&mut self, entry: Entry, flow: &Flow, at: usize) -> bool {
        if !entry.is_stale(self.own.generation) {
            return true;
        }
        let Some(connection) = self.rules.table.connection_of(entry, self.now) else { return false };
        let is_question = entry.direction().opener() == self.sender;
        let flow = flow.of_connection(&connection.key, self.sender, is_question);
        self.present(entry, &flow, self.sender, at).is_ok()
    }
}

//! The firewall: the groups of a port decide which connections begin, and its answers pass.
//!
//! A port with groups has two nodes. One sees the packets that the port sends, and one those that the
//! port would get, for this port alone. So a packet between two ports with groups passes both, and each
//! port has a connection of its own for it.
//!
//! ```text
//! a packet with a connection   passes if it fits the connection's state
//! an ICMP error                passes if it quotes a packet of a connection
//! a fragment behind the first  passes if the first one did
//! any other packet             rules decide; a packet of one station to another begins a connection
//! ```
//!
//! - **Fails closed.** A packet drops while there are no rules for its port, and if its headers are not
//!   whole or not visible.
//! - **Heads only.** All that is read lies in the head, which the guest cannot change any more.
//! - **Messages without a rule** that a port sends have a form and a limit (`messages.rs`).
//! - **Once.** A packet that goes back to its ring is not decided again when it comes again
//!   (`../tickets.rs`).
//! - **Policy changes** have a number. A connection that an older policy allowed is decided again with
//!   its next packet.

mod control;
mod facts;
mod limit;
mod members;
mod messages;
mod plain;
mod quoted;
mod run;

use std::fmt;
use std::sync::Arc;

use straightline_conntrack::Side;
use straightline_firewall::Direction;
use straightline_graph::{Departs, Next, Node};
use straightline_packet::{Batch, Packets, PortIndex, Reason};

pub(crate) use control::secret;
pub use control::{Decided, FirewallControl, FirewallPort, FirewallRules, FirewallSettings, GuardedNetwork};
pub(crate) use facts::{Facts, Flow, Fragment};
pub use limit::MessageLimit;
pub use messages::MessageSettings;
use run::{Run, Work};

use crate::BindingTable;

/// A node that lets pass what the groups of its port allow. It has one edge.
pub struct Firewall {
    rules: Arc<FirewallRules>,
    port: PortIndex,
    /// `Out`: it sees the packets that the port sends.
    direction: Direction,
    is_in_patch: bool,
    /// The bindings of its bridge.
    bindings: Option<Arc<BindingTable>>,
    work: Box<Work>,
}

impl fmt::Debug for Firewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Firewall { port, direction, .. } = self;
        f.debug_struct("Firewall").field("port", port).field("direction", direction).finish_non_exhaustive()
    }
}

impl Firewall {
    /// Creates the node of a worker. `direction` is that of the packets, as the port sees them. In a
    /// bridge with VLANs, it stands behind a [`VlanIn`](crate::VlanIn): frames have no tag of the bridge.
    #[must_use]
    pub fn new(control: &FirewallControl, port: PortIndex, direction: Direction, is_in_patch: bool) -> Self {
        let rules = Arc::clone(control.rules());
        Firewall { rules, port, direction, is_in_patch, bindings: None, work: Box::new(Work::new()) }
    }

    /// Returns the node with the bindings of its bridge: neighbour discovery may go to their addresses.
    #[must_use]
    pub fn knowing(self, bindings: Option<Arc<BindingTable>>) -> Self {
        Firewall { bindings, ..self }
    }

    /// Returns whether a packet that drops is gone. One that a port of a bridge does not get may go to
    /// others.
    fn is_single(&self) -> bool {
        self.direction == Direction::Out || self.is_in_patch
    }
}

impl Node for Firewall {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        let is_single = self.is_single();
        let Firewall { rules, port, direction, work, bindings, .. } = self;
        let drop = |packets: &mut Packets<'_>, id, reason| {
            if is_single { packets.discard(id, reason) } else { packets.drop_at(*port, &[id], reason) }
        };
        let own = rules.load(packets).and_then(|rules| Some((rules, rules.port(*port)?)));
        let Some((rules, own)) = own else {
            work.clear();
            batch.ids().iter().for_each(|&id| drop(packets, id, Reason::Denied));
            return;
        };
        let bindings = bindings.as_deref();
        Run::new(work, rules, own, *port, *direction, packets.now()).knowing(bindings).decide(packets, batch);
        for (&id, decision) in batch.ids().iter().zip(&work.decisions) {
            match decision.reason() {
                None => next.push(0, id),
                Some(reason) => drop(packets, id, reason),
            }
        }
    }

    fn has_state(&self) -> bool {
        true
    }

    fn note_returned(&mut self, packets: &Packets<'_>, departs: &Departs) {
        let sender = if self.direction == Direction::Out { Side::Local } else { Side::Remote };
        self.work.issue_tickets(packets, departs, self.port, sender);
        if !self.is_single() {
            self.work.returned_drops(departs).for_each(|reason| packets.take_back_drop(self.port, reason));
        }
    }

    fn changes_packets(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;

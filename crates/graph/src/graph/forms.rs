//! Forms: outputs that get packets otherwise than other outputs of the same flood.

use std::fmt;

use straightline_packet::{ChangedPackets, MAX_BATCH, PacketId, Packets, Reason, Turn};

use super::{Action, Graph, NodeIndex};

/// A form of packets, such as "with one VLAN tag". An output that has it gets each packet in this
/// form, and all other outputs get the packet as it is.
///
/// A flooded packet is changed once for each form, and not for each output. See [`ChangedPackets`]
/// for what mirrors, captures and `full = "wait"` see.
///
/// ```
/// use std::sync::Arc;
/// use straightline_graph::{Form, Graph, Null};
/// use straightline_packet::{PacketId, Packets, Reason};
///
/// /// Sends everything to all stations.
/// #[derive(Debug)]
/// struct ToAll;
///
/// impl Form for ToAll {
///     fn change(&self, packets: &mut Packets<'_>, id: PacketId) -> Result<(), Reason> {
///         packets.head_mut(id)[..6].fill(0xff);
///         Ok(())
///     }
/// }
///
/// let mut graph = Graph::new();
/// let outputs = ["a", "b"].map(|name| graph.output(Arc::new(Null::new(name)), false));
/// graph.form(Box::new(ToAll), &outputs);
/// ```
pub trait Form: Send + fmt::Debug {
    /// Changes a packet for its delivery. It may do what [`Packets::save_outside`] allows: prepend,
    /// strip or write the first 16 bytes, pull bytes up, and set the offload.
    ///
    /// The outputs of the form drop a packet for which this fails, and count the reason. It must
    /// not drop the packet itself, because others may deliver it.
    fn change(&self, packets: &mut Packets<'_>, id: PacketId) -> Result<(), Reason>;

    /// Returns whether the form changes this packet. A packet that has the form already costs less.
    fn changes(&self, packets: &Packets<'_>, id: PacketId) -> bool {
        let _ = (packets, id);
        true
    }
}

/// A form and the entries that get packets in it.
pub(super) struct FormGroup {
    form: Box<dyn Form>,
    members: Vec<usize>,
    changed: ChangedPackets<MAX_BATCH>,
}

impl Graph {
    /// Adds a form in which packets come to these entries: to outputs, or to enclosed nodes
    /// ([`Self::enclose`]). An entry has one form at most.
    pub fn form(&mut self, form: Box<dyn Form>, entries: &[NodeIndex]) {
        let members: Vec<_> = entries.iter().map(|entry| entry.0).collect();
        for &member in &members {
            let entry = &mut self.entries[member];
            entry.form = Some(self.forms.len());
            entry.is_special = true;
        }
        self.forms.push(Some(Box::new(FormGroup { form, members, changed: ChangedPackets::default() })));
    }

    /// Runs an entry that has a form, and the other entries of this form that have packets. An
    /// output that runs early runs alone.
    pub(super) fn run_form(&mut self, turn: &mut Turn<'_>, index: usize, at: &mut u64) {
        let Some(form) = self.entries[index].form else { return };
        let Some(mut group) = self.forms[form].take() else { return };
        let FormGroup { form: own, members, changed } = &mut *group;
        let is_early = self.entries[index].is_early;
        let mut seen = [false; MAX_BATCH];
        let mut failed = [None; MAX_BATCH];
        let mut any_failed = false;
        for &member in &*members {
            if member == index || !is_early && self.outputs.contains(member) {
                for &id in self.entries[member].pending.ids() {
                    if !std::mem::replace(&mut seen[id.index()], true) && own.changes(turn.packets(), id) {
                        let result = changed.change(turn.packets(), id, |packets, id| own.change(packets, id));
                        any_failed |= result.is_err();
                        failed[id.index()] = result.err();
                    }
                }
            }
        }
        for &member in &*members {
            if member == index || !is_early && self.outputs.remove(member) {
                if any_failed {
                    self.drop_failed(turn, member, &failed);
                }
                self.run_enclosed_or_output(turn, member, at);
            }
        }
        changed.restore(turn.packets());
        self.forms[form] = Some(group);
    }

    /// Drops the packets of an entry that could not be changed, and counts them for its port.
    #[cold]
    fn drop_failed(&mut self, turn: &mut Turn<'_>, member: usize, failed: &[Option<Reason>; MAX_BATCH]) {
        let output = self.entries[member].behind.first().copied().unwrap_or(member);
        let (port, waits) = match &self.entries[output].action {
            Action::Output { port, wait } => (port.index(), *wait),
            Action::CopyOutput { port } => (port.index(), false),
            Action::Node(_) => (None, false),
        };
        self.entries[member].pending.retain(|id| {
            let Some(reason) = failed[id.index()] else { return true };
            if waits {
                // It may have to go back to its ring with a packet before it, as if a node had dropped it.
                turn.discard(id, reason);
            } else if let Some(port) = port {
                turn.drop_at(port, &[id], reason);
            }
            false
        });
        if turn.is_observed() {
            turn.observe_notes();
        }
    }
}

//! Messages that need no rule.

use straightline_firewall::{Direction, MessageForm};
use straightline_packet::{PacketId, Packets, Reason};
use straightline_wire::{IpProtocol, ipv6, ndp, vlan};

use super::Run;
use crate::firewall::facts::{Address, Facts, Flow};
use crate::firewall::messages::{Message, flow_of};

impl Run<'_> {
    /// Judges a message that a rule allows, if the port has sent it: its number, and its form if a rule of the
    /// network (`is_needed`) has allowed it. Notes questions to the port, and the address that neighbour
    /// discovery to it names.
    ///
    /// # Errors
    /// The reason to drop it. `MessageForm` means that a rule of a group may allow it still.
    pub(super) fn judge_message(
        &self,
        is_needed: bool,
        facts: &Facts,
        packets: &Packets<'_>,
        id: PacketId,
    ) -> Result<(), Reason> {
        let head = packets.head(id);
        let Some(message) = Message::of(facts, head) else { return Ok(()) };
        let limits = self.rules.messages(self.port);
        let flow = flow_of(facts);
        if self.direction == Direction::In {
            if let Some(limits) = limits.filter(|_| is_needed) {
                limits.note(message);
            }
            if let Some((flow, address)) = flow.zip(flow.and_then(|flow| named(flow, head))).filter(|_| is_needed) {
                self.rules.named.note(packets.port(id), flow.vlan, address);
            }
            return Ok(());
        }
        let Some(limits) = limits else { return Ok(()) };
        let now = packets.now();
        let form = if is_needed { message.kind.form(head, packets.len(id) as usize) } else { MessageForm::Right };
        // Before all that takes time.
        limits.take(message, now)?;
        let (to, is_short) = match form {
            MessageForm::Wrong => return Err(Reason::MessageForm),
            MessageForm::ToOne { to, is_short } => (to, is_short),
            MessageForm::Right => return Ok(()),
        };
        let vlan = flow.map_or(0, |flow| flow.vlan);
        let is_named = self.rules.named.has(self.rules.neighbours(self.port), self.port, vlan, to.octets())
            || self.bindings.is_some_and(|bindings| bindings.has(packets, id, to.into()));
        match (is_named, is_short) {
            (true, _) => Ok(()),
            (false, false) => Err(Reason::MessageForm),
            (false, true) if limits.take_unknown(now) => Ok(()),
            (false, true) => Err(Reason::DiscoveryLimit),
        }
    }
}

/// Returns the address that a message of neighbour discovery names as that of its sender.
fn named(flow: &Flow, head: &[u8]) -> Option<Address> {
    if !flow.is_ipv6 || IpProtocol(flow.protocol) != IpProtocol::ICMPV6 {
        return None;
    }
    let address = match ndp::Kind::of(flow.icmp[0])? {
        ndp::Kind::NeighborSolicitation => Some(flow.src),
        ndp::Kind::NeighborAdvertisement => {
            let (_, packet) = vlan::skip_priority(head).ok()?;
            let message = ndp::Header::new_checked(head.get(packet + ipv6::LEN..)?).ok()?;
            message.target().map(|target| target.octets())
        }
        _ => None,
    };
    address.filter(|address| *address != [0; 16])
}

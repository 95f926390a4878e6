//! Messages that need no rule.

use straightline_firewall::{Direction, MessageForm};
use straightline_packet::{PacketId, Packets, Reason};
use straightline_wire::{IpProtocol, ndp};

use super::Run;
use crate::firewall::facts::{Address, Facts, Flow};
use crate::firewall::messages::{flow_of, kind_of};

impl Run<'_> {
    /// Judges a packet that a rule of the network allows: its form and its number, if the port has sent
    /// it. Notes the address that neighbour discovery to the port names.
    ///
    /// # Errors
    /// The reason to drop it.
    pub(super) fn without_rule(&self, facts: &Facts, packets: &Packets<'_>, id: PacketId) -> Result<(), Reason> {
        let flow = flow_of(facts);
        let Some(kind) = kind_of(facts) else { return Ok(()) };
        if self.direction == Direction::In {
            if let Some((flow, address)) = flow.zip(flow.and_then(|flow| named(flow, packets.head(id)))) {
                self.rules.named.note(packets.port(id), flow.vlan, address);
            }
            return Ok(());
        }
        let Some(limits) = self.rules.messages(self.port) else { return Ok(()) };
        let now = packets.now();
        match kind.form(packets.head(id), packets.len(id) as usize) {
            MessageForm::Wrong => return Err(Reason::MessageForm),
            MessageForm::ToOne { to, is_short } => {
                let vlan = flow.map_or(0, |flow| flow.vlan);
                let is_named = self.rules.named.has(self.port, vlan, to.octets())
                    || self.bindings.is_some_and(|bindings| bindings.has(packets, id, to.into()));
                if !is_named && !is_short {
                    return Err(Reason::MessageForm);
                }
                if !is_named && !limits.take_unknown(now) {
                    return Err(Reason::DiscoveryLimit);
                }
            }
            MessageForm::Right => {}
        }
        limits.take(kind, now)
    }
}

/// Returns the address that a message of neighbour discovery names as that of its sender.
fn named(flow: &Flow, head: &[u8]) -> Option<Address> {
    const MESSAGE: usize = straightline_wire::ethernet::LEN + straightline_wire::ipv6::LEN;
    if !flow.is_ipv6 || IpProtocol(flow.protocol) != IpProtocol::ICMPV6 {
        return None;
    }
    let address = match ndp::Kind::of(flow.icmp[0])? {
        ndp::Kind::NeighborSolicitation => Some(flow.src),
        ndp::Kind::NeighborAdvertisement => {
            let message = ndp::Header::new_checked(head.get(MESSAGE..)?).ok()?;
            message.target().map(|target| target.octets())
        }
        _ => None,
    };
    address.filter(|address| *address != [0; 16])
}

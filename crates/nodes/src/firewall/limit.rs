//! The limit of messages of a port without groups, in a network with ports that have some.

use std::sync::Arc;

use straightline_firewall::MessageKind;
use straightline_graph::{Departs, Next, Node};
use straightline_packet::{Batch, MAX_BATCH, PacketId, Packets, PortIndex};
use straightline_wire::{EtherType, IpProtocol, ethernet, ipv6};

use super::control::{FirewallControl, FirewallRules};
use super::messages::Message;
use crate::headers::{Headers, Transport, VID};

/// Extension headers of IPv6, behind which a message may be.
const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];

/// A node at the entrance of a port without groups, in a network with ports that have some. It has one
/// edge.
#[derive(Debug)]
pub struct MessageLimit {
    rules: Arc<FirewallRules>,
    port: PortIndex,
    /// Messages of the last batch that have passed.
    passed: Vec<(PacketId, Message)>,
}

impl MessageLimit {
    /// Creates the node of a worker.
    #[must_use]
    pub fn new(control: &FirewallControl, port: PortIndex) -> Self {
        MessageLimit { rules: Arc::clone(control.rules()), port, passed: Vec::with_capacity(MAX_BATCH) }
    }
}

impl Node for MessageLimit {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        self.passed.clear();
        let limits = self.rules.load(packets).and_then(|rules| rules.messages(self.port));
        for &id in batch.ids() {
            let message = message_of(packets, id).zip(limits);
            match message.map(|(message, limits)| limits.take(message, packets.now()).map(|()| message)) {
                None => next.push(0, id),
                Some(Ok(message)) => {
                    self.passed.push((id, message));
                    next.push(0, id);
                }
                Some(Err(reason)) => packets.discard(id, reason),
            }
        }
    }

    fn has_state(&self) -> bool {
        true
    }

    /// Messages that go back to their ring come again. Nobody has got them, so they do not count.
    fn note_returned(&mut self, packets: &Packets<'_>, departs: &Departs) {
        let Some(limits) = self.rules.load(packets).and_then(|rules| rules.messages(self.port)) else { return };
        for (id, message) in self.passed.drain(..) {
            if !departs[id.index()] {
                limits.give_back(message);
            }
        }
    }

    fn changes_packets(&self) -> bool {
        false
    }
}

/// Returns a message, or `None` for other packets.
#[inline]
fn message_of(packets: &mut Packets<'_>, id: PacketId) -> Option<Message> {
    const NEXT: usize = ethernet::LEN + 6;
    let front: &[u8; 24] = packets.head(id).first_chunk()?;
    let (kind, icmp_type) = match EtherType(u16::from_be_bytes([front[12], front[13]])) {
        EtherType::ARP => (MessageKind::Arp, 0),
        EtherType::IPV4 => (MessageKind::of_ip(IpProtocol(front[ethernet::LEN + 9]), 0)?, 0),
        EtherType::IPV6 if front[NEXT] == IpProtocol::ICMPV6.0 => {
            let icmp_type = *packets.head(id).get(ethernet::LEN + ipv6::LEN)?;
            (MessageKind::of_ip(IpProtocol::ICMPV6, icmp_type)?, icmp_type)
        }
        EtherType::IPV6 if EXTENSIONS.contains(&front[NEXT]) => kind_behind(packets, id)?,
        ether_type if ether_type.is_vlan() => kind_behind(packets, id)?,
        _ => return None,
    };
    Some(Message { kind, role: kind.role(icmp_type, packets.head(id)) })
}

/// Returns the kind and the ICMPv6 type of a message behind extension headers or priority tags.
#[cold]
fn kind_behind(packets: &mut Packets<'_>, id: PacketId) -> Option<(MessageKind, u8)> {
    let headers = Headers::of(packets, id);
    let icmp_type = match headers.transport {
        Transport::Icmp6 => *packets.head(id).get(usize::from(headers.l4))?,
        _ => 0,
    };
    let kind = match EtherType(headers.ether_type) {
        _ if headers.tag & VID != 0 => None,
        EtherType::ARP => Some(MessageKind::Arp),
        EtherType::IPV4 | EtherType::IPV6 => MessageKind::of_ip(IpProtocol(headers.protocol), icmp_type),
        _ => None,
    };
    kind.map(|kind| (kind, icmp_type))
}

//! The limit of messages of a port without groups, in a network with ports that have some.

use std::sync::Arc;

use straightline_firewall::MessageKind;
use straightline_graph::{Departs, Next, Node};
use straightline_packet::{Batch, MAX_BATCH, PacketId, Packets, PortIndex};
use straightline_wire::{EtherType, IpProtocol, ethernet, ipv6};

use super::control::{FirewallControl, FirewallRules};
use crate::headers::{Headers, Transport};

/// Extension headers of IPv6, behind which a message may be.
const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];

/// A node at the entrance of a port without groups, in a network with ports that have some. It has one
/// edge.
#[derive(Debug)]
pub struct MessageLimit {
    rules: Arc<FirewallRules>,
    port: PortIndex,
    /// Messages of the last batch that have passed.
    passed: Vec<(PacketId, MessageKind)>,
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
            let message = kind_of(packets, id).zip(limits);
            match message.map(|(kind, limits)| limits.take(kind, packets.now()).map(|()| kind)) {
                None => next.push(0, id),
                Some(Ok(kind)) => {
                    self.passed.push((id, kind));
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
        for (id, kind) in self.passed.drain(..) {
            if !departs[id.index()] {
                limits.give_back(kind);
            }
        }
    }

    fn changes_packets(&self) -> bool {
        false
    }
}

/// Returns the kind of a message without a tag, or `None` for other packets.
#[inline]
fn kind_of(packets: &mut Packets<'_>, id: PacketId) -> Option<MessageKind> {
    const NEXT: usize = ethernet::LEN + 6;
    let front: &[u8; 24] = packets.head(id).first_chunk()?;
    match EtherType(u16::from_be_bytes([front[12], front[13]])) {
        EtherType::ARP => Some(MessageKind::Arp),
        EtherType::IPV4 => MessageKind::of_ip(IpProtocol(front[ethernet::LEN + 9]), 0),
        EtherType::IPV6 if front[NEXT] == IpProtocol::ICMPV6.0 => {
            let icmp_type = packets.head(id).get(ethernet::LEN + ipv6::LEN)?;
            MessageKind::of_ip(IpProtocol::ICMPV6, *icmp_type)
        }
        EtherType::IPV6 if EXTENSIONS.contains(&front[NEXT]) => kind_behind(packets, id),
        _ => None,
    }
}

/// Returns the kind of a message behind extension headers.
#[cold]
fn kind_behind(packets: &mut Packets<'_>, id: PacketId) -> Option<MessageKind> {
    let headers = Headers::of(packets, id);
    if headers.transport != Transport::Icmp6 {
        return None;
    }
    MessageKind::of_ip(IpProtocol::ICMPV6, *packets.head(id).get(usize::from(headers.l4))?)
}

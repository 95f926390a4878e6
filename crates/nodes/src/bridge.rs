//! The learning bridge (IEEE 802.1Q, 8.6 to 8.8). It learns the port of each station by the source
//! addresses of frames, and floods frames whose destination it does not know.
//!
//! A bridge whose ports have rules ([`BridgePort`]) looks at these too. The VLAN of a frame is a fact
//! beside it: a tag goes when a frame comes in, and comes back when the frame leaves by a trunk
//! ([`TagForm`]). A bridge without rules pays nothing for this.

mod form;
mod member;
mod rules;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use form::TagForm;
pub use member::{BridgePort, MacLimit, NativeVlan, PortRules, PortVlans, StormLimits, VlanRole};
use member::{Classified, Crowd};
use rules::Rules;
use straightline_fdb::{Fdb, LearnOutcome, Station};
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, PacketId, Packets, PortIndex, Reason};
use straightline_wire::VlanId;
pub use table::{BridgeRules, BridgeTable};

/// First of the addresses 01:80:c2:00:00:00 to 0f, which are for the nearest bridge only (IEEE
/// 802.1Q, table 8-1).
const LINK_LOCAL: u64 = 0x0180_c200_0000;

/// The bit of an address for a group of stations.
const GROUP: u64 = 1 << 40;

/// The address of all stations.
const BROADCAST: u64 = 0xffff_ffff_ffff;

/// A learning bridge. It has one edge for each of its ports, in their order.
#[derive(Debug)]
pub struct Bridge {
    ports: Vec<PortIndex>,
    /// Edge of each port, by the port's index; `NONE` for ports that are not of this bridge.
    edges: Vec<usize>,
    /// `None`: no port has rules.
    rules: Option<Arc<Rules>>,
    fdb: Arc<Fdb>,
    /// Number of workers that share the table. Each has a bridge of its own.
    workers: u32,
    /// Batches since this bridge last swept the table.
    batches: u32,
}

const NONE: usize = usize::MAX;

/// The decision on a frame.
#[derive(Clone, Copy)]
enum Decision {
    Edge(usize),
    Flood(Crowd),
    Drop(Reason),
}

impl Bridge {
    /// Creates a bridge of `ports`, which learns stations in `fdb`.
    pub fn new(ports: &[BridgePort], fdb: Arc<Fdb>) -> Self {
        Self::with_rules(ports, Rules::of(ports).map(Arc::new), fdb)
    }

    /// Creates a bridge whose rules other workers' bridges share.
    fn with_rules(ports: &[BridgePort], rules: Option<Arc<Rules>>, fdb: Arc<Fdb>) -> Self {
        let ports: Vec<_> = ports.iter().map(|port| port.index).collect();
        let size = ports.iter().map(|p| p.index() + 1).max().unwrap_or(0);
        let mut edges = vec![NONE; size];
        for (edge, port) in ports.iter().enumerate() {
            edges[port.index()] = edge;
        }
        Bridge { ports, edges, rules, fdb, workers: 1, batches: 0 }
    }

    /// Sets the number of workers that share the table. They sweep it in turns, because only one
    /// can sweep at a time.
    #[must_use]
    pub fn shared_by(self, workers: u32) -> Self {
        Bridge { workers, ..self }
    }

    /// Decides on a frame from `port`, by its addresses and the table, and learns its source. The
    /// addresses are numbers ([`MacAddr::as_u64`](straightline_wire::MacAddr::as_u64)).
    #[inline]
    fn decide(&self, to: u64, from: u64, port: PortIndex, now: u32) -> Decision {
        if is_no_station(from) {
            return Decision::Drop(Reason::BadSource);
        }
        self.fdb.learn(Station::of_number(VlanId::DEFAULT, from), port, now);
        self.forward(VlanId::DEFAULT, to, port, now)
    }

    /// Decides on a frame as [`Self::decide`] does, with the rules of its port.
    fn decide_by(
        &self,
        rules: &Rules,
        vlan: Option<VlanId>,
        [to, from]: [u64; 2],
        port: PortIndex,
        now: u32,
    ) -> Decision {
        if is_no_station(from) {
            return Decision::Drop(Reason::BadSource);
        }
        let Some(member) = rules.member(port) else { return Decision::Drop(Reason::NotConnected) };
        let vlan = vlan.unwrap_or(VlanId::DEFAULT);
        if member.learns {
            let learned = self.fdb.learn(Station::of_number(vlan, from), port, now);
            if learned == LearnOutcome::Full && member.mac_limit.is_some_and(|limit| limit.drops) {
                return Decision::Drop(Reason::MacLimit);
            }
        }
        match self.forward(vlan, to, port, now) {
            Decision::Edge(edge) if member.isolated && rules.member(self.ports[edge]).is_some_and(|to| to.isolated) => {
                Decision::Drop(Reason::Isolated)
            }
            decision => decision,
        }
    }

    /// Returns where a frame goes.
    #[inline]
    fn forward(&self, vlan: VlanId, to: u64, port: PortIndex, now: u32) -> Decision {
        if to & GROUP != 0 {
            return match to {
                BROADCAST => Decision::Flood(Crowd::Broadcast),
                _ if to & !0xf == LINK_LOCAL => Decision::Drop(Reason::LinkLocal),
                _ => Decision::Flood(Crowd::Multicast),
            };
        }
        match self.fdb.lookup(Station::of_number(vlan, to), now) {
            Some(known) if known == port => Decision::Drop(Reason::SamePort),
            Some(known) => match self.edges.get(known.index()) {
                Some(&edge) if edge != NONE => Decision::Edge(edge),
                _ => Decision::Flood(Crowd::Unknown),
            },
            None => Decision::Flood(Crowd::Unknown),
        }
    }

    /// Sends a packet to every port except its own: a guest never gets its own frame back.
    #[inline(never)]
    fn flood(&self, packets: &mut Packets<'_>, from: PortIndex, id: PacketId, next: &mut Next<'_>) {
        if self.ports.len() < 2 {
            packets.discard(id, Reason::NoReceiver);
            return;
        }
        for (edge, &port) in self.ports.iter().enumerate() {
            if port != from {
                next.push(edge, id);
            }
        }
    }

    /// Floods a packet in its VLAN, as the rules of its port and of the others allow.
    #[inline(never)]
    fn flood_by(
        rules: &Rules,
        packets: &mut Packets<'_>,
        crowd: Crowd,
        vlan: Option<VlanId>,
        id: PacketId,
        next: &mut Next<'_>,
    ) {
        let from = packets.port(id);
        let Some(member) = rules.member(from) else { return packets.discard(id, Reason::NotConnected) };
        if !rules.may_flood(from, crowd, packets.now()) {
            return packets.discard(id, Reason::Storm);
        }
        let mut unsent = Reason::NoReceiver;
        let mut is_sent = false;
        for receiver in rules.receivers(vlan) {
            if receiver.port == from || crowd == Crowd::Unknown && !receiver.takes_unknown {
                continue;
            }
            if member.isolated && receiver.isolated {
                unsent = Reason::Isolated;
                continue;
            }
            next.push(receiver.edge, id);
            is_sent = true;
        }
        if !is_sent {
            packets.discard(id, unsent);
        }
    }

    /// Forwards the frames of a bridge without rules.
    fn process_plain(&self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        let now = packets.now();
        // Senders send to one station many times in a row. All frames of a row have one decision.
        let mut before = (0, 0, PortIndex(0));
        let mut decision = Decision::Drop(Reason::BadSource);
        for &id in batch.ids() {
            let port = packets.port(id);
            let Some([to, from]) = packets.head(id).first_chunk::<12>().map(numbers) else {
                packets.discard(id, Reason::Runt);
                continue;
            };
            if (to, from, port) != before {
                decision = self.decide(to, from, port, now);
                before = (to, from, port);
            }
            match decision {
                Decision::Edge(edge) => next.push(edge, id),
                Decision::Flood(_) => self.flood(packets, port, id, next),
                Decision::Drop(reason) => packets.discard(id, reason),
            }
        }
    }

    /// Forwards frames by the rules of the ports. In a row, all frames also have one tag.
    fn process_by(&self, rules: &Rules, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        let now = packets.now();
        let mut before = (0, 0, PortIndex(0), 0);
        let mut classified: Option<Classified> = None;
        let mut decision = Decision::Drop(Reason::BadSource);
        for &id in batch.ids() {
            let port = packets.port(id);
            let head = packets.head(id);
            let Some([to, from]) = head.first_chunk::<12>().map(numbers) else {
                packets.discard(id, Reason::Runt);
                continue;
            };
            let tag = match rules::tag_of(head) {
                Ok(tag) => tag,
                Err(reason) => {
                    packets.discard(id, reason);
                    continue;
                }
            };
            if (to, from, port, tag) != before {
                before = (to, from, port, tag);
                (classified, decision) = match rules.classify(port, tag) {
                    Ok(found) => {
                        let vlan = found.map(|found| found.vlan.id);
                        (found, self.decide_by(rules, vlan, [to, from], port, now))
                    }
                    Err(reason) => (None, Decision::Drop(reason)),
                };
            }
            if let Decision::Drop(reason) = decision {
                packets.discard(id, reason);
                continue;
            }
            if let Some(Classified { vlan, pops }) = classified {
                if pops && packets.pop_tag(id).is_err() {
                    packets.discard(id, Reason::ChecksumRange);
                    continue;
                }
                packets.set_vlan(id, Some(vlan));
            }
            match decision {
                Decision::Edge(edge) => next.push(edge, id),
                Decision::Flood(crowd) => {
                    Self::flood_by(rules, packets, crowd, classified.map(|found| found.vlan.id), id, next);
                }
                Decision::Drop(_) => {}
            }
        }
    }
}

/// Returns whether no station can have this address.
#[inline]
fn is_no_station(address: u64) -> bool {
    address & GROUP != 0 || address == 0
}

/// Returns destination and source as numbers. Two loads take less time than one for each byte.
#[inline]
fn numbers(addresses: &[u8; 12]) -> [u64; 2] {
    let number_at = |at: usize| addresses[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    [number_at(0) >> 16, number_at(4) & ((1 << 48) - 1)]
}

impl Node for Bridge {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        self.batches += 1;
        if self.batches >= self.workers {
            self.batches = 0;
            self.fdb.sweep(packets.now());
        }
        match &self.rules {
            None => self.process_plain(packets, batch, next),
            Some(rules) => self.process_by(rules, packets, batch, next),
        }
    }
}

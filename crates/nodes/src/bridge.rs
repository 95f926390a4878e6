//! The learning bridge (IEEE 802.1Q, 8.6 to 8.8). It learns the port of each station by the source
//! addresses of frames, and floods frames whose destination it does not know.
//!
//! A bridge whose ports have rules ([`BridgePort`]) looks at these too. The VLAN of a frame is a fact
//! beside it: a tag goes when a frame comes in, and comes back when the frame leaves by a trunk
//! ([`TagForm`]). A bridge without rules pays nothing for this.

mod form;
mod loops;
mod member;
mod rules;
mod snooping;
mod table;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

pub use form::TagForm;
pub(crate) use form::push;
use loops::Loops;
pub use member::{BridgePort, MacLimit, NativeVlan, PortRules, PortVlans, StormLimits, VlanRole};
use member::{Classified, Crowd, NestedTags, Reserved};
use rules::Lane;
pub(crate) use rules::Rules;
pub use snooping::SnoopingTable;
use snooping::{EdgeSet, Snooper};
use straightline_fdb::{Fdb, LearnOutcome, Station};
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, PacketId, PacketVlan, Packets, PortIndex, Reason, StripError};
use straightline_wire::{EtherType, VlanId};
pub use table::{BridgeRules, BridgeTable};

/// First of the addresses 01:80:c2:00:00:00 to 0f, which are for the nearest bridges.
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
    /// `None`: loops are not looked for.
    loops: Option<Arc<Loops>>,
    fdb: Arc<Fdb>,
    /// Number of workers that share the table. Each has a bridge of its own.
    workers: u32,
    /// Batches since this bridge last swept the table.
    batches: u32,
    /// Snooping, if the bridge has it.
    snooper: Option<Box<Snooper>>,
    /// A [`VlanIn`](crate::VlanIn) node has found the VLAN of each frame, and taken its tag.
    is_entered: bool,
}

const NONE: usize = usize::MAX;

/// The decision on a frame.
#[derive(Clone, Copy)]
enum Decision {
    Edge(usize),
    Flood(Crowd),
    Drop(Reason),
}

/// The limits of a flood while a station is frozen.
struct LoopLimits<'b> {
    loops: &'b Loops,
    /// The uplinks from which frames of the packet's source came back.
    echoes: u16,
    now: u32,
}

impl LoopLimits<'_> {
    fn is_paused(&self, port: PortIndex) -> bool {
        self.loops.is_paused(port, self.now)
    }

    /// Returns whether the flood does not leave by a port.
    fn keep_from(&self, port: PortIndex) -> bool {
        self.is_paused(port) || self.echoes & self.loops.uplink_bit(port) != 0
    }
}

impl Bridge {
    /// Creates a bridge of `ports`, which learns stations in `fdb`.
    pub fn new(ports: &[BridgePort], fdb: Arc<Fdb>) -> Self {
        Self::with(ports, Rules::of(ports).map(Arc::new), None, fdb)
    }

    /// Creates a bridge that shares its rules and its loop protection with those of other workers.
    fn with(ports: &[BridgePort], rules: Option<Arc<Rules>>, loops: Option<Arc<Loops>>, fdb: Arc<Fdb>) -> Self {
        let ports: Vec<_> = ports.iter().map(|port| port.index).collect();
        let size = ports.iter().map(|p| p.index() + 1).max().unwrap_or(0);
        let mut edges = vec![NONE; size];
        for (edge, port) in ports.iter().enumerate() {
            edges[port.index()] = edge;
        }
        Bridge { ports, edges, rules, loops, fdb, workers: 1, batches: 0, snooper: None, is_entered: false }
    }

    /// Sets the number of workers that share the table. They sweep it in turns, because only one
    /// can sweep at a time.
    #[must_use]
    pub fn shared_by(self, workers: u32) -> Self {
        Bridge { workers, ..self }
    }

    /// Sets the table of groups by which the bridge prunes multicast. It is of the same ports.
    #[must_use]
    pub fn snooped_by(self, groups: &SnoopingTable) -> Self {
        Bridge { snooper: Some(Box::new(groups.snooper())), ..self }
    }

    /// Has the bridge take the VLAN of each frame from the fact beside it, because its frames pass a
    /// [`VlanIn`](crate::VlanIn) node before. Without VLANs, nothing changes.
    #[must_use]
    pub fn behind_vlan_in(self) -> Self {
        // A bridge without VLANs has nothing to take.
        let is_entered = self.rules.as_ref().is_some_and(|rules| rules.have_vlans());
        Bridge { is_entered, ..self }
    }

    /// Decides on a frame from `port`, by its addresses and the table, and learns its source. The
    /// addresses are numbers ([`MacAddr::as_u64`](straightline_wire::MacAddr::as_u64)).
    #[inline]
    fn decide(&self, to: u64, from: u64, port: PortIndex, now: u32) -> Decision {
        if is_no_station(from) {
            return Decision::Drop(Reason::BadSource);
        }
        if self.learn(Station::of_number(VlanId::DEFAULT, from), port, now) == LearnOutcome::Frozen {
            return Decision::Drop(Reason::Loop);
        }
        self.forward(VlanId::DEFAULT, to, Reserved::ALL, port, now)
    }

    /// Decides on a frame as [`Self::decide`] does, with the rules of its port.
    #[inline]
    fn decide_by(
        &self,
        rules: &Rules,
        lane: &Lane,
        vlan: VlanId,
        [to, from]: [u64; 2],
        port: PortIndex,
        now: u32,
    ) -> Decision {
        if is_no_station(from) {
            return Decision::Drop(Reason::BadSource);
        }
        let station = Station::of_number(vlan, from);
        if lane.learns {
            match self.learn(station, port, now) {
                LearnOutcome::Full if lane.drops_unlearned => return Decision::Drop(Reason::MacLimit),
                LearnOutcome::Frozen => return Decision::Drop(Reason::Loop),
                _ => {}
            }
        } else if self.freezes(now).is_some() && self.fdb.refuses(station, port, now) {
            return Decision::Drop(Reason::Loop);
        }
        match self.forward(vlan, to, lane.reserved, port, now) {
            Decision::Edge(edge) if lane.isolated && rules.lane(self.ports[edge]).is_some_and(|to| to.isolated) => {
                Decision::Drop(Reason::Isolated)
            }
            decision => decision,
        }
    }

    /// Learns that a station is behind `port`.
    #[inline]
    fn learn(&self, station: Station, port: PortIndex, now: u32) -> LearnOutcome {
        let learned = self.fdb.learn(station, port, now);
        if let (LearnOutcome::Frozen, Some(loops)) = (learned, &self.loops) {
            loops.refused(station, port, now);
        }
        learned
    }

    /// Returns the loops if some station is frozen, or floods of some port pause.
    #[inline]
    fn freezes(&self, now: u32) -> Option<&Loops> {
        self.loops.as_deref().filter(|loops| loops.any(now))
    }

    /// Returns the limits of a flood that loops demand; `None` while there are none.
    #[inline]
    fn loop_limits(&self, packets: &Packets<'_>, id: PacketId) -> Option<LoopLimits<'_>> {
        let now = packets.now();
        let loops = self.freezes(now)?;
        let vlan = packets.vlan(id).map_or(VlanId::DEFAULT, |vlan| vlan.id);
        let [_, from] = packets.head(id).first_chunk().map(numbers)?;
        let echoes = self.fdb.echoes(Station::of_number(vlan, from), now);
        Some(LoopLimits { loops, echoes, now })
    }

    /// Returns where a frame goes.
    #[inline]
    fn forward(&self, vlan: VlanId, to: u64, reserved: Reserved, port: PortIndex, now: u32) -> Decision {
        if to & GROUP != 0 {
            return match to {
                BROADCAST => Decision::Flood(Crowd::Broadcast),
                _ if to & !0xf == LINK_LOCAL && reserved.contains(to) => Decision::Drop(Reason::LinkLocal),
                _ if Snooper::may_prune(to) => Decision::Flood(Crowd::Group),
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

    /// Returns the edges to which snooping lets a flooded packet go. `None`: all.
    ///
    /// # Errors
    /// The reason to drop the packet.
    fn listeners<'s>(
        &self,
        snooper: &'s mut Option<Box<Snooper>>,
        packets: &mut Packets<'_>,
        id: PacketId,
        crowd: Crowd,
    ) -> Result<Option<&'s EdgeSet>, Reason> {
        let Some(snooper) = snooper.as_mut().filter(|_| crowd == Crowd::Group) else { return Ok(None) };
        let vlan = packets.vlan(id).map_or(VlanId::DEFAULT, |vlan| vlan.id);
        let edge = self.edges.get(packets.port(id).index()).copied().unwrap_or(NONE);
        snooper.outputs(packets, id, vlan, edge)
    }

    /// Sends a packet to every port except its own: a guest never gets its own frame back. With `to`,
    /// only these edges count.
    #[inline(never)]
    fn flood(
        &self,
        packets: &mut Packets<'_>,
        from: PortIndex,
        id: PacketId,
        to: Option<&EdgeSet>,
        next: &mut Next<'_>,
    ) {
        let limits = self.loop_limits(packets, id);
        if limits.as_ref().is_some_and(|limits| limits.is_paused(from)) {
            return packets.discard(id, Reason::Loop);
        }
        let mut unsent = Reason::NoReceiver;
        let mut is_sent = false;
        for (edge, &port) in self.ports.iter().enumerate().filter(|(_, port)| **port != from) {
            if to.is_some_and(|to| !to.contains(edge)) {
                unsent = Reason::NotJoined;
            } else if limits.as_ref().is_some_and(|limits| limits.keep_from(port)) {
                unsent = Reason::Loop;
            } else {
                next.push(edge, id);
                is_sent = true;
            }
        }
        if !is_sent {
            packets.discard(id, unsent);
        }
    }

    /// Floods a packet in its VLAN, as the rules of its port and of the others allow.
    #[inline(never)]
    fn flood_by(
        &self,
        rules: &Rules,
        packets: &mut Packets<'_>,
        crowd: Crowd,
        id: PacketId,
        to: Option<&EdgeSet>,
        next: &mut Next<'_>,
    ) {
        let from = packets.port(id);
        let Some(lane) = rules.lane(from) else { return packets.discard(id, Reason::NotConnected) };
        let limits = self.loop_limits(packets, id);
        if limits.as_ref().is_some_and(|limits| limits.is_paused(from)) {
            return packets.discard(id, Reason::Loop);
        }
        if !rules.may_flood(packets, id, crowd) {
            return packets.discard(id, Reason::Storm);
        }
        let mut unsent = Reason::NoReceiver;
        let mut is_sent = false;
        let vlan = packets.vlan(id).map(|vlan| vlan.id);
        let ether_type = rules::type_of(packets.head(id));
        for receiver in rules.receivers(vlan) {
            if receiver.port == from || crowd == Crowd::Unknown && !receiver.takes_unknown {
                continue;
            }
            if lane.isolated && receiver.isolated {
                unsent = Reason::Isolated;
                continue;
            }
            if to.is_some_and(|to| !to.contains(receiver.edge)) {
                unsent = Reason::NotJoined;
                continue;
            }
            if limits.as_ref().is_some_and(|limits| limits.keep_from(receiver.port)) {
                unsent = Reason::Loop;
                continue;
            }
            if !receiver.nested.allows(ether_type) {
                unsent = Reason::NestedTag;
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
    fn process_plain(
        &self,
        snooper: &mut Option<Box<Snooper>>,
        packets: &mut Packets<'_>,
        batch: &Batch,
        next: &mut Next<'_>,
    ) {
        let now = packets.now();
        let addresses = |&id: &PacketId| packets.head(id).first_chunk().map(numbers);
        let stations = batch.ids().iter().filter_map(addresses).flatten();
        self.fdb.prefetch(stations.map(|address| Station::of_number(VlanId::DEFAULT, address)));
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
                Decision::Flood(crowd) => match self.listeners(snooper, packets, id, crowd) {
                    Ok(to) => self.flood(packets, port, id, to, next),
                    Err(reason) => packets.discard(id, reason),
                },
                Decision::Drop(reason) => packets.discard(id, reason),
            }
        }
    }

    /// Forwards frames by the rules of the ports. What a port's rules say of a tag holds for all frames
    /// with this tag, whatever their addresses. In a row, frames have one port, the same first 16 bytes
    /// (addresses and tag, or type), and one network of the port: one fate.
    fn process_by(
        &self,
        rules: &Rules,
        snooper: &mut Option<Box<Snooper>>,
        packets: &mut Packets<'_>,
        batch: &Batch,
        next: &mut Next<'_>,
    ) {
        let now = packets.now();
        let has_networks = rules.has_networks() || self.is_entered;
        // Where this finds the VLANs, priority tags lead on to further bytes.
        let looks_behind = rules.have_vlans() && !self.is_entered;
        let key_of = |packets: &mut Packets<'_>, id| {
            // The fact is taken out: a trunk's form would write a second tag for it.
            let network = if has_networks { take_vlan(packets, id) } else { None };
            RowKey::of(packets.head(id), packets.port(id), network)
        };
        if self.fdb.has_many() {
            self.prefetch_by(rules, packets, batch, has_networks);
        }
        let mut rest = batch.ids();
        let Some(&first) = rest.first() else { return };
        let mut key = key_of(packets, first);
        let mut before: Option<RowKey> = None;
        let mut entry = Err(Reason::BadSource);
        loop {
            let head = packets.head(rest[0]);
            let has_priority = looks_behind && key.has_priority_tag();
            let is_alone = key.is_cut() || has_priority && rules::has_second_tag(head);
            if !before.is_some_and(|before| before.has_entry_of(&key)) {
                entry = Entry::of(rules, self.is_entered, head, key.port, key.network);
            }
            before = Some(key);
            let fate = match (&entry, head.first_chunk().map(numbers)) {
                (Ok(entry), Some(addresses)) => self.fate(rules, entry, addresses, key.port, now),
                (Ok(_), None) => Fate::drop(Reason::Runt),
                (Err(reason), _) => Fate::drop(*reason),
            };
            let mut len = 1;
            let mut following = None;
            while let Some(&id) = rest.get(len) {
                let other = key_of(packets, id);
                if other != key || is_alone || has_priority && rules::has_second_tag(packets.head(id)) {
                    following = Some(other);
                    break;
                }
                len += 1;
            }
            let (row, behind) = rest.split_at(len);
            match fate {
                Fate { decision: Decision::Edge(edge), change: TagChange::None, .. } => {
                    row.iter().for_each(|&id| next.push(edge, id));
                }
                _ => self.finish_row(rules, snooper, packets, row, &fate, next),
            }
            let Some(following) = following else { break };
            rest = behind;
            key = following;
        }
    }

    /// Prefetches the places of all addresses, each in the VLAN of its frame.
    #[inline(never)]
    fn prefetch_by(&self, rules: &Rules, packets: &Packets<'_>, batch: &Batch, has_networks: bool) {
        let mut before: Option<(RowKey, Option<VlanId>)> = None;
        for &id in batch.ids() {
            let head = packets.head(id);
            let network = packets.vlan(id).filter(|_| has_networks);
            let key = RowKey::of(head, packets.port(id), network);
            let vlan = match before {
                Some((known, vlan)) if known.has_entry_of(&key) => vlan,
                _ => {
                    let entry = Entry::of(rules, self.is_entered, head, key.port, network).ok();
                    entry.map(|entry| entry.vlan.map_or(VlanId::DEFAULT, |vlan| vlan.id))
                }
            };
            before = Some((key, vlan));
            if let (Some(vlan), Some(addresses)) = (vlan, head.first_chunk().map(numbers)) {
                self.fdb.prefetch(addresses.map(|address| Station::of_number(vlan, address)).into_iter());
            }
        }
    }

    /// Does with the frames of a row what was decided.
    #[inline(never)]
    fn finish_row(
        &self,
        rules: &Rules,
        snooper: &mut Option<Box<Snooper>>,
        packets: &mut Packets<'_>,
        row: &[PacketId],
        fate: &Fate,
        next: &mut Next<'_>,
    ) {
        for &id in row {
            if fate.extra_tags > 0
                && !matches!(fate.decision, Decision::Drop(_))
                && let Err(reason) = pop(packets, id, fate.extra_tags)
            {
                packets.discard(id, reason);
                continue;
            }
            match fate.decision {
                Decision::Edge(edge) => {
                    let changed = match fate.change {
                        TagChange::None => Ok(()),
                        TagChange::Pop => pop(packets, id, 1),
                        TagChange::Push(tag) => form::push(packets, id, tag),
                        TagChange::Write(tag) => {
                            packets.head_mut(id)[12..16].copy_from_slice(&tag);
                            Ok(())
                        }
                        TagChange::Network { pops } => {
                            packets.set_vlan(id, fate.vlan);
                            if pops { pop(packets, id, 1) } else { Ok(()) }
                        }
                    };
                    // Frames of a row may differ behind the tag that has gone.
                    let begins = |packets: &Packets<'_>| fate.nested.allows(rules::type_of(packets.head(id)));
                    match changed {
                        Ok(()) if fate.nested == NestedTags::Any || begins(packets) => next.push(edge, id),
                        Ok(()) => packets.discard(id, Reason::NestedTag),
                        Err(reason) => packets.discard(id, reason),
                    }
                }
                Decision::Flood(crowd) => {
                    if matches!(fate.change, TagChange::Pop)
                        && let Err(reason) = pop(packets, id, 1)
                    {
                        packets.discard(id, reason);
                        continue;
                    }
                    packets.set_vlan(id, fate.vlan);
                    match self.listeners(snooper, packets, id, crowd) {
                        Ok(to) => self.flood_by(rules, packets, crowd, id, to, next),
                        Err(reason) => packets.discard(id, reason),
                    }
                }
                Decision::Drop(reason) => packets.discard(id, reason),
            }
        }
    }

    /// Decides on a frame, and on what becomes of its tag.
    #[inline]
    fn fate(&self, rules: &Rules, entry: &Entry<'_>, addresses: [u64; 2], port: PortIndex, now: u32) -> Fate {
        let Entry { lane, vlan, has, extra_tags, ether_type } = *entry;
        let id = vlan.map_or(VlanId::DEFAULT, |vlan| vlan.id);
        let decision = self.decide_by(rules, lane, id, addresses, port, now);
        // A frame for one port gets its last form at once, so most frames between trunks stay as they
        // are. The others get a form for each output.
        let to = match decision {
            Decision::Edge(edge) => rules.lane(self.ports[edge]),
            Decision::Flood(_) | Decision::Drop(_) => None,
        };
        let mut nested = to.map_or(NestedTags::Any, |to| to.nested(vlan));
        if has.is_none() && nested != NestedTags::Any {
            if !nested.allows(ether_type) {
                return Fate::drop(Reason::NestedTag);
            }
            nested = NestedTags::Any;
        }
        if to.is_some_and(|to| to.takes_fact) {
            return Fate { decision, vlan, change: TagChange::Network { pops: has.is_some() }, extra_tags, nested };
        }
        let gets = vlan.and_then(|vlan| to?.form?.tag(vlan));
        let change = match (has, gets) {
            (None, None) => TagChange::None,
            (Some(has), Some(gets)) if has == gets => TagChange::None,
            (Some(_), Some(gets)) => TagChange::Write(gets),
            (Some(_), None) => TagChange::Pop,
            (None, Some(gets)) => TagChange::Push(gets),
        };
        Fate { decision, vlan, change, extra_tags, nested }
    }
}

/// The things that all frames of a row have.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RowKey {
    /// The first 16 bytes: addresses, and tag or type. 0 for a frame that may end within its tag, which
    /// is a row by itself.
    front: u128,
    port: PortIndex,
    /// The VLAN that the port's tunnel has found.
    network: Option<PacketVlan>,
}

impl RowKey {
    /// Returns the key of a frame with this head.
    #[inline]
    fn of(head: &[u8], port: PortIndex, network: Option<PacketVlan>) -> Self {
        let front = head.first_chunk::<16>().filter(|_| head.len() >= rules::TAGGED);
        RowKey { front: front.map_or(0, |front| u128::from_ne_bytes(*front)), port, network }
    }

    /// Returns whether the frame may end within its tag.
    #[inline]
    fn is_cut(&self) -> bool {
        self.front == 0
    }

    /// Returns whether the first tag is a priority tag, so that further ones may follow.
    #[inline]
    fn has_priority_tag(&self) -> bool {
        rules::is_priority_tag(u32::from_be_bytes(self.rest()))
    }

    /// Returns the four bytes behind the addresses.
    #[inline]
    fn rest(&self) -> [u8; 4] {
        let [.., a, b, c, d] = self.front.to_ne_bytes();
        [a, b, c, d]
    }

    /// Returns whether frames of both rows have the same rules. These depend on the bytes behind the
    /// addresses, and not on the addresses.
    #[inline]
    fn has_entry_of(&self, other: &Self) -> bool {
        let is_same = self.rest() == other.rest() && (self.port, self.network) == (other.port, other.network);
        is_same && !self.is_cut() && !self.has_priority_tag() && !other.is_cut()
    }
}

/// The rules of a port for frames with one tag.
#[derive(Clone, Copy)]
struct Entry<'r> {
    lane: &'r Lane,
    /// The VLAN of the frames, if the bridge has some.
    vlan: Option<PacketVlan>,
    /// The tag that goes.
    has: Option<[u8; 4]>,
    /// The tags before that one, which go as well: priority tags.
    extra_tags: usize,
    /// The type with which the frames have come: that of the tag, if they have one.
    ether_type: EtherType,
}

impl<'r> Entry<'r> {
    /// Returns the rules for a frame with this head. If `is_entered`, a node has found its VLAN before,
    /// which is `network`.
    #[inline(never)]
    fn of(
        rules: &'r Rules,
        is_entered: bool,
        head: &[u8],
        port: PortIndex,
        network: Option<PacketVlan>,
    ) -> Result<Self, Reason> {
        let lane = rules.lane(port).ok_or(Reason::NotConnected)?;
        let tag = rules::tag_of(head)?;
        let classified = if is_entered {
            network.map(|vlan| Classified { vlan, pops: 0 })
        } else {
            rules.classify(port, lane, tag, head, network)?
        };
        let pops = classified.map_or(0, |found| found.pops);
        let has = (pops > 0).then(|| tag.to_be_bytes());
        let vlan = classified.map(|found| found.vlan);
        Ok(Entry { lane, vlan, has, extra_tags: pops.saturating_sub(1), ether_type: rules::type_of(head) })
    }
}

/// The decision on a frame of a bridge with rules.
#[derive(Clone, Copy)]
struct Fate {
    decision: Decision,
    /// The VLAN of the frame, if the bridge has some.
    vlan: Option<PacketVlan>,
    change: TagChange,
    /// The priority tags that go before the change.
    extra_tags: usize,
    /// The tags with which each frame may begin as it leaves, without its tag. `Any` if this is decided.
    nested: NestedTags,
}

impl Fate {
    fn drop(reason: Reason) -> Self {
        let decision = Decision::Drop(reason);
        Fate { decision, vlan: None, change: TagChange::None, extra_tags: 0, nested: NestedTags::Any }
    }
}

/// The change of a frame's tag.
#[derive(Clone, Copy)]
enum TagChange {
    None,
    Pop,
    Push([u8; 4]),
    /// Another tag in place of the one that is there.
    Write([u8; 4]),
    /// No tag, but the fact of the VLAN: it chooses the network of a tunnel.
    Network {
        pops: bool,
    },
}

/// Returns the VLAN that is noted for a frame, and forgets it.
#[inline]
fn take_vlan(packets: &mut Packets<'_>, id: PacketId) -> Option<PacketVlan> {
    let vlan = packets.vlan(id);
    packets.set_vlan(id, None);
    vlan
}

/// Removes the first tags of a frame.
#[inline]
pub(crate) fn pop(packets: &mut Packets<'_>, id: PacketId, count: usize) -> Result<(), Reason> {
    (0..count).try_for_each(|_| {
        packets.pop_tag(id).map_err(|error| match error {
            StripError::TooShort | StripError::TooDeep => Reason::Runt,
            StripError::Segmentation => Reason::SegmentHeaders,
            StripError::Checksum => Reason::ChecksumRange,
        })
    })
}

/// Returns whether no station can have this address.
#[inline]
pub(crate) fn is_no_station(address: u64) -> bool {
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
        // It is apart while frames pass, because it keeps the outputs of a packet.
        let mut snooper = self.snooper.take();
        if let Some(snooper) = &snooper {
            snooper.sweep(packets.now());
        }
        match &self.rules {
            None => self.process_plain(&mut snooper, packets, batch, next),
            Some(rules) => self.process_by(rules, &mut snooper, packets, batch, next),
        }
        self.snooper = snooper;
    }
}

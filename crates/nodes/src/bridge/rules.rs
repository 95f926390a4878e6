//! The rules of a bridge's ports as a worker looks them up.

use std::collections::HashMap;

use straightline_graph::{Limit, Policer, RateLimits};
use straightline_packet::{PacketId, PacketVlan, Packets, PortIndex, Reason};
use straightline_wire::{EtherType, MacAddr, VlanId, ethernet, vlan};

use super::form::TagForm;
use super::member::{BridgePort, Classified, Crowd, NestedTags, PortRules, PortVlans, Reserved, StormLimits};

/// Bytes of the shortest frame that has a whole tag.
pub(super) const TAGGED: usize = ethernet::LEN + vlan::LEN;

/// The rules of all ports of a bridge.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The ports by their index; `None` for ports of others.
    members: Vec<Option<PortRules>>,
    /// The part of the rules that most frames need, by the port's index.
    lanes: Vec<Lane>,
    /// The ports to which frames of a VLAN are flooded, by VLAN. Entry 0 has those of a bridge without
    /// VLANs.
    floods: Box<[u16]>,
    /// The lists that `floods` names. VLANs with the same ports share one.
    lists: Vec<Vec<Receiver>>,
    /// The limits of flooded frames of each port, by its index.
    storms: Vec<Storm>,
    /// A port's tunnel finds the VLANs of its frames.
    has_networks: bool,
    /// Ports of the bridge have VLANs.
    has_vlans: bool,
}

/// Part of a second whose frames may be flooded at once.
const STORM_BURST: u32 = 10;

/// Least frames that may be flooded at once, if the limit of a second allows as many: a guest that starts
/// asks for its addresses, and tells them.
const LEAST_BURST: u32 = 8;

/// The limits of a port's flooded frames. All workers count together, so each flooded packet of a port with
/// limits takes a lock. Others take none. A GSO packet counts as its segments.
#[derive(Debug)]
struct Storm {
    broadcast: Option<Policer>,
    multicast: Option<Policer>,
    unknown: Option<Policer>,
}

impl Storm {
    fn of(limits: StormLimits) -> Self {
        let policer = |per_second: Option<u32>| {
            let per_second = per_second?;
            let burst = (per_second / STORM_BURST).max(LEAST_BURST).min(per_second);
            let packets = Some(Limit { per_second: per_second.into(), burst: burst.into() });
            Some(Policer::new(RateLimits { bytes: None, packets }))
        };
        Storm {
            broadcast: policer(limits.broadcast),
            multicast: policer(limits.multicast),
            unknown: policer(limits.unknown),
        }
    }
}

/// The rules of a port, as far as frames without a tag need them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// The VLAN of such frames, or why they drop; no VLAN in a bridge without VLANs.
    untagged: Result<Option<PacketVlan>, Reason>,
    /// The port's tunnel finds the VLAN of each frame, and chooses a network by it.
    pub(super) has_networks: bool,
    /// Frames to the port have the fact of their VLAN, and no tag yet.
    pub(super) takes_fact: bool,
    pub(super) learns: bool,
    /// Frames of stations that were not learned drop.
    pub(super) drops_unlearned: bool,
    pub(super) isolated: bool,
    /// The addresses to which the port's frames are not forwarded.
    pub(super) reserved: Reserved,
    /// The form in which frames leave by the port.
    pub(super) form: Option<TagForm>,
    /// The tags with which frames may begin that leave by the port without one of their VLAN.
    nested: NestedTags,
}

impl Lane {
    /// Returns the tags with which frames of a VLAN may begin as they leave by the port.
    #[inline]
    pub(super) fn nested(&self, vlan: Option<PacketVlan>) -> NestedTags {
        let has_tag = vlan.zip(self.form).is_some_and(|(vlan, form)| form.tag(vlan).is_some());
        if has_tag { NestedTags::Any } else { self.nested }
    }

    fn of(rules: Option<&PortRules>) -> Self {
        let Some(rules) = rules else {
            return Lane {
                untagged: Err(Reason::NotConnected),
                has_networks: false,
                takes_fact: false,
                learns: false,
                drops_unlearned: false,
                isolated: false,
                reserved: Reserved::ALL,
                form: None,
                nested: NestedTags::Refused,
            };
        };
        let untagged = match &rules.vlans {
            Some(vlans) => vlans.classify(0, &[], None).map(|found| Some(found.vlan)),
            None => Ok(None),
        };
        let has_networks = rules.vlans.as_ref().is_some_and(PortVlans::are_networks);
        Lane {
            untagged,
            has_networks,
            takes_fact: has_networks,
            learns: rules.learns,
            drops_unlearned: rules.mac_limit.is_some_and(|limit| limit.drops),
            isolated: rules.isolated,
            reserved: Reserved::of(rules),
            form: rules.vlans.as_ref().and_then(PortVlans::form),
            // Without VLANs, a tag is a part of the packet.
            nested: rules.vlans.as_ref().map_or(NestedTags::Any, PortVlans::nested_tags),
        }
    }
}

/// A port to which frames are flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Receiver {
    pub(super) edge: usize,
    pub(super) port: PortIndex,
    pub(super) isolated: bool,
    /// It gets frames for unicast addresses that nobody knows.
    pub(super) takes_unknown: bool,
    /// The tags with which frames of the VLAN may begin as they leave.
    pub(super) nested: NestedTags,
}

impl Rules {
    /// Returns the rules of these ports, or `None` if no port has one.
    pub(crate) fn of(ports: &[BridgePort]) -> Option<Self> {
        if ports.iter().all(|port| port.rules == PortRules::default()) {
            return None;
        }
        let size = ports.iter().map(|port| port.index.index() + 1).max().unwrap_or(0);
        let mut members = vec![None; size];
        for port in ports {
            members[port.index.index()] = Some(port.rules.clone());
        }
        let storms =
            members.iter().map(|port| Storm::of(port.as_ref().map_or_else(StormLimits::default, |rules| rules.storm)));
        let storms = storms.collect();
        let floods = vec![0; 1 + usize::from(VlanId::MAX.get())].into();
        let mut lanes: Vec<_> = members.iter().map(|rules| Lane::of(rules.as_ref())).collect();
        for port in ports.iter().filter(|port| port.has_groups && port.rules.vlans.is_some()) {
            lanes[port.index.index()].takes_fact = true;
        }
        let has_networks = lanes.iter().any(|lane| lane.has_networks);
        let has_vlans = ports.iter().any(|port| port.rules.vlans.is_some());
        let mut rules = Rules { members, lanes, floods, lists: Vec::new(), storms, has_networks, has_vlans };
        let mut known = HashMap::new();
        for vid in 0..=VlanId::MAX.get() {
            // Most VLANs have the same ports as the one before.
            if let Some(before) = vid.checked_sub(1)
                && ports.iter().all(|port| rules.takes(port, vid) == rules.takes(port, before))
            {
                rules.floods[usize::from(vid)] = rules.floods[usize::from(before)];
                continue;
            }
            let receivers = ports.iter().enumerate().filter_map(|(edge, port)| {
                Some(Receiver {
                    edge,
                    port: port.index,
                    isolated: port.rules.isolated,
                    takes_unknown: port.rules.takes_unknown,
                    nested: rules.takes(port, vid)?,
                })
            });
            let receivers: Vec<_> = receivers.collect();
            let list = *known.entry(receivers).or_insert_with_key(|receivers| {
                rules.lists.push(receivers.clone());
                rules.lists.len() - 1
            });
            // There are at most as many lists as VLANs.
            rules.floods[usize::from(vid)] = u16::try_from(list).unwrap_or(0);
        }
        Some(rules)
    }

    /// Returns whether frames with this VID, 0 in a bridge without VLANs, are flooded to a port, and the
    /// tags with which they may begin there.
    fn takes(&self, port: &BridgePort, vid: u16) -> Option<NestedTags> {
        let id = VlanId::new(vid);
        let takes = match (&port.rules.vlans, id) {
            (Some(vlans), Some(id)) => vlans.contains(id),
            (vlans, _) => vlans.is_none(),
        };
        let vlan = id.map(|id| PacketVlan { id, pcp: 0, dei: false });
        self.lane(port.index).filter(|_| takes).map(|lane| lane.nested(vlan))
    }

    /// Returns what most frames of a port need; `None` for a port of others.
    #[inline]
    pub(super) fn lane(&self, port: PortIndex) -> Option<&Lane> {
        self.lanes.get(port.index())
    }

    /// Returns whether a port's tunnel finds the VLANs of its frames.
    #[inline]
    pub(super) fn has_networks(&self) -> bool {
        self.has_networks
    }

    /// Returns the ports to which frames of a VLAN are flooded.
    #[inline]
    pub(super) fn receivers(&self, vlan: Option<VlanId>) -> &[Receiver] {
        let list = self.floods.get(usize::from(vlan.map_or(0, VlanId::get)));
        list.and_then(|&list| self.lists.get(usize::from(list))).map_or(&[], |list| list)
    }

    /// Returns whether ports of the bridge have VLANs. Then all of them have.
    #[inline]
    pub(crate) fn have_vlans(&self) -> bool {
        self.has_vlans
    }

    /// Returns whether a frame in this VLAN may leave by a port.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn may_leave(&self, from: PortIndex, to: PortIndex, vlan: Option<VlanId>) -> Result<(), Reason> {
        let Some(Some(receiver)) = self.members.get(to.index()) else { return Err(Reason::NoReceiver) };
        if receiver.isolated && self.lane(from).is_some_and(|lane| lane.isolated) {
            return Err(Reason::Isolated);
        }
        match &receiver.vlans {
            Some(vlans) if !vlan.is_some_and(|vlan| vlans.contains(vlan)) => Err(Reason::VlanNotAllowed),
            _ => Ok(()),
        }
    }

    /// Returns whether a frame with this head, without a tag of its VLAN, may leave by a port. See
    /// [`Self::may_leave`] for the VLAN itself.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn may_begin(&self, to: PortIndex, vlan: Option<PacketVlan>, head: &[u8]) -> Result<(), Reason> {
        let nested = self.lane(to).map_or(NestedTags::Refused, |lane| lane.nested(vlan));
        if nested.allows(type_of(head)) { Ok(()) } else { Err(Reason::NestedTag) }
    }

    /// Returns the VLAN of a frame that has come in, and the number of its tags that must go.
    ///
    /// # Errors
    /// The reason to drop the frame.
    pub(crate) fn enter(
        &self,
        port: PortIndex,
        head: &[u8],
        network: Option<PacketVlan>,
    ) -> Result<(Option<PacketVlan>, usize), Reason> {
        let lane = self.lane(port).ok_or(Reason::NotConnected)?;
        let found = self.classify(port, lane, tag_of(head)?, head, network)?;
        Ok((found.map(|found| found.vlan), found.map_or(0, |found| found.pops)))
    }

    /// Counts a packet that is flooded. Returns `false` if it is beyond the limit of the port that it came
    /// from.
    pub(super) fn may_flood(&self, packets: &Packets<'_>, id: PacketId, crowd: Crowd) -> bool {
        let limit = self.storms.get(packets.port(id).index()).and_then(|storm| match crowd {
            Crowd::Broadcast => storm.broadcast.as_ref(),
            Crowd::Multicast | Crowd::Group => storm.multicast.as_ref(),
            Crowd::Unknown => storm.unknown.as_ref(),
        });
        limit.is_none_or(|limit| limit.admits(packets, id))
    }

    /// Counts a packet as [`Self::may_flood`] does, by its destination. A flow floods it, whether its
    /// destination is known or not.
    pub(crate) fn may_be_flooded(&self, packets: &Packets<'_>, id: PacketId) -> bool {
        let destination = packets.head(id).first_chunk().map_or(0, |mac| MacAddr(*mac).as_u64());
        self.may_flood(packets, id, Crowd::of(destination))
    }

    /// Returns the VLAN of a frame from `port`; `None` in a bridge without VLANs. `network` is the one
    /// that the port's tunnel has found.
    #[inline]
    pub(super) fn classify(
        &self,
        port: PortIndex,
        lane: &Lane,
        tag: u32,
        head: &[u8],
        network: Option<PacketVlan>,
    ) -> Result<Option<Classified>, Reason> {
        if tag == 0 && !lane.has_networks {
            return lane.untagged.map(|vlan| vlan.map(|vlan| Classified { vlan, pops: 0 }));
        }
        match self.members.get(port.index()) {
            Some(Some(PortRules { vlans: Some(vlans), .. })) => vlans.classify(tag, head, network).map(Some),
            Some(Some(_)) => Ok(None),
            Some(None) | None => Err(Reason::NotConnected),
        }
    }
}

/// Returns the tag that a frame begins with, as four bytes in network order; 0 if it has none.
///
/// # Errors
/// The frame ends within the tag.
#[inline]
pub(super) fn tag_of(head: &[u8]) -> Result<u32, Reason> {
    let Some(word) = head.get(12..16).and_then(|bytes| bytes.first_chunk()) else {
        let ends_in_tag = head.get(12..14).is_some_and(|bytes| is_tag(u16::from_be_bytes([bytes[0], bytes[1]])));
        return if ends_in_tag { Err(Reason::Runt) } else { Ok(0) };
    };
    let word = u32::from_be_bytes(*word);
    if !is_tag((word >> 16) as u16) {
        return Ok(0);
    }
    if head.len() < TAGGED { Err(Reason::Runt) } else { Ok(word) }
}

/// Returns whether these four bytes behind the addresses of a frame are a tag that names no VLAN.
#[inline]
pub(super) fn is_priority_tag(rest: u32) -> bool {
    is_tag((rest >> 16) as u16) && rest & 0xfff == 0
}

/// Returns whether the type behind the first tag of a frame is that of a tag.
#[inline]
pub(super) fn has_second_tag(head: &[u8]) -> bool {
    type_at(head, TAGGED - 2).is_vlan()
}

/// Returns the type that a frame begins with; 0 if it has none.
#[inline]
pub(super) fn type_of(head: &[u8]) -> EtherType {
    type_at(head, vlan::OFFSET)
}

#[inline]
fn type_at(head: &[u8], at: usize) -> EtherType {
    let bytes = head.get(at..at + 2).and_then(|bytes| bytes.first_chunk());
    EtherType(bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes)))
}

#[inline]
fn is_tag(ether_type: u16) -> bool {
    EtherType(ether_type).is_vlan()
}

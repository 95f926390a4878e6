//! The rules of one port of a bridge: its VLANs, and whom its frames may reach.

use straightline_packet::{PacketVlan, PortIndex, Reason};
use straightline_wire::{EtherType, VlanId, VlanSet, WireError, ethernet, vlan};

use super::form::TagForm;
use super::{BROADCAST, GROUP};

/// A port of a bridge, with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePort {
    /// The port.
    pub index: PortIndex,
    /// The rules.
    pub rules: PortRules,
    /// The most stations that move to the port in a second. `None`: any number.
    pub move_limit: Option<u32>,
    /// The port has groups, which see frames to it in the VLAN of the bridge, without a tag.
    pub has_groups: bool,
    /// The port leads to other networks, whatever its VLANs: a tunnel, an interface of the machine, or a
    /// `trusted` port.
    pub leads_on: bool,
}

/// The rules of a port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRules {
    /// The VLANs of its frames. `None`: those of the default VLAN, without tags; in a bridge without
    /// VLANs all.
    pub vlans: Option<PortVlans>,
    /// It exchanges frames only with ports that are not isolated.
    pub isolated: bool,
    /// The sources of its frames are learned.
    pub learns: bool,
    /// Frames for unicast addresses that nobody knows are flooded to it.
    pub takes_unknown: bool,
    /// The limit of stations behind it.
    pub mac_limit: Option<MacLimit>,
    /// The limits of its frames that are flooded.
    pub storm: StormLimits,
}

impl BridgePort {
    /// Returns whether a station behind the port can be in a VLAN. In a bridge without VLANs, all
    /// stations are in the default one.
    pub(super) fn may_have(&self, vlan: VlanId) -> bool {
        self.rules.vlans.as_ref().map_or(vlan == VlanId::DEFAULT, |vlans| vlans.contains(vlan))
    }

    /// Returns whether the port leads to other networks, by itself ([`Self::leads_on`]) or as a trunk.
    pub(super) fn is_uplink(&self) -> bool {
        let role = self.rules.vlans.as_ref().map(|vlans| &vlans.role);
        self.leads_on || matches!(role, Some(VlanRole::Trunk { .. } | VlanRole::Networks { .. }))
    }
}

/// The limit of stations behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacLimit {
    /// The most stations that are learned.
    pub most: u32,
    /// Frames of further stations are dropped. `false`: they pass, but are not learned.
    pub drops: bool,
}

/// The most frames from a port that are flooded in a second; a GSO packet counts as its segments. `None`:
/// any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits {
    /// For all stations.
    pub broadcast: Option<u32>,
    /// For a group of stations.
    pub multicast: Option<u32>,
    /// For a station that nobody knows.
    pub unknown: Option<u32>,
}

impl BridgePort {
    /// Returns a port without rules.
    #[must_use]
    pub fn plain(index: PortIndex) -> Self {
        BridgePort { index, rules: PortRules::default(), move_limit: None, has_groups: false, leads_on: false }
    }
}

impl Default for PortRules {
    fn default() -> Self {
        PortRules {
            vlans: None,
            isolated: false,
            learns: true,
            takes_unknown: true,
            mac_limit: None,
            storm: StormLimits::default(),
        }
    }
}

/// The stations that a flooded frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crowd {
    Broadcast,
    /// A group that is never pruned.
    Multicast,
    /// A group that snooping may prune.
    Group,
    /// One station that nobody knows.
    Unknown,
}

impl Crowd {
    /// Returns the crowd of a destination that no snooping prunes, as a number.
    pub(super) fn of(destination: u64) -> Self {
        match destination {
            BROADCAST => Crowd::Broadcast,
            _ if destination & GROUP != 0 => Crowd::Multicast,
            _ => Crowd::Unknown,
        }
    }
}

/// The addresses 01:80:c2:00:00:00 to 0f that a bridge does not forward (IEEE 802.1Q, 8.6.3): a bit for
/// each last digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserved(u16);

impl Reserved {
    /// Those of customers' bridges: all (table 8-1).
    pub(super) const ALL: Self = Reserved(0xffff);
    /// Those of providers' bridges: 1 to a, and e (table 8-2). The others belong to the protocols of
    /// customers' bridges, which a provider carries.
    const PROVIDERS: Self = Reserved(0b0100_0111_1111_1110);

    /// Returns those for frames that a port receives.
    pub(super) fn of(rules: &PortRules) -> Self {
        match rules.vlans.as_ref().map(|vlans| &vlans.role) {
            Some(VlanRole::Customer(_)) => Self::PROVIDERS,
            Some(VlanRole::Trunk { tpid, .. }) if *tpid == EtherType::SERVICE_VLAN => Self::PROVIDERS,
            _ => Self::ALL,
        }
    }

    /// Returns whether the address with the last digit of this number is one of them.
    #[inline]
    pub(super) fn contains(self, address: u64) -> bool {
        self.0 >> (address & 0xf) & 1 != 0
    }
}

/// The VLANs of a port (IEEE 802.1Q, 6.9 and 8.6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortVlans {
    /// The port's part in its VLANs.
    pub role: VlanRole,
    /// Priority of frames that come in without one, 0 to 7.
    pub priority: u8,
}

/// A port's part in its VLANs. The names are those of Open vSwitch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VlanRole {
    /// Frames without tags but priority tags, in one VLAN.
    Access(VlanId),
    /// Frames with a tag of this kind, in these VLANs.
    Trunk {
        /// Kind of the tags: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
        tpid: EtherType,
        /// The VLANs, with the native one.
        vlans: Box<VlanSet>,
        /// The VLAN of frames without a tag.
        native: Option<NativeVlan>,
    },
    /// A customer's frames, with or without tags of its own, in one VLAN of the provider.
    Customer(VlanId),
    /// Frames of a tunnel with several networks. Each comes in with the fact of its VLAN, and the
    /// fact chooses its network as it leaves.
    Networks {
        /// The VLANs that have a network.
        vlans: Box<VlanSet>,
        /// Frames may have tags of a customer, as those of [`VlanRole::Customer`].
        keeps_tags: bool,
    },
}

/// The native VLAN of a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeVlan {
    /// The VLAN.
    pub id: VlanId,
    /// Its frames go out with a tag.
    pub is_tagged: bool,
    /// Its frames may begin with a tag of the other kind as they go out without one of the trunk's.
    pub has_nested_tags: bool,
}

/// The tags with which frames may begin that leave a port without a tag of their VLAN. A receiver would
/// take such a tag for the VLAN of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NestedTags {
    /// None.
    Refused,
    /// Those of this kind.
    Only(EtherType),
    /// All: the receiver does not look for a VLAN of this bridge there.
    Any,
}

impl NestedTags {
    /// Returns whether a frame may leave whose type is this one.
    #[inline]
    pub(super) fn allows(self, ether_type: EtherType) -> bool {
        !ether_type.may_be_vlan()
            || match self {
                NestedTags::Any => true,
                NestedTags::Only(kind) => ether_type == kind,
                NestedTags::Refused => false,
            }
    }
}

/// The VLAN of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Classified {
    pub(super) vlan: PacketVlan,
    /// The number of tags that must go.
    pub(super) pops: usize,
}

impl PortVlans {
    /// Returns an access port's VLANs: this one.
    #[must_use]
    pub fn access(id: VlanId) -> Self {
        PortVlans { role: VlanRole::Access(id), priority: 0 }
    }

    /// Returns whether the port is in a VLAN.
    #[must_use]
    pub fn contains(&self, id: VlanId) -> bool {
        match &self.role {
            VlanRole::Access(own) | VlanRole::Customer(own) => *own == id,
            VlanRole::Trunk { vlans, .. } | VlanRole::Networks { vlans, .. } => vlans.contains(id),
        }
    }

    /// Returns the VLAN of frames without a tag.
    #[must_use]
    pub fn untagged(&self) -> Option<VlanId> {
        match &self.role {
            VlanRole::Access(own) | VlanRole::Customer(own) => Some(*own),
            VlanRole::Trunk { native, .. } => native.map(|native| native.id),
            VlanRole::Networks { .. } => None,
        }
    }

    /// Returns the VLANs of the port.
    #[must_use]
    pub fn all(&self) -> VlanSet {
        match &self.role {
            VlanRole::Access(own) | VlanRole::Customer(own) => [*own].into_iter().collect(),
            VlanRole::Trunk { vlans, .. } | VlanRole::Networks { vlans, .. } => VlanSet::clone(vlans),
        }
    }

    /// Returns the form in which frames leave by the port; `None` if they leave as they are in the
    /// bridge.
    #[must_use]
    pub fn form(&self) -> Option<TagForm> {
        match &self.role {
            VlanRole::Access(_) | VlanRole::Customer(_) | VlanRole::Networks { .. } => None,
            VlanRole::Trunk { tpid, native, .. } => {
                let untagged = native.filter(|native| !native.is_tagged).map(|native| native.id);
                Some(TagForm::new(*tpid, untagged))
            }
        }
    }

    /// Returns the tags with which frames may begin that leave by the port without a tag of their VLAN.
    /// The network of a tunnel stands for that tag.
    pub(super) fn nested_tags(&self) -> NestedTags {
        match &self.role {
            VlanRole::Customer(_) | VlanRole::Networks { .. } => NestedTags::Any,
            VlanRole::Trunk { tpid, native: Some(NativeVlan { has_nested_tags: true, .. }), .. } => {
                let is_service = *tpid == EtherType::SERVICE_VLAN;
                NestedTags::Only(if is_service { EtherType::VLAN } else { EtherType::SERVICE_VLAN })
            }
            VlanRole::Access(_) | VlanRole::Trunk { .. } => NestedTags::Refused,
        }
    }

    /// Returns whether the port's tunnel has found the VLAN of each frame.
    pub(super) fn are_networks(&self) -> bool {
        matches!(self.role, VlanRole::Networks { .. })
    }

    /// Returns the VLAN of a frame that has come in (the ingress filter). `tag` are the four bytes
    /// behind its addresses if the frame begins with a tag of either kind, else 0; `head` is its begin.
    /// `network` is the VLAN that the port's tunnel has found.
    #[inline]
    pub(super) fn classify(&self, tag: u32, head: &[u8], network: Option<PacketVlan>) -> Result<Classified, Reason> {
        match &self.role {
            VlanRole::Customer(own) => Ok(self.untagged_in(*own)),
            VlanRole::Access(own) => self.without_vlan(*own, tag, head),
            VlanRole::Networks { vlans, keeps_tags } => {
                let id = network.map(|vlan| vlan.id).filter(|id| vlans.contains(*id));
                let id = id.ok_or(Reason::VlanNotAllowed)?;
                if *keeps_tags { Ok(self.untagged_in(id)) } else { self.without_vlan(id, tag, head) }
            }
            VlanRole::Trunk { tpid, vlans, native } => {
                let found = Found::of(tag);
                if tag == 0 || found.tpid != *tpid || found.vid == 0 {
                    let native = native.ok_or(Reason::VlanNotAllowed)?;
                    if tag != 0 && found.tpid != *tpid && native.has_nested_tags {
                        // It is a customer's, whose frames stay as they are.
                        return Ok(self.untagged_in(native.id));
                    }
                    // A tag of a VLAN behind priority tags is a part of the packet.
                    return self.behind_priority_tags(native.id, tag, head).map(|(_, found)| found);
                }
                match VlanId::new(found.vid).filter(|id| vlans.contains(*id)) {
                    Some(id) => Ok(found.within(id, 1)),
                    None => Err(Reason::VlanNotAllowed),
                }
            }
        }
    }

    /// A frame that comes in without a tag of its bridge goes on in a VLAN.
    #[inline]
    fn untagged_in(&self, id: VlanId) -> Classified {
        let vlan = PacketVlan { id, pcp: self.priority, dei: false };
        Classified { vlan, pops: 0 }
    }

    /// A frame that may have priority tags, but no VLAN, goes on in this one.
    #[inline]
    fn without_vlan(&self, id: VlanId, tag: u32, head: &[u8]) -> Result<Classified, Reason> {
        match self.behind_priority_tags(id, tag, head)? {
            (ether_type, _) if ether_type.is_vlan() => Err(Reason::VlanNotAllowed),
            (_, found) => Ok(found),
        }
    }

    /// A frame goes on in a VLAN, without its priority tags. It has the priority of the first one. Returns
    /// the type behind them, too; 0 if it is not that of a tag.
    #[inline]
    fn behind_priority_tags(&self, id: VlanId, tag: u32, head: &[u8]) -> Result<(EtherType, Classified), Reason> {
        if tag == 0 {
            return Ok((EtherType(0), self.untagged_in(id)));
        }
        match vlan::skip_priority(head) {
            Ok((ether_type, ethernet::LEN)) => Ok((ether_type, self.untagged_in(id))),
            Ok((ether_type, payload)) => {
                let pops = (payload - ethernet::LEN) / vlan::LEN;
                Ok((ether_type, Found::of(tag).within(id, pops)))
            }
            Err(WireError::TooManyTags) => Err(Reason::Hidden),
            Err(_) => Err(Reason::Runt),
        }
    }
}

/// A tag that a frame begins with.
#[derive(Clone, Copy)]
struct Found {
    tpid: EtherType,
    pcp: u8,
    dei: bool,
    vid: u16,
}

impl Found {
    #[inline]
    fn of(tag: u32) -> Self {
        let [tpid_high, tpid_low, tci_high, tci_low] = tag.to_be_bytes();
        Found {
            tpid: EtherType(u16::from_be_bytes([tpid_high, tpid_low])),
            pcp: tci_high >> 5,
            dei: tci_high & 0x10 != 0,
            vid: u16::from_be_bytes([tci_high & 0x0f, tci_low]),
        }
    }

    /// The frame goes on in a VLAN without its first tags, and with the priority of this one.
    #[inline]
    fn within(self, id: VlanId, pops: usize) -> Classified {
        Classified { vlan: PacketVlan { id, pcp: self.pcp, dei: self.dei }, pops }
    }
}

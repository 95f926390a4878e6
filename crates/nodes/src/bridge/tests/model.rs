//! A model of a bridge whose ports have VLANs: slow and obvious, and it moves bytes. A fuzz target
//! includes this file, too.

use std::collections::HashMap;

use straightline_packet::PortIndex;
use straightline_wire::{EtherType, VlanId, VlanSet};

use super::{BridgePort, NativeVlan, PortRules, PortVlans, VlanRole};

pub(super) fn id(vid: u16) -> VlanId {
    VlanId::new(vid).expect("a VLAN")
}

pub(super) fn access(vid: u16) -> PortVlans {
    PortVlans::access(id(vid))
}

pub(super) fn trunk(tpid: EtherType, vids: &[u16], native: Option<(u16, bool)>) -> PortVlans {
    let native = native.map(|(vid, is_tagged)| NativeVlan { id: id(vid), is_tagged, has_nested_tags: false });
    let all = vids.iter().map(|&vid| id(vid)).chain(native.map(|native| native.id));
    let vlans = Box::new(all.collect::<VlanSet>());
    PortVlans { role: VlanRole::Trunk { tpid, vlans, native }, priority: 3 }
}

/// The ports of the test: each kind, and for most a second one.
pub(super) fn ports() -> Vec<BridgePort> {
    let customer = PortVlans { role: VlanRole::Customer(id(20)), priority: 5 };
    let vlans = [
        access(10),
        access(10),
        access(20),
        trunk(EtherType::VLAN, &[10, 20, 30], None),
        trunk(EtherType::VLAN, &[10, 20], Some((30, false))),
        trunk(EtherType::VLAN, &[20, 30], Some((10, true))),
        trunk(EtherType::SERVICE_VLAN, &[10, 20], None),
        customer,
    ];
    let mut ports: Vec<_> = (0..).zip(vlans).map(|(at, vlans)| of(at, vlans)).collect();
    ports[1].rules.isolated = true;
    ports[4].rules.isolated = true;
    ports[2].rules.takes_unknown = false;
    ports[5].rules.learns = false;
    ports
}

pub(super) fn of(at: u16, vlans: PortVlans) -> BridgePort {
    BridgePort {
        index: PortIndex(at),
        rules: PortRules { vlans: Some(vlans), ..PortRules::default() },
        move_limit: None,
        has_groups: false,
        leads_on: false,
    }
}

/// A frame in the bridge: its VLAN, the upper four bits of its tag, and its bytes without the tag.
pub(super) type Inside = (u16, u16, Vec<u8>);

/// Returns two bytes of a frame as a number; 0 if it ends before.
fn word(frame: &[u8], at: usize) -> u16 {
    frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// The ingress filter, by IEEE 802.1Q, 6.9 and 8.6.2. A network of a tunnel is an access port, or a
/// customer's if tags are kept.
pub(super) fn enter(port: &BridgePort, frame: &[u8]) -> Option<Inside> {
    let vlans = port.rules.vlans.as_ref()?;
    if let VlanRole::Networks { vlans: own, keeps_tags } = &vlans.role {
        let vlan = VlanId::new(word(frame, 0)).filter(|vlan| own.contains(*vlan))?;
        let role = if *keeps_tags { VlanRole::Customer(vlan) } else { VlanRole::Access(vlan) };
        return enter(&of(0, PortVlans { role, priority: vlans.priority }), &frame[2..]);
    }
    if frame.len() < 12 {
        return None;
    }
    let stripped = || [&frame[..12], &frame[16..]].concat();
    let tpid = word(frame, 12);
    let is_tagged = [0x8100, 0x88a8].contains(&tpid);
    if is_tagged && frame.len() < 18 {
        return None;
    }
    let own = u16::from(vlans.priority) << 13;
    match &vlans.role {
        VlanRole::Customer(vid) => Some((vid.get(), own, frame.to_vec())),
        VlanRole::Access(vid) if !is_tagged => Some((vid.get(), own, frame.to_vec())),
        VlanRole::Access(vid) => {
            let behind = without_priority_tags(frame)?;
            let is_tagged = matches!(behind, [0x81, 0x00, ..] | [0x88, 0xa8, ..]);
            (!is_tagged).then(|| (vid.get(), word(frame, 14) & 0xf000, [&frame[..12], behind].concat()))
        }
        VlanRole::Trunk { tpid: own_tpid, native, .. }
            if is_tagged
                && word(frame, 14) & 0xfff == 0
                && (tpid == own_tpid.0 || !native.as_ref().is_some_and(|native| native.has_nested_tags)) =>
        {
            let behind = without_priority_tags(frame)?;
            Some((native.as_ref()?.id.get(), word(frame, 14) & 0xf000, [&frame[..12], behind].concat()))
        }
        VlanRole::Trunk { tpid: own_tpid, native, .. } if tpid != own_tpid.0 => {
            Some((native.as_ref()?.id.get(), own, frame.to_vec()))
        }
        VlanRole::Networks { .. } => unreachable!("it is one of the others"),
        VlanRole::Trunk { vlans, .. } => {
            let tci = word(frame, 14);
            let vid = VlanId::new(tci & 0xfff)?;
            vlans.contains(vid).then(|| (vid.get(), tci & 0xf000, stripped()))
        }
    }
}

/// Returns the bytes of a frame from its type on, behind up to four tags of VLAN 0; `None` if there is one
/// more, or if the frame ends within a tag.
fn without_priority_tags(frame: &[u8]) -> Option<&[u8]> {
    let mut rest = &frame[12..];
    for _ in 0..=4 {
        match rest {
            [0x81, 0x00, ..] | [0x88, 0xa8, ..] if rest.len() < 6 => return None,
            [0x81, 0x00, high, 0, ..] | [0x88, 0xa8, high, 0, ..] if high & 0xf == 0 => rest = &rest[4..],
            _ => return Some(rest),
        }
    }
    None
}

/// The frame as it leaves by a port.
pub(super) fn leave(port: &BridgePort, (vid, upper, bytes): &Inside) -> Vec<u8> {
    match &port.rules.vlans.as_ref().expect("all have VLANs").role {
        VlanRole::Trunk { tpid, native, .. }
            if native.as_ref().is_none_or(|native| native.is_tagged || native.id.get() != *vid) =>
        {
            let tag = [tpid.0.to_be_bytes(), (upper | vid).to_be_bytes()].concat();
            [&bytes[..12], &tag, &bytes[12..]].concat()
        }
        VlanRole::Networks { .. } => [&vid.to_be_bytes()[..], bytes].concat(),
        _ => bytes.clone(),
    }
}

/// Returns whether a bridge takes frames to this address for itself: IEEE 802.1Q, table 8-2 for ports of a
/// provider, table 8-1 for others.
fn is_reserved(port: &BridgePort, to: &[u8]) -> bool {
    let is_providers = match port.rules.vlans.as_ref().map(|vlans| &vlans.role) {
        Some(VlanRole::Customer(_)) => true,
        Some(VlanRole::Trunk { tpid, .. }) => *tpid == EtherType::SERVICE_VLAN,
        _ => false,
    };
    let is_for_customers = [0x00, 0x0b, 0x0c, 0x0d, 0x0f].contains(&to[5]);
    to[..5] == [0x01, 0x80, 0xc2, 0, 0] && to[5] < 16 && !(is_providers && is_for_customers)
}

/// Returns the ports that a frame goes to, and learns its source.
pub(super) fn model(
    ports: &[BridgePort],
    stations: &mut HashMap<(u16, Vec<u8>), usize>,
    from: usize,
    inside: &Inside,
) -> Vec<usize> {
    let (vid, _, bytes) = inside;
    let source = bytes[6..12].to_vec();
    if source[0] & 1 != 0 || source == [0; 6] {
        return Vec::new();
    }
    if ports[from].rules.learns {
        stations.insert((*vid, source), from);
    }
    let to = bytes[..6].to_vec();
    if is_reserved(&ports[from], &to) {
        return Vec::new();
    }
    let is_group = to[0] & 1 != 0;
    let may = |port: usize| {
        port != from && !(ports[from].rules.isolated && ports[port].rules.isolated) && may_begin(&ports[port], inside)
    };
    if let Some(&known) = stations.get(&(*vid, to)).filter(|_| !is_group) {
        return [known].into_iter().filter(|&port| may(port)).collect();
    }
    let is_in = |port: &usize| ports[*port].rules.vlans.as_ref().is_some_and(|vlans| vlans.contains(id(*vid)));
    let takes = |port: &usize| is_group || ports[*port].rules.takes_unknown;
    (0..ports.len()).filter(|&port| may(port)).filter(is_in).filter(takes).collect()
}

/// Returns whether a frame may leave by a port with the type that it has inside.
fn may_begin(port: &BridgePort, (vid, _, bytes): &Inside) -> bool {
    let tpid = word(bytes, 12);
    if ![0x8100, 0x88a8, 0x9100].contains(&tpid) {
        return true;
    }
    match &port.rules.vlans.as_ref().expect("all have VLANs").role {
        VlanRole::Customer(_) | VlanRole::Networks { .. } => true,
        VlanRole::Access(_) => false,
        VlanRole::Trunk { native: Some(native), .. } if native.id.get() == *vid && !native.is_tagged => {
            native.has_nested_tags && tpid != 0x9100 && !is_of(port, tpid)
        }
        VlanRole::Trunk { .. } => true,
    }
}

/// Returns whether a trunk has tags of this kind.
fn is_of(trunk: &BridgePort, kind: u16) -> bool {
    let role = trunk.rules.vlans.as_ref().map(|vlans| &vlans.role);
    matches!(role, Some(VlanRole::Trunk { tpid, .. }) if tpid.0 == kind)
}

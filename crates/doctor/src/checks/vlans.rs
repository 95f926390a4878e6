//! VLANs of ports: those that nobody shares, and ports whose peers use other tags.

use std::collections::BTreeMap;

use straightline_api::{JoinedKind, Port, VlanRole};

use super::{Check, CheckOutcome};
use crate::facts::Facts;

pub(super) const VLANS: Check = Check {
    name: "vlans",
    passes: "each port shares its VLAN, and receives the tags that it expects",
    absent: "no bridge has VLANs",
    run: |facts, outcome| {
        if outcome.known("the VLANs", &facts.switch).is_none() {
            return;
        }
        for (bridge, ports) in bridges(facts) {
            for port in &ports {
                if let Some(vlan) = lonely(port, &ports) {
                    report_lonely(bridge, port, vlan, outcome);
                } else if port.drops.get("vlan-not-allowed").is_some_and(|count| *count > 0) {
                    report_tags(port, outcome);
                } else {
                    outcome.pass();
                }
            }
        }
    },
};

/// Returns the ports of each bridge with VLANs.
fn bridges(facts: &Facts) -> BTreeMap<&str, Vec<&Port>> {
    let mut bridges: BTreeMap<&str, Vec<&Port>> = BTreeMap::new();
    for port in facts.ports.iter().map(|facts| &facts.port).filter(|port| port.vlans.is_some()) {
        if let Some(joined) = port.joined.as_ref().filter(|joined| joined.kind == JoinedKind::Bridge) {
            bridges.entry(&joined.name).or_default().push(port);
        }
    }
    bridges
}

/// Returns the VLAN of an access or customer port that no other port of its bridge has.
fn lonely(port: &Port, ports: &[&Port]) -> Option<u16> {
    let vlans = port.vlans.as_ref().filter(|vlans| vlans.role != VlanRole::Trunk)?;
    let vlan = vlans.untagged?;
    let is_there = |other: &Port| other.vlans.as_ref().is_some_and(|vlans| is_in(&vlans.vlans, vlan));
    let mut others = ports.iter().filter(|other| other.name != port.name);
    (!others.any(|other| is_there(other))).then_some(vlan)
}

/// Returns whether a list such as `10,20,100-199` has a VLAN.
fn is_in(list: &str, vlan: u16) -> bool {
    let number = |text: &str| text.parse::<u16>().ok();
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first).zip(number(last)).is_some_and(|(first, last)| (first..=last).contains(&vlan))
    })
}

fn report_lonely(bridge: &str, port: &Port, vlan: u16, outcome: &mut CheckOutcome) {
    let name = &port.name;
    let detail = if vlan == 1 {
        "its frames reach nobody; a port without `vlan` is in VLAN 1 if another port of its bridge has VLANs"
    } else {
        "its frames reach nobody"
    };
    outcome.warn(
        format!("port {name} is the only one in VLAN {vlan} of bridge {bridge}"),
        detail,
        format!("correct `vlan` of [port.{name}], or add VLAN {vlan} to `trunk` of another port"),
    );
}

fn report_tags(port: &Port, outcome: &mut CheckOutcome) {
    let Some(vlans) = &port.vlans else { return };
    let name = &port.name;
    let count = port.drops.get("vlan-not-allowed").copied().unwrap_or(0);
    let (detail, fix) = match (vlans.role, vlans.untagged) {
        (VlanRole::Trunk, None) => (
            format!("its peer sends frames without a tag, or in other VLANs than {}", vlans.vlans),
            format!("set `native-vlan` of [port.{name}] for frames without a tag, or add the VLANs to `trunk`"),
        ),
        (VlanRole::Trunk, Some(native)) => (
            format!("its peer sends other VLANs than {}; frames without a tag are in VLAN {native}", vlans.vlans),
            format!("add the VLANs to `trunk` of [port.{name}], or remove them at its peer"),
        ),
        (VlanRole::Networks, _) => (
            "frames of its tunnel have a VLAN tag inside, or a guest's own tag is to leave by it".to_owned(),
            format!("remove the tags at the other end, or set `inner-tags = \"keep\"` of [port.{name}]"),
        ),
        (VlanRole::Access | VlanRole::Customer, _) => (
            "its guest sends frames with a tag, and the port is an access port".to_owned(),
            format!("remove the VLAN device in the guest, or make [port.{name}] a `trunk`"),
        ),
    };
    outcome.warn(format!("port {name} has dropped {count} frames as vlan-not-allowed"), detail, fix);
}

//! The rules of ports in bridges: only bridges heed them, and VLANs of a bridge fit together.

use straightline_nodes::{PortVlans, VlanRole};
use straightline_wire::VlanId;

use super::network_of;
use crate::diagnostic::Findings;
use crate::{Draft, PortConfig};

/// The most names in a warning.
const MOST_NAMED: usize = 4;

pub(super) fn check(draft: &Draft, report: &mut Findings<'_>) {
    check_places(draft, report);
    for (bridge, static_spans) in &draft.bridges {
        let ports: Vec<_> = bridge.ports.iter().filter_map(|name| port_of(draft, name)).collect();
        let has_vlans = ports.iter().any(|port| port.rules.vlans.is_some());
        for (entry, span) in bridge.statics.iter().zip(static_spans) {
            let Some(port) = ports.iter().find(|port| port.name == entry.port) else { continue };
            let title = format!("static entry {} in bridge {:?}", entry.mac, bridge.name);
            match entry.vlan {
                Some(vlan) if !has_vlans && vlan != VlanId::DEFAULT => {
                    report.error(span, format!("{title}: the bridge has no VLANs; remove vlan"));
                }
                None if has_vlans && untagged(port).is_none() => {
                    let has_networks = port.kind.as_tunnel().is_some_and(|tunnel| !tunnel.networks.is_empty());
                    let why = if has_networks { "has vnis" } else { "is a trunk without native-vlan" };
                    let message = format!(
                        "{title}: port {:?} {why}; name the VLAN, for example {{ port = {:?}, \
                         vlan = 10 }}",
                        port.name, port.name
                    );
                    report.error(span, message);
                }
                Some(vlan) if has_vlans && !is_in(port, vlan) => {
                    report.error(span, format!("{title}: port {:?} is not in VLAN {vlan}", port.name));
                }
                _ => {}
            }
        }
        if !has_vlans {
            continue;
        }
        ports.iter().for_each(|port| check_native(draft, port, &ports, report));
        let others: Vec<_> = ports.iter().filter(|port| port.rules.vlans.is_none()).collect();
        if let Some(first) = others.first()
            && let Some((_, spans)) = draft.ports.iter().find(|(port, _)| port.name == first.name)
        {
            let names: Vec<_> = others.iter().take(MOST_NAMED).map(|port| format!("{:?}", port.name)).collect();
            let more = if others.len() > MOST_NAMED {
                format!(" and {} more", others.len() - MOST_NAMED)
            } else {
                String::new()
            };
            let (noun, verb) = if others.len() == 1 { ("port", "is") } else { ("ports", "are") };
            let message = format!(
                "bridge {:?} has VLANs, so its {noun} {}{more} without vlan, trunk and qinq {verb} in VLAN 1; write \
                 vlan = 1 if this is meant",
                bridge.name,
                names.join(", ")
            );
            report.warn(&spans.name, message);
        }
    }
}

/// Warns of an access port or a port for customers in the native VLAN of a trunk. A tag that its guest puts
/// into a frame would be the first one that the next switch sees.
fn check_native(draft: &Draft, trunk: &PortConfig, ports: &[&PortConfig], report: &mut Findings<'_>) {
    let Some(PortVlans { role: VlanRole::Trunk { native: Some(native), .. }, .. }) = &trunk.rules.vlans else { return };
    if native.is_tagged {
        return;
    }
    let Some((_, spans)) = draft.ports.iter().find(|(port, _)| port.name == trunk.name) else { return };
    let span = spans.native_vlan.as_ref().unwrap_or(&spans.name);
    let is_customer =
        |port: &PortConfig| port.rules.vlans.as_ref().is_some_and(|vlans| matches!(vlans.role, VlanRole::Customer(_)));
    let is_access =
        |port: &PortConfig| port.rules.vlans.as_ref().is_none_or(|vlans| matches!(vlans.role, VlanRole::Access(_)));
    let mut members = ports.iter().filter(|port| untagged(port) == Some(native.id));
    if let Some(access) = members.clone().find(|port| is_access(port)) {
        let message = format!(
            "native-vlan of port {:?}: access port {:?} is in VLAN {} as well, whose frames leave without a tag, and \
             drop as nested-tag if they have one inside; write native = \"tagged\" if the next switch takes these \
             frames with a tag",
            trunk.name, access.name, native.id
        );
        report.warn(span, message);
    }
    // With nested tags, somebody has thought of those of customers.
    if let Some(customer) = members.find(|port| is_customer(port)).filter(|_| !native.has_nested_tags) {
        let message = format!(
            "native-vlan of port {:?}: qinq port {:?} is in VLAN {} as well, and its frames with a tag of the customer \
             drop as nested-tag here, because they leave without another one; write native = \"tagged\", or \
             nested-tags = true for tags of the other kind",
            trunk.name, customer.name, native.id
        );
        report.warn(span, message);
    }
}

/// Checks that keys which only a bridge heeds belong to ports of bridges.
fn check_places(draft: &Draft, report: &mut Findings<'_>) {
    for (port, spans) in &draft.ports {
        let Some((key, span)) = &spans.bridge_key else { continue };
        let place = match network_of(draft, &port.name) {
            Some((network, _)) if network.title.starts_with("bridge ") => continue,
            Some((network, _)) => format!("is in {}", network.title),
            // A section that could not be read may be the bridge.
            None if !draft.unread.is_empty() => continue,
            None => "is in no bridge".to_owned(),
        };
        let message = format!(
            "{key} in port {:?}: only a bridge heeds it, and the port {place}; remove it, or use a bridge",
            port.name
        );
        report.error(span, message);
    }
}

fn port_of<'a>(draft: &'a Draft, name: &str) -> Option<&'a PortConfig> {
    draft.ports.iter().map(|(port, _)| port).find(|port| port.name == name)
}

/// Returns the VLAN of the port's frames without a tag, in a bridge with VLANs.
fn untagged(port: &PortConfig) -> Option<VlanId> {
    port.rules.vlans.as_ref().map_or(Some(VlanId::DEFAULT), |vlans| vlans.untagged())
}

fn is_in(port: &PortConfig, vlan: VlanId) -> bool {
    match &port.rules.vlans {
        Some(vlans) => vlans.contains(vlan),
        None => vlan == VlanId::DEFAULT,
    }
}

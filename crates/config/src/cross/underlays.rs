//! Underlays: their ports, their networks and their next hops.

use std::collections::HashSet;
use std::net::IpAddr;

use straightline_nodes::{PortVlans, VlanRole};
use straightline_wire::VlanId;

use crate::diagnostic::{Findings, Span};
use crate::sections::network::Network;
use crate::sections::port::PortSpans;
use crate::sections::underlay::UnderlaySpans;
use crate::{Draft, PathMtuErrors, PortConfig, UnderlayConfig};

/// The most next hops of an underlay.
const MAX_NEXT_HOPS: usize = 256;
/// The least MTU of a network that carries IPv6 (RFC 8200, 5).
const MIN_IPV6_MTU: u16 = 1280;

/// Gives underlays without `mtu` that of their port, ports with `steal = "address"` the addresses
/// of their underlay, and ports of underlays no UDP segmentation.
pub(super) fn complete(draft: &mut Draft) {
    for (underlay, spans) in &mut draft.underlays {
        if spans.mtu.is_none() {
            let port = draft.ports.iter().map(|(port, _)| port).find(|port| port.name == underlay.port);
            underlay.mtu = port.map_or(PortConfig::DEFAULT_MTU, |port| port.mtu);
        }
        let port = draft.ports.iter_mut().map(|(port, _)| port).find(|port| port.name == underlay.port);
        if let Some(port) = port {
            port.kind.carry(underlay);
        }
    }
}

pub(super) fn check(draft: &Draft, report: &mut Findings<'_>) {
    for (at, (underlay, spans)) in draft.underlays.iter().enumerate() {
        // A key that is absent has an error of its own.
        if !underlay.port.is_empty() {
            check_port(draft, at, report);
        }
        check_addresses(underlay, spans, report);
        check_path_mtu(underlay, spans, report);
        check_next_hops(draft, underlay, spans, report);
    }
    for (port, span) in &draft.steals {
        let Some((port, _)) = draft.ports.get(*port) else { continue };
        // An underlay without a good port may be meant for this one.
        let is_wrong = |(_, spans): &(UnderlayConfig, UnderlaySpans)| report.has_error_in(&spans.port);
        if !draft.unread.is_empty() || draft.underlays.iter().any(is_wrong) {
            continue;
        }
        if !draft.underlays.iter().any(|(underlay, _)| underlay.port == port.name) {
            let message = format!(
                "steal = \"address\" in port {:?} needs an underlay on the port, which has the addresses: add a section \
                 [underlay.NAME] with port = {:?}, or use \"all\"",
                port.name, port.name
            );
            report.error(span, message);
        }
    }
}

/// Checks that the port of an underlay exists and has no other use, but for a bridge with other VLANs.
fn check_port(draft: &Draft, at: usize, report: &mut Findings<'_>) {
    let (underlay, spans) = &draft.underlays[at];
    let title = format!("port {:?} of underlay {:?}", underlay.port, underlay.name);
    let Some((port, port_spans)) = draft.ports.iter().find(|(port, _)| port.name == underlay.port) else {
        if draft.unread.may_have("port", &underlay.port) {
            return;
        }
        return report.error(&spans.port, format!("{title}: no such port; {}", super::known_ports(draft)));
    };
    if port.kind.as_tunnel().is_some() {
        let message = format!("{title}: a tunnel; an underlay needs a port of another kind, such as \"af-xdp\"");
        return report.error(&spans.port, message);
    }
    let network = super::network_of(draft, &port.name);
    if let Some(network) = network {
        check_shared(draft, (underlay, spans), (port, port_spans), network, report);
    }
    if let Some((other, other_spans)) = draft.underlays[..at].iter().find(|(other, _)| other.port == port.name) {
        let line = report.line(&other_spans.port);
        let message = format!("{title}: underlay {:?} has it already (line {line}); each needs its own", other.name);
        report.error(&spans.port, message);
    }
    let mut outputs = draft.node_sites.iter().flat_map(|node| node.outputs.iter().map(move |to| (node, to)));
    if let Some((node, to)) = outputs.find(|(_, to)| to.port == port.name) {
        let message = format!("{title}: node {:?} sends copies there (line {})", node.name, report.line(&to.span));
        report.error(&spans.port, format!("{message}; name another port in one of the two"));
    }
    let own = [
        ("nodes", port_spans.nodes.first()),
        ("egress-nodes", port_spans.egress_nodes.first()),
        ("dscp", port_spans.dscp.as_ref()),
        ("expedited", port_spans.expedited.as_ref()),
        ("source-check", port_spans.source_check.as_ref().filter(|_| port.source_check.is_some())),
    ];
    for (key, span) in own {
        // In a bridge they are for the packets of the bridge.
        if let Some(span) = span.filter(|_| network.is_none()) {
            let why = if key == "expedited" { "have no classes here" } else { "pass no nodes" };
            let message = format!(
                "{key} of port {:?}: it is the port of underlay {:?}, whose packets {why}; set {key} at its tunnels",
                port.name, underlay.name
            );
            report.error(span, message);
        }
    }
    if let Some(span) = &spans.mtu
        && underlay.mtu > port.mtu
        && !port_spans.mtu.as_ref().is_some_and(|mtu| report.has_error_in(mtu))
        && !report.has_error_in(span)
    {
        let message = format!(
            "mtu {} of underlay {:?}: more than mtu {} of its port {:?}; use at most that, or raise the port's",
            underlay.mtu, underlay.name, port.mtu, port.name
        );
        report.error(span, message);
    }
}

/// Checks that an underlay shares a port with a bridge as a further VLAN of its trunk. Then no frame of
/// the one can be taken for one of the other.
fn check_shared(
    draft: &Draft,
    (underlay, spans): (&UnderlayConfig, &UnderlaySpans),
    (port, port_spans): (&PortConfig, &PortSpans),
    (network, span): (&Network, &Span),
    report: &mut Findings<'_>,
) {
    let title = format!("port {:?} of underlay {:?}", port.name, underlay.name);
    let place = format!("already in {} (line {})", network.title, report.line(span));
    let is_wrong = |span: &Option<Span>| span.as_ref().is_some_and(|span| report.has_error_in(span));
    if is_wrong(&spans.vlan) || is_wrong(&port_spans.trunk) || is_wrong(&port_spans.native_vlan) {
        return;
    }
    let in_bridge = network.title.starts_with("bridge ");
    let Some(vlan) = underlay.vlan.and_then(VlanId::new).filter(|_| in_bridge) else {
        let remedy = if in_bridge {
            "give the underlay a VLAN of its own (vlan), and the port a trunk without it"
        } else {
            "the port of an underlay is in no patch"
        };
        return report.error(&spans.port, format!("{title}: {place}; {remedy}"));
    };
    let Some(PortVlans { role: VlanRole::Trunk { vlans, native, .. }, .. }) = &port.rules.vlans else {
        let remedy = format!("an underlay shares only a trunk; give the port a trunk without VLAN {vlan}");
        return report.error(&spans.port, format!("{title}: {place}; {remedy}"));
    };
    if vlans.contains(vlan) {
        let is_native = native.is_some_and(|native| native.id == vlan);
        let (key, place) =
            if is_native { ("native-vlan", &port_spans.native_vlan) } else { ("trunk", &port_spans.trunk) };
        let line = place.as_ref().map_or(0, |span| report.line(span));
        let message = format!(
            "vlan {vlan} of underlay {:?}: {} uses it, too, by {key} of port {:?} (line {line}); use another VLAN",
            underlay.name, network.title, port.name
        );
        report.error(spans.vlan.as_ref().unwrap_or(&spans.port), message);
    }
    if native.is_some_and(|native| !native.is_tagged) {
        let message = format!(
            "native-vlan of port {:?}: a frame that leaves without a tag of the bridge may have a tag of a guest, for \
             VLAN {vlan} of underlay {:?}; add native = \"tagged\", or remove native-vlan",
            port.name, underlay.name
        );
        report.error(port_spans.native_vlan.as_ref().unwrap_or(&port_spans.name), message);
    }
    let at = draft.ports.iter().position(|(other, _)| other.name == port.name);
    if let Some((_, span)) = draft.steals.iter().find(|(stealing, _)| Some(*stealing) == at) {
        let message = format!(
            "steal = \"address\" in port {:?}: {} needs the packets for its stations, too; use \"all\"",
            port.name, network.title
        );
        report.error(span, message);
    }
}

/// Checks that the least MTU of a path is not more than that of the underlay.
fn check_path_mtu(underlay: &UnderlayConfig, spans: &UnderlaySpans, report: &mut Findings<'_>) {
    if let (PathMtuErrors::Least(least), Some(span)) = (underlay.path_mtu, &spans.path_mtu)
        && least > underlay.mtu
        && !spans.mtu.as_ref().is_some_and(|mtu| report.has_error_in(mtu))
    {
        let message = format!(
            "path-mtu {least} of underlay {:?}: more than its mtu {}, so no router could lower it; use \"off\"",
            underlay.name, underlay.mtu
        );
        report.error(span, message);
    }
}

/// Checks the networks of an underlay, its gateways and its static neighbours.
fn check_addresses(underlay: &UnderlayConfig, spans: &UnderlaySpans, report: &mut Findings<'_>) {
    let name = &underlay.name;
    let is_own = |ip: &IpAddr| underlay.addresses.iter().any(|address| address.ip == *ip);
    let is_near = |ip: &IpAddr| underlay.addresses.iter().any(|address| address.contains(*ip));
    // With a wrong address, the networks are not known.
    let has_networks = !report.has_error_in(&spans.address);
    let has_ipv6 = underlay.addresses.iter().position(|address| address.ip.is_ipv6());
    if let Some(at) = has_ipv6
        .filter(|_| underlay.mtu < MIN_IPV6_MTU && !spans.mtu.as_ref().is_some_and(|mtu| report.has_error_in(mtu)))
    {
        let span = spans.mtu.as_ref().unwrap_or(&spans.addresses[at]);
        let ip = underlay.addresses[at].ip;
        let message = format!("mtu {} of underlay {name:?}: IPv6 ({ip}) needs at least {MIN_IPV6_MTU}", underlay.mtu);
        report.error(span, message);
    }
    for (at, (gateway, span)) in underlay.gateways.iter().zip(&spans.gateways).enumerate() {
        let version = if gateway.is_ipv4() { "IPv4" } else { "IPv6" };
        let why = if is_own(gateway) {
            "an address of the underlay itself; name the router's".to_owned()
        } else if underlay.gateways[..at].iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
            format!("the second one of {version}; name one for each IP version")
        } else if !is_near(gateway) && has_networks {
            "in no network of the underlay; name a router of one of its networks".to_owned()
        } else {
            continue;
        };
        report.error(span, format!("gateway {gateway} of underlay {name:?}: {why}"));
    }
    for ((ip, _), span) in underlay.neighbours.iter().zip(&spans.neighbours) {
        let why = if is_own(ip) {
            "an address of the underlay itself"
        } else if !is_near(ip) && has_networks {
            "in no network of the underlay, so no packet goes to it directly"
        } else {
            continue;
        };
        report.error(span, format!("neighbour {ip} of underlay {name:?}: {why}; name a station of its networks"));
    }
}

/// Checks that the next hops of an underlay fit its table, and that a tunnel uses it.
fn check_next_hops(draft: &Draft, underlay: &UnderlayConfig, spans: &UnderlaySpans, report: &mut Findings<'_>) {
    let tunnels = draft.ports.iter().filter_map(|(port, _)| port.kind.as_tunnel());
    let mut tunnels = tunnels.filter(|tunnel| tunnel.underlay == underlay.name).peekable();
    if tunnels.peek().is_none() {
        let message = format!("underlay {:?} has no tunnel; it only answers to ARP and ping", underlay.name);
        return report.warn(&spans.name, message);
    }
    let is_near = |ip: &&IpAddr| underlay.addresses.iter().any(|address| address.contains(**ip));
    let near: HashSet<_> = tunnels.flat_map(|tunnel| &tunnel.remotes).filter(is_near).collect();
    let fixed = underlay.neighbours.iter().map(|(ip, _)| ip).filter(|ip| !near.contains(ip)).count();
    let gateways = underlay.gateways.iter().filter(|ip| !near.contains(ip)).count();
    let count = near.len() + fixed + gateways;
    if count > MAX_NEXT_HOPS {
        let message = format!(
            "underlay {:?}: its tunnels need {count} next hops; an underlay has at most {MAX_NEXT_HOPS}",
            underlay.name
        );
        report.error(&spans.name, message);
    }
}

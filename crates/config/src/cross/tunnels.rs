//! Tunnels: their underlay, their remotes, their keys and their MTU.

use std::collections::HashMap;
use std::net::IpAddr;

use straightline_nodes::PortVlans;
use straightline_wire::{VlanId, VlanSet};

use crate::diagnostic::Findings;
use crate::sections::kind::TunnelSite;
use crate::sections::underlay::UnderlaySpans;
use crate::{Draft, PortConfig, RemoteStatic, TunnelSettings, UnderlayConfig};

/// Gives tunnels without `local` an address of their underlay, and tunnels without `mtu` what fits
/// the underlay.
pub(super) fn complete(draft: &mut Draft) {
    for site in &draft.tunnels {
        let Some((port, _)) = draft.ports.get_mut(site.port) else { continue };
        let Some(tunnel) = port.kind.as_tunnel_mut() else { continue };
        let Some((underlay, _)) = draft.underlays.iter().find(|(underlay, _)| underlay.name == tunnel.underlay) else {
            continue;
        };
        if let (None, None) = (&site.local, tunnel.remotes.first()) {
            tunnel.local = underlay.addresses.first().map_or(tunnel.local, |address| address.ip);
        }
        if let (None, Some(remote)) = (&site.local, tunnel.remotes.first()) {
            let mut candidates = underlay.addresses.iter().filter(|address| address.ip.is_ipv4() == remote.is_ipv4());
            let first = candidates.clone().next();
            let near = candidates.find(|address| address.contains(*remote));
            tunnel.local = near.or(first).map_or(tunnel.local, |address| address.ip);
        }
        if site.mtu.is_none() {
            let tunnel = tunnel.clone();
            port.mtu = tunnel.mtu_inside(port, underlay.mtu).max(PortConfig::MIN_MTU);
        }
    }
}

/// A tunnel with its underlay.
struct Found<'a> {
    port: &'a PortConfig,
    tunnel: &'a TunnelSettings,
    underlay: &'a UnderlayConfig,
    site: &'a TunnelSite,
}

pub(super) fn check(draft: &Draft, report: &mut Findings<'_>) {
    let mut found: Vec<Found<'_>> = Vec::new();
    for site in &draft.tunnels {
        let Some((port, _)) = draft.ports.get(site.port) else { continue };
        let Some(tunnel) = port.kind.as_tunnel() else { continue };
        let mut underlays = draft.underlays.iter();
        let Some((underlay, spans)) = underlays.find(|(underlay, _)| underlay.name == tunnel.underlay) else {
            // A key that is absent has an error of its own.
            if !tunnel.underlay.is_empty() && !draft.unread.may_have("underlay", &tunnel.underlay) {
                let names: Vec<_> = draft.underlays.iter().map(|(underlay, _)| underlay.name.as_str()).collect();
                let known = if names.is_empty() {
                    "there is no section [underlay.NAME]".to_owned()
                } else {
                    format!("underlays are {}", names.join(", "))
                };
                let message =
                    format!("underlay {:?} of port {:?}: no such underlay; {known}", tunnel.underlay, port.name);
                report.error(&site.underlay, message);
            }
            continue;
        };
        let tunnel = Found { port, tunnel, underlay, site };
        check_ends(&tunnel, spans, report);
        check_key(&tunnel, &found, report);
        check_bridge(draft, &tunnel, report);
        check_site(draft, &tunnel, &found, report);
        check_mtu(draft, &tunnel, report);
        found.push(tunnel);
    }
}

/// Checks the addresses of both ends.
fn check_ends(found: &Found<'_>, spans: &UnderlaySpans, report: &mut Findings<'_>) {
    let Found { port, tunnel, underlay, site } = found;
    let has_addresses = !report.has_error_in(&spans.address);
    let has_gateways = !spans.gateway.as_ref().is_some_and(|gateway| report.has_error_in(gateway));
    let is_own = |ip: IpAddr| underlay.addresses.iter().any(|address| address.ip == ip);
    if let Some(span) = &site.local {
        let own: Vec<_> = underlay.addresses.iter().map(|address| address.ip.to_string()).collect();
        let title = format!("local {} of port {:?}", tunnel.local, port.name);
        if !is_own(tunnel.local) && has_addresses {
            let message = format!("{title}: no address of underlay {:?}, which has {}", underlay.name, own.join(", "));
            report.error(span, message);
        } else if is_own(tunnel.local)
            && tunnel.remotes.first().is_some_and(|remote| remote.is_ipv4() != tunnel.local.is_ipv4())
        {
            report.error(span, format!("{title}: not of the remote's IP version; use one of {}", own.join(", ")));
        }
    }
    for (remote, span) in tunnel.remotes.iter().zip(&site.remotes) {
        let version = if remote.is_ipv4() { "IPv4" } else { "IPv6" };
        let has_address = underlay.addresses.iter().any(|address| address.ip.is_ipv4() == remote.is_ipv4());
        let is_near = underlay.addresses.iter().any(|address| address.contains(*remote));
        let has_router = underlay.gateways.iter().any(|gateway| gateway.is_ipv4() == remote.is_ipv4());
        let why = if is_own(*remote) {
            format!("an address of underlay {:?} itself; name the other end's", underlay.name)
        } else if !has_addresses {
            continue;
        } else if !has_address {
            format!("underlay {:?} has no {version} address; add one to its address", underlay.name)
        } else if !is_near && !has_router && has_gateways {
            format!(
                "in no network of underlay {:?}, which has no {version} gateway; add one to its gateway",
                underlay.name
            )
        } else {
            continue;
        };
        report.error(span, format!("remote {remote} of port {:?}: {why}", port.name));
    }
    for (RemoteStatic { mac: station, remote, .. }, span) in tunnel.statics.iter().zip(&site.statics) {
        if !tunnel.remotes.contains(remote) && !report.has_error_in(&site.remote) {
            let known: Vec<_> = tunnel.remotes.iter().map(IpAddr::to_string).collect();
            let message = format!(
                "remote {remote} of static entry {station} in port {:?}: not a remote of this port; its remotes are {}",
                port.name,
                known.join(", ")
            );
            report.error(span, message);
        }
    }
}

/// Checks that no other tunnel has the same key, so that a received packet belongs to one tunnel.
fn check_key(found: &Found<'_>, others: &[Found<'_>], report: &mut Findings<'_>) {
    let tunnel = found.tunnel;
    // A wrong value was read as a default one.
    let is_wrong = |site: &TunnelSite| {
        [Some(&site.key), site.local_key.as_ref()].into_iter().flatten().any(|span| report.has_error_in(span))
    };
    if is_wrong(found.site) {
        return;
    }
    let is_other = |other: &&Found<'_>| {
        other.tunnel.underlay == tunnel.underlay
            && other.tunnel.local == tunnel.local
            && other.tunnel.remotes.iter().any(|remote| tunnel.remotes.contains(remote))
            && !is_wrong(other.site)
    };
    let same = others.iter().filter(is_other).find_map(|other| Some((other, same_network(tunnel, other.tunnel)?)));
    let Some((other, (own, others))) = same else { return };
    let remote = other.tunnel.remotes.iter().find(|remote| tunnel.remotes.contains(remote));
    let place = |site: &'_ TunnelSite, network: usize| site.networks.get(network).unwrap_or(&site.key).clone();
    let key = tunnel.vnis().get(own).map_or_else(|| tunnel.kind.describe_key(), |vni| format!("vni {vni}"));
    let message = format!(
        "{key} of port {:?}: port {:?} has it already for remote {} (line {}); packets of the two could not be told apart",
        found.port.name,
        other.port.name,
        remote.map_or_else(String::new, IpAddr::to_string),
        report.line(&place(other.site, others))
    );
    report.error(&place(found.site, own), message);
}

/// Returns the first network of a tunnel whose received packets look like those of another one's
/// network, and that network. Both are places in the networks; 0 for a tunnel that is one network.
fn same_network(tunnel: &TunnelSettings, other: &TunnelSettings) -> Option<(usize, usize)> {
    let own = tunnel.vnis();
    if own.is_empty() || !tunnel.kind.with_vni(0).is_same_on_the_wire(&other.kind.with_vni(0)) {
        return tunnel.kind.is_same_on_the_wire(&other.kind).then_some((0, 0));
    }
    let others: HashMap<_, _> = other.vnis().into_iter().zip(0..).collect();
    own.iter().zip(0..).find_map(|(vni, at)| Some((at, *others.get(vni)?)))
}

/// Checks that a tunnel that carries IP has a bridge with at most one other port. The tunnel
/// answers ARP and neighbour discovery for all addresses, so other ports could not reach each other.
fn check_bridge(draft: &Draft, found: &Found<'_>, report: &mut Findings<'_>) {
    let name = &found.port.name;
    let Some((bridge, _)) = draft.bridges.iter().find(|(bridge, _)| bridge.ports.contains(name)) else { return };
    let Some((_, span)) = super::network_of(draft, name) else { return };
    let others = bridge.ports.iter().filter(|other| *other != name).count();
    if found.tunnel.kind.carries_ip() && others > 1 {
        let message = format!(
            "port {name:?} in bridge {:?}: a tunnel that carries IP answers ARP and neighbour discovery for all \
             addresses, so the {others} other ports could not reach each other; join it to one port with a patch",
            bridge.name
        );
        report.error(span, message);
    }
}

/// Warns of two tunnels of one bridge that lead to one site: a flood comes back by the other one. Two
/// tunnels without a VLAN in common are no loop.
fn check_site(draft: &Draft, found: &Found<'_>, others: &[Found<'_>], report: &mut Findings<'_>) {
    let bridge_of = |name: &String| draft.bridges.iter().position(|(bridge, _)| bridge.ports.contains(name));
    let Some(bridge) = bridge_of(&found.port.name) else { return };
    let leads_there = |other: &&Found<'_>| {
        bridge_of(&other.port.name) == Some(bridge)
            && other.tunnel.remotes.iter().any(|remote| found.tunnel.remotes.contains(remote))
            && share_vlan(found.port, other.port)
    };
    if let Some(other) = others.iter().find(leads_there) {
        let message = format!(
            "ports {:?} and {:?} of bridge {:?} are tunnels to one remote: floods come back by the other one, a loop; use \
             one port, which may have several remotes (`remotes`), or VLANs that differ",
            other.port.name, found.port.name, draft.bridges[bridge].0.name
        );
        report.warn(&found.site.remote, message);
    }
}

/// Returns whether two ports of a bridge have a VLAN in common.
fn share_vlan(port: &PortConfig, other: &PortConfig) -> bool {
    let default: VlanSet = [VlanId::DEFAULT].into_iter().collect();
    let all = |port: &PortConfig| port.rules.vlans.as_ref().map_or_else(|| default.clone(), PortVlans::all);
    let own = all(port);
    all(other).iter().any(|id| own.contains(id))
}

/// Warns where packets of other ports are longer than the tunnel carries, and where the tunnel is
/// to carry more than fits its underlay.
fn check_mtu(draft: &Draft, found: &Found<'_>, report: &mut Findings<'_>) {
    let Found { port, tunnel, underlay, site } = found;
    let inside = tunnel.mtu_inside(port, underlay.mtu);
    // The MTU of an underlay that would do.
    let needed = |mtu: u16| u32::from(mtu) + u32::from(underlay.mtu - inside);
    if let Some(span) = site.mtu.as_ref().filter(|_| port.mtu > inside) {
        let message = format!(
            "mtu {} of port {:?}: with the headers of the tunnel, packets are longer than mtu {} of underlay {:?}; use \
             mtu = {inside} here, or mtu = {} there",
            port.mtu,
            port.name,
            underlay.mtu,
            underlay.name,
            needed(port.mtu)
        );
        report.warn(span, message);
    }
    let carried = inside.min(port.mtu);
    let Some((network, _)) = super::network_of(draft, &port.name) else { return };
    let members = network.ports.iter().filter_map(|(name, _)| draft.ports.iter().find(|(port, _)| port.name == *name));
    let longer = members
        .filter(|(member, _)| member.kind.as_tunnel().is_none() && member.mtu > carried && share_vlan(port, member));
    let longer: Vec<_> = longer.map(|(member, _)| member).collect();
    let Some(longest) = longer.iter().max_by_key(|member| member.mtu) else { return };
    let others = match longer.len() - 1 {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let message = format!(
        "port {:?} carries IP packets of at most {carried} bytes, but port {:?}{others} in {} has mtu {}; use mtu = \
         {carried} there, or mtu = {} in underlay {:?}",
        port.name,
        longest.name,
        network.title,
        longest.mtu,
        needed(longest.mtu),
        underlay.name
    );
    report.warn(site.mtu.as_ref().unwrap_or(&draft.ports[site.port].1.name), message);
}

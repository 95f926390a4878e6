//! Checks of received routes, that need no history.

use std::net::IpAddr;

use straightline_wire::MacAddr;

use super::counters::Refusal;
use super::domain::DomainState;
use crate::route::{INGRESS_REPLICATION, Route, RouteKey, VXLAN};

/// Returns the numbers of the domains that take a route, or the reason why none does.
pub(crate) fn check(domains: &[DomainState], route: &Route) -> Result<Vec<usize>, Refusal> {
    if domains.iter().any(|domain| domain.settings.own == route.next_hop) {
        return Err(Refusal::OwnNextHop);
    }
    if domains.iter().any(|domain| domain.settings.rd == route.key.rd()) {
        return Err(Refusal::OwnDistinguisher);
    }
    let with_target = |at: &usize| domains[*at].settings.import.has_any(&route.targets);
    let mut taken: Vec<usize> = (0..domains.len()).filter(with_target).collect();
    if taken.is_empty() {
        return Err(Refusal::NoTarget);
    }
    taken.retain(|at| domains[*at].settings.tag == route.key.tag());
    if taken.is_empty() {
        return Err(Refusal::UnknownTag);
    }
    if !route.encapsulations.is_empty() && !route.encapsulations.contains(&VXLAN) {
        return Err(Refusal::Encapsulation);
    }
    let vni = match route.key {
        RouteKey::Station { mac, ip, .. } => {
            check_station(route, mac, ip)?;
            route.label
        }
        RouteKey::Flood { .. } => match route.pmsi {
            Some(pmsi) if pmsi.kind == INGRESS_REPLICATION => pmsi.label,
            _ => return Err(Refusal::NoReplication),
        },
    };
    taken.retain(|at| domains[*at].settings.vni == vni);
    if taken.is_empty() {
        return Err(Refusal::OtherVni);
    }
    taken.retain(|at| domains[*at].settings.own.is_ipv4() == route.next_hop.is_ipv4());
    if taken.is_empty() || !is_host(route.next_hop) {
        return Err(Refusal::NextHop);
    }
    Ok(taken)
}

fn check_station(route: &Route, mac: MacAddr, ip: Option<IpAddr>) -> Result<(), Refusal> {
    if route.has_segment {
        return Err(Refusal::Segment);
    }
    if !is_station(mac) {
        return Err(Refusal::BadMac);
    }
    if ip.is_some_and(|ip| !is_host(ip)) {
        return Err(Refusal::BadAddress);
    }
    Ok(())
}

/// Returns whether a station may have this address.
pub(crate) fn is_station(mac: MacAddr) -> bool {
    mac.is_unicast() && mac != MacAddr::default()
}

/// Returns whether a host may have this address.
pub(crate) fn is_host(ip: IpAddr) -> bool {
    let is_wrong = ip.is_unspecified() || ip.is_multicast() || ip.is_loopback();
    let is_wrong_v4 = match ip {
        // "This network", and reserved addresses with the broadcast address.
        IpAddr::V4(ip) => ip.octets()[0] == 0 || ip.octets()[0] >= 240,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
    };
    !is_wrong && !is_wrong_v4
}

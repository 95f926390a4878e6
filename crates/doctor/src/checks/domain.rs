//! Bridges and patches: their ports together.

use std::collections::BTreeMap;

use straightline_api::{JoinedKind, Link};

use super::Check;
use crate::facts::{Facts, PortFacts};

/// Returns the ports of each bridge and patch, by a word for it.
fn domains(facts: &Facts) -> BTreeMap<String, Vec<&PortFacts>> {
    let mut domains: BTreeMap<String, Vec<&PortFacts>> = BTreeMap::new();
    for port in &facts.ports {
        let Some(domain) = &port.port.joined else { continue };
        if domain.kind != JoinedKind::Underlay {
            let name = format!("{} {}", domain.kind.as_str(), domain.name);
            domains.entry(name).or_default().push(port);
        }
    }
    domains
}

/// Reports that nothing is known of the ports, if so.
fn has_ports(facts: &Facts, outcome: &mut super::CheckOutcome) -> bool {
    // Without a switch, the configuration tells the same.
    facts.configured.is_some() || outcome.known("the ports", &facts.switch).is_some()
}

pub(super) const MTU: Check = Check {
    name: "bridge-mtu",
    passes: "all ports of a bridge or patch have the same MTU",
    absent: "no port is in a bridge or patch",
    run: |facts, outcome| {
        if !has_ports(facts, outcome) {
            return;
        }
        for (domain, ports) in domains(facts) {
            let mut sizes: BTreeMap<u32, Vec<&PortFacts>> = BTreeMap::new();
            for port in &ports {
                // A port cannot carry more than its interface.
                let own = u32::from(port.port.mtu);
                let device = port.port.device.as_ref().map(|device| device.mtu).filter(|&mtu| mtu > 0);
                sizes.entry(device.map_or(own, |mtu| own.min(mtu))).or_default().push(port);
            }
            let (Some((&least, narrow)), Some((&most, _))) = (sizes.first_key_value(), sizes.last_key_value()) else {
                continue;
            };
            if least == most {
                outcome.pass();
                continue;
            }
            let names =
                |ports: &[&PortFacts]| ports.iter().map(|port| port.port.name.as_str()).collect::<Vec<_>>().join(" ");
            let list: Vec<_> = sizes.iter().map(|(mtu, ports)| format!("{mtu}: {}", names(ports))).collect();
            outcome.warn(
                format!("{domain}: its ports have different MTUs"),
                format!("{}; longer packets are dropped (too-big)", list.join(", ")),
                narrow.first().map_or_else(String::new, |port| raise_mtu(port, most)),
            );
        }
    },
};

/// Returns how a port of its kind gets this MTU.
fn raise_mtu(facts: &PortFacts, mtu: u32) -> String {
    let port = &facts.port;
    let set = format!("set `mtu = {mtu}` in [port.{}]", port.name);
    let interface = port.device.as_ref().map(|device| device.interface.as_str()).or(port.interface.as_deref());
    match &port.tunnel {
        Some(tunnel) => format!("{set}; it takes an MTU of the underlay of {}", mtu + u32::from(tunnel.overhead)),
        None if port.has_frontend() => format!("{set} and in its guest"),
        None if port.makes_interface => set,
        None => format!("{set}, and: ip link set {} mtu {mtu}", interface.unwrap_or("INTERFACE")),
    }
}

pub(super) const OFFLOADS: Check = Check {
    name: "bridge-offloads",
    passes: "all ports of a bridge or patch take TSO and partial checksums",
    absent: "no link with offloads is up in a bridge or patch",
    run: |facts, outcome| {
        if outcome.known("the ports", &facts.switch).is_none() {
            return;
        }
        for (domain, ports) in domains(facts) {
            let up: Vec<_> = ports.iter().filter(|port| port.port.link == Link::Up).collect();
            let lacks: Vec<_> = up.iter().filter_map(|port| Some((port, missing(port)?))).collect();
            for (port, missing) in lacks.iter().filter(|(_, missing)| !missing.is_empty()) {
                let fix = if port.port.has_frontend() {
                    "remove `offloads` from the port, and `csum=` and `*_tso*=` from the VM's device; if it has none \
                     of them, its driver does without, as a boot loader's may: no change helps"
                } else if port.port.makes_interface {
                    "remove `offloads` from the port's section"
                } else {
                    "use `kind = \"af-packet\"` or a tap where large packets matter more than small ones"
                };
                outcome.warn(
                    format!("{domain}: port {} does without {}", port.port.name, missing.join(" and ")),
                    "packets from other ports are segmented or summed for it, which takes CPU time",
                    fix,
                );
            }
            if !lacks.is_empty() {
                outcome.pass();
            }
        }
    },
};

/// Returns the offloads that the guest or interface of a port does not take. `None` for a port
/// without offloads of its own, such as a tunnel.
fn missing(port: &PortFacts) -> Option<Vec<&'static str>> {
    let features = match &port.port.device {
        Some(device) => &device.offloads,
        None if port.port.has_frontend() => &port.port.features,
        None => return None,
    };
    let has_feature = |name: &str| features.iter().any(|feature| feature == name);
    let all = [("checksums", "guest-csum"), ("TSO", "guest-tso4")];
    Some(all.into_iter().filter(|(_, feature)| !has_feature(feature)).map(|(name, _)| name).collect())
}

pub(super) const LEARNING: Check = Check {
    name: "learning",
    passes: "bridges and tunnels have learned every address",
    absent: "no port is in a bridge, and no tunnel has several remotes",
    run: |facts, outcome| {
        for facts in facts.running_ports(outcome) {
            let tunnel = facts.port.tunnel.iter();
            for (remote, addresses) in tunnel.flat_map(|tunnel| tunnel.remote.iter().zip(&tunnel.addresses)) {
                match addresses.refused {
                    0 => outcome.pass(),
                    refused => outcome.warn(
                        format!("{}: {refused} addresses behind remote {remote} were not learned", facts.subject()),
                        format!(
                            "{} addresses fill its share of the table; packets to others go to all remotes",
                            addresses.learned
                        ),
                        format!(
                            "raise `limit` in [port.{}], or look for a guest behind the remote that forges addresses",
                            facts.port.name
                        ),
                    ),
                }
            }
            let Some(addresses) = facts.port.addresses else { continue };
            let bridge = facts.port.joined.as_ref().map_or("", |domain| &domain.name);
            match addresses.refused {
                0 => outcome.pass(),
                refused => outcome.warn(
                    format!("{}: {refused} addresses were not learned", facts.subject()),
                    format!(
                        "{} addresses fill its share of the table; packets to others are flooded",
                        addresses.learned
                    ),
                    format!("raise `limit` in [bridge.{bridge}], or look for a guest that forges addresses"),
                ),
            }
        }
    },
};

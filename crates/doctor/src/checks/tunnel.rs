//! Underlays and tunnels.

use straightline_api::NeighbourState;

use super::Check;

pub(super) const NEXT_HOPS: Check = Check {
    name: "next-hops",
    passes: "each next hop of the underlays answers",
    absent: "no underlay has a next hop",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the next hops", &facts.switch) else { return };
        for hop in &switch.neighbours.neighbours {
            match hop.state {
                NeighbourState::Reachable | NeighbourState::Static => outcome.pass(),
                NeighbourState::Asked | NeighbourState::Unanswered => outcome.fail(
                    format!("underlay {}: next hop {} does not answer", hop.underlay, hop.ip),
                    "the tunnels behind it are down",
                    format!(
                        "look at its cable, network and VLAN, then: straightline ping {} {}; straightline neighbours",
                        hop.underlay, hop.ip
                    ),
                ),
            }
        }
    },
};

pub(super) const ADDRESSES: Check = Check {
    name: "own-addresses",
    passes: "no other station has an address of the underlays",
    absent: "the switch has no underlay",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the addresses of underlays", &facts.switch) else { return };
        for own in &switch.neighbours.addresses {
            let Some(mac) = &own.conflict else {
                outcome.pass();
                continue;
            };
            let underlay = &own.underlay;
            let ip = &own.ip;
            outcome.fail(
                format!("underlay {underlay}: another station has {ip}"),
                format!("it has the MAC address {mac}, and gets packets of the tunnels that are for this switch"),
                format!(
                    "give one of the two another address: `address` in [underlay.{underlay}]. If this host has the \
                     station (ip -br link | grep -i {mac}), its kernel answers for all interfaces: \
                     sysctl net.ipv4.conf.all.arp_ignore=1"
                ),
            );
        }
    },
};

pub(super) const MTU: Check = Check {
    name: "tunnel-mtu",
    passes: "the MTU of each tunnel fits its path",
    absent: "the switch has no tunnel",
    run: |facts, outcome| {
        for facts in facts.running_ports(outcome) {
            let Some(tunnel) = &facts.port.tunnel else { continue };
            let mtu = facts.port.mtu;
            let inside = tunnel.mtu_inside;
            if mtu <= inside {
                outcome.pass()
            } else {
                outcome.warn(
                    format!("{}: its MTU of {mtu} does not fit the path", facts.subject()),
                    format!(
                        "{inside} bytes fit beside {} bytes of headers; longer packets are dropped",
                        tunnel.overhead
                    ),
                    format!(
                        "set `mtu = {inside}` in [port.{}] and in the guests, or raise that of the underlay",
                        facts.port.name
                    ),
                )
            }
        }
    },
};

pub(super) const PATH_MTU: Check = Check {
    name: "path-mtu",
    passes: "no router has lowered the MTU of a tunnel's path",
    absent: "the switch has no tunnel",
    run: |facts, outcome| {
        for facts in facts.running_ports(outcome) {
            let Some(tunnel) = &facts.port.tunnel else { continue };
            let lowest = tunnel.path_mtus.iter().min_by_key(|path| path.mtu);
            let Some(path) = lowest else {
                outcome.pass();
                continue;
            };
            outcome.warn(
                format!(
                    "{}: a router says that the path to {} carries packets of {} bytes",
                    facts.subject(),
                    path.remote,
                    path.mtu
                ),
                format!(
                    "for ten minutes, packets inside of more than {} bytes are dropped; anybody can forge this",
                    tunnel.mtu_inside
                ),
                format!(
                    "find the link: tracepath -n {}. Raise its MTU, or lower `mtu` in [underlay.{}]. If it is forged, \
                     set `path-mtu = \"off\"` there",
                    path.remote, tunnel.underlay
                ),
            );
        }
    },
};

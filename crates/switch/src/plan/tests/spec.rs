//! Descriptions of domains: each key that a graph depends on changes the description of its domain,
//! and of no other domain.

use straightline_wire::{Dscp, VlanId};

use super::*;
use crate::config::{FlowsConfig, IpPrefix, Mac, Network, PortVlans, StaticEntry};

const LAN: (&str, &str) = ("bridge", "lan");
const PATCH: (&str, &str) = ("patch", "p0p1");
const TUNNELS: (&str, &str) = ("underlay", "u");

/// A patch; a bridge of three ports, one with nodes and a check; a bridge with a tunnel; two ports
/// that are in no network, and receive copies.
fn all_of_it() -> Config {
    let mut config = config(10, &[0]);
    config.patches = vec![PatchConfig { full: WhenFull::Drop, ..patch("p0", "p1") }];
    config.nodes = vec![node(0), mirror("p8")];
    config.ports[2].nodes = vec!["m".to_owned()];
    config.ports[3].egress_nodes = vec!["n".to_owned()];
    config.ports[4].mac = Some(mac(4));
    config.ports[4].source_check = Some(SourceCheckConfig::default());
    config.underlays = vec![underlay("u", "p6")];
    config.ports.push(tunnel("t", "u", 1));
    let second = BridgeConfig { name: "tun".to_owned(), ..bridge(&["p5", "t"]) };
    config.bridges = vec![bridge(&["p2", "p3", "p4"]), second];
    config.bridges[0].flows = Some(FlowsConfig { lines: vec!["actions=normal".to_owned()], ..FlowsConfig::default() });
    config
}

fn mac(last: u8) -> Mac {
    format!("02:00:00:00:00:0{last}").parse().expect("an address")
}

/// Returns the names of the domains whose description has changed, without domains of one port.
fn changed(old: &Config, new: &Config) -> Vec<(&'static str, String)> {
    let (first, second, _) = after(old, new);
    let had = specs(old, &first);
    let has = specs(new, &second);
    let kept = unchanged(&had[0], &has[0]);
    let others = has[0].iter().filter(|spec| !kept.contains(spec) && spec.name.0 != "port");
    let mut names: Vec<_> = others.map(|spec| spec.name.clone()).collect();
    names.sort();
    names
}

fn tunnel_of(config: &mut Config) -> &mut TunnelSettings {
    let PortKind::Tunnel(settings) = &mut config.ports[10].kind else { panic!("a tunnel") };
    settings
}

#[test]
fn each_key_that_a_graph_depends_on_changes_the_description_of_its_domain() {
    type Change = (&'static str, fn(&mut Config), &'static [(&'static str, &'static str)]);
    let changes: &[Change] = &[
        ("nothing", |_| (), &[]),
        ("order of sections", |config| config.ports.reverse(), &[]),
        ("order of bridges", |config| config.bridges.reverse(), &[]),
        ("permissions", |config| config.ports[2].kind.as_vhost_user_mut().expect("vhost-user").perms = 0o600, &[]),
        ("full", |config| config.patches[0].full = WhenFull::Wait, &[PATCH]),
        ("ports of a patch", |config| config.patches[0].ports.reverse(), &[PATCH]),
        ("mtu", |config| config.ports[0].mtu = 9000, &[PATCH]),
        ("mac", |config| config.ports[2].mac = Some(mac(2)), &[LAN]),
        ("queues", |config| config.ports[2].kind.as_vhost_user_mut().expect("vhost-user").queues = Some(2), &[LAN]),
        ("ports of a bridge", |config| drop(config.bridges[0].ports.pop()), &[LAN]),
        ("a further port", |config| config.bridges[0].ports.push("p9".to_owned()), &[LAN]),
        ("ageing", |config| config.bridges[0].ageing = 10, &[LAN]),
        ("connections of flows", |config| config.bridges[0].connections = 10, &[LAN]),
        ("connections that no flows follow", |config| config.bridges[1].connections = 10, &[]),
        ("flows alone", |config| config.bridges[0].flows.as_mut().expect("flows").lines.clear(), &[]),
        ("limit", |config| config.bridges[0].limit = 10, &[LAN]),
        (
            "static",
            |config| config.bridges[0].statics.push(StaticEntry { mac: mac(1), port: "p2".to_owned(), vlan: None }),
            &[LAN],
        ),
        ("nodes", |config| config.ports[2].nodes.clear(), &[LAN]),
        ("nodes of another port", |config| config.ports[0].nodes.push("n".to_owned()), &[PATCH]),
        ("egress nodes", |config| config.ports[3].egress_nodes.clear(), &[LAN]),
        ("state of a node", |config| config.nodes[0] = node(1), &[LAN]),
        ("output of a node", |config| config.nodes[1] = mirror("p9"), &[LAN]),
        ("port of an output", |config| config.ports[8].mtu = 9000, &[LAN]),
        ("vlan of a port", |config| config.ports[2].rules.vlans = Some(PortVlans::access(VlanId::MAX)), &[LAN]),
        ("isolated", |config| config.ports[3].rules.isolated = true, &[LAN]),
        ("storm", |config| config.ports[3].rules.storm.broadcast = Some(1), &[LAN]),
        ("rules that a patch does not heed", |config| config.ports[0].rules.isolated = true, &[]),
        ("source check", |config| config.ports[4].source_check = None, &[LAN]),
        ("groups", |config| config.ports[3].groups = vec!["g".to_owned()], &[LAN]),
        ("a share of connections that nobody uses", |config| config.ports[3].connections = 7, &[]),
        ("the rank of a port's stations", |config| config.ports[3].trusted = true, &[LAN]),
        ("class of service", |config| config.ports[3].dscp = Dscp::new(46), &[LAN]),
        ("expedited", |config| config.ports[3].expedited = Dscp::new(46).into_iter().collect(), &[LAN]),
        ("a further check", |config| config.ports[1].source_check = Some(SourceCheckConfig::default()), &[PATCH]),
        (
            "allowed-ips",
            |config| {
                let ips = vec![IpPrefix::exact("10.0.0.1".parse().expect("it"))];
                config.ports[4].source_check = Some(SourceCheckConfig { ips: Some(ips), ..Default::default() });
            },
            &[LAN],
        ),
        ("address of an underlay", |config| config.underlays[0].addresses[0].prefix = 25, &[TUNNELS]),
        ("gateway", |config| config.underlays[0].gateways.push("192.0.2.9".parse().expect("it")), &[TUNNELS]),
        ("vlan", |config| config.underlays[0].vlan = Some(7), &[TUNNELS]),
        ("mtu of an underlay", |config| config.underlays[0].mtu = 1400, &[TUNNELS]),
        ("mac of an underlay", |config| config.underlays[0].mac = Some(mac(6)), &[TUNNELS]),
        (
            "neighbours",
            |config| config.underlays[0].neighbours.push(("192.0.2.2".parse().expect("it"), mac(7))),
            &[TUNNELS],
        ),
        ("path-mtu", |config| config.underlays[0].path_mtu = PathMtuErrors::Off, &[TUNNELS]),
        ("port of an underlay", |config| config.underlays[0].port = "p7".to_owned(), &[TUNNELS]),
        ("carrier", |config| config.ports[6].mtu = 9000, &[TUNNELS]),
        ("key of a tunnel", |config| tunnel_of(config).kind = TunnelKind::Vxlan { vni: 2 }, &[TUNNELS]),
        ("remotes", |config| tunnel_of(config).remotes.push("192.0.2.3".parse().expect("it")), &[TUNNELS]),
        ("verify", |config| tunnel_of(config).verify = false, &[TUNNELS]),
        ("networks", |config| tunnel_of(config).networks.push(Network { vlan: VlanId::MAX, vni: 2 }), &[TUNNELS]),
        ("tags in a tunnel", |config| tunnel_of(config).drops_tags = true, &[TUNNELS]),
        ("bridge of a tunnel", |config| config.bridges[1].ageing = 10, &[TUNNELS]),
        ("mirror to a tunnel", |config| config.nodes[1] = mirror("t"), &[TUNNELS]),
    ];
    let old = all_of_it();
    for (what, change, expected) in changes {
        let mut new = old.clone();
        change(&mut new);
        let expected: Vec<_> = expected.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect();
        assert_eq!(changed(&old, &new), expected, "{what}");
    }
}

/// A second worker takes a part of a bridge's packets, and shares its table.
#[test]
fn the_number_of_workers_is_a_part_of_the_description() {
    let mut old = config(2, &[0, 1]);
    old.bridges = vec![bridge(&["p0", "p1"])];
    let mut new = old.clone();
    for port in &mut new.ports {
        port.kind.as_vhost_user_mut().expect("vhost-user").queues = Some(2);
    }
    assert_eq!(specs(&old, &plan(&old, None)).concat().len(), 1);
    let shared = specs(&new, &plan(&new, None)).concat();
    assert_eq!(shared.iter().map(|spec| spec.workers).collect::<Vec<_>>(), [2, 2]);
}

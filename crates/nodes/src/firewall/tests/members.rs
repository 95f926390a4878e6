//! Members of groups by bindings.

use std::net::IpAddr;

use straightline_fdb::{BindOutcome, Claim, IpKey};
use straightline_wire::VlanId;

use super::*;
use crate::{BindingPort, BindingSettings, BindingTable};

/// The MAC address of the guest at the port with the group `web`.
const WEB_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
/// A port in no group.
const OUTSIDER: PortIndex = PortIndex(2);

fn key(ip: Ipv4Addr) -> IpKey {
    IpKey { vlan: VlanId::DEFAULT, ip: ip.into() }
}

/// The bindings of a bridge with one of the file.
fn bindings(fixed: Ipv4Addr) -> BindingTable {
    let port = |index| BindingPort { index, is_checked: false, is_trusted: false, is_tunnel: false, learns: true };
    BindingTable::new(
        "lan",
        BindingSettings {
            limit: 1000,
            ageing: 300,
            own: MacAddr([2, 0xff, 0, 0, 0, 1]),
            has_vlans: false,
            statics: vec![(VlanId::DEFAULT, fixed.into(), WEB_MAC)],
            ports: [VM, OTHER, OUTSIDER].map(port).to_vec(),
        },
    )
}

fn claim(ip: Ipv4Addr, port: PortIndex, until: Option<u32>) -> Claim {
    Claim { key: key(ip), mac: WEB_MAC, port, until, only_known: false }
}

/// The VM lets the group `web` reach it, which the other port has.
fn settings_of(inbound: &[&str]) -> FirewallSettings {
    settings(&[], &[], |settings| {
        let group = |name, rules: &[&str]| Group::parse(name, rules, &[]).expect("rules");
        settings.definitions = Definitions::new([group("g", inbound), group("web", &[])], []);
        let groups = PortGroups { groups: vec!["web".to_owned()], trusted: false, source_check: true };
        let macs = vec![MacPrefix::exact(WEB_MAC)];
        let web = FirewallPort {
            name: "web".to_owned(),
            index: OTHER,
            groups,
            macs,
            takes_bound: true,
            ..settings.ports[0].clone()
        };
        settings.ports.push(web);
    })
}

fn from_group() -> FirewallSettings {
    settings_of(&["udp 5432 from group:web"])
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 7, last)
}

/// Returns whether a new connection from an address passes.
fn passes(rig: &mut Rig, from: Ipv4Addr, port: u16) -> bool {
    rig.gets(udp((from, port), (OWN, 5432)))
}

#[test]
fn addresses_of_leases_are_members_while_they_last() {
    let mut rig = Rig::with(from_group());
    let table = bindings(address(1));
    let [leased, said, elsewhere] = [2, 3, 4].map(address);
    for (ip, port, until) in [(leased, OTHER, Some(900)), (said, OTHER, None), (elsewhere, OUTSIDER, Some(900))] {
        assert_eq!(table.bindings().claim(claim(ip, port, until), 100), BindOutcome::Bound);
    }
    assert!(!passes(&mut rig, leased, 1), "nobody has told the firewall");
    rig.control.follow_bindings([&table]).expect("few rules");
    assert!(passes(&mut rig, leased, 1) && passes(&mut rig, address(1), 1), "a lease, and the file's");
    assert!(!passes(&mut rig, said, 1) && !passes(&mut rig, elsewhere, 1));
    assert_eq!(rig.control.bound_addresses(OTHER), [address(1), leased].map(IpAddr::from));

    // A reload keeps them, and a port that has another's place does not get them.
    rig.change(from_group());
    assert!(passes(&mut rig, leased, 2));
    let mut other = from_group();
    other.ports[1].name = "other".to_owned();
    rig.change(other);
    assert!(!passes(&mut rig, leased, 3));

    rig.change(from_group());
    rig.control.follow_bindings([&table]).expect("few rules");
    assert!(passes(&mut rig, leased, 4));
    table.bindings().release(key(leased), WEB_MAC);
    rig.control.follow_bindings([&table]).expect("few rules");
    assert!(!passes(&mut rig, leased, 4), "a connection that goes on");
    assert!(passes(&mut rig, address(1), 1), "another one");
}

#[test]
fn addresses_of_a_port_whose_addresses_are_listed_are_those() {
    let mut settings = from_group();
    settings.ports[1].takes_bound = false;
    let mut rig = Rig::with(settings);
    let table = bindings(address(1));
    assert_eq!(table.bindings().claim(claim(address(2), OTHER, Some(900)), 100), BindOutcome::Bound);
    rig.control.follow_bindings([&table]).expect("few rules");
    assert!(!passes(&mut rig, address(1), 1) && !passes(&mut rig, address(2), 1));
    assert!(rig.control.bound_addresses(OTHER).is_empty());
}

#[test]
fn a_policy_whose_rules_name_no_such_group_stays() {
    let mut rig = Rig::with(settings_of(&["udp 5432 from any"]));
    let table = bindings(address(1));
    assert!(passes(&mut rig, address(9), 1));
    let generations = |rig: &Rig| -> Vec<_> {
        rig.control.connections(VM, |all| all.map(|(connection, _)| connection.generation).collect())
    };
    let before = generations(&rig);
    rig.control.follow_bindings([&table]).expect("few rules");
    assert!(passes(&mut rig, address(9), 1));
    assert_eq!(generations(&rig), before);
}

/// A guest that gets very many addresses has the first ones, and one whose group would have too many
/// rules has none.
#[test]
fn addresses_that_would_be_too_many_are_no_members() {
    let table = bindings(address(1));
    for n in 0..200_u32 {
        let ip = Ipv4Addr::from_bits(0x0a00_0900 + 2 * n);
        assert_eq!(table.bindings().claim(claim(ip, OTHER, Some(900)), 100), BindOutcome::Bound);
    }
    let mut rig = Rig::with(from_group());
    rig.control.follow_bindings([&table]).expect("few rules");
    assert_eq!(rig.control.bound_addresses(OTHER).len(), 64);
    assert!(passes(&mut rig, address(1), 1));

    let ports: Vec<_> = (0..2500).map(|n| (5432 + 2 * n).to_string()).collect();
    let rules: Vec<_> =
        ports.chunks(20).map(|ports| format!("udp {} from group:web,10.0.0.9", ports.join(","))).collect();
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    let mut rig = Rig::with(settings_of(&rules));
    let error = rig.control.follow_bindings([&table]).expect_err("too many rules");
    assert!(error.to_string().contains("more than"), "{error}");
    assert!(!passes(&mut rig, address(1), 1));
    assert!(passes(&mut rig, Ipv4Addr::new(10, 0, 0, 9), 1), "what is listed");
}

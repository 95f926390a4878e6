//! Fixes that do no harm, and findings that are none.

use super::*;

#[test]
fn a_switch_that_runs_is_never_started_again() {
    for change in [|_: &mut Facts| (), |facts: &mut Facts| facts.configured = None] {
        let mut facts = healthy();
        lose_the_api(&mut facts);
        change(&mut facts);
        for finding in run(&facts).checks {
            assert!(!finding.fix.contains("straightline run"), "{finding:?}");
        }
    }
    // Another switch does not matter.
    let mut facts = healthy();
    lose_the_api(&mut facts);
    facts.switches.as_mut().unwrap()[0].is_meant = false;
    assert_eq!(findings(&facts, "api")[0].fix, "straightline run switch.toml");
}

#[test]
fn sockets_do_not_pass_without_a_switch() {
    let mut facts = healthy();
    facts.switch = Err(Unknown::new("no switch answers"));
    facts.process = Err(Unknown::new("none"));
    facts.api.failure = Some(ApiFailure::NotListening);
    for socket in facts.ports.iter_mut().filter_map(|port| port.socket.as_mut()).chain([&mut facts.api.socket]) {
        (socket.state, socket.holders) = (Ok(SocketFile::Missing), Ok(Vec::new()));
    }
    facts.ports.retain(|port| port.port.mode.as_deref() != Some("client"));
    let found = findings(&facts, "sockets");
    assert_eq!((found.len(), found[0].result), (1, Verdict::Unknown), "{found:?}");
}

#[test]
fn a_stale_socket_names_the_file_that_was_named() {
    let mut facts = healthy();
    facts.switch = Err(Unknown::new("no switch answers"));
    facts.process = Err(Unknown::new("none"));
    facts.configured.as_mut().unwrap().path = "/etc/other.toml".into();
    facts.api.socket.state = Ok(SocketFile::Stale);
    let found = findings(&facts, "sockets");
    assert!(found.iter().any(|finding| finding.fix == "straightline run /etc/other.toml"), "{found:?}");
}

#[test]
fn a_link_that_is_up_while_nothing_ever_moved_is_found() {
    let mut facts = healthy();
    traffic::move_nothing(&mut facts);
    facts.ports[0].port.drops = [("no-buffer".to_owned(), 9)].into();
    assert_eq!(findings(&facts, "guest-memory")[0].result, Verdict::Pass);
    facts.ports[0].port.drops = [("no-buffer".to_owned(), 40)].into();
    let found = findings(&facts, "guest-memory");
    assert_eq!((found.len(), found[0].result), (1, Fail), "{found:?}");
    assert!(found[0].detail.contains("40 of 40 packets") && found[0].fix.contains("share=on"), "{found:?}");
    facts.ports[0].port.queues[0].rx.packets = 1;
    assert_eq!(findings(&facts, "guest-memory")[0].result, Verdict::Pass);
}

#[test]
fn one_packet_of_one_is_no_small_ring() {
    let mut facts = healthy();
    facts.ports[0].port.drops = [("no-buffer".to_owned(), 1)].into();
    facts.ports[0].port.queues.clear();
    assert_eq!(findings(&facts, "ring-size")[0].result, Verdict::Pass);
    drop_packets(&mut facts);
    assert_eq!(findings(&facts, "ring-size")[0].detail, "no-buffer 100 of 100; its rings have 256 entries");
}

#[test]
fn the_mtu_of_each_kind_is_raised_in_its_own_way() {
    let fix = |at: usize, change: fn(&mut PortFacts)| {
        let mut facts = healthy();
        change(&mut facts.ports[at]);
        findings(&facts, "bridge-mtu")[0].fix.clone()
    };
    assert_eq!(fix(0, |port| port.port.mtu = 1400), "set `mtu = 1500` in [port.vm1] and in its guest");
    assert_eq!(fix(2, |nic| nic.port.mtu = 1400), "set `mtu = 1500` in [port.nic], and: ip link set eth0 mtu 1500");
    let tap = fix(2, |tap| (tap.port.mtu, tap.port.makes_interface) = (1400, true));
    assert_eq!(tap, "set `mtu = 1500` in [port.nic]");
    let tunnel = fix(3, |tunnel| {
        tunnel.port.joined = Some(Joined { kind: JoinedKind::Bridge, name: "lan".to_owned() });
    });
    assert_eq!(tunnel, "set `mtu = 1500` in [port.far]; it takes an MTU of the underlay of 1550");
}

#[test]
fn a_tap_that_is_taken_names_its_holder() {
    let mut facts = healthy();
    take_down(&mut facts, "interface-busy");
    facts.ports[0].interface_holders = vec![Holder { pid: 7, name: "openvpn".to_owned() }];
    assert_eq!(findings(&facts, "links")[0].detail, "it waits; openvpn (process 7) has it");
}

#[test]
fn the_same_of_several_ports_of_a_vm_is_one_finding() {
    let mut facts = healthy();
    for port in &mut facts.ports[..2] {
        port.peers.as_mut().unwrap()[0].reconnects = Ok(false);
    }
    let found = findings(&facts, "reconnect");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].symptom, "port vm1, and 1 more: QEMU (process 20) does not connect again");
}

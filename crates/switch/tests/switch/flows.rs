//! Flow tables in front of a bridge, between guests.

use straightline_config::{Config, FlowsConfig, NativeVlan, PortRules, PortVlans, VlanRole};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{BROADCAST, Rig, bridge, frame, mac, nothing_at, rig, send, take};
use straightline_wire::{EtherType, VlanId};

const PORTS: usize = 3;

fn with_flows(config: &mut Config, lines: &[&str]) {
    let lines = lines.iter().map(|&line| line.to_owned()).collect();
    config.bridges[0].flows = Some(FlowsConfig { lines, ..FlowsConfig::default() });
}

fn flows(lines: &[&str]) -> Rig {
    rig(PORTS, |config| {
        config.bridges.push(bridge(PORTS));
        with_flows(config, lines);
    })
}

fn guests(rig: &Rig) -> Vec<Guest> {
    (0..PORTS).map(|port| rig.guest(port, &GuestOptions::default())).collect()
}

/// Sends a frame; these frames arrive in this order at each port, and nothing else.
fn expect(rig: &Rig, guests: &mut [Guest], from: usize, sent: &[u8], to: &[(usize, Vec<u8>)]) {
    send(&mut guests[from], sent);
    for (port, guest) in guests.iter_mut().enumerate() {
        let expected: Vec<_> = to.iter().filter(|(at, _)| *at == port).map(|(_, frame)| frame.clone()).collect();
        let taken = take(guest, expected.len());
        assert_eq!(taken.into_iter().map(|(_, frame)| frame).collect::<Vec<_>>(), expected, "at p{port}");
    }
    nothing_at(&rig.switch, guests);
}

#[test]
fn a_flow_sends_packets_to_its_port() {
    let rig = flows(&["in_port=p0,actions=output:p1", "in_port=p1,actions=normal"]);
    let mut guests = guests(&rig);
    let flood = frame(BROADCAST, mac(1), 1514, 1);
    expect(&rig, &mut guests, 0, &flood, &[(1, flood.clone())]);
    let flood = frame(BROADCAST, mac(2), 1514, 2);
    expect(&rig, &mut guests, 1, &flood, &[(0, flood.clone()), (2, flood.clone())]);
    rig.no_drops();
    expect(&rig, &mut guests, 2, &frame(mac(2), mac(3), 100, 3), &[]);
    rig.wait_drops(2, "no-flow", 1);
}

/// The flows of the tuning guide for OvS-DPDK, as it writes them. A guest in the second port returns packets
/// with other MAC addresses, as testpmd does with `set fwd mac`.
#[test]
fn lines_of_the_tuning_guide_lead_to_a_guest_and_back() {
    let rig = flows(&["in_port=1,action=output:2", "in_port=2,action=output:1"]);
    let mut guests = guests(&rig);
    for number in 0..20_u64 {
        let len = 60 + 70 * usize::try_from(number).expect("a small number");
        let sent = frame(mac(8), mac(9), len, number);
        expect(&rig, &mut guests, 0, &sent, &[(1, sent.clone())]);
        let mut returned = sent;
        returned[..6].copy_from_slice(&mac(9).0);
        returned[6..12].copy_from_slice(&mac(2).0);
        expect(&rig, &mut guests, 1, &returned, &[(0, returned.clone())]);
    }
    rig.no_drops();
}

#[test]
fn an_output_gets_the_packet_as_it_is_then() {
    let rig = flows(&["in_port=p0,actions=output:p1,mod_dl_dst:02:00:00:00:00:09,output:p2,output:p1,normal"]);
    let mut guests = guests(&rig);
    let sent = frame(BROADCAST, mac(1), 1514, 1);
    let mut changed = sent.clone();
    changed[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    let second = (1, changed.clone());
    expect(
        &rig,
        &mut guests,
        0,
        &sent,
        &[(1, sent.clone()), second.clone(), second, (2, changed.clone()), (2, changed)],
    );
    rig.no_drops();
}

#[test]
fn a_reload_with_other_flows_does_not_pause_the_bridge() {
    let rig = flows(&["in_port=p0,actions=output:p1"]);
    let mut guests = guests(&rig);
    let sent = frame(mac(9), mac(1), 100, 1);
    expect(&rig, &mut guests, 0, &sent, &[(1, sent.clone())]);
    let mut config = rig.switch.config();
    with_flows(&mut config, &["priority=1,in_port=p0,actions=output:p2"]);
    let changes = rig.switch.reload(&config).expect("a good configuration");
    assert_eq!(changes.pauses, Vec::<String>::new());
    expect(&rig, &mut guests, 0, &sent, &[(2, sent.clone())]);
    // Without flows, the bridge forwards.
    config.bridges[0].flows = None;
    rig.switch.reload(&config).expect("a good configuration");
    expect(&rig, &mut guests, 0, &sent, &[(1, sent.clone()), (2, sent.clone())]);
    rig.no_drops();
}

fn id(vid: u16) -> VlanId {
    VlanId::new(vid).expect("a VLAN")
}

fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &tci.to_be_bytes(), &frame[12..]].concat()
}

/// `p0` is in VLAN 10, `p1` in VLAN 20, and `p2` is a trunk of both.
fn with_vlans(lines: &[&str]) -> Rig {
    rig(PORTS, |config| {
        config.bridges.push(bridge(PORTS));
        let trunk = VlanRole::Trunk {
            tpid: EtherType::VLAN,
            vlans: Box::new([id(10), id(20)].into_iter().collect()),
            native: None::<NativeVlan>,
        };
        let vlans = [PortVlans::access(id(10)), PortVlans::access(id(20)), PortVlans { role: trunk, priority: 0 }];
        for (port, vlans) in config.ports.iter_mut().zip(vlans) {
            port.rules = PortRules { vlans: Some(vlans), ..PortRules::default() };
        }
        with_flows(config, lines);
    })
}

#[test]
fn normal_in_a_bridge_with_vlans_is_the_bridge() {
    let rig = with_vlans(&["actions=normal"]);
    let mut guests = guests(&rig);
    let flood = frame(BROADCAST, mac(1), 100, 1);
    expect(&rig, &mut guests, 0, &flood, &[(2, tagged(&flood, 10))]);
    let flood = frame(BROADCAST, mac(3), 100, 3);
    expect(&rig, &mut guests, 2, &tagged(&flood, 0x6000 | 20), &[(1, flood)]);
    let known = frame(mac(1), mac(3), 1514, 4);
    expect(&rig, &mut guests, 2, &tagged(&known, 10), &[(0, known)]);
    rig.no_drops();
    expect(&rig, &mut guests, 0, &tagged(&frame(BROADCAST, mac(1), 100, 1), 20), &[]);
    rig.wait_drops(0, "vlan-not-allowed", 1);
}

#[test]
fn outputs_heed_the_vlans_of_their_ports() {
    let rig = with_vlans(&[
        "in_port=p0,dl_dst=02:00:00:00:00:02,actions=output:p1",
        "in_port=p0,dl_dst=02:00:00:00:00:03,actions=output:p2",
        "in_port=p0,dl_dst=02:00:00:00:00:04,actions=output:p2,mod_vlan_vid:20,output:p1,output:p2",
        "in_port=p2,dl_vlan=10,actions=strip_vlan,output:p0",
        "in_port=p2,dl_vlan=20,dl_vlan_pcp=3,actions=flood",
    ]);
    let mut guests = guests(&rig);
    expect(&rig, &mut guests, 0, &frame(mac(2), mac(1), 100, 1), &[]);
    rig.wait_drops(0, "vlan-not-allowed", 1);
    let sent = frame(mac(3), mac(1), 1514, 1);
    expect(&rig, &mut guests, 0, &sent, &[(2, tagged(&sent, 10))]);
    let sent = frame(mac(4), mac(1), 1514, 1);
    expect(&rig, &mut guests, 0, &sent, &[(2, tagged(&sent, 10)), (1, sent.clone()), (2, tagged(&sent, 20))]);
    let sent = frame(mac(1), mac(5), 1514, 1);
    expect(&rig, &mut guests, 2, &tagged(&sent, 10), &[(0, sent.clone())]);
    expect(&rig, &mut guests, 2, &tagged(&sent, 0x6000 | 20), &[(1, sent.clone())]);
    expect(&rig, &mut guests, 2, &tagged(&sent, 20), &[]);
    rig.wait_drops(2, "no-flow", 1);
}

#[test]
fn outputs_to_access_ports_have_no_tag_inside() {
    let rig = with_vlans(&[
        "in_port=p2,dl_src=02:00:00:00:00:01,actions=output:p0,output:p1",
        "in_port=p2,dl_src=02:00:00:00:00:02,actions=flood",
        "in_port=p2,dl_src=02:00:00:00:00:03,actions=normal",
        "in_port=p2,dl_src=02:00:00:00:00:04,actions=mod_vlan_vid:20,strip_vlan,output:p1",
    ]);
    let mut guests = guests(&rig);
    for n in 1..=4 {
        let nested = tagged(&frame(BROADCAST, mac(n), 100, 1), 20);
        expect(&rig, &mut guests, 2, &tagged(&nested, 10), &[]);
        // The first output is refused for the tag, and the second for the VLAN.
        let reason = if n <= 2 { "vlan-not-allowed" } else { "nested-tag" };
        rig.wait_drops(2, reason, if n <= 2 { n.into() } else { u64::from(n) - 2 });
    }
}

#[test]
fn outputs_heed_isolation() {
    let rig = rig(PORTS, |config| {
        config.bridges.push(bridge(PORTS));
        config.ports[0].rules.isolated = true;
        config.ports[1].rules.isolated = true;
        with_flows(
            config,
            &["in_port=p0,dl_dst=02:00:00:00:00:02,actions=output:p1", "priority=1,in_port=p0,actions=output:p2"],
        );
    });
    let mut guests = guests(&rig);
    expect(&rig, &mut guests, 0, &frame(mac(2), mac(1), 100, 1), &[]);
    rig.wait_drops(0, "isolated", 1);
    let sent = frame(mac(3), mac(1), 100, 1);
    expect(&rig, &mut guests, 0, &sent, &[(2, sent.clone())]);
}

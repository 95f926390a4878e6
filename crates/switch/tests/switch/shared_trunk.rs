//! An underlay in a VLAN of a trunk that a bridge uses, too: x - left - wire - right - y in VLAN 10, and
//! a - t1 over left - wire - right over t2 - b in VLAN 30.

use std::fmt::Write as _;

use straightline_guest::{Guest, GuestOptions};
use straightline_testing::tunnel::{End, Net, OWN_DROPS, V4, config};
use straightline_testing::{BROADCAST, frame, has_nothing, mac, send, take, wait_until};
use straightline_wire::MacAddr;

/// Returns the configuration. The tunnels are in patches, or in the bridges of the trunks.
fn text(dir: &std::path::Path, in_bridges: bool) -> String {
    let mut text = String::new();
    let guest_vlan = if in_bridges { "vlan = 20" } else { "" };
    let ports = [("a", guest_vlan), ("b", guest_vlan), ("x", "vlan = 10"), ("y", "vlan = 10")];
    let trunks = [("left", "trunk = [10]\nmtu = 1600"), ("right", "trunk = [10]\nmtu = 1600")];
    for (name, keys) in ports.iter().chain(&trunks) {
        let socket = dir.join(name);
        writeln!(text, "[port.{name}]\nkind = \"vhost-user\"\nsocket = {socket:?}\n{keys}").expect("text");
    }
    for (name, tunnel, own, remote) in [("left", "t1", V4[0], V4[1]), ("right", "t2", V4[1], V4[0])] {
        writeln!(
            text,
            "[underlay.{name}]\nport = {name:?}\nvlan = 30\naddress = [\"{own}/24\"]\n\
             [port.{tunnel}]\nkind = \"vxlan\"\nvni = 5\nunderlay = {name:?}\nremote = {remote:?}\nmtu = 1500\n{guest_vlan}"
        )
        .expect("text");
    }
    text += if in_bridges {
        "[bridge.one]\nports = [\"left\", \"x\", \"t1\", \"a\"]\n[bridge.two]\nports = [\"t2\", \"right\", \"b\", \"y\"]\n"
    } else {
        "[patch.one]\nports = [\"a\", \"t1\"]\n[patch.two]\nports = [\"t2\", \"b\"]\n\
         [bridge.one]\nports = [\"left\", \"x\"]\n[bridge.two]\nports = [\"right\", \"y\"]\n"
    };
    text
}

/// Starts the switch, and connects the guests of the bridges.
fn start(in_bridges: bool) -> (Net, [Guest; 2]) {
    let dir = tempfile::tempdir().expect("a folder");
    let text = text(dir.path(), in_bridges);
    let net = Net::with_text(dir, &text);
    let guests = ["x", "y"].map(|name| {
        let options = GuestOptions::default();
        Guest::connect(&net.dir.path().join(name), &options).expect("a guest")
    });
    net.cut.store(false, std::sync::atomic::Ordering::Relaxed);
    net.wait_up();
    (net, guests)
}

fn tagged(frame: &[u8], vid: u8) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, vid], &frame[12..]].concat()
}

/// Returns the VLANs of the frames on the wire.
fn vlans_seen(net: &Net) -> Vec<u8> {
    let seen = net.seen.lock().expect("the frames");
    let mut vlans: Vec<_> = seen.iter().map(|frame| (frame[12..15] == [0x81, 0, 0]).then_some(frame[15])).collect();
    vlans.sort_unstable();
    vlans.dedup();
    vlans.into_iter().map(|vlan| vlan.expect("a tag")).collect()
}

#[test]
fn the_bridge_and_the_tunnel_pass_side_by_side() {
    for in_bridges in [false, true] {
        let (mut net, [mut x, mut y]) = start(in_bridges);
        for len in [60, 300, 1514] {
            net.exchange(&frame(mac(2), mac(1), len, 7));
        }
        assert_eq!(vlans_seen(&net), [30], "in bridges: {in_bridges}");
        for (to, from) in [(BROADCAST, 3), (mac(3), 4), (mac(4), 3)] {
            let frame = frame(to, mac(from), 1514, 8);
            let (sender, receiver) = if from == 3 { (&mut x, &mut y) } else { (&mut y, &mut x) };
            send(sender, &frame);
            assert_eq!(take(receiver, 1)[0].1, frame);
        }
        assert_eq!(vlans_seen(&net), [10, 30]);
        // Neither has frames of the other.
        net.settle();
        for guest in [&mut x, &mut y, &mut net.a, &mut net.b] {
            has_nothing(guest);
        }
        assert!(net.drops().keys().all(|reason| OWN_DROPS.contains(&reason.as_str())), "{}", net.state());
    }
}

/// Returns an ARP question for an address of the left end.
fn question() -> Vec<u8> {
    let [a, b, c, d] = V4[0].parse::<std::net::Ipv4Addr>().expect("an address").octets();
    let sender = [2, 0, 0, 0, 0, 9, 192, 0, 2, 9];
    let fields = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &sender, &[0; 6], &[a, b, c, d]].concat();
    let mut frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &[8, 6], &fields].concat();
    frame.resize(60, 0);
    frame
}

#[test]
fn frames_of_one_vlan_never_reach_the_owner_of_the_other() {
    let (net, [mut x, _y]) = start(false);
    let count = |net: &Net, is_it: &dyn Fn(&[u8]) -> bool| {
        net.seen.lock().expect("the frames").iter().filter(|frame| is_it(frame)).count()
    };
    let is_answer = |frame: &[u8]| frame[..6] == [2, 0, 0, 0, 0, 9] && frame[16..18] == [8, 6];
    // In the bridge's VLAN the question is a frame like others.
    net.inject(End::Left, tagged(&question(), 10));
    assert_eq!(take(&mut x, 1)[0].1, question());
    // In the underlay's VLAN the switch answers it, and the bridge does not see it. A broadcast there is
    // for nobody, and neither is a frame for a station that the bridge knows.
    let known = frame(BROADCAST, mac(3), 60, 1);
    send(&mut x, &known);
    wait_until("the frame is on the wire", || count(&net, &|frame| frame == tagged(&known, 10)) == 1);
    let not_ours = || net.port("left").drops.get("not-ours").copied().unwrap_or(0);
    let before = not_ours();
    let to_x = frame(mac(3), MacAddr([2, 0, 0, 0, 0, 9]), 60, 2);
    net.inject(End::Left, tagged(&to_x, 30));
    net.inject(End::Left, tagged(&frame(BROADCAST, mac(5), 60, 3), 30));
    net.inject(End::Left, tagged(&question(), 30));
    wait_until("an answer", || count(&net, &is_answer) == 1);
    wait_until("two drops", || not_ours() >= before + 2);
    net.settle();
    has_nothing(&mut x);
    // What a guest sends with a tag of that VLAN drops at its access port, and a VLAN that neither has
    // at the trunk.
    send(&mut x, &tagged(&frame(BROADCAST, mac(3), 60, 4), 30));
    net.inject(End::Left, tagged(&question(), 31));
    let drops = |port: &str| net.port(port).drops.get("vlan-not-allowed").copied();
    wait_until("both drops", || drops("x") == Some(1) && drops("left") == Some(1));
    net.settle();
    assert_eq!(count(&net, &is_answer), 1);
}

#[test]
fn a_reload_gives_the_underlay_another_vlan() {
    let (mut net, [mut x, mut y]) = start(false);
    net.exchange(&frame(mac(2), mac(1), 60, 7));
    let other = text(net.dir.path(), false).replace("vlan = 30", "vlan = 31");
    net.switch.reload(&config(&other)).expect("a reload");
    net.wait_up();
    net.seen.lock().expect("the frames").clear();
    net.exchange(&frame(mac(2), mac(1), 60, 8));
    let sent = frame(BROADCAST, mac(3), 60, 9);
    send(&mut x, &sent);
    assert_eq!(take(&mut y, 1)[0].1, sent);
    assert_eq!(vlans_seen(&net), [10, 31]);
}

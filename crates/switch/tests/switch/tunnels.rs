//! Tunnels between two guests.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{Addresses, EventKind, Link, NeighbourState};
use straightline_testing::tunnel::{Net, V4, V6, config, text};
use straightline_testing::{BROADCAST, frame, has_nothing, mac, send, take, wait_event, wait_until};
use straightline_wire::MacAddr;

/// Kinds that carry Ethernet, with the same keys at both ends.
const ETHERNET: [&str; 8] = [
    "kind = \"l2tpv3\"\nsession = 9\ncookie = \"00112233\"\nl2spec = true",
    "kind = \"l2tpv3\"\nover = \"udp\"\nsession = 9\ncookie = \"0011223344556677\"",
    "kind = \"vxlan\"\nvni = 5",
    "kind = \"geneve\"\nvni = 5\noptions = \"0102010100000007\"",
    "kind = \"gre\"",
    "kind = \"gre\"\nkey = 7\nchecksum = true",
    "kind = \"nvgre\"\nvsid = 4100",
    "kind = \"vxlan-gpe\"\nvni = 5",
];

/// Checks a tunnel of these keys over IPv4 and IPv6 with these frames.
fn check(keys: &str, ends: &[[&str; 2]], frames: &[Vec<u8>]) {
    for ends in ends {
        let mut net = Net::start(*ends, keys, keys);
        net.wait_up();
        frames.iter().for_each(|frame| net.exchange(frame));
        for name in ["t1", "t2"] {
            let port = net.port(name);
            let queue = &port.queues[0];
            let count = frames.len() as u64;
            assert_eq!((queue.rx.packets, queue.tx.packets), (count, count), "{keys}\n{}", net.state());
            assert_eq!(queue.rx.bytes, queue.tx.bytes, "{keys}");
            let tunnel = port.tunnel.expect("the ends");
            assert_eq!((tunnel.state, port.drops.len()), (Some(NeighbourState::Reachable), 0), "{keys}");
            assert!(tunnel.mtu_inside >= 1500, "{keys}\n{tunnel:?}");
        }
    }
}

/// Frames of an unknown protocol, of many lengths.
fn frames() -> Vec<Vec<u8>> {
    [60, 61, 256, 257, 1400, 1514].map(|len| frame(mac(2), mac(1), len, 7)).to_vec()
}

#[test]
fn frames_pass_l2tpv3_unchanged() {
    // The keyed tunnel of RFC 8159, with a cookie for each direction.
    check("kind = \"l2tpv3\"\ncookie = \"0011223344556677\"", &[V6], &frames());
    ETHERNET[..2].iter().for_each(|keys| check(keys, &[V4, V6], &frames()));
}

#[test]
fn frames_pass_tunnels_in_udp_unchanged() {
    [ETHERNET[2], ETHERNET[3], ETHERNET[7]].iter().for_each(|keys| check(keys, &[V4, V6], &frames()));
}

#[test]
fn frames_pass_gre_unchanged() {
    ETHERNET[4..7].iter().for_each(|keys| check(keys, &[V4, V6], &frames()));
}

/// An IP packet in an Ethernet frame; only its addresses and length matter.
fn ip_frame(is_ipv6: bool, len: usize) -> Vec<u8> {
    let mut frame = frame(mac(2), mac(1), len, 7);
    let net = u16::try_from(len - 14).expect("a short frame");
    if is_ipv6 {
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14..18].copy_from_slice(&[0x60, 0, 0, 0]);
        frame[18..20].copy_from_slice(&(net - 40).to_be_bytes());
        // No next header, 64 hops.
        frame[20..22].copy_from_slice(&[59, 64]);
    } else {
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 253]);
        frame[16..18].copy_from_slice(&net.to_be_bytes());
        frame[24..26].fill(0);
        let sum = !straightline_wire::checksum::sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

#[test]
fn ip_packets_pass_tunnels_that_carry_ip() {
    for keys in [
        "kind = \"gtpu\"\nteid = 1\npeer-teid = 1",
        "kind = \"mpls-udp\"\nlabel = 16",
        "kind = \"gre\"\nip = true",
        "kind = \"vxlan-gpe\"\nvni = 3\nip = true",
    ] {
        for ends in [V4, V6] {
            let mut net = Net::start(ends, keys, keys);
            net.wait_up();
            for (is_ipv6, len) in [(false, 60), (true, 60), (false, 1514), (true, 1514)] {
                let frame = ip_frame(is_ipv6, len);
                send(&mut net.a, &frame);
                let got = net.take_at_b();
                assert_eq!(got[12..], frame[12..], "{keys} {is_ipv6}\n{}", net.state());
            }
            // A tunnel of IP carries nothing else.
            send(&mut net.a, &frame(mac(2), mac(1), 60, 7));
            wait_until("a drop", || net.port("t1").drops.get("not-ip") == Some(&1));
        }
    }
}

#[test]
fn a_reload_keeps_next_hops_and_another_cookie_rolls_over() {
    let keys = |cookies: &str| format!("kind = \"l2tpv3\"\n{cookies}");
    let old = "\"0011223344556677\"";
    let new = "\"8899aabbccddeeff\"";
    let first = keys(&format!("cookie = {old}"));
    let mut net = Net::start(V6, &first, &first);
    net.wait_up();
    net.exchange(&frame(mac(2), mac(1), 60, 7));
    // Neighbour Solicitations (RFC 4861 4.3) for the next hop. An underlay also probes its own
    // addresses, from no address and at a time of its own (RFC 4862 5.4.2).
    let is_question = |frame: &&Vec<u8>| frame[20] == 58 && frame[54] == 135 && frame[22..38] != [0; 16];
    let questions = |net: &Net| net.seen.lock().expect("the frames").iter().filter(is_question).count();
    let before = questions(&net);
    assert_ne!(before, 0, "{}", net.state());
    let reload = |net: &Net, left: &str, right: &str| {
        net.switch.reload(&config(&text(net.dir.path(), V6, left, right))).expect("a reload").changes
    };
    assert_eq!(reload(&net, &first, &first), []);
    // Both ends take the new cookie as well as the old one, and send the old one. Then both send
    // the new one, and at last they take no other.
    let both = keys(&format!("cookie = {new}\nprevious-cookie = {old}\npeer-cookie = {old}"));
    let sends = keys(&format!("cookie = {new}\nprevious-cookie = {old}"));
    let last = keys(&format!("cookie = {new}"));
    let steps = [(&both, &first), (&both, &both), (&sends, &both), (&sends, &sends), (&last, &sends), (&last, &last)];
    for (left, right) in steps {
        let changes = reload(&net, left, right);
        assert_eq!(changes.len(), 1, "{changes:?}");
        net.exchange(&frame(mac(2), mac(1), 60, 7));
    }
    // A reload keeps what was learned: nobody asked for a MAC address again.
    assert_eq!(questions(&net), before, "{}", net.state());
    // A wrong cookie is a drop with its reason.
    assert_eq!(reload(&net, &last, &first).len(), 1);
    send(&mut net.a, &frame(mac(2), mac(1), 60, 7));
    wait_until("a drop", || net.drops().contains_key("tunnel-cookie"));
}

#[test]
fn a_tunnel_is_down_until_its_next_hop_answers() {
    let keys = "kind = \"vxlan\"\nvni = 5";
    let mut net = Net::start_cut(V4, keys, keys);
    wait_until("the tunnel says why", || net.port("t1").reason.is_some_and(|reason| reason.contains("192.0.2.2")));
    assert_eq!(net.port("t1").link, Link::Down);
    let next_hops = net.switch.source().neighbours().neighbours;
    assert_eq!((next_hops.len(), next_hops[0].ip.as_str(), next_hops[0].mac.as_ref()), (2, "192.0.2.2", None));
    // The first packet is kept until the next hop has answered.
    let first = frame(mac(2), mac(1), 60, 7);
    send(&mut net.a, &first);
    net.cut.store(false, Ordering::Relaxed);
    assert_eq!(net.take_at_b(), first);
    net.wait_up();
    let next_hops = net.switch.source().neighbours().neighbours;
    assert!(next_hops.iter().all(|hop| hop.mac.is_some() && hop.state == NeighbourState::Reachable), "{next_hops:?}");
    for of in ["192.0.2.1", "192.0.2.2"] {
        wait_event(&net.switch, "the answer is an event", |kind| match kind {
            EventKind::Neighbour { ip, mac, state, .. } => {
                ip == of && mac.is_some() && *state == NeighbourState::Reachable
            }
            _ => false,
        });
    }
    // An administrator sets it down.
    net.switch.set_link("t1", false).expect("a tunnel");
    send(&mut net.a, &first);
    wait_until("a drop", || net.port("t1").drops.get("set-down") == Some(&1));
    net.switch.set_link("t1", true).expect("a tunnel");
    net.exchange(&first);
}

#[test]
fn tunnels_can_be_mirror_ports_and_have_nodes() {
    let keys = "kind = \"vxlan\"\nvni = 5";
    let mut net = Net::start(V4, keys, keys);
    net.wait_up();
    net.exchange(&frame(mac(2), mac(1), 60, 7));
    // Now the patch at A's side is gone. A mirror sends what A sends by the tunnel, and what B
    // sends is for nobody.
    let text = text(net.dir.path(), V4, keys, keys)
        .replace("[patch.one]\nports = [\"a\", \"t1\"]\n", "[bridge.one]\nports = [\"a\"]\n")
        .replacen("[port.left]", "nodes = [\"m\"]\n[port.left]", 1)
        + "[node.m]\nkind = \"mirror\"\nto = \"t1\"\n";
    net.switch.reload(&config(&text)).expect("a reload");
    let frame = frame(mac(2), mac(1), 60, 8);
    send(&mut net.a, &frame);
    assert_eq!(net.take_at_b(), frame);
    send(&mut net.b, &frame);
    wait_until("a drop", || net.port("t1").drops.get("not-connected") == Some(&1));
}

/// A tunnel t1 with two remotes, which lead to the guest B and to a third one, C.
fn two_remotes(more: &str) -> (Net, Guest) {
    // The right underlay has two tunnels with two of its addresses, and the left tunnel has both as
    // remotes.
    let dir = tempfile::tempdir().expect("a folder");
    let mut text = String::new();
    for port in ["a", "left", "right", "b", "c"] {
        let mtu = if matches!(port, "left" | "right") { 1600 } else { 1500 };
        writeln!(text, "[port.{port}]\nkind = \"vhost-user\"\nsocket = {:?}\nmtu = {mtu}", dir.path().join(port))
            .expect("text");
    }
    text += "[underlay.left]\nport = \"left\"\naddress = [\"192.0.2.1/24\"]\n\
             [underlay.right]\nport = \"right\"\naddress = [\"192.0.2.2/24\", \"192.0.2.3/24\"]\n\
             [port.t1]\nkind = \"vxlan\"\nunderlay = \"left\"\nvni = 5\nremotes = [\"192.0.2.2\", \"192.0.2.3\"]\n\
             [port.t2]\nkind = \"vxlan\"\nunderlay = \"right\"\nvni = 5\nlocal = \"192.0.2.2\"\n\
             remote = \"192.0.2.1\"\n\
             [port.t3]\nkind = \"vxlan\"\nunderlay = \"right\"\nvni = 5\nlocal = \"192.0.2.3\"\n\
             remote = \"192.0.2.1\"\n\
             [patch.one]\nports = [\"a\", \"t1\"]\n[patch.two]\nports = [\"t2\", \"b\"]\n\
             [patch.three]\nports = [\"t3\", \"c\"]\n";
    let net = Net::with_text(dir, &text.replacen("vni = 5\nremotes", &format!("vni = 5\n{more}remotes"), 1));
    net.cut.store(false, Ordering::Relaxed);
    let c = Guest::connect(&net.dir.path().join("c"), &GuestOptions::default()).expect("a guest");
    wait_until("the tunnels are up", || ["t1", "t2", "t3"].iter().all(|name| net.port(name).link == Link::Up));
    (net, c)
}

#[test]
fn floods_go_to_all_remotes_and_answers_only_to_one() {
    let (mut net, mut c) = two_remotes("");
    // A asks all, C answers, and from then on A's packets for C go to C alone.
    let question = frame(BROADCAST, mac(1), 60, 7);
    send(&mut net.a, &question);
    assert_eq!(net.take_at_b(), question);
    assert_eq!(take(&mut c, 1)[0].1, question);
    let answer = frame(mac(1), mac(3), 60, 8);
    send(&mut c, &answer);
    assert_eq!(take(&mut net.a, 1)[0].1, answer);
    let next = frame(mac(3), mac(1), 1514, 9);
    send(&mut net.a, &next);
    assert_eq!(take(&mut c, 1)[0].1, next);
    net.settle();
    has_nothing(&mut net.b);
    assert_eq!(net.port("t1").tunnel.expect("the ends").remote, ["192.0.2.2", "192.0.2.3"]);
    // C's station moves to B.
    send(&mut net.b, &answer);
    assert_eq!(take(&mut net.a, 1)[0].1, answer);
    wait_event(&net.switch, "a move is an event", |kind| match kind {
        EventKind::RemoteMoved { port, mac: station, from, to } => {
            (port.as_str(), from.as_str(), to.as_str()) == ("t1", "192.0.2.3", "192.0.2.2")
                && *station == mac(3).to_string()
        }
        _ => false,
    });
}

#[test]
fn invented_sources_behind_one_remote_take_no_place_of_another() {
    let (mut net, mut c) = two_remotes("limit = 100\n");
    let greeting = frame(mac(1), mac(3), 60, 1);
    send(&mut c, &greeting);
    assert_eq!(take(&mut net.a, 1)[0].1, greeting);
    // B invents sources, and has its own 25 places and the 50 common ones.
    for n in 0..200_u8 {
        let invented = frame(mac(1), MacAddr([2, 0, 0, 0, 7, n]), 60, 2);
        send(&mut net.b, &invented);
        assert_eq!(take(&mut net.a, 1)[0].1, invented);
    }
    let next = frame(mac(3), mac(1), 1514, 3);
    send(&mut net.a, &next);
    assert_eq!(take(&mut c, 1)[0].1, next);
    net.settle();
    has_nothing(&mut net.b);
    let addresses = |learned, refused| Addresses { learned, refused };
    let tunnel = net.port("t1").tunnel.expect("the ends");
    assert_eq!(tunnel.addresses, [addresses(75, 125), addresses(1, 0)]);
    wait_event(&net.switch, "a full share is an event", |kind| match kind {
        EventKind::NotLearned { port, remote, refused } => {
            port == "t1" && remote.as_deref() == Some("192.0.2.2") && *refused > 0
        }
        _ => false,
    });
    let known = net.switch.source().fdb().remotes;
    let station = |n| known.iter().find(|entry| entry.mac == mac(n).to_string()).map(|entry| entry.remote.clone());
    assert_eq!((known.len(), station(3), station(1)), (76, Some("192.0.2.3".to_owned()), None));
}

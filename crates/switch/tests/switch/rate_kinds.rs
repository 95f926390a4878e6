//! Limits of device ports and tunnels, whose packets do not wait: those beyond the limit are dropped.

use std::net::UdpSocket;

use straightline_config::{PortConfig, PortRate};
use straightline_graph::{Limit, RateLimits};
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::PortRate as RateStatus;
use straightline_testing::host::{Host, af_packet, tap};
use straightline_testing::packets::{Kind, finish, partial};
use straightline_testing::tunnel::{Net, V4, config, text};
use straightline_testing::{BROADCAST, Rig, arrived, frame, mac, rig, take, wait_until};
use straightline_virtio::net_header::NetHeader;

use crate::tap::attach;

/// Packets that a limit lets pass at once, and packets that are sent.
const BURST: u64 = 20;
const SENT: u64 = 120;

/// No tokens come, however slow the test is.
fn slow() -> Option<PortRate> {
    let limit = Limit { per_second: 0, burst: BURST };
    Some(PortRate::Own(RateLimits { bytes: None, packets: Some(limit) }))
}

/// Waits until all packets have passed a limit or were dropped there, and checks how many.
fn check(rig: &Rig, port: usize, rate: fn(&Rig, usize) -> RateStatus) {
    wait_until("all packets are counted", || {
        let rate = rate(rig, port);
        rate.passed_packets + rate.dropped >= SENT
    });
    let rate = rate(rig, port);
    assert_eq!((rate.passed_packets, rate.waits, rate.wait_count), (BURST, false, 0), "{rate:?}");
    // The port's drops are those of both limits.
    let dropped = rate_in(rig, port).dropped + rate_out(rig, port).dropped;
    assert_eq!(rig.drops(port, "rate"), dropped, "{:?}", rig.port(port).drops);
}

fn rate_in(rig: &Rig, port: usize) -> RateStatus {
    rig.port(port).rate_in.expect("a limit")
}

fn rate_out(rig: &Rig, port: usize) -> RateStatus {
    rig.port(port).rate_out.expect("a limit")
}

/// Limits a device port in both directions. The host has the address 10.0.0.2 at `host_end`, which is
/// the interface or its other end.
fn both_directions(host: &Host, mut port: PortConfig, host_end: &str) {
    port.rate_in = slow();
    port.rate_out = slow();
    port.mac = None;
    let rig = rig(1, |config| attach(config, 0, port));
    host.ip(&format!("link set {host_end} address 02:00:00:00:00:02"));
    host.ip(&format!("link set {host_end} up"));
    host.ip(&format!("addr add 10.0.0.2/24 dev {host_end}"));
    host.ip(&format!("neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev {host_end}"));
    rig.wait_up(1);
    // Without offloads nothing is coalesced.
    let mut guest = rig.guest(0, &GuestOptions::default());
    let socket = UdpSocket::bind("10.0.0.2:2000").expect("bound");
    for _ in 0..SENT {
        socket.send_to(&[7; 100], "10.0.0.1:1000").expect("sent");
    }
    check(&rig, 1, rate_in);
    assert_eq!(take(&mut guest, usize::try_from(BURST).expect("few")).len() as u64, BURST);
    let (header, mut frame) = partial(Kind::Udp4, mac(2), mac(1), &[7; 100]);
    let header = finish(header, &mut frame);
    for _ in 0..SENT {
        wait_until("a free buffer", || {
            let is_sent = guest.send(&header, &frame);
            guest.flush();
            is_sent
        });
    }
    check(&rig, 1, rate_out);
    let mut buffer = [0; 200];
    for _ in 0..BURST {
        socket.recv(&mut buffer).expect("a datagram");
    }
    socket.set_nonblocking(true).expect("an option");
    assert!(socket.recv(&mut buffer).is_err(), "no more than pass");
    assert!(rig.port(0).drops.is_empty(), "the sender is not to blame: {:?}", rig.port(0).drops);
}

#[test]
fn a_tap_drops_beyond_its_limits() {
    let Some(host) = Host::new("a_tap_drops_beyond_its_limits") else { return };
    both_directions(&host, tap("tap0"), "tap0");
}

#[test]
fn a_veth_pair_drops_beyond_its_limits() {
    let Some(host) = Host::new("a_veth_pair_drops_beyond_its_limits") else { return };
    host.ip("link add v0 type veth peer name v1");
    host.ip("link set v0 up");
    both_directions(&host, af_packet("v0", 1), "v1");
}

const KEYS: &str = "kind = \"vxlan\"\nvni = 5";

/// A limit whose tokens come seldom, in a file.
const FEW: &str = "50 packet/s\"\nburst = \"10 packet\"";

/// Sends frames at once, so that no tokens come between them. They fit into a ring.
fn send_all(guest: &mut Guest, frames: impl Iterator<Item = Vec<u8>>) {
    for frame in frames {
        assert!(guest.send(&NetHeader::default(), &frame), "a free buffer");
    }
    guest.flush();
}

#[test]
fn a_tunnel_drops_beyond_its_limits() {
    for (left, right, port, key) in [("rate-out", "", "t1", "rate-out"), ("", "rate-in", "t2", "rate-in")] {
        let keys = |key: &str| if key.is_empty() { KEYS.to_owned() } else { format!("{KEYS}\n{key} = \"{FEW}") };
        let mut net = Net::start(V4, &keys(left), &keys(right));
        net.wait_up();
        let rate = |net: &Net| {
            let port = net.port(port);
            (if key == "rate-out" { port.rate_out } else { port.rate_in }).expect("a limit")
        };
        send_all(&mut net.a, (0..SENT).map(|n| frame(mac(2), mac(1), 60, n)));
        wait_until("all packets are counted", || {
            let rate = rate(&net);
            rate.passed_packets + rate.dropped == SENT
        });
        let seen = rate(&net);
        assert!(seen.passed_packets >= 10 && seen.dropped > 0 && !seen.waits, "{seen:?}");
        assert_eq!(net.port(port).drops.get("rate"), Some(&seen.dropped), "{key}");
        let mut got = 0;
        wait_until("those that passed arrive", || {
            got += arrived(&mut net.b).len() as u64;
            got >= seen.passed_packets
        });
        assert_eq!(got, seen.passed_packets);
    }
}

/// The limit of a tunnel is a node in front of its output. The other ports of a flood lose nothing by it,
/// and all get the packets unchanged.
#[test]
fn a_flood_through_a_limited_tunnel_reaches_the_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let limited = format!("{KEYS}\nrate-out = \"{FEW}");
    let text = text(dir.path(), V4, &limited, KEYS)
        .replace("[patch.one]\nports = [\"a\", \"t1\"]\n", "[bridge.one]\nports = [\"a\", \"t1\", \"c\"]\n")
        + &format!("[port.c]\nkind = \"vhost-user\"\nsocket = {:?}\n", dir.path().join("c"));
    config(&text);
    let mut net = Net::with_text(dir, &text);
    net.cut.store(false, std::sync::atomic::Ordering::Relaxed);
    let mut c = Guest::connect(&net.dir.path().join("c"), &GuestOptions::default()).expect("a guest");
    net.wait_up();
    let flood = |n| frame(BROADCAST, mac(1), 1000, n);
    send_all(&mut net.a, (0..SENT).map(flood));
    for (n, (_, got)) in (0..).zip(take(&mut c, usize::try_from(SENT).expect("few"))) {
        assert!(got == flood(n), "packet {n}");
    }
    let rate = || net.port("t1").rate_out.expect("a limit");
    wait_until("all packets are counted", || rate().passed_packets + rate().dropped == SENT);
    let passed = rate().passed_packets;
    assert!(passed < SENT && net.port("a").drops.is_empty(), "{}", net.state());
    let mut got = Vec::new();
    wait_until("those that passed arrive", || {
        got.extend(arrived(&mut net.b));
        got.len() as u64 >= passed
    });
    // Those of the burst come first, and in order.
    assert!((0..10).zip(&got).all(|(n, (_, got))| *got == flood(n)), "other packets");
}

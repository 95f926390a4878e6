//! The network of an underlay, with attackers on it and behind a tunnel's remote, and with victims.
//!
//! ```text
//!  a ─┐                                   stranger                     ┌─ t2 ─ patch ─ b
//!     ├─ bridge lan ─ t1 ─ underlay left ══ wire ══ underlay right ────┤
//! q0 ─┘                    192.0.2.1                192.0.2.2 and .3   └─ t3 ─ patch ─ q1
//!                          2001:db8::1              2001:db8::2 and ::3
//! v0 ─── patch ─── v1
//! ```
//!
//! All ports are those of one switch with one worker. The tunnel t1 is VXLAN with two remotes:
//! 192.0.2.2, which the attacker's machine `b` is behind, and 192.0.2.3, which the quiet machine
//! `q1` is behind.
//!
//! Two pairs of victims exchange numbered packets: q0 sends to q1 by the tunnel, and v0 to v1 by a
//! patch. [`Network::end`] asserts that they have lost nothing. The tests use the guests `a` and
//! `b`.
//!
//! - **An attacker on the underlay's network** sends whole frames: [`Network::inject`]. Its address
//!   is [`STRANGER`]. [`udp`] and [`vxlan`] write outer headers. [`Network::seen`] has what passed
//!   the wire between the ends, such as answers.
//! - **An attacker behind a remote** is `b`, which sends by [`send`]. Its frames
//!   have to pass the underlay `right` and the wire, so a flood of them would take the place of the
//!   victims' frames there. A flood comes by [`Network::inject`] with [`vxlan`] instead: frames as
//!   the remote would send them, as fast as the switch takes them.
//! - **Other tunnels and guests**: [`Network::with`] adds ports, and text to the configuration.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;

use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{Link, Port};
use straightline_testing::tunnel::{End, Net, OWN_DROPS};
use straightline_testing::{BROADCAST, Victims, frame, mac, send, take, wait_until};
use straightline_wire::frame::{Checksum, Frame, Net as Ip, Transport};
use straightline_wire::vxlan as header;
use straightline_wire::{MacAddr, arp};

/// The addresses of the underlays.
pub(crate) const LEFT: MacAddr = MacAddr([2, 0, 0, 0, 0xaa, 1]);
pub(crate) const RIGHT: MacAddr = MacAddr([2, 0, 0, 0, 0xaa, 2]);
/// A station on the wire that belongs to no underlay.
pub(crate) const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0xaa, 3]);

pub(crate) const LEFT_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The remote that the attacker is behind.
pub(crate) const ATTACKERS_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The remote that the quiet station is behind.
pub(crate) const QUIET_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// The station that the victims' packets in the tunnel are for. It is silent.
pub(crate) const QUIET: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xe1]);

/// The key of the tunnels.
const VNI: u32 = 5;

/// The scene.
pub(crate) struct Network {
    /// The switch, the guests `a` and `b`, and the wire.
    pub(crate) net: Net,
    /// In the tunnel and beside it.
    pub(crate) victims: [Victims; 2],
}

impl Network {
    /// Starts the scene.
    pub(crate) fn new() -> Network {
        Network::with(&[], "")
    }

    /// Starts the scene with further vhost-user ports of these names, and with more text in the
    /// configuration. [`Network::guest`] connects guests to these ports.
    pub(crate) fn with(ports: &[&str], more: &str) -> Network {
        let dir = tempfile::tempdir().expect("a folder");
        let mut text = String::new();
        for port in ["a", "b", "q0", "q1", "v0", "v1", "left", "right"].iter().chain(ports) {
            // The headers of tunnels need room: packets inside have 1500 bytes.
            let mtu = if matches!(*port, "left" | "right") { 1600 } else { 1500 };
            let socket = dir.path().join(port);
            writeln!(text, "[port.{port}]\nkind = \"vhost-user\"\nsocket = {socket:?}\nmtu = {mtu}").expect("text");
        }
        write!(
            text,
            "[underlay.left]\nport = \"left\"\nmac = \"{LEFT}\"\naddress = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n\
             neighbours = {{ \"192.0.2.2\" = \"{RIGHT}\", \"192.0.2.3\" = \"{RIGHT}\" }}\n\
             [underlay.right]\nport = \"right\"\nmac = \"{RIGHT}\"\n\
             address = [\"192.0.2.2/24\", \"192.0.2.3/24\", \"2001:db8::2/64\", \"2001:db8::3/64\"]\n\
             neighbours = {{ \"192.0.2.1\" = \"{LEFT}\" }}\n\
             [port.t1]\nkind = \"vxlan\"\nunderlay = \"left\"\nvni = {VNI}\nremotes = [\"192.0.2.2\", \"192.0.2.3\"]\n\
             [port.t2]\nkind = \"vxlan\"\nunderlay = \"right\"\nvni = {VNI}\nlocal = \"192.0.2.2\"\n\
             remote = \"192.0.2.1\"\n\
             [port.t3]\nkind = \"vxlan\"\nunderlay = \"right\"\nvni = {VNI}\nlocal = \"192.0.2.3\"\n\
             remote = \"192.0.2.1\"\n\
             [bridge.lan]\nports = [\"a\", \"q0\", \"t1\"]\n\
             [patch.b]\nports = [\"t2\", \"b\"]\n[patch.q]\nports = [\"t3\", \"q1\"]\n\
             [patch.v]\nports = [\"v0\", \"v1\"]\n{more}"
        )
        .expect("text");
        // The next hops are fixed, so that the victims lose nothing while the wire does not run. The
        // victims' packets are too many to be kept.
        let mut net = Net::keeping(dir, &text, |frame| !is_vxlan(frame));
        net.cut.store(false, Ordering::Relaxed);
        let is_up = |name: &&str| net.port(name).link == Link::Up;
        wait_until("the tunnels are up", || ["t1", "t2", "t3"].iter().all(is_up));
        let [source, mut sink, v0, v1] = ["q0", "q1", "v0", "v1"].map(|port| guest(&net, port));
        // The quiet station is heard once.
        send(&mut sink, &frame(BROADCAST, QUIET, 60, 1));
        take(&mut net.a, 1);
        let mut source = source;
        take(&mut source, 1);
        let victims = [Victims::between(source, sink), Victims::between(v0, v1)];
        Network { net, victims }
    }

    /// Connects a guest at a port that [`Network::with`] has added.
    pub(crate) fn guest(&self, port: &str) -> Guest {
        guest(&self.net, port)
    }

    /// Returns a port as the API shows it.
    pub(crate) fn port(&self, name: &str) -> Port {
        self.net.port(name)
    }

    /// Returns the number of drops of a port for a reason.
    pub(crate) fn drops(&self, port: &str, reason: &str) -> u64 {
        self.port(port).drops.get(reason).copied().unwrap_or(0)
    }

    /// Sends a frame of an attacker on the network to the underlay `left`. It waits only while too
    /// many frames are waiting, and the switch may have handled none of them on return.
    pub(crate) fn inject(&self, frame: Vec<u8>) {
        self.net.inject(End::Left, frame);
    }

    /// Returns the frames that have passed the wire from one underlay to the other, except VXLAN.
    pub(crate) fn seen(&self) -> Vec<Vec<u8>> {
        self.net.seen.lock().expect("the frames").clone()
    }

    /// Waits until the switch has handled all injected frames, and asserts that the victims'
    /// traffic goes on.
    pub(crate) fn go_on(&self) {
        self.net.all_injected();
        self.victims.iter().for_each(Victims::go_on);
    }

    /// Ends the scene. Asserts that the victims have lost nothing.
    pub(crate) fn end(self) {
        for name in ["left", "right", "q0", "q1", "t3", "v0", "v1"] {
            let drops = self.port(name).drops;
            // Packets of strangers, and what the underlays cause themselves.
            let expected =
                |reason: &str| OWN_DROPS.contains(&reason) || ["tunnel-unknown", "answer-limit"].contains(&reason);
            assert!(drops.keys().all(|reason| expected(reason)), "{name}: {drops:?}");
        }
        let Network { net, victims } = self;
        victims.into_iter().for_each(Victims::finish);
        drop(net);
    }
}

fn guest(net: &Net, port: &str) -> Guest {
    Guest::connect(&net.dir.path().join(port), &GuestOptions::default()).expect("a guest")
}

/// Returns whether a frame is VXLAN over IPv4 without options.
fn is_vxlan(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 0])
        && frame.get(23) == Some(&17)
        && frame.get(36..38) == Some(&header::PORT.to_be_bytes())
}

/// Returns a frame with a UDP datagram without checksum from an address of the network to the
/// underlay `left`. IP addresses are of one version.
pub(crate) fn udp(from: (MacAddr, IpAddr), to: IpAddr, ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let net = match (from.1, to) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Ip::v4(src, dst),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Ip::v6(src, dst),
        other => panic!("{other:?} are of two versions"),
    };
    let [src_port, dst_port] = ports;
    let headers = Frame {
        src: from.0,
        dst: LEFT,
        tags: [None, None],
        net,
        transport: Transport::Udp { src_port, dst_port },
        payload_len: u16::try_from(payload.len()).expect("a packet"),
    };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Zero).expect("headers");
    bytes.extend(payload);
    bytes
}

/// Returns a frame inside VXLAN as a remote sends it to t1.
pub(crate) fn vxlan(remote: Ipv4Addr, inner: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; header::LEN];
    header::Repr { vni: VNI }.emit(&mut payload).expect("enough space");
    payload.extend(inner);
    udp((RIGHT, remote.into()), LEFT_IP.into(), [50_000, header::PORT], &payload)
}

/// Checks the scene itself.
#[test]
fn attackers_behind_a_remote_are_heard() {
    let mut scene = Network::new();
    let greeting = frame(BROADCAST, mac(7), 60, 1);
    send(&mut scene.net.b, &greeting);
    assert_eq!(take(&mut scene.net.a, 1)[0].1, greeting);
    for (n, remote) in (8..).zip([ATTACKERS_IP, QUIET_IP]) {
        let other = frame(BROADCAST, mac(n), 60, 2);
        scene.inject(vxlan(remote, &other));
        assert_eq!(take(&mut scene.net.a, 1)[0].1, other);
    }
    scene.go_on();
    scene.end();
}

/// Checks the scene itself.
#[test]
fn strangers_on_the_network_see_answers() {
    let scene = Network::with(&["x", "y"], "[patch.x]\nports = [\"x\", \"y\"]\n");
    let stranger = Ipv4Addr::new(192, 0, 2, 66);
    let operation = arp::Operation::REQUEST;
    let target_mac = MacAddr::default();
    let question = arp::Repr { operation, sender_mac: STRANGER, sender_ip: stranger, target_mac, target_ip: LEFT_IP };
    let mut asks = [&BROADCAST.0[..], &STRANGER.0, &[8, 6], &[0; arp::LEN]].concat();
    question.emit(&mut asks[14..]).expect("enough space");
    scene.inject(asks);
    wait_until("an answer", || scene.seen().iter().any(|frame| frame[..6] == STRANGER.0 && frame[12..14] == [8, 6]));
    let unknown = [8, 0, 0, 0, 0, 0, 9, 0];
    scene.inject(udp((STRANGER, stranger.into()), LEFT_IP.into(), [50_000, header::PORT], &unknown));
    wait_until("it has no tunnel", || scene.drops("left", "tunnel-unknown") == 1);
    drop(scene.guest("x"));
    scene.go_on();
    scene.end();
}

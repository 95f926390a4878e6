//! Packets of tunnels that the kernel has coalesced on their way to an underlay, as an interface does
//! with `rx-udp-gro-forwarding`.

use std::net::IpAddr;

use straightline_config::{Config, Machine};
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::Switch;
use straightline_testing::host::Host;
use straightline_testing::packets::{NEEDS_CSUM, UDP_L4};
use straightline_testing::{frame, mac, take, wait_until};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::{MacAddr, vxlan};

use crate::tap::options;

const NEAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x11]);
const FAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x22]);
const VNI: u32 = 5;

/// Returns a large UDP packet of a remote with these inner frames, and its virtio-net header. All
/// frames but the last have the same length.
fn coalesced(ends: [IpAddr; 2], inner: &[Vec<u8>]) -> (NetHeader, Vec<u8>) {
    let mut payload = Vec::new();
    for frame in inner {
        let at = payload.len();
        payload.resize(at + vxlan::LEN, 0);
        vxlan::Repr { vni: VNI }.emit(&mut payload[at..]).expect("enough space");
        payload.extend(frame);
    }
    let (net, l4) = match ends {
        [IpAddr::V4(own), IpAddr::V4(remote)] => (Net::v4(remote, own), 34),
        [IpAddr::V6(own), IpAddr::V6(remote)] => (Net::v6(remote, own), 54),
        _ => panic!("{ends:?} are of two versions"),
    };
    let transport = Transport::Udp { src_port: 50_000, dst_port: vxlan::PORT };
    let payload_len = u16::try_from(payload.len()).expect("a packet");
    let headers = Frame { src: FAR, dst: NEAR, tags: [None, None], net, transport, payload_len };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Partial).expect("headers");
    bytes.extend(payload);
    let gso_size = u16::try_from(vxlan::LEN + inner[0].len()).expect("a packet");
    let header = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: UDP_L4,
        hdr_len: l4 + 8,
        gso_size,
        csum_start: l4,
        csum_offset: 6,
        ..NetHeader::default()
    };
    (header, bytes)
}

/// Starts a switch with the remote's guest at one end of a veth pair, and an underlay at the other.
fn start(dir: &std::path::Path, ends: [IpAddr; 2]) -> Switch {
    let socket = |name: &str| dir.join(name);
    let [own, remote] = ends;
    let prefix = if own.is_ipv4() { 24 } else { 64 };
    let text = format!(
        "[port.a]\nkind = \"vhost-user\"\nsocket = {:?}\nmtu = 1600\n[port.b]\nkind = \"vhost-user\"\nsocket = {:?}\n\
         [port.far]\nkind = \"af-packet\"\ninterface = \"nic1\"\nmtu = 1600\n\
         [port.near]\nkind = \"af-packet\"\ninterface = \"nic0\"\nmtu = 1600\n\
         [underlay.wan]\nport = \"near\"\naddress = [\"{own}/{prefix}\"]\nneighbours = {{ \"{remote}\" = \"{FAR}\" }}\n\
         [port.t1]\nkind = \"vxlan\"\nunderlay = \"wan\"\nvni = {VNI}\nremote = \"{remote}\"\nmtu = 1500\n\
         [patch.one]\nports = [\"a\", \"far\"]\n[patch.two]\nports = [\"t1\", \"b\"]\n",
        socket("a"),
        socket("b"),
    );
    let loaded = Config::parse("f.toml", &text, &Machine::this()).unwrap_or_else(|errors| panic!("{errors}"));
    Switch::start(&loaded.config).expect("a switch")
}

/// They are lost, and the reason says how to prevent it. Single packets arrive.
#[test]
fn coalesced_packets_of_a_tunnel_drop_with_a_remedy() {
    let Some(host) = Host::new("coalesced_packets_of_a_tunnel_drop_with_a_remedy") else { return };
    host.ip(&format!("link add nic0 mtu 1600 address {NEAR} type veth peer name nic1 mtu 1600 address {FAR}"));
    host.ip("link set nic0 up");
    host.ip("link set nic1 up");
    for ends in [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]] {
        let dir = tempfile::tempdir().expect("a folder");
        let switch = start(dir.path(), ends.map(|ip| ip.parse().expect("an address")));
        let guest = |name: &str, options| Guest::connect(&dir.path().join(name), options).expect("a guest");
        let options = options();
        let mut a = guest("a", &options);
        let mut b = guest("b", &GuestOptions::default());
        wait_until("all links are up", || switch.source().ports().ports.iter().all(|port| port.reason.is_none()));
        let mut send = |count: u64| {
            let inner: Vec<_> = (0..count).map(|n| frame(mac(1), mac(7), 200, n)).collect();
            let (header, bytes) = coalesced(ends.map(|ip| ip.parse().expect("an address")), &inner);
            assert!(a.send(&header, &bytes));
            a.flush();
            inner
        };
        send(20);
        wait_until("a drop", || {
            let drops = switch.source().drops().drops;
            drops.iter().any(|drop| {
                (drop.port.as_str(), drop.reason.as_str(), drop.count) == ("t1", "tunnel-coalesced", 1)
                    && drop.remedy.contains("rx-udp-gro-forwarding off")
            })
        });
        let single = send(1);
        assert_eq!(take(&mut b, 1)[0].1, single[0]);
    }
}

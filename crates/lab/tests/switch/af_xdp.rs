//! AF_XDP ports: pairs of veth interfaces, with the kernel or another AF_XDP port at the other end.

use std::net::UdpSocket;

use straightline_lab::{Guest, GuestOptions};
use straightline_port::device::{Steal, ZeroCopy};
use straightline_switch::config::{AfXdpConfig, Config, PatchConfig, PortConfig, PortKind, WhenFull};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

use crate::common::host::Host;
use crate::common::packets::{Kind, check, partial, segmented};
use crate::common::{self, BASIC, Rig, mac, noise, rig, take};

const CSUM: u64 = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM;
const TSO: u64 = f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_HOST_USO;

fn options() -> GuestOptions {
    let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF | CSUM | TSO;
    GuestOptions { features, buffer_len: 65_600, ring_size: 128, ..GuestOptions::default() }
}

/// Adds an AF_XDP port and patches it with the vhost-user port `guest`.
fn attach(config: &mut Config, guest: usize, interface: &str, change: impl FnOnce(&mut PortConfig, &mut AfXdpConfig)) {
    let mut port = PortConfig::vhost_user(interface, "");
    let mut kind =
        AfXdpConfig { interface: interface.to_owned(), queues: None, steal: Steal::All, zero_copy: ZeroCopy::Allow };
    change(&mut port, &mut kind);
    config.ports[guest].mtu = port.mtu;
    port.kind = PortKind::AfXdp(kind);
    let ports = [format!("p{guest}"), interface.to_owned()];
    config.patches.push(PatchConfig { name: format!("with-p{guest}"), ports, full: WhenFull::Drop });
    config.ports.push(port);
}

/// Makes a pair of veth interfaces, `nic0` and `nic1`, of this MTU and number of queues.
fn veth(host: &Host, mtu: u16, queues: u16) {
    let numbers = format!("numrxqueues {queues} numtxqueues {queues}");
    host.ip(&format!("link add nic0 mtu {mtu} {numbers} type veth peer name nic1 mtu {mtu} {numbers}"));
    host.ip("link set nic0 up");
    host.ip("link set nic1 up");
}

/// Two guests, each with an AF_XDP port at an end of a pair.
fn joined(host: &Host, mtu: u16) -> Rig {
    veth(host, mtu, 1);
    rig(2, |config| {
        attach(config, 0, "nic0", |port, _| port.mtu = mtu);
        attach(config, 1, "nic1", |port, _| port.mtu = mtu);
    })
}

#[test]
fn packets_pass_between_two_af_xdp_ports_unchanged() {
    let Some(host) = Host::new("packets_pass_between_two_af_xdp_ports_unchanged") else { return };
    let rig = joined(&host, 1500);
    let (mut a, mut b) = (rig.guest(0, &options()), rig.guest(1, &options()));
    for len in [14, 60, 255, 256, 257, 512, 1000, 1514, 1518] {
        for seed in 0..10 {
            let frame = common::frame(mac(2), mac(1), len, seed);
            common::send(&mut a, &frame);
            assert!(take(&mut b, 1).remove(0).1 == frame, "{len} bytes");
            let back = common::frame(mac(1), mac(2), len, seed + 100);
            common::send(&mut b, &back);
            assert!(take(&mut a, 1).remove(0).1 == back, "{len} bytes");
        }
    }
    rig.no_drops();
    let port = rig.port(2);
    assert_eq!((port.queues[0].rx.packets, port.queues[0].tx.packets), (90, 90), "{port:?}");
    let device = port.device.expect("a device");
    assert_eq!((device.interface.as_str(), device.driver.as_str(), device.mtu), ("nic0", "veth", 1500));
    assert_eq!((device.mode.as_str(), device.zero_copy, device.queues), ("native", false, 1));
}

#[test]
fn packets_of_several_frames_pass() {
    let Some(host) = Host::new("packets_of_several_frames_pass") else { return };
    let rig = joined(&host, 9000);
    let (mut a, mut b) = (rig.guest(0, &options()), rig.guest(1, &options()));
    // A frame holds 3840 bytes of a received packet, and 4096 of a sent one.
    for len in [60, 1514, 3840, 3841, 4096, 4097, 7680, 7681, 8192, 8193, 9014] {
        for seed in 0..5 {
            let frame = common::frame(mac(2), mac(1), len, seed);
            common::send(&mut a, &frame);
            assert!(take(&mut b, 1).remove(0).1 == frame, "{len} bytes");
            let back = common::frame(mac(1), mac(2), len, seed + 100);
            common::send(&mut b, &back);
            assert!(take(&mut a, 1).remove(0).1 == back, "{len} bytes");
        }
    }
    rig.no_drops();
}

#[test]
fn checksums_are_finished_and_large_packets_segmented() {
    let Some(host) = Host::new("checksums_are_finished_and_large_packets_segmented") else { return };
    for mtu in [1500, 9000] {
        let rig = joined(&host, mtu);
        let (mut a, mut b) = (rig.guest(0, &options()), rig.guest(1, &options()));
        for kind in Kind::ALL {
            for len in [1, 100, 1001, 1400] {
                let payload = noise(len as u64, len);
                let (header, frame) = partial(kind, mac(2), mac(1), &payload);
                assert!(a.send(&header, &frame));
                a.flush();
                let (got, bytes) = take(&mut b, 1).remove(0);
                assert_eq!(got.flags, 0, "nothing is left to do");
                assert!(check(&bytes, false).payload == payload);
            }
            for (len, size) in [(65_000, 1400), (9000, 1440), (3000, 1000), (2999, 1234), (40_000, mtu - 60)] {
                let payload = noise(len as u64, len);
                let (header, frame) = segmented(kind, mac(2), mac(1), &payload, size);
                assert!(a.send(&header, &frame));
                a.flush();
                let count = len.div_ceil(size.into());
                let mut got = take(&mut b, count).into_iter().map(|(_, bytes)| check(&bytes, false).payload);
                assert!(payload.chunks(size.into()).all(|part| got.next().as_deref() == Some(part)), "{kind:?} {len}");
            }
        }
        rig.no_drops();
        drop((a, b, rig));
        host.ip("link del nic0");
    }
}

#[test]
fn a_long_burst_loses_nothing() {
    let Some(host) = Host::new("a_long_burst_loses_nothing") else { return };
    let rig = joined(&host, 1500);
    let (mut a, mut b) = (rig.guest(0, &options()), rig.guest(1, &options()));
    // More packets than a UMEM has frames.
    for round in 0..60 {
        let frames: Vec<_> =
            (0..100).map(|n| common::frame(mac(2), mac(1), 60 + 14 * n, round * 100 + n as u64)).collect();
        for frame in &frames {
            common::wait_until("a transmit buffer is free", || a.send(&NetHeader::default(), frame));
        }
        a.flush();
        let got = take(&mut b, frames.len());
        assert!(got.iter().map(|(_, bytes)| bytes).eq(&frames), "all packets, in order");
    }
    rig.no_drops();
}

/// The address of the guest that the kernel speaks with.
const GUEST: &str = "10.0.0.1";

/// One guest with an AF_XDP port at one end of a pair. The kernel has the addresses 10.0.0.2 and
/// fd00::2 at the other end.
fn with_kernel(host: &Host, mtu: u16, queues: u16, change: impl FnOnce(&mut AfXdpConfig)) -> Rig {
    veth(host, mtu, queues);
    host.ip("link set nic1 address 02:00:00:00:00:02");
    host.ip("address add 10.0.0.2/24 dev nic1");
    host.ip("neighbour add 10.0.0.1 lladdr 02:00:00:00:00:01 dev nic1");
    rig(1, |config| {
        attach(config, 0, "nic0", |port, kind| {
            port.mtu = mtu;
            change(kind);
        });
    })
}

#[test]
fn the_kernel_and_a_guest_exchange_datagrams() {
    let Some(host) = Host::new("the_kernel_and_a_guest_exchange_datagrams") else { return };
    for (mtu, offloads) in [(1500, "on"), (1500, "off"), (9000, "on")] {
        let rig = with_kernel(&host, mtu, 1, |_| {});
        host.run("ethtool", &format!("-K nic1 tx {offloads}"));
        let mut guest = rig.guest(0, &options());
        let socket = UdpSocket::bind("10.0.0.2:2000").expect("a socket");
        socket.set_read_timeout(Some(common::PATIENCE)).expect("a timeout");
        let longest = usize::from(mtu) - 28;
        for len in [1, 100, 1001, 1400, longest] {
            // Its checksum is finished in the copy, and the kernel verifies it.
            let payload = noise(len as u64, len);
            let (header, frame) = partial(Kind::Udp4, mac(2), mac(1), &payload);
            assert!(guest.send(&header, &frame));
            guest.flush();
            let mut got = vec![0; 10_000];
            let (n, from) = socket.recv_from(&mut got).expect("the guest's datagram");
            assert!(got[..n] == payload, "{len} bytes");
            assert_eq!(from.to_string(), "10.0.0.1:1000");
            // The kernel leaves its checksum unfinished if it may.
            socket.send_to(&payload, (GUEST, 1000)).expect("sent");
            let (header, bytes) = take_ip(&mut guest, 1).remove(0);
            let is_partial = header.flags == 1;
            assert_eq!(is_partial, offloads == "on", "{header:?}");
            assert!(check(&bytes, is_partial).payload == payload, "{len} bytes");
        }
        rig.no_drops();
        drop((guest, rig));
        host.ip("link del nic0");
    }
}

/// Waits for `n` IP packets, and skips others: the kernel sends some of its own.
fn take_ip(guest: &mut Guest, n: usize) -> Vec<(NetHeader, Vec<u8>)> {
    let mut packets = Vec::new();
    common::wait_until("all packets have arrived", || {
        packets.extend(common::arrived(guest).into_iter().filter(|(_, bytes)| bytes[12..14] == [8, 0]));
        packets.len() >= n
    });
    packets
}

//! AF_XDP ports: pairs of veth interfaces, with the kernel or another AF_XDP port at the other end.

use std::net::UdpSocket;
use std::sync::Arc;

use straightline_config::{AfXdpConfig, Config, PatchConfig, PortConfig, PortKind, WhenFull};
use straightline_graph::{EpollWaiter, PortControl};
use straightline_guest::{Guest, GuestOptions};
use straightline_packet::{Arena, Batch, Drops, PortIndex, Rcu, Reason, Settings};
use straightline_port::device::{AfXdpRequest, DevicePort, DevicePortConfig, DeviceRequest, Devices, Steal, ZeroCopy};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_testing::host::Host;
use straightline_testing::packets::{Kind, check, partial, segmented};
use straightline_testing::{self as testing, BASIC, Rig, mac, noise, rig, take};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

use super::tap::lengths_pass_unchanged;

const CSUM: u64 = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM;
const TSO: u64 = f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_HOST_USO;

fn options() -> GuestOptions {
    let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF | CSUM | TSO;
    GuestOptions { features, buffer_len: 65_600, ring_size: 128, ..GuestOptions::default() }
}

/// Adds an AF_XDP port and patches it with the vhost-user port `guest`.
fn attach(config: &mut Config, guest: usize, interface: &str, change: impl FnOnce(&mut PortConfig, &mut AfXdpConfig)) {
    let mut port = PortConfig::vhost_user(interface, "");
    let mut kind = AfXdpConfig {
        interface: interface.to_owned(),
        queues: None,
        steal: Steal::All,
        zero_copy: ZeroCopy::Allow,
        take_default_route: false,
    };
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
    lengths_pass_unchanged(&rig, &options(), &[14, 60, 255, 256, 257, 512, 1000, 1514, 1518], 10);
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
    // A frame holds 3840 bytes of a received packet, and 4096 of a sent one.
    lengths_pass_unchanged(&rig, &options(), &[60, 1514, 3840, 3841, 4096, 4097, 7680, 7681, 8192, 8193, 9014], 5);
}

#[test]
fn checksums_are_finished_and_large_packets_segmented() {
    let Some(host) = Host::new("checksums_are_finished_and_large_packets_segmented") else { return };
    for mtu in [1500, 9000] {
        let rig = joined(&host, mtu);
        let mut a = rig.guest(0, &options());
        let mut b = rig.guest(1, &options());
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
    let mut a = rig.guest(0, &options());
    let mut b = rig.guest(1, &options());
    // More packets than a UMEM has frames.
    for round in 0..60 {
        let frames: Vec<_> =
            (0..100).map(|n| testing::frame(mac(2), mac(1), 60 + 14 * n, round * 100 + n as u64)).collect();
        for frame in &frames {
            testing::wait_until("a transmit buffer is free", || {
                a.flush();
                a.send(&NetHeader::default(), frame)
            });
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
        socket.set_read_timeout(Some(testing::PATIENCE)).expect("a timeout");
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

/// Returns the IPv4 packets that have arrived at any of the guest's pairs: the kernel sends others
/// of its own.
fn arrived_ip(guest: &mut Guest) -> Vec<(NetHeader, Vec<u8>)> {
    let mut packets = Vec::new();
    for pair in guest.pairs() {
        let level = pair.level();
        pair.receive(usize::MAX, |header, parts| {
            let mut bytes = Vec::new();
            for part in parts {
                let at = bytes.len();
                bytes.resize(at + part.len() as usize, 0);
                part.read(level, &mut bytes[at..]);
            }
            packets.push((*header, bytes));
        });
    }
    packets.retain(|(_, bytes)| bytes[12..14] == [8, 0]);
    packets
}

/// Waits for `n` IPv4 packets.
fn take_ip(guest: &mut Guest, n: usize) -> Vec<(NetHeader, Vec<u8>)> {
    let mut packets = Vec::new();
    testing::wait_until("all packets have arrived", || {
        packets.extend(arrived_ip(guest));
        packets.len() >= n
    });
    packets
}

#[test]
fn flows_of_four_queues_pass_two_workers_in_order() {
    const FLOWS: u16 = 16;
    const EACH: u16 = 50;
    let Some(host) = Host::new("flows_of_four_queues_pass_two_workers_in_order") else { return };
    for (queues, workers) in [(Some(4), 2), (None, 1), (Some(4), 1), (Some(1), 2)] {
        veth(&host, 1500, 4);
        host.ip("link set nic1 address 02:00:00:00:00:02");
        host.ip("address add 10.0.0.2/24 dev nic1");
        host.ip("neighbour add 10.0.0.1 lladdr 02:00:00:00:00:01 dev nic1");
        let rig = rig(1, |config| {
            config.switch.workers = (0..workers).collect();
            testing::vhost_user(&mut config.ports[0]).queues = Some(2);
            attach(config, 0, "nic0", |_, kind| kind.queues = queues);
        });
        let mut guest = rig.guest(0, &GuestOptions { queue_pairs: 2, ..options() });
        let sockets: Vec<_> = (0..FLOWS).map(|n| UdpSocket::bind(("10.0.0.2", 3000 + n)).expect("a socket")).collect();
        let used = if queues == Some(1) { 1 } else { 4 };
        let mut got = Vec::new();
        for n in 0..EACH {
            for socket in &sockets {
                socket.send_to(&n.to_be_bytes(), (GUEST, 1000)).expect("sent");
            }
            // With one queue the kernel keeps the packets of the three others.
            match used {
                1 => got.extend(arrived_ip(&mut guest)),
                _ => got.extend(take_ip(&mut guest, usize::from(FLOWS))),
            }
        }
        if got.is_empty() {
            got = take_ip(&mut guest, 1);
        }
        let mut next = [0; FLOWS as usize];
        let expected = usize::from(FLOWS * EACH);
        for (_, bytes) in &got {
            let flow = usize::from(u16::from_be_bytes([bytes[34], bytes[35]]) - 3000);
            let number = u16::from_be_bytes([bytes[42], bytes[43]]);
            assert!(number >= next[flow], "flow {flow} is in order");
            next[flow] = number + 1;
        }
        let port = rig.port(1);
        assert_eq!(port.device.as_ref().map(|device| device.queues), Some(used), "{port:?}");
        let busy = port.queues.iter().filter(|queue| queue.rx.packets > 0).count();
        assert!(if used == 1 { busy == 1 } else { busy > 1 && got.len() == expected }, "{port:?}");
        // Back to the kernel, by whichever worker.
        sockets[0].set_read_timeout(Some(testing::PATIENCE)).expect("a timeout");
        for n in 0..20_u8 {
            let payload = [n; 100];
            let (header, mut frame) = partial(Kind::Udp4, mac(2), mac(1), &payload);
            frame[36..38].copy_from_slice(&3000_u16.to_be_bytes());
            assert!(guest.send(&header, &frame));
            guest.flush();
            let mut got = [0; 200];
            assert_eq!(sockets[0].recv(&mut got).expect("the guest's datagram"), 100);
            assert!(got[..100] == payload);
        }
        drop((guest, rig));
        host.ip("link del nic0");
    }
}

#[test]
fn an_interface_that_goes_comes_back() {
    let Some(host) = Host::new("an_interface_that_goes_comes_back") else { return };
    let rig = joined(&host, 1500);
    let mut a = rig.guest(0, &options());
    let mut b = rig.guest(1, &options());
    let mut pass = |rig: &Rig, seed| {
        [2, 3].iter().for_each(|&port| rig.wait_up(port));
        let frame = testing::frame(mac(2), mac(1), 500, seed);
        testing::wait_until("packets pass again", || {
            testing::send(&mut a, &frame);
            testing::arrived(&mut b).iter().any(|(_, bytes)| *bytes == frame)
        });
    };
    pass(&rig, 1);
    host.ip("link set nic0 down");
    rig.wait_down(2, "down");
    host.ip("link set nic0 up");
    pass(&rig, 2);
    host.ip("link del nic0");
    rig.wait_down(2, "nic0");
    rig.wait_down(3, "nic1");
    veth(&host, 1500, 1);
    pass(&rig, 3);
}

/// Packets are copied into frames before they are sent. If the memory of one source has vanished,
/// the frames are filled again without its packets.
#[test]
fn packets_of_a_source_that_has_vanished_are_not_sent() {
    let Some(host) = Host::new("packets_of_a_source_that_has_vanished_are_not_sent") else { return };
    veth(&host, 1500, 1);
    let dir = tempfile::tempdir().expect("a folder");
    let rcu = Rcu::new();
    let drops = [0, 1, 2, 3].map(|_| Arc::<Drops>::default());
    let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
    let sources = [0, 1].map(|n: u16| {
        let config = VhostUserConfig::new(format!("p{n}"), dir.path().join(format!("p{n}")));
        let drops = Arc::clone(&drops[usize::from(n)]);
        VhostUser::open(config, PortIndex(n), drops, &rcu, Arc::clone(&waiter)).expect("a socket")
    });
    let devices = Devices::direct().expect("devices");
    let [to, behind] = ["nic0", "nic1"].map(|name| {
        let steal = Steal::All;
        let zero_copy = ZeroCopy::Allow;
        let request = AfXdpRequest { interface: name.to_owned(), queues: None, steal, zero_copy, mtu: 1500 };
        let config =
            DevicePortConfig { name: name.to_owned(), request: DeviceRequest::AfXdp(request), mtu: 1500, queues: 1 };
        let at = if name == "nic0" { 2 } else { 3 };
        let drops = Arc::clone(&drops[usize::from(at)]);
        DevicePort::open(config, PortIndex(at), drops, &rcu, Arc::clone(&waiter), &devices).expect("an interface")
    });
    let mut guests =
        [0, 1].map(|n| Guest::connect(&dir.path().join(format!("p{n}")), &GuestOptions::default()).expect("a guest"));
    for (from, guest) in guests.iter_mut().enumerate() {
        let from = u8::try_from(from).expect("few");
        // Two packets, so that one is left in the ring.
        for _ in 0..2 {
            assert!(guest.send(&NetHeader::default(), &testing::frame(mac(9), mac(from), 1000, from.into())));
        }
        guest.flush();
    }
    testing::wait_until("all links are up", || {
        sources.iter().all(|port| port.status().up) && to.status().up && behind.status().up
    });
    let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.to_vec());
    let (served, to, behind) =
        (sources.each_ref().map(|port| port.for_worker(0)), to.for_worker(0), behind.for_worker(0));
    arena.turn(|turn| {
        let mut batch = Batch::new();
        for port in &served {
            port.receive(turn, &mut batch, 1);
        }
        assert_eq!(batch.len(), 2);
        rustix::fs::ftruncate(guests[0].file(), 0).expect("it is a file");
        // Polling the ring finds that the memory has vanished.
        served[0].receive(turn, &mut Batch::new(), 1);
        to.deliver(turn, &batch, false);
    });
    assert_eq!(drops[2].count(Reason::MemoryFault), 1);
    let mut heads = Vec::new();
    testing::wait_until("a packet arrives", || {
        arena.turn(|turn| {
            let mut batch = Batch::new();
            behind.receive(turn, &mut batch, 10);
            heads.extend(batch.ids().iter().map(|&id| turn.head(id).to_vec()));
        });
        !heads.is_empty()
    });
    // The kernel may send packets of its own, but none with our Ethernet type.
    heads.retain(|head| head[12..14] == [0x88, 0xb5]);
    assert_eq!(heads, [&testing::frame(mac(9), mac(1), 1000, 1)[..256]]);
}

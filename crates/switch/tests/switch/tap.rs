//! Taps: the kernel of this machine as the peer.

use std::net::UdpSocket;

use straightline_config::{Config, Offloads, PatchConfig, PortConfig, WhenFull};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::host::{Host, tap, tap_with};
use straightline_testing::packets::{Kind, NEEDS_CSUM, check, partial, segmented};
use straightline_testing::{self as testing, BASIC, Rig, mac, noise, rig, take};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

const CSUM: u64 = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM;
const TSO: u64 =
    f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6;
const USO: u64 = f::VIRTIO_NET_F_HOST_USO | f::VIRTIO_NET_F_GUEST_USO4 | f::VIRTIO_NET_F_GUEST_USO6;

pub(crate) fn options() -> GuestOptions {
    let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF | CSUM | TSO | USO;
    GuestOptions { features, buffer_len: 65_600, ring_size: 128, ..GuestOptions::default() }
}

/// Adds a port and patches it with the vhost-user port `guest`.
pub(crate) fn attach(config: &mut Config, guest: usize, port: PortConfig) {
    let ports = [format!("p{guest}"), port.name.clone()];
    config.patches.push(PatchConfig { name: format!("with-p{guest}"), ports, full: WhenFull::Drop });
    config.ports.push(port);
}

/// Two guests, each with a tap, and a Linux bridge that joins the taps.
fn bridged(host: &Host, change: impl Fn(&mut straightline_config::TapConfig)) -> Rig {
    host.ip("link add br0 type bridge mcast_snooping 0");
    host.ip("link set br0 up");
    rig(2, |config| {
        for (guest, name) in ["tapa", "tapb"].into_iter().enumerate() {
            let port = tap_with(name, |tap| {
                tap.bridge = Some("br0".to_owned());
                change(tap);
            });
            attach(config, guest, port);
        }
    })
}

#[test]
fn packets_pass_a_linux_bridge_unchanged() {
    let Some(host) = Host::new("packets_pass_a_linux_bridge_unchanged") else { return };
    let rig = bridged(&host, |_| {});
    packets_pass_unchanged(&rig);
    let device = rig.port(2).device.expect("a tap is a device");
    assert_eq!((device.interface.as_str(), device.driver.as_str(), device.mtu), ("tapa", "tun", 1500));
}

/// Sends `rounds` packets of each length both ways between two guests with these options.
pub(crate) fn lengths_pass_unchanged(rig: &Rig, options: &GuestOptions, lengths: &[usize], rounds: u64) {
    let mut a = rig.guest(0, options);
    let mut b = rig.guest(1, options);
    for &len in lengths {
        for seed in 0..rounds {
            let frame = testing::frame(mac(2), mac(1), len, seed);
            testing::send(&mut a, &frame);
            assert!(take(&mut b, 1).remove(0).1 == frame, "{len} bytes");
            let back = testing::frame(mac(1), mac(2), len, seed + 100);
            testing::send(&mut b, &back);
            assert!(take(&mut a, 1).remove(0).1 == back, "{len} bytes");
        }
    }
    rig.no_drops();
}

/// Sends packets of many lengths both ways between two guests.
pub(crate) fn packets_pass_unchanged(rig: &Rig) {
    // Lengths around the head of 256 bytes, and the longest frame of this MTU with a tag's bytes.
    lengths_pass_unchanged(rig, &options(), &[14, 60, 255, 256, 257, 512, 1000, 1514], 10);
    let port = rig.port(2);
    assert_eq!((port.queues[0].rx.packets, port.queues[0].tx.packets), (80, 80), "{port:?}");
}

#[test]
fn a_long_burst_loses_nothing() {
    let Some(host) = Host::new("a_long_burst_loses_nothing") else { return };
    bursts_pass(&bridged(&host, |_| {}));
}

#[test]
fn vlan_tags_stay_where_they_are() {
    let Some(host) = Host::new("vlan_tags_stay_where_they_are") else { return };
    crate::af_packet::tagged_packets_pass(&bridged(&host, |_| {}));
}

/// Sends bursts from one guest to the other.
pub(crate) fn bursts_pass(rig: &Rig) {
    let mut a = rig.guest(0, &options());
    let mut b = rig.guest(1, &options());
    // Less than a tap's queue in the kernel, which holds 1000 packets, and one ring of the guest.
    for round in 0..20 {
        let frames: Vec<_> =
            (0..100).map(|n| testing::frame(mac(2), mac(1), 60 + 14 * n, round * 100 + n as u64)).collect();
        frames.iter().for_each(|frame| testing::send(&mut a, frame));
        let got = take(&mut b, frames.len());
        assert!(got.iter().map(|(_, bytes)| bytes).eq(&frames), "all packets, in order");
    }
    rig.no_drops();
}

#[test]
fn large_packets_and_checksums_pass_both_taps_as_they_are() {
    let Some(host) = Host::new("large_packets_and_checksums_pass_both_taps_as_they_are") else { return };
    large_packets_pass(&bridged(&host, |_| {}));
}

/// Sends unfinished checksums and large packets, which arrive as they are.
pub(crate) fn large_packets_pass(rig: &Rig) {
    let mut a = rig.guest(0, &options());
    let mut b = rig.guest(1, &options());
    for kind in Kind::ALL {
        for len in [1, 100, 1400] {
            let payload = noise(len as u64, len);
            let (header, frame) = partial(kind, mac(2), mac(1), &payload);
            assert!(a.send(&header, &frame));
            a.flush();
            let (got, bytes) = take(&mut b, 1).remove(0);
            assert_eq!(
                (got.flags, got.csum_start, got.csum_offset),
                (NEEDS_CSUM, header.csum_start, header.csum_offset)
            );
            assert!(bytes == frame && check(&bytes, true).payload == payload);
        }
        for (len, size) in [(65_000, 1400), (9000, 1440), (3000, 1000)] {
            let (header, frame) = segmented(kind, mac(2), mac(1), &noise(len as u64, len), size);
            assert!(a.send(&header, &frame));
            a.flush();
            let (got, bytes) = take(&mut b, 1).remove(0);
            assert!(bytes == frame, "{kind:?} of {len} bytes is unchanged");
            assert_eq!((got.gso_type, got.gso_size, got.flags), (header.gso_type, size, NEEDS_CSUM), "{kind:?}");
        }
    }
    rig.no_drops();
}

#[test]
fn a_tap_without_offloads_gets_segments_with_finished_checksums() {
    let Some(host) = Host::new("a_tap_without_offloads_gets_segments_with_finished_checksums") else { return };
    for (csum, tso) in [(false, false), (true, false), (true, true)] {
        let offloads = Offloads { csum, tso, uso: false };
        let mut segments = 0;
        let rig = bridged(&host, |tap| tap.offloads = offloads);
        let mut a = rig.guest(0, &options());
        let mut b = rig.guest(1, &options());
        for kind in Kind::ALL {
            let (header, frame) = partial(kind, mac(2), mac(1), &noise(7, 1000));
            assert!(a.send(&header, &frame));
            a.flush();
            let (got, bytes) = take(&mut b, 1).remove(0);
            assert_eq!(got.flags & NEEDS_CSUM != 0, offloads.csum, "{kind:?}");
            check(&bytes, offloads.csum);
            let payload = noise(8, 30_000);
            let (header, frame) = segmented(kind, mac(2), mac(1), &payload, 1400);
            assert!(a.send(&header, &frame));
            a.flush();
            // Our own side may coalesce the segments for the second guest.
            let mut parts = Vec::new();
            while parts.len() < payload.len() {
                let (told, bytes) = take_some(&mut b);
                let is_finished = (told.gso_type, told.flags) == (0, 0);
                assert!(offloads.csum || told.gso_type != 0 || is_finished, "{kind:?} with {offloads}: {told:?}");
                parts.extend(check(&bytes, told.flags & NEEDS_CSUM != 0).payload);
            }
            assert!(parts == payload, "{kind:?} with {offloads}");
            segments += if kind.is_tcp() && offloads.tso { 1 } else { payload.len().div_ceil(1400) };
        }
        let sent = rig.port(2).queues[0].tx.packets;
        assert_eq!(sent, segments as u64 + Kind::ALL.len() as u64, "with {offloads}");
        rig.no_drops();
        drop(rig);
        host.ip("link del br0");
    }
}

/// A driver may divide a packet into more pieces than one system call takes at once.
#[test]
fn a_packet_of_many_pieces_passes() {
    let Some(host) = Host::new("a_packet_of_many_pieces_passes") else { return };
    let rig = bridged(&host, |_| {});
    let mut a = rig.guest(0, &options());
    let mut b = rig.guest(1, &options());
    let (header, frame) = segmented(Kind::Tcp4, mac(2), mac(1), &noise(3, 20_000), 1400);
    let whole = [&header.to_bytes()[..], &frame].concat();
    for pieces in [2, 60, 63, 64, 65, 66, 100, 120] {
        let parts: Vec<_> = whole.chunks(whole.len().div_ceil(pieces)).collect();
        testing::wait_until("a buffer is free for each piece", || {
            a.flush();
            a.send_chain(&parts, false)
        });
        a.flush();
        let (told, bytes) = take(&mut b, 1).remove(0);
        assert!(bytes == frame && told.gso_type == header.gso_type, "{pieces} pieces");
    }
    rig.no_drops();
}

#[test]
fn several_queues_are_served_by_several_workers() {
    let Some(host) = Host::new("several_queues_are_served_by_several_workers") else { return };
    host.ip("link add br0 type bridge mcast_snooping 0");
    host.ip("link set br0 up");
    // A switch shares out the queues of its only patch, so each side is a switch of its own.
    let [left, right] = ["tapa", "tapb"].map(|name| {
        rig(1, |config| {
            config.switch.workers = vec![0, 1];
            testing::vhost_user(&mut config.ports[0]).queues = Some(2);
            let port = tap_with(name, |tap| {
                tap.bridge = Some("br0".to_owned());
                tap.queues = 2;
            });
            attach(config, 0, port);
        })
    });
    let options = GuestOptions { queue_pairs: 2, ..options() };
    let mut a = left.guest(0, &options);
    let mut b = right.guest(0, &options);
    let mut arrived = 0;
    for flow in 0..64_u16 {
        let (header, mut frame) = partial(Kind::Udp4, mac(2), mac(1), &noise(flow.into(), 500));
        frame[34..36].copy_from_slice(&(1000 + flow).to_be_bytes());
        let pair = &mut a.pairs()[usize::from(flow % 2)];
        assert!(pair.send(&header, &frame));
        pair.flush();
        testing::wait_until("the packet has arrived", || {
            arrived += b.pairs().iter_mut().map(|pair| pair.receive(usize::MAX, |_, _| ())).sum::<usize>();
            arrived == usize::from(flow) + 1
        });
    }
    left.no_drops();
    right.no_drops();
    let sent = left.port(1).queues;
    let received = right.port(1).queues;
    assert!(sent.len() == 2 && sent.iter().all(|queue| queue.tx.packets == 32), "{sent:?}");
    assert!(received.iter().all(|queue| queue.rx.packets > 0), "{received:?}");
}

/// A guest and the host's own UDP stack, which drops wrong checksums.
#[test]
fn the_host_itself_answers() {
    let Some(host) = Host::new("the_host_itself_answers") else { return };
    let rig = rig(1, |config| {
        let mut port = tap("host0");
        port.mac = Some("02:00:00:00:00:02".parse().expect("an address"));
        attach(config, 0, port);
    });
    std::fs::write("/proc/sys/net/ipv6/conf/host0/disable_ipv6", "0").expect("IPv6");
    host.ip("addr add 10.0.0.2/24 dev host0");
    host.ip("addr add fd00::2/64 dev host0 nodad");
    host.ip("neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev host0");
    host.ip("neigh add fd00::1 lladdr 02:00:00:00:00:01 dev host0");
    // Until then the kernel drops packets for this address (Ip6InAddrErrors).
    testing::wait_until("the host has the address", || host.ip("-6 route show table local").contains("local fd00::2 "));
    let mut guest = rig.guest(0, &options());
    for (kind, ours, theirs) in
        [(Kind::Udp4, "10.0.0.2:2000", "10.0.0.1:1000"), (Kind::Udp6, "[fd00::2]:2000", "[fd00::1]:1000")]
    {
        let socket = UdpSocket::bind(ours).expect("bound");
        socket.set_read_timeout(Some(testing::PATIENCE)).expect("a time-out");
        let mut buffer = [0; 70_000];
        let lost = |error: &std::io::Error| -> ! {
            let kernel = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
            let addresses = host.ip("-s addr show host0");
            panic!("no datagram of {kind:?}: {error}; {:?}; {addresses}; {kernel}", rig.port(1))
        };
        for len in [1, 200, 1400] {
            let payload = noise(len as u64, len);
            let (header, frame) = partial(kind, mac(2), mac(1), &payload);
            assert!(guest.send(&header, &frame));
            guest.flush();
            let (n, from) = socket.recv_from(&mut buffer).unwrap_or_else(|error| lost(&error));
            assert!(buffer[..n] == payload && from.to_string() == theirs, "{from}");
            socket.send_to(&payload, theirs).expect("sent");
            let (header, bytes) = take_udp(&mut guest);
            assert_eq!(header.flags, NEEDS_CSUM, "the host leaves the checksum to us");
            assert!(check(&bytes, true).payload == payload);
        }
        let payload = noise(9, 14_000);
        let (header, frame) = segmented(kind, mac(2), mac(1), &payload, 1400);
        assert!(guest.send(&header, &frame));
        guest.flush();
        for part in payload.chunks(1400) {
            let n = socket.recv(&mut buffer).unwrap_or_else(|error| lost(&error));
            assert!(buffer[..n] == *part);
        }
    }
    assert_eq!(rig.drops(0, "device-refused"), 0);
}

/// Takes the next packet; others may be behind it.
pub(crate) fn take_some(guest: &mut Guest) -> (NetHeader, Vec<u8>) {
    let level = guest.level();
    let mut packet = None;
    testing::wait_until("a packet has arrived", || {
        guest.receive(1, |header, parts| {
            let mut bytes = Vec::new();
            for part in parts {
                let at = bytes.len();
                bytes.resize(at + part.len() as usize, 0);
                part.read(level, &mut bytes[at..]);
            }
            packet = Some((*header, bytes));
        });
        packet.is_some()
    });
    packet.expect("it has arrived")
}

/// Takes the next UDP packet. The host also sends packets of its own, such as solicitations.
fn take_udp(guest: &mut Guest) -> (NetHeader, Vec<u8>) {
    loop {
        let (header, bytes) = take_some(guest);
        let is_udp = (bytes[12..14] == [8, 0] && bytes[23] == 17) || (bytes[12..14] == [0x86, 0xdd] && bytes[20] == 17);
        if is_udp {
            return (header, bytes);
        }
    }
}

/// Sends until a UDP datagram of the guest has reached the host.
fn reaches_host(guest: &mut Guest, socket: &UdpSocket) {
    let (header, frame) = partial(Kind::Udp4, mac(2), mac(1), b"reached");
    let mut buffer = [0; 100];
    socket.set_nonblocking(true).expect("an option");
    testing::wait_until("the host has got a datagram", || {
        guest.send(&header, &frame);
        guest.flush();
        testing::arrived(guest);
        socket.recv(&mut buffer).is_ok()
    });
}

fn give_address(host: &Host) {
    host.ip("addr replace 10.0.0.2/24 dev host0");
}

#[test]
fn a_tap_that_is_set_down_or_removed_comes_back() {
    let Some(host) = Host::new("a_tap_that_is_set_down_or_removed_comes_back") else { return };
    let rig = rig(1, |config| {
        let mut port = tap("host0");
        port.mac = Some("02:00:00:00:00:02".parse().expect("an address"));
        attach(config, 0, port);
    });
    let mut guest = rig.guest(0, &options());
    give_address(&host);
    let socket = UdpSocket::bind("0.0.0.0:2000").expect("bound");
    reaches_host(&mut guest, &socket);

    host.ip("link set host0 down");
    testing::wait_until("packets are dropped", || {
        let (header, frame) = partial(Kind::Udp4, mac(2), mac(1), b"lost");
        guest.send(&header, &frame);
        guest.flush();
        rig.drops(1, "link-down") > 0
    });
    host.ip("link set host0 up");
    give_address(&host);
    reaches_host(&mut guest, &socket);

    for _ in 0..3 {
        let before = rig.port(1).device.expect("a tap");
        host.ip("link del host0");
        testing::wait_until("the tap is made again", || {
            let (header, frame) = partial(Kind::Udp4, mac(2), mac(1), b"perhaps");
            guest.send(&header, &frame);
            guest.flush();
            let links = host.ip("link show");
            rig.port(1).device.is_some_and(|device| device.mac == before.mac) && links.contains("host0")
        });
        give_address(&host);
        reaches_host(&mut guest, &socket);
    }
}

/// One guest's memory vanishes while its packet is on its way to the tap. The packets of another
/// guest in the same batch pass.
#[test]
fn memory_that_vanishes_costs_only_its_own_packet() {
    use std::sync::Arc;

    use straightline_graph::{EpollWaiter, PortControl};
    use straightline_packet::{Arena, Batch, Drops, PortIndex, Rcu, Reason, Settings};
    use straightline_port::device::{DevicePort, DevicePortConfig, DeviceRequest, Devices, TapOffloads, TapRequest};
    use straightline_port::vhost_user::{VhostUser, VhostUserConfig};

    let Some(_host) = Host::new("memory_that_vanishes_costs_only_its_own_packet") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let rcu = Rcu::new();
    let drops = [0, 1, 2].map(|_| Arc::<Drops>::default());
    let waiter = || Arc::new(EpollWaiter::new().expect("epoll"));
    let path = |n: u16| dir.path().join(format!("p{n}"));
    let guest_ports = [0, 1].map(|n: u16| {
        let config = VhostUserConfig::new(format!("p{n}"), path(n));
        VhostUser::open(config, PortIndex(n), Arc::clone(&drops[usize::from(n)]), &rcu, waiter()).expect("a socket")
    });
    let request = TapRequest {
        name: "host0".to_owned(),
        queues: 1,
        mtu: 1500,
        mac: None,
        offloads: TapOffloads { csum: true, tso: true, uso: true },
        persist: false,
        owner: None,
        group: None,
        bridge: None,
    };
    let config =
        DevicePortConfig { name: "host".to_owned(), request: DeviceRequest::Tap(request), mtu: 1500, queues: 1 };
    let devices = Devices::direct().expect("devices");
    let tap = DevicePort::open(config, PortIndex(2), Arc::clone(&drops[2]), &rcu, waiter(), &devices).expect("a tap");
    for polls_first in [false, true] {
        let mut guests = [0, 1].map(|n| Guest::connect(&path(n), &GuestOptions::default()).expect("a guest"));
        for guest in &mut guests {
            for seed in 0..2 {
                assert!(guest.send(&NetHeader::default(), &testing::frame(mac(9), mac(1), 1000, seed)));
            }
            guest.flush();
        }
        testing::wait_until("all links are up", || guest_ports.iter().all(|port| port.status().up));
        let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.to_vec());
        let served = guest_ports.each_ref().map(|port| port.for_worker(0));
        let sent = tap.counters()[0].tx.packets.get();
        let vanished = drops[0].count(Reason::MemoryFault);
        arena.turn(|turn| {
            let mut batch = Batch::new();
            served.iter().for_each(|port| port.receive(turn, &mut batch, 1));
            assert_eq!(batch.len(), 2);
            rustix::fs::ftruncate(guests[0].file(), 0).expect("it is a file");
            if polls_first {
                // Polling the ring finds that the memory has vanished.
                served[0].receive(turn, &mut Batch::new(), 1);
            }
            tap.for_worker(0).deliver(turn, &batch, false);
        });
        assert_eq!(drops[0].count(Reason::MemoryFault) - vanished, 1, "counted for the guest");
        assert_eq!((tap.counters()[0].tx.packets.get() - sent, drops[2].total()), (1, 0));
        drop(guests);
        testing::wait_until("all links are down", || guest_ports.iter().all(|port| !port.status().up));
    }
}

/// TCP between two namespaces of the host. Each has a tap, and the taps are patched. One tap moves
/// to its namespace while it is open.
#[test]
fn tcp_passes_between_two_namespaces() {
    use std::hash::Hasher;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::channel;

    const BYTES: usize = 32 << 20;

    fn hash_of(stream: &mut TcpStream) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        let mut buffer = vec![0; 1 << 16];
        let mut left = BYTES;
        while left > 0 {
            let n = stream.read(&mut buffer).expect("bytes");
            assert!(n > 0, "{left} bytes are missing");
            // Byte by byte: a hash of parts would depend on how the stream is divided.
            buffer[..n].iter().for_each(|&byte| hasher.write_u8(byte));
            left -= n;
        }
        hasher.finish()
    }

    let test = "tcp_passes_between_two_namespaces";
    let Some(host) = Host::new(test) else { return };
    let rig = rig(0, |config| {
        let a = tap("tapa");
        let b = tap("tapb");
        let ports = [a.name.clone(), b.name.clone()];
        config.patches.push(PatchConfig { name: "taps".to_owned(), ports, full: WhenFull::Drop });
        config.ports.extend([a, b]);
    });
    let bytes = noise(1, BYTES);
    let mut hasher = std::hash::DefaultHasher::new();
    bytes.iter().for_each(|&byte| hasher.write_u8(byte));
    let expected = hasher.finish();
    let (tell, told) = channel();
    let (go, begin) = channel::<()>();
    std::thread::scope(|scope| {
        let bytes = &bytes;
        let rig = &rig;
        scope.spawn(move || {
            let other = Host::new(test).expect("the first namespace was possible");
            tell.send(rustix::thread::gettid().as_raw_nonzero()).expect("the test waits");
            begin.recv().expect("the tap is here");
            other.ip("link set tapb up");
            other.ip("addr add 10.0.0.2/24 dev tapb");
            let listener = TcpListener::bind("10.0.0.2:2000").expect("bound");
            tell.send(rustix::thread::gettid().as_raw_nonzero()).expect("the test waits");
            let (mut stream, _) = listener.accept().expect("a connection");
            assert_eq!(hash_of(&mut stream), expected);
            stream.write_all(bytes).expect("sent");
            // The other side closes once it has everything.
            assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
        });
        let thread = told.recv().expect("a thread");
        host.ip(&format!("link set tapb netns {thread}"));
        host.ip("addr add 10.0.0.1/24 dev tapa");
        go.send(()).expect("the thread waits");
        told.recv().expect("the thread listens");
        let mut stream = TcpStream::connect("10.0.0.2:2000").expect("a connection");
        stream.write_all(bytes).expect("sent");
        assert_eq!(hash_of(&mut stream), expected);
        // Large packets passed: far fewer than there are segments of 1448 bytes.
        let packets = rig.port(0).queues[0].rx.packets;
        assert!(packets < (BYTES / 1448 / 2) as u64, "{packets} packets");
    });
    assert_eq!(rig.drops(0, "device-refused") + rig.drops(1, "device-refused"), 0);
}

//! Packets of the kernel, by taps and packet sockets: any bytes that a descriptor may give. A
//! socket pair stands for the kernel: like a tap, it keeps the borders of packets.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use az::SaturatingAs;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use straightline_graph::{DeviceFacts, EpollWaiter, PortControl};
use straightline_packet::{
    Arena, Batch, Checksum, Drops, Gso, GsoKind, Offload, Outer, OuterChecksum, PacketId, PortIndex, Rcu, Reason,
    Settings, Turn,
};
use straightline_port::device::{
    AfPacketRequest, DevicePort, DevicePortConfig, DeviceRequest, Devices, OpenError, OpenedDevice, Opener,
    TapOffloads, TapRequest,
};
use straightline_virtio::features as f;

const ALL: u64 = f::VIRTIO_NET_F_CSUM
    | f::VIRTIO_NET_F_GUEST_CSUM
    | f::VIRTIO_NET_F_HOST_TSO4
    | f::VIRTIO_NET_F_HOST_TSO6
    | f::VIRTIO_NET_F_HOST_ECN
    | f::VIRTIO_NET_F_HOST_USO
    | f::VIRTIO_NET_F_GUEST_TSO4
    | f::VIRTIO_NET_F_GUEST_TSO6
    | f::VIRTIO_NET_F_GUEST_ECN
    | f::VIRTIO_NET_F_GUEST_USO4
    | f::VIRTIO_NET_F_GUEST_USO6;

const MTU: u16 = 1500;
const LONGEST: usize = 1518;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tap,
    AfPacket,
}

impl Kind {
    /// Bytes of the virtio-net header.
    fn header_len(self) -> usize {
        match self {
            Kind::Tap => 12,
            Kind::AfPacket => 10,
        }
    }
}

/// Opens a device whose only queue is a socket.
#[derive(Debug)]
struct SocketOpener {
    socket: Mutex<Option<OwnedFd>>,
    features: u64,
}

impl Opener for SocketOpener {
    fn open(&self, _: &DeviceRequest) -> Result<OpenedDevice, OpenError> {
        let fds = self.socket.lock().expect("no panic").take().into_iter().collect();
        // The loopback interface always exists.
        let facts = DeviceFacts { ifindex: 1, queues: 1, features: self.features, ..DeviceFacts::default() };
        Ok(OpenedDevice { facts, fds })
    }

    fn close(&self, _: &DeviceRequest) {}
}

/// A device port, and the other end of its socket.
struct Rig {
    port: DevicePort,
    kernel: OwnedFd,
    drops: Arc<Drops>,
    _devices: Arc<Devices>,
}

fn rig(kind: Kind, index: u16, features: u64, rcu: &Rcu) -> Rig {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (ours, kernel) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    // Four of the longest packets. The usual buffer takes three.
    set_socket_send_buffer_size(&kernel, 1 << 20).expect("a larger buffer");
    let request = match kind {
        Kind::Tap => DeviceRequest::Tap(TapRequest {
            name: "sl0".to_owned(),
            queues: 1,
            mtu: MTU,
            mac: None,
            offloads: TapOffloads { csum: true, tso: true, uso: true },
            persist: false,
            owner: None,
            group: None,
            bridge: None,
        }),
        Kind::AfPacket => DeviceRequest::AfPacket(AfPacketRequest { interface: "sl0".to_owned(), queues: 1 }),
    };
    let devices = Devices::new(Arc::new(SocketOpener { socket: Mutex::new(Some(ours)), features })).expect("devices");
    let drops = Arc::<Drops>::default();
    let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
    let config = DevicePortConfig { name: "p".to_owned(), request, mtu: MTU, queues: 1 };
    let port = DevicePort::open(config, PortIndex(index), Arc::clone(&drops), rcu, waiter, &devices).expect("a port");
    Rig { port, kernel, drops, _devices: devices }
}

/// A packet as the kernel gives it: the virtio-net header, then the frame.
fn packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(packet(), 0..40)
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        4 => 0..300_usize,
        2 => 300..1600_usize,
        1 => 1600..9000_usize,
        1 => 60_000..70_000_usize,
        1 => Just(LONGEST),
        1 => Just(LONGEST + 1),
    ];
    // Headers that mostly fit each other, so that checks behind the first are reached as well.
    let anything = (any::<u8>(), any::<u8>(), any::<u16>(), any::<u16>(), any::<(u8, u8)>());
    let right = prop::sample::select(vec![
        (1, 1, 34, 16, (4, 6)),
        (1, 4, 54, 16, (6, 6)),
        (1, 5, 34, 6, (4, 17)),
        (1, 5, 54, 6, (6, 17)),
        (1, 0, 34, 16, (4, 6)),
        (0, 0, 0, 0, (4, 17)),
        (2, 0, 0, 0, (6, 6)),
    ]);
    // One byte of the header or of the first headers of the packet may be wrong.
    let damage = prop::option::of((0..80_usize, any::<u8>()));
    let size = prop_oneof![3 => 500..1460_u16, 1 => any::<u16>()];
    (len, prop_oneof![4 => right, 1 => anything], size, damage, any::<u8>()).prop_map(
        |(len, (flags, gso, start, offset, (version, protocol)), size, damage, seed)| {
            let mut packet = vec![flags, gso, 0, 0];
            for word in [size, start, offset, 0] {
                packet.extend(u16::to_le_bytes(word));
            }
            let at = packet.len();
            packet.extend((0..=255_u8).map(|n| n.wrapping_mul(31).wrapping_add(seed)).cycle().take(len));
            let total = len.saturating_sub(14).saturating_as::<u16>().to_be_bytes();
            let headers: Vec<u8> = match version {
                4 => [&[8, 0, 0x45, 0][..], &total, &[0, 1, 0, 0, 64, protocol, 0, 0]].concat(),
                6 => [&[0x86, 0xdd, 0x60, 0, 0, 0][..], &total, &[protocol, 64]].concat(),
                _ => Vec::new(),
            };
            for (to, from) in packet[at..].iter_mut().skip(12).zip(headers) {
                *to = from;
            }
            // The length of a TCP header.
            let l4 = if version == 4 { 34 } else { 54 };
            if let (Some(byte), 6) = (packet.get_mut(at + l4 + 12), protocol) {
                *byte = 0x50;
            }
            if let Some((at, value)) = damage
                && let Some(byte) = packet.get_mut(at)
            {
                *byte = value;
            }
            packet
        },
    )
}

fn bytes_of(turn: &Turn<'_>, id: PacketId) -> Vec<u8> {
    let mut bytes = turn.head(id).to_vec();
    for segment in turn.body(id) {
        let at = bytes.len();
        bytes.resize(at + segment.len() as usize, 0);
        segment.read(turn.level(), &mut bytes[at..]);
    }
    bytes
}

/// Returns the packet as a kind of this header length gives it: with fewer bytes of the header.
fn given(kind: Kind, packet: &[u8]) -> Vec<u8> {
    [&packet[..kind.header_len()], &packet[12..]].concat()
}

/// Returns all packets that wait at the kernel's end.
fn sent(rig: &Rig) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut buffer = vec![0; 1 << 17];
    while let Ok((n, _)) = recv(&rig.kernel, &mut buffer[..], RecvFlags::empty()) {
        packets.push(buffer[..n].to_vec());
    }
    packets
}

/// Runs `packets` through a port with `from` offloads and out of a port with `to` offloads. Returns
/// the number of large packets that were accepted.
fn pass(kinds: [Kind; 2], from: u64, to: u64, packets: &[Vec<u8>]) -> u32 {
    let rcu = Rcu::new();
    let a = rig(kinds[0], 0, from, &rcu);
    let b = rig(kinds[1], 1, to, &rcu);
    let input = a.port.for_worker(0);
    let output = b.port.for_worker(0);
    let mut arena = Arena::new(rcu.reader(), Settings::default(), vec![Arc::clone(&a.drops), Arc::clone(&b.drops)]);
    let mut accepted = 0;
    let mut large = 0;
    let mut out = Vec::new();
    for some in packets.chunks(4) {
        for packet in some {
            send(&a.kernel, &given(kinds[0], packet), SendFlags::empty()).expect("space in the socket");
        }
        // An empty turn may make the port skip some.
        for _ in 0..64 {
            arena.turn(|turn| {
                let mut batch = Batch::new();
                input.receive(turn, &mut batch, 64);
                let before: Vec<_> = batch.ids().iter().map(|&id| (turn.offload(id), bytes_of(turn, id))).collect();
                output.deliver(turn, &batch, false);
                for (&id, (offload, bytes)) in batch.ids().iter().zip(before) {
                    assert!(some.iter().any(|packet| packet[12..] == bytes), "a packet is what came");
                    assert_eq!((turn.offload(id), bytes_of(turn, id)), (offload, bytes), "delivery changes nothing");
                    let asks = offload.gso.is_some() || matches!(offload.checksum, Checksum::Partial { .. });
                    assert!(from != 0 || !asks, "the kernel may not leave work to us: {offload:?}");
                    large += u32::from(offload.gso.is_some());
                    accepted += 1;
                }
            });
            out.extend(sent(&b));
        }
    }
    let lengths = packets.iter().map(|packet| packet.len() - 12);
    let runts = lengths.clone().filter(|&len| len < 14).count() as u64;
    assert_eq!(accepted + a.drops.total(), packets.len() as u64, "each is accepted or dropped: {:?}", a.drops);
    assert_eq!(a.drops.count(Reason::Runt), runts);
    let counters = b.port.counters()[0].clone();
    assert_eq!(counters.tx.packets.get(), out.len() as u64);
    assert_eq!(a.port.counters()[0].rx.packets.get(), accepted);
    let whole: BTreeMap<&[u8], ()> = packets.iter().map(|packet| (&packet[12..], ())).collect();
    for packet in &out {
        let (header, frame) = packet.split_at(kinds[1].header_len());
        let [flags, gso] = [header[0], header[1]];
        assert!(gso != 0 || frame.len() <= LONGEST, "{} bytes", frame.len());
        if to == 0 {
            assert_eq!((flags, gso), (0, 0), "the receiver takes no offload");
        } else if flags & 1 != 0 && to == ALL {
            assert!(whole.contains_key(frame), "an unfinished packet goes as it is");
        }
    }
    if to == ALL && from == ALL {
        assert_eq!(out.len() as u64 + b.drops.total(), accepted, "nothing is segmented");
    }
    large
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_packets_of_a_tap(packets in packets(), to_all: bool) {
        pass([Kind::Tap, Kind::Tap], ALL, if to_all { ALL } else { 0 }, &packets);
    }

    #[test]
    fn any_packets_of_a_packet_socket(packets in packets(), to_all: bool) {
        pass([Kind::AfPacket, Kind::AfPacket], ALL, if to_all { ALL } else { 0 }, &packets);
    }

    #[test]
    fn offloads_that_were_not_offered(packets in packets(), from_tap: bool) {
        let kinds = if from_tap { [Kind::Tap, Kind::AfPacket] } else { [Kind::AfPacket, Kind::Tap] };
        pass(kinds, 0, ALL, &packets);
    }
}

/// The property tests above are worth something only if they reach large packets.
#[test]
fn some_packets_are_large() {
    let mut runner = TestRunner::deterministic();
    let all: Vec<_> = (0..400).map(|_| packet().new_tree(&mut runner).expect("a packet").current()).collect();
    let large = all.chunks(40).map(|some| pass([Kind::Tap, Kind::Tap], ALL, 0, some)).sum::<u32>();
    assert!(large > 4, "{large} of {} packets", all.len());
}

/// The virtio-net header has no place for outer headers. So the kernel gets segments, although it
/// takes all offloads.
#[test]
fn outer_headers_reach_the_kernel_around_each_segment() {
    let rcu = Rcu::new();
    for kind in [Kind::Tap, Kind::AfPacket] {
        let rig = rig(kind, 0, ALL, &rcu);
        let port = rig.port.for_worker(0);
        // TCP over IPv4, and IPv6 with a protocol without checksum around it.
        let mut inner = [0; 254];
        (inner[12], inner[14], inner[23], inner[46]) = (8, 0x45, 6, 0x50);
        let mut front = [0; 54];
        (front[12], front[13], front[14], front[20]) = (0x86, 0xdd, 0x60, 115);
        let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 80, l3: 14, l4: 34, header_len: 54, outer: None };
        let offload = Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: Some(gso) };
        let mut arena = Arena::new(rcu.reader(), Settings::default(), vec![Arc::clone(&rig.drops)]);
        arena.turn(|turn| {
            let id = turn.accept_owned(PortIndex(0), &inner).expect("a free slot");
            turn.set_offload(id, offload);
            let outer = Outer { l3: 14, checksum: OuterChecksum::None, gtpu: None };
            turn.prepend_outer(id, &front, outer).expect("good headers");
            let mut batch = Batch::new();
            batch.push(id);
            port.deliver(turn, &batch, false);
        });
        let sent = sent(&rig);
        let segments: Vec<_> = sent.iter().map(|packet| packet.split_at(kind.header_len())).collect();
        assert_eq!(segments.len(), 3, "{:?}", rig.drops);
        for ((header, frame), payload) in segments.into_iter().zip([80, 80, 40_u8]) {
            // The inner checksum is left to the kernel.
            assert_eq!(header[..8], [1, 0, 0, 0, 0, 0, 54 + 34, 0], "{kind:?}");
            assert_eq!((frame.len(), frame[19]), (108 + usize::from(payload), 14 + 40 + payload), "{kind:?}");
        }
    }
}

#[test]
fn a_descriptor_that_takes_nothing_costs_its_packets() {
    let rcu = Rcu::new();
    for kind in [Kind::Tap, Kind::AfPacket] {
        let Rig { port, kernel, drops, _devices } = rig(kind, 0, ALL, &rcu);
        drop(kernel);
        let served = port.for_worker(0);
        let mut arena = Arena::new(rcu.reader(), Settings::default(), vec![Arc::clone(&drops)]);
        arena.turn(|turn| {
            let mut batch = Batch::new();
            batch.push(turn.accept_owned(PortIndex(0), &[0; 60]).expect("a free slot"));
            served.deliver(turn, &batch, false);
        });
        assert_eq!(drops.count(Reason::DeviceRefused), 1, "{drops:?}");
        assert_eq!(port.counters()[0].tx.packets.get(), 0);
    }
}

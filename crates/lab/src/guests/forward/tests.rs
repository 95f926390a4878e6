//! Tests of each mode with frames in one buffer and in several. The expected frames are built by a
//! reference implementation with the expected fields and checksums.

use etherparse::{
    ArpHardwareId, ArpOperation, ArpPacket, EtherType, NetSlice, PacketBuilder, SlicedPacket, TransportSlice, VlanId,
};
use straightline_guest::endpoints::{Endpoint, Received, Receiver, TestPort};
use straightline_guest::testing::Laid;
use straightline_virtio::net_header::NetHeader;

use super::csum::Csum;
use super::engine::Mode;
use super::five_tuple::FiveTupleSwap;
use super::flowgen::FlowGen;
use super::icmpecho::IcmpEcho;
use super::io::Io;
use super::mac::Mac;
use super::macswap::MacSwap;
use super::noisy::Noisy;
use super::options::{Noise, Spread};
use super::txonly::TxOnly;
use super::{own, peer};

/// Buffer lengths: the first buffer holds the entire frame, all headers, or only a part of the
/// headers.
const BUFFERS: [u32; 3] = [2048, 128, 76];

/// Addresses and ports of a frame: source, then destination.
#[derive(Clone, Copy)]
struct Ends {
    macs: [[u8; 6]; 2],
    hosts: [u8; 2],
    ports: [u16; 2],
}

const ENDS: Ends = Ends { macs: [[2, 0, 0, 0, 0, 0xaa], [2, 0, 0, 0, 0, 0xbb]], hosts: [1, 2], ports: [1000, 53] };

/// Applies the mode, which must forward the frame through port 1. Returns the changed frame.
fn done(mode: &mut impl Mode, frame: &[u8], buffer_len: u32) -> Vec<u8> {
    let laid = Laid::new(frame, &NetHeader::default(), buffer_len);
    assert!(mode.packet(&laid.packet(), 1));
    assert_eq!(laid.packet().header(), NetHeader::default());
    laid.frame()
}

/// Returns frames of every kind that modes examine, with these addresses and ports.
fn frames(Ends { macs: [src, dst], hosts: [a, b], ports: [from, to] }: Ends) -> [Vec<u8>; 6] {
    let payload: Vec<u8> = (0..101).collect();
    let v4 = |host| [10, 0, 0, host];
    let v6 = |host| [host; 16];
    let ethernet = || PacketBuilder::ethernet2(src, dst);
    let tagged = || ethernet().single_vlan(VlanId::try_new(7).expect("a VLAN"));
    let mut all: [Vec<u8>; 6] = Default::default();
    ethernet().ipv4(v4(a), v4(b), 64).udp(from, to).write(&mut all[0], &payload).expect("UDP");
    ethernet().ipv4(v4(a), v4(b), 64).tcp(from, to, 7, 99).write(&mut all[1], &payload).expect("TCP");
    ethernet().ipv6(v6(a), v6(b), 64).udp(from, to).write(&mut all[2], &payload).expect("UDP");
    tagged().ipv6(v6(a), v6(b), 64).tcp(from, to, 7, 99).write(&mut all[3], &payload).expect("TCP");
    tagged().ipv4(v4(a), v4(b), 64).udp(from, to).write(&mut all[4], &payload).expect("UDP");
    ethernet().ipv4(v4(a), v4(b), 64).icmpv4_echo_request(1, 2).write(&mut all[5], &payload).expect("ICMP");
    all
}

/// Checks that the mode turns each frame with the addresses and ports `ENDS` into the same frame
/// with these.
fn makes(mode: &mut impl Mode, ends: Ends) {
    for (kind, (frame, want)) in frames(ENDS).iter().zip(frames(ends)).enumerate() {
        for buffer_len in BUFFERS {
            assert!(done(mode, frame, buffer_len) == want, "frame {kind} in buffers of {buffer_len}");
        }
    }
}

fn swapped<T: Copy>([a, b]: [T; 2]) -> [T; 2] {
    [b, a]
}

#[test]
fn io_changes_nothing() {
    makes(&mut Io, ENDS);
}

#[test]
fn mac_writes_both_addresses() {
    makes(&mut Mac, Ends { macs: [own(1).0, peer(1).0], ..ENDS });
}

#[test]
fn macswap_swaps_them() {
    makes(&mut MacSwap, Ends { macs: swapped(ENDS.macs), ..ENDS });
}

#[test]
fn five_tuple_swap_swaps_addresses_and_ports() {
    let Ends { macs, hosts, ports } = ENDS;
    makes(&mut FiveTupleSwap, Ends { macs: swapped(macs), hosts: swapped(hosts), ports: swapped(ports) });
}

#[test]
fn frames_that_end_anywhere_are_borne() {
    let swap = |frame: &[u8]| done(&mut FiveTupleSwap, frame, 76);
    for frame in frames(ENDS) {
        for len in 0..frame.len() {
            let cut = &frame[..len];
            assert_eq!(swap(cut).len(), len);
            // A second swap undoes the first.
            assert!(swap(&swap(cut)) == cut, "{len} bytes of {frame:?}");
            for changed in [done(&mut MacSwap, cut, 76), done(&mut Mac, cut, 76)] {
                assert_eq!(changed.get(12..), cut.get(12..));
            }
        }
    }
}

#[test]
fn noise_touches_as_many_lines_as_it_says() {
    for (footprint, touches, packets, distinct) in [(64 * 100, 50, 100, 100), (64, 3, 2, 1), (1 << 20, 0, 5, 0)] {
        let mut noisy = Noisy::new(Noise { footprint, touches }).expect("a memory");
        for _ in 0..packets {
            assert_eq!(done(&mut noisy, &[7; 60], 2048), [7; 60]);
        }
        let notes = noisy.notes();
        let want = [footprint / 64, distinct, packets * u64::from(touches), packets];
        assert!(notes.iter().map(|note| note.1).eq(want), "{notes:?}");
    }
    for footprint in [0, 63, 1 << 40] {
        assert!(Noisy::new(Noise { footprint, touches: 1 }).is_err());
    }
}

/// Returns the mode's answer to a frame that came through port 1; `None` if the mode drops the
/// frame.
fn answer(mode: &mut impl Mode, frame: &[u8], buffer_len: u32) -> Option<Vec<u8>> {
    let laid = Laid::new(frame, &NetHeader::default(), buffer_len);
    mode.packet(&laid.packet(), 1).then(|| laid.frame())
}

#[test]
fn icmpecho_answers_echo_requests() {
    let Ends { macs: [a, b], .. } = ENDS;
    let payload: Vec<u8> = (0..200).collect();
    let mut echo = IcmpEcho::default();
    // Sequence numbers for which the checksum has a carry, and for which it has none.
    for number in [0, 1, 0x1234, 0xf000, 0xffff] {
        let mut request = Vec::new();
        let mut reply = Vec::new();
        let ethernet = PacketBuilder::ethernet2(a, b).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        ethernet.icmpv4_echo_request(7, number).write(&mut request, &payload).expect("a request");
        let ethernet = PacketBuilder::ethernet2(b, a).ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64);
        ethernet.icmpv4_echo_reply(7, number).write(&mut reply, &payload).expect("a reply");
        for buffer_len in BUFFERS {
            assert_eq!(answer(&mut echo, &request, buffer_len), Some(reply.clone()), "{number}");
            assert_eq!(answer(&mut echo, &reply, buffer_len), None);
        }
        for len in 0..38 {
            assert_eq!(answer(&mut echo, &request[..len], 2048), None, "{len}");
        }
    }
    for frame in &frames(ENDS)[..5] {
        assert_eq!(answer(&mut echo, frame, 2048), None);
    }
    assert_eq!(echo.notes(), [("ARP requests answered", 0), ("echo requests answered", 15)]);
}

#[test]
fn icmpecho_answers_arp_whoever_is_asked_for() {
    let arp = |operation, from: ([u8; 6], [u8; 4]), to: ([u8; 6], [u8; 4]), macs: [[u8; 6]; 2]| {
        let packet =
            ArpPacket::new(ArpHardwareId::ETHERNET, EtherType::IPV4, operation, &from.0, &from.1, &to.0, &to.1);
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(macs[0], macs[1]).arp(packet.expect("ARP")).write(&mut frame).expect("a frame");
        frame
    };
    let asker = ([2, 0, 0, 0, 0, 0xaa], [10, 0, 0, 1]);
    let us = (own(1).0, [10, 0, 0, 2]);
    let request = arp(ArpOperation::REQUEST, asker, ([0; 6], us.1), [asker.0, [0xff; 6]]);
    let reply = arp(ArpOperation::REPLY, us, asker, [us.0, asker.0]);
    let mut echo = IcmpEcho::default();
    for buffer_len in [2048, 76] {
        assert_eq!(answer(&mut echo, &request, buffer_len), Some(reply.clone()));
        assert_eq!(answer(&mut echo, &reply, buffer_len), None);
    }
    for len in 0..request.len().min(42) {
        assert_eq!(answer(&mut echo, &request[..len], 2048), None, "{len}");
    }
    assert_eq!(echo.notes()[0].1, 2);
}

/// Frames whose checksums were changed leave with their right checksums.
#[test]
fn csum_writes_what_should_be_and_counts_what_was_wrong() {
    let mut bad_ip = 0;
    let mut bad_l4 = 0;
    let mut csum = Csum::new();
    for (kind, frame) in frames(ENDS).iter().enumerate() {
        let sliced = SlicedPacket::from_ethernet(frame).expect("a frame");
        let at = |part: &[u8]| part.as_ptr().addr() - frame.as_ptr().addr();
        let ip = match &sliced.net {
            Some(NetSlice::Ipv4(v4)) => Some(at(v4.header().slice()) + 10),
            _ => None,
        };
        let l4 = match &sliced.transport {
            Some(TransportSlice::Udp(udp)) => Some(at(udp.slice()) + 6),
            Some(TransportSlice::Tcp(tcp)) => Some(at(tcp.slice()) + 16),
            _ => None,
        };
        for buffer_len in BUFFERS {
            // The frame as it is, and the frame with additional bytes at its end that no length
            // field includes.
            let padded = [&frame[..], &[9; 7]].concat();
            assert!(done(&mut csum, &padded, buffer_len) == padded, "frame {kind}");
            for (field, bad) in [(ip, &mut bad_ip), (l4, &mut bad_l4)] {
                let Some(field) = field else { continue };
                let mut wrong = padded.clone();
                wrong[field] ^= 0x55;
                assert!(done(&mut csum, &wrong, buffer_len) == padded, "frame {kind}, field at {field}");
                *bad += 1;
            }
        }
        for len in 0..frame.len() {
            assert_eq!(done(&mut csum, &frame[..len], 2048).len(), len);
        }
    }
    let notes = csum.notes();
    assert!(notes[0].1 >= bad_ip && bad_ip == 4 * 3, "{notes:?}");
    assert_eq!((notes[1].1, notes[2].1), (bad_l4, 0), "{notes:?}");
}

#[test]
fn csum_leaves_what_has_none_and_finishes_what_is_partial() {
    let mut csum = Csum::new();
    let [udp, tcp, ..] = frames(ENDS);
    let mut without = udp.clone();
    without[40..42].fill(0);
    assert!(done(&mut csum, &without, 2048) == without);
    // If the device will segment a packet or complete its checksum, the checksum field holds
    // another value.
    let mut partial = tcp.clone();
    partial[50..52].copy_from_slice(&[0xab, 0xcd]);
    let header = NetHeader { flags: 1, csum_start: 34, csum_offset: 16, ..NetHeader::default() };
    let laid = Laid::new(&partial, &NetHeader { gso_type: 1, gso_size: 20, ..header }, 2048);
    assert!(csum.packet(&laid.packet(), 1));
    assert!(laid.frame() == partial && laid.packet().header().gso_type == 1);
    let laid = Laid::new(&partial, &header, 76);
    assert!(csum.packet(&laid.packet(), 1));
    assert!(laid.frame() == tcp);
    assert_eq!(laid.packet().header(), NetHeader::default());
    assert!(csum.notes().iter().map(|note| note.1).eq([0, 0, 1]));
}

/// A port that keeps sent frames as a backend would see them: in buffers that hold templates.
#[derive(Default)]
struct Kept {
    free: usize,
    buffer: Vec<u8>,
    shown: Vec<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    waiting: usize,
}

impl TestPort for Kept {
    fn free_buffers(&mut self) -> usize {
        self.free
    }

    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
        if self.free == 0 {
            return false;
        }
        assert_eq!((template, *header), (0, NetHeader::default()));
        if self.buffer.is_empty() {
            self.buffer = frame.to_vec();
        }
        for (at, bytes) in patches {
            self.buffer[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.sent.push(self.buffer.clone());
        self.free -= 1;
        true
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.shown.append(&mut self.sent);
        Ok(())
    }

    fn receive(&mut self, most: usize, _each: &mut impl Receiver) -> anyhow::Result<usize> {
        let packets = self.waiting.min(most);
        self.waiting -= packets;
        Ok(packets)
    }
}

#[test]
fn txonly_sends_what_there_is_room_for_and_receives_nothing() {
    let ports = vec![Kept { free: 100, waiting: 5, ..Kept::default() }, Kept { free: 3, ..Kept::default() }];
    let mut txonly = TxOnly::new(ports, 100).expect("a frame");
    assert_eq!(txonly.turn(0).expect("a turn"), 64 + 3);
    assert_eq!(txonly.turn(0).expect("a turn"), 36);
    assert_eq!(txonly.turn(0).expect("a turn"), 0);
    for (number, port) in txonly.ports.iter().enumerate() {
        assert_eq!((port.shown.len(), port.waiting), ([100, 3][number], [5, 0][number]));
        for frame in &port.shown {
            let (ips, ports) = udp_ends(frame);
            assert_eq!((ips, ports), ([[198, 18, 0, 1], [198, 18, 0, 2]], [9, 9]));
            assert_eq!((frame.len(), &frame[..6], &frame[6..12]), (100, &peer(number).0[..], &own(number).0[..]));
        }
    }
    assert!(TxOnly::new(vec![Kept::default()], 41).is_err());
}

#[test]
fn flowgen_sends_to_one_after_the_other() {
    for flows in [1, 7, u16::MAX] {
        let port = Kept { free: 300, waiting: 10, ..Kept::default() };
        let mut flowgen = FlowGen::new(vec![port], 64, flows, Spread::Destinations).expect("a frame");
        assert_eq!(flowgen.turn(0).expect("a turn"), 74);
        while flowgen.turn(0).expect("a turn") > 0 {}
        let shown = &flowgen.ports[0].port.shown;
        assert_eq!(shown.len(), 300);
        for (number, frame) in shown.iter().enumerate() {
            let [_, _, high, low] = u32::try_from(number).expect("small").wrapping_rem(flows.into()).to_be_bytes();
            let (ips, ports) = udp_ends(frame);
            assert_eq!((ips, ports), ([[10, 254, 0, 0], [10, 253, high, low]], [1000, 1001]));
        }
    }
    assert!(FlowGen::new(vec![Kept::default()], 64, 0, Spread::Destinations).is_err());
}

#[test]
fn flowgen_spreads_flows_over_prefixes() {
    let kept = || Kept { free: 1 << 15, ..Kept::default() };
    let mut flowgen = FlowGen::new(vec![kept(), kept()], 64, u16::MAX, Spread::Prefixes).expect("a frame");
    while flowgen.turn(0).expect("a turn") > 0 {}
    let distances = |port: usize| -> std::collections::BTreeSet<[u32; 3]> {
        let zeros = |frame: &Vec<u8>| {
            let ([src, dst], [_, port]) = udp_ends(frame);
            let [src, dst] = [src, dst].map(u32::from_be_bytes);
            [src ^ 0x0afe_0000, dst ^ 0x0afd_0000, u32::from(port ^ 1001)].map(|bit: u32| {
                assert_eq!(bit.count_ones(), 1);
                bit.trailing_zeros()
            })
        };
        flowgen.ports[port].port.shown.iter().map(zeros).collect()
    };
    assert_eq!([distances(0).len(), distances(1).len()], [32 * 32 * 16, 1]);
}

/// Returns addresses and ports of a UDP frame, after checking its IPv4 checksum.
fn udp_ends(frame: &[u8]) -> ([[u8; 4]; 2], [u16; 2]) {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a frame");
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (&sliced.net, &sliced.transport) else {
        panic!("not UDP: {sliced:?}");
    };
    let header = ip.header().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    assert_eq!((usize::from(header.total_len), usize::from(udp.length())), (frame.len() - 14, frame.len() - 34));
    ([header.source, header.destination], [udp.source_port(), udp.destination_port()])
}

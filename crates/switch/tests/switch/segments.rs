//! Segmentation, byte by byte: each segment is compared with one that is built from its fields
//! alone, with anything before its network header, and with other receivers that get the packet
//! unsegmented.

use straightline_guest::{Guest, GuestOptions, Ring};
use straightline_testing::packets::{Kind, NEEDS_CSUM, TCPV4, TCPV6};
use straightline_testing::{self as testing, BASIC, Rig, bridge, mac, noise, patch, rig, take, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::{Descriptor, WRITE};
use straightline_wire::EtherType;
use straightline_wire::checksum;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;
use straightline_wire::vlan::Tag;

pub(crate) const CSUM: u64 = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM;
pub(crate) const SEND: u64 =
    f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_HOST_USO | f::VIRTIO_NET_F_HOST_ECN;
pub(crate) const TAKE: u64 = f::VIRTIO_NET_F_GUEST_TSO4
    | f::VIRTIO_NET_F_GUEST_TSO6
    | f::VIRTIO_NET_F_GUEST_USO4
    | f::VIRTIO_NET_F_GUEST_USO6
    | f::VIRTIO_NET_F_GUEST_ECN;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// virtio's mark of a packet with congestion marks (virtio 1.2, 5.1.6).
const GSO_ECN: u8 = 0x80;

pub(crate) fn guest(rig: &Rig, port: usize, features: u64) -> Guest {
    let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF | features;
    let guest =
        rig.guest(port, &GuestOptions { features, buffer_len: 65_600, ring_size: 128, ..GuestOptions::default() });
    assert_eq!(guest.features() & features, features);
    guest
}

/// A packet as its sender made it, from which all its segments follow.
#[derive(Clone)]
pub(crate) struct Packet {
    kind: Kind,
    tags: usize,
    ident: u16,
    pub(crate) seq: u32,
    flags: u8,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    pub(crate) fn new(kind: Kind, tags: usize, payload: Vec<u8>) -> Self {
        Packet { kind, tags, ident: 0xfffe, seq: 0xffff_f000, flags: ACK | PSH, payload }
    }

    fn l4_len(&self) -> u16 {
        if self.kind.is_tcp() { 20 } else { 8 }
    }

    /// Returns the unsegmented frame with its fields as they are, its transport checksum complete
    /// or `partial`.
    pub(crate) fn frame(&self, partial: bool) -> Vec<u8> {
        let tag = |tpid| Tag { tpid, pcp: 5, dei: false, vid: 77 };
        let tags = match self.tags {
            0 => [None, None],
            1 => [Some(tag(EtherType::VLAN)), None],
            _ => [Some(tag(EtherType::SERVICE_VLAN)), Some(tag(EtherType::VLAN))],
        };
        let net = match self.kind {
            Kind::Tcp4 | Kind::Udp4 => {
                Net::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), ident: self.ident, ttl: 3 }
            }
            Kind::Tcp6 | Kind::Udp6 => {
                let [src, dst] = [1, 2].map(|host| [0xfd00, 0, 0, 0, 0, 0, 0xffff, host].into());
                Net::V6 { src, dst, flow_label: 0x12345, hop_limit: 7 }
            }
        };
        let src_port = 50_001;
        let dst_port = 50_002;
        let transport = if self.kind.is_tcp() {
            Transport::Tcp {
                src_port,
                dst_port,
                seq: self.seq,
                ack: 0xfedc_ba98,
                flags: Flags(self.flags),
                window: 0x7210,
            }
        } else {
            Transport::Udp { src_port, dst_port }
        };
        let payload_len = u16::try_from(self.payload.len()).expect("an IP packet");
        let headers = Frame { src: mac(1), dst: mac(2), tags, net, transport, payload_len };
        let mut bytes = vec![0; headers.headers_len()];
        let complete = Checksum::Complete { payload_sum: checksum::sum(&self.payload) };
        headers.emit(&mut bytes, if partial { Checksum::Partial } else { complete }).expect("good headers");
        bytes.extend(&self.payload);
        bytes
    }

    /// Returns the header that asks for segments of `size`.
    pub(crate) fn header(&self, size: u16) -> NetHeader {
        let hdr_len = u16::try_from(self.frame(true).len() - self.payload.len()).expect("short");
        let csum_offset = if self.kind.is_tcp() { 16 } else { 6 };
        let ecn = if self.flags & CWR != 0 { GSO_ECN } else { 0 };
        NetHeader {
            flags: NEEDS_CSUM,
            gso_type: self.kind.gso_type() | ecn,
            hdr_len,
            gso_size: size,
            csum_start: hdr_len - self.l4_len(),
            csum_offset,
            num_buffers: 0,
        }
    }

    /// Returns the segments that a sender would have made itself.
    pub(crate) fn segments(&self, size: u16) -> Vec<Packet> {
        let count = self.payload.len().div_ceil(size.into());
        let mut segments = Vec::new();
        for (nth, payload) in self.payload.chunks(size.into()).enumerate() {
            let mut segment = Packet { payload: payload.to_vec(), ..self.clone() };
            segment.ident = self.ident.wrapping_add(u16::try_from(nth).expect("few"));
            segment.seq = self.seq.wrapping_add(u32::try_from(nth * usize::from(size)).expect("short"));
            if nth > 0 {
                segment.flags &= !CWR;
            }
            if nth + 1 < count {
                segment.flags &= !(FIN | PSH);
            }
            segments.push(segment);
        }
        segments
    }

    pub(crate) fn send(&self, from: &mut Guest, size: u16) {
        wait_until("a transmit buffer is free", || {
            from.flush();
            from.send(&self.header(size), &self.frame(true))
        });
        from.flush();
    }

    /// Checks what arrives at a guest with these features.
    pub(crate) fn arrives(&self, at: &mut Guest, size: u16) {
        let is_partial = at.features() & f::VIRTIO_NET_F_GUEST_CSUM != 0;
        let sent = self.header(size);
        if at.features() & TAKE == TAKE {
            let (header, frame) = take(at, 1).remove(0);
            let NetHeader { flags, csum_start, csum_offset, .. } = sent;
            let plain = NetHeader { flags, csum_start, csum_offset, ..NetHeader::default() };
            // A packet of one segment is plain.
            let told = if self.payload.len() > size.into() { sent } else { plain };
            assert_eq!(header, NetHeader { num_buffers: 1, ..told });
            assert!(frame == self.frame(true), "passed on unchanged");
            return;
        }
        let segments = self.segments(size);
        for ((header, frame), segment) in take(at, segments.len()).iter().zip(&segments) {
            let NetHeader { flags, csum_start, csum_offset, .. } = sent;
            let told = NetHeader { flags, csum_start, csum_offset, num_buffers: 1, ..NetHeader::default() };
            let told = if is_partial { told } else { NetHeader { num_buffers: 1, ..NetHeader::default() } };
            assert_eq!(*header, told);
            let expected = segment.frame(is_partial);
            assert!(*frame == expected, "{frame:x?}\nshould be\n{expected:x?}");
        }
    }
}

/// Payloads and sizes: odd, exact multiples, one byte more and less, and one segment alone.
const LENGTHS: [(usize, u16); 8] =
    [(4321, 999), (4200, 1400), (4201, 1400), (4199, 1400), (1000, 1000), (999, 1000), (1, 1000), (65_000, 1401)];

#[test]
fn pieces_are_what_a_sender_would_have_made_behind_any_tags() {
    for features in [0, CSUM, CSUM | TAKE] {
        let rig = rig(2, |config| config.patches.push(patch(0, 1)));
        let mut source = guest(&rig, 0, CSUM | SEND);
        let mut sink = guest(&rig, 1, features);
        for kind in Kind::ALL {
            for tags in 0..=2 {
                for (len, size) in LENGTHS {
                    let packet = Packet::new(kind, tags, noise(len as u64, len));
                    packet.send(&mut source, size);
                    packet.arrives(&mut sink, size);
                }
            }
        }
        rig.no_drops();
    }
}

#[test]
fn pieces_fill_as_many_buffers_as_they_need() {
    for sums in [0, CSUM] {
        // A segment and its header are 1066 bytes: one byte too few, exact, and others.
        for buffer_len in [100, 600, 1065, 1066, 1067] {
            let rig = rig(2, |config| config.patches.push(patch(0, 1)));
            let mut source = guest(&rig, 0, CSUM | SEND);
            let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF | sums;
            let options = GuestOptions { features, buffer_len, ring_size: 256, ..GuestOptions::default() };
            let mut sink = rig.guest(1, &options);
            for len in [1, 999, 1000, 1001, 9000, 15_500] {
                let packet = Packet::new(Kind::Tcp4, 0, noise(len as u64, len));
                packet.send(&mut source, 1000);
                let segments = packet.segments(1000);
                for ((header, frame), segment) in take(&mut sink, segments.len()).iter().zip(&segments) {
                    assert_eq!(usize::from(header.num_buffers), (12 + frame.len()).div_ceil(buffer_len as usize));
                    assert!(*frame == segment.frame(sums != 0));
                }
            }
            rig.no_drops();
        }
    }
}

#[test]
fn flags_belong_to_the_first_or_the_last_or_to_all() {
    for features in [CSUM, CSUM | TAKE, CSUM | TAKE & !f::VIRTIO_NET_F_GUEST_ECN] {
        let rig = rig(2, |config| config.patches.push(patch(0, 1)));
        let mut source = guest(&rig, 0, CSUM | SEND);
        let mut sink = guest(&rig, 1, features);
        for kind in [Kind::Tcp4, Kind::Tcp6] {
            for flags in [ACK, ACK | FIN, ACK | FIN | PSH, ACK | ECE, ACK | CWR, ACK | CWR | ECE | FIN | PSH] {
                let packet = Packet { flags, ..Packet::new(kind, 0, noise(flags.into(), 4000)) };
                packet.send(&mut source, 1000);
                // Without the mark, a receiver that accepts no marked packets gets it unsegmented.
                if features & TAKE != 0 && features & f::VIRTIO_NET_F_GUEST_ECN == 0 && flags & CWR == 0 {
                    let (header, frame) = take(&mut sink, 1).remove(0);
                    assert_eq!((header.gso_type, header.gso_size), (kind.gso_type(), 1000));
                    assert!(frame == packet.frame(true));
                } else {
                    packet.arrives(&mut sink, 1000);
                }
            }
        }
        rig.no_drops();
    }
}

#[test]
fn a_mark_that_was_not_agreed_on_is_refused() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = guest(&rig, 0, CSUM | SEND & !f::VIRTIO_NET_F_HOST_ECN);
    let _sink = guest(&rig, 1, CSUM | TAKE);
    for (n, gso_type) in [TCPV4 | GSO_ECN, TCPV6 | GSO_ECN].into_iter().enumerate() {
        let kind = if gso_type & !GSO_ECN == TCPV4 { Kind::Tcp4 } else { Kind::Tcp6 };
        let packet = Packet { flags: ACK | CWR, ..Packet::new(kind, 0, noise(1, 4000)) };
        packet.send(&mut source, 1000);
        rig.wait_drops(0, "bad-header", n as u64 + 1);
    }
}

/// A segment size below the length of the transport header is refused, an equal one is accepted. So
/// a packet has at most about 3275 segments of TCP, 8190 of UDP, and a turn's limit of descriptors
/// counts them.
#[test]
fn sizes_below_the_header_are_refused() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = guest(&rig, 0, CSUM | SEND);
    let mut sink = guest(&rig, 1, 0);
    let mut refused = 0;
    for kind in Kind::ALL {
        let packet = Packet::new(kind, 1, noise(7, 501));
        for size in [0, 1, 2, packet.l4_len() - 1] {
            packet.send(&mut source, size);
            refused += 1;
            rig.wait_drops(0, "segment-size", refused);
        }
        packet.send(&mut source, packet.l4_len());
        packet.arrives(&mut sink, packet.l4_len());
    }
}

#[test]
fn pieces_beyond_the_ring_are_each_counted() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = guest(&rig, 0, CSUM | SEND);
    let mut sink = guest(&rig, 1, 0);
    let packet = Packet::new(Kind::Tcp4, 0, noise(1, 65_495));
    packet.send(&mut source, 48);
    rig.wait_drops(1, "no-buffer", 1365 - 128);
    for ((_, frame), segment) in take(&mut sink, 128).iter().zip(packet.segments(48)) {
        assert!(*frame == segment.frame(false));
    }
}

/// After a packet that found no buffers, the following ones are not looked at either; each still
/// has its own drop reason, and counts as many segments as it would have had.
#[test]
fn packets_before_an_empty_ring_are_each_counted_for_what_they_are() {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.ports[0].mtu = 9000;
    });
    let mut source = guest(&rig, 0, CSUM | SEND);
    let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF;
    let _sink = rig.guest(1, &GuestOptions { features, withhold: true, ..GuestOptions::default() });
    let mut send = |header: &NetHeader, frame: &[u8]| assert!(source.send(header, frame));
    send(&NetHeader::default(), &testing::frame(mac(2), mac(1), 700, 1));
    send(&NetHeader::default(), &testing::frame(mac(2), mac(1), 5000, 2));
    let packet = Packet::new(Kind::Tcp4, 0, noise(1, 46 * 1000));
    send(&packet.header(1000), &packet.frame(true));
    send(&packet.header(8000), &packet.frame(true));
    source.flush();
    rig.wait_drops(1, "too-big", 2);
    rig.wait_drops(1, "no-buffer", 1 + 46);
}

/// The third buffer is invalid. The packet before it is delivered and counted. The packet that was
/// being segmented is dropped, and so is the one after it. The guest has received what was counted,
/// and no segment of a dropped packet.
#[test]
fn a_ring_that_breaks_between_two_pieces_is_given_what_is_counted() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = guest(&rig, 0, CSUM | SEND);
    let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF;
    let sink = rig.guest(1, &GuestOptions { features, withhold: true, ..GuestOptions::default() });
    for n in 0..3 {
        let addr = if n < 2 { sink.buffer_address(Ring::Receive, n) } else { u64::MAX - 0xffff };
        sink.write_descriptor(Ring::Receive, n, Descriptor { addr, len: 2048, flags: WRITE, next: 0 });
        sink.write_available(Ring::Receive, n, n);
    }
    sink.publish_index(Ring::Receive, 3);
    let packet = Packet::new(Kind::Tcp4, 0, noise(1, 4000));
    assert!(source.send(&NetHeader::default(), &testing::frame(mac(2), mac(1), 700, 1)));
    assert!(source.send(&packet.header(1000), &packet.frame(true)));
    assert!(source.send(&NetHeader::default(), &testing::frame(mac(2), mac(1), 700, 2)));
    source.flush();
    rig.wait_down(1, "the buffer at descriptor 2");
    assert_eq!(rig.port(1).queues[0].tx.packets, u64::from(sink.used_index(Ring::Receive)));
    assert_eq!((sink.used_index(Ring::Receive), rig.drops(1, "link-down")), (1, 2));
}

/// Ports of a bridge: the one that sends, one that accepts packets unsegmented, one that accepts
/// partial checksums, one that accepts neither.
fn lan(rig: &Rig) -> (Guest, [Guest; 3]) {
    let sink = |port, features| guest(rig, port, features);
    (guest(rig, 0, CSUM | SEND), [sink(1, CSUM | TAKE), sink(2, CSUM), sink(3, 0)])
}

#[test]
fn a_flooded_packet_is_cut_for_those_alone_who_do_not_take_it() {
    let rig = rig(4, |config| config.bridges.push(bridge(4)));
    let (mut source, mut sinks) = lan(&rig);
    for round in 0..3 {
        for kind in Kind::ALL {
            for (len, size) in LENGTHS {
                let packet = Packet::new(kind, round, noise(len as u64, len));
                packet.send(&mut source, size);
                sinks.iter_mut().for_each(|sink| packet.arrives(sink, size));
            }
        }
    }
    rig.no_drops();
}

#[test]
fn a_guest_without_room_for_pieces_takes_nothing_from_those_who_take_the_packet() {
    let rig = rig(4, |config| config.bridges.push(bridge(4)));
    let (mut source, [mut whole, mut partial, mut none]) = lan(&rig);
    // It has buffers for 2 packets of 46 segments and for a part of the third, and gives none back.
    none.withhold(true);
    let mut lost = 0;
    for nth in 0..6 {
        let packet = Packet::new(Kind::Tcp4, 0, noise(nth, 46 * 1400));
        packet.send(&mut source, 1400);
        packet.arrives(&mut whole, 1400);
        packet.arrives(&mut partial, 1400);
        if nth >= 2 {
            lost += if nth == 2 { 3 * 46 - 128 } else { 46 };
            rig.wait_drops(3, "no-buffer", lost);
        } else {
            packet.arrives(&mut none, 1400);
        }
    }
    assert_eq!(take(&mut none, 128 - 2 * 46).len(), 36);
    assert!((0..3).all(|port| rig.port(port).drops.is_empty()));
}

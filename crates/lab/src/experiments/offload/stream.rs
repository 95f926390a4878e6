//! The packets that a guest sends, and the check of received ones.
//!
//! They form one TCP stream in segments. The first four bytes of a segment's payload are its offset
//! in a cycle of 64 240 bytes. So a segment in another segment's place is detected. All other bytes
//! are noise without a period, and equal in all segments. So buffers are filled once. For each
//! packet only 20 bytes are written, from the sequence number to the end of the offset. All of
//! these are in the frame's first cache line.

use std::net::Ipv4Addr;

use anyhow::{Context, ensure};
use straightline_guest::endpoints::{Received, TestPort};
use straightline_guest::guest_mac;
use straightline_packet::Level;
use straightline_report::random::Random;
use straightline_simd::Sum;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::{IpProtocol, checksum, ipv4, tcp};

use super::{OffloadCase, Workload};
use crate::traffic::Sizes;

/// Payload of a packet of 1500 bytes, after 20 bytes of IPv4 header and 20 of TCP header.
const SEGMENT_PAYLOAD: usize = 1460;

/// The longest payload of entire segments that fits IPv4's length field. A guest gives its device
/// large packets with this payload.
const LARGE_PAYLOAD: usize = 44 * SEGMENT_PAYLOAD;

/// Bytes of Ethernet, IPv4 and TCP headers; offsets of the IPv4 and TCP headers, and of their
/// fields.
pub(in crate::experiments) const HEADERS: usize = 54;
const L3: usize = 14;
const L4: usize = 34;
const SEQ: usize = 38;
const CHECKSUM: usize = 50;

/// The bytes that differ between packets: the sequence number, the checksum, and the offset in the
/// cycle.
const STAMP: usize = 4;
const PATCH: usize = HEADERS + STAMP - SEQ;

/// A mix of the lengths of IMIX with a mean of 256 bytes, without the Ethernet checksum.
const MIX: &str = "60:8,566:1,1514:1";

/// Payload of a frame of 60 bytes.
const SMALL_PAYLOAD: usize = 6;

/// Bytes of the two MAC addresses of a frame.
const MACS: usize = 12;

/// Maximum numbers of frames and of large packets (of 44 segments) under way in one direction. A
/// ring has more buffers than that, so nothing is dropped.
const FRAMES: usize = 512;
const SEGMENTS: usize = 16;

/// Flags of the virtio-net header (virtio 1.2, 5.1.6.2). A finished checksum has no flag.
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;

/// The packets that one guest sends.
#[derive(Debug)]
pub(in crate::experiments) struct Stream {
    shapes: Vec<Shape>,
    /// The order of the shapes. The order repeats.
    order: Vec<usize>,
    at: usize,
    sums: Sums,
    level: Level,
    probe: Vec<u8>,
    from: u8,
    /// The packets take these in turn.
    lanes: u16,
    /// Number of sent packets, and bytes of their payload.
    pub(in crate::experiments) packets: u64,
    pub(in crate::experiments) payload: u64,
}

/// The source of a packet's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    /// The sender leaves the checksum to others.
    Left,
    /// The sender sums all bytes of each packet.
    Made,
    /// The checksum is known in advance, as if it came with the packet.
    Known,
}

/// Packets of one length.
#[derive(Debug)]
struct Shape {
    header: NetHeader,
    frame: Vec<u8>,
    payload: u64,
    patch: [u8; PATCH],
    /// Sums without the bytes that differ between packets: of the pseudo header and the headers,
    /// and of the payload.
    headers: u16,
    rest: u16,
}

/// Returns the payload lengths of a stream's packets, in an order that repeats. Large packets are
/// unsegmented or in segments.
fn lens(load: Workload, unsegmented: bool) -> anyhow::Result<Vec<usize>> {
    Ok(match load {
        Workload::Segments if unsegmented => vec![LARGE_PAYLOAD],
        Workload::Segments | Workload::Frames => vec![SEGMENT_PAYLOAD],
        Workload::Small => vec![SMALL_PAYLOAD],
        Workload::Mix => MIX.parse::<Sizes>()?.deal(1).iter().map(|&len| len as usize - HEADERS).collect(),
    })
}

/// Returns the length of the longest frame that is sent.
pub(in crate::experiments) fn longest(load: Workload, who: OffloadCase) -> anyhow::Result<usize> {
    Ok(HEADERS + lens(load, who.leaves())?.into_iter().max().unwrap_or(0))
}

/// Returns the maximum bytes of payload under way in one direction.
pub(in crate::experiments) fn window(load: Workload) -> anyhow::Result<usize> {
    let lens = lens(load, false)?;
    Ok(match load {
        Workload::Segments => SEGMENTS * LARGE_PAYLOAD,
        Workload::Frames | Workload::Mix | Workload::Small => FRAMES * lens.iter().sum::<usize>() / lens.len().max(1),
    })
}

/// Returns the payload of a segment; its first bytes are replaced by the offset.
fn noise() -> Vec<u8> {
    let mut random = Random::new(1);
    (0..SEGMENT_PAYLOAD).map(|_| random.next().to_le_bytes()[0]).collect()
}

/// Returns the bytes at the start of a segment at this offset of the stream: its offset in the
/// cycle.
fn stamp(offset: u64) -> [u8; STAMP] {
    sequence(offset % LARGE_PAYLOAD as u64)
}

/// Returns the sequence number of the byte at this offset of the stream. Sequence numbers wrap.
fn sequence(offset: u64) -> [u8; 4] {
    let [_, _, _, _, low @ ..] = offset.to_be_bytes();
    low
}

/// A packet that shows whether packets get through. Its checksum is not right, and nobody looks at
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::experiments) enum Probe {
    /// Further probes may follow.
    Early,
    /// No further probe follows.
    Last,
}

impl Probe {
    fn sequence(self) -> u32 {
        match self {
            Probe::Early => 1,
            Probe::Last => 2,
        }
    }

    /// Returns the probe in a received packet.
    pub(super) fn of(frame: &dyn Received) -> Option<Probe> {
        let mut sequence = [0; 4];
        let read = frame.read(SEQ, &mut sequence);
        [Probe::Early, Probe::Last].into_iter().find(|probe| read == 4 && probe.sequence().to_be_bytes() == sequence)
    }
}

/// Returns the lane of a packet.
fn lane(nth: u64, lanes: u16) -> u16 {
    u16::try_from(nth % u64::from(lanes.max(1))).unwrap_or(0)
}

/// Returns the lane of a frame with this destination.
pub(super) fn lane_of(dst: [u8; 6]) -> u16 {
    u16::from_be_bytes([dst[3], dst[4]])
}

/// Returns the MAC addresses of frames from guest 1 or 2 in a lane.
fn macs(from: u8, lane: u16) -> [u8; MACS] {
    let mut macs = [0; MACS];
    macs[..6].copy_from_slice(&guest_mac(3 - from, lane).0);
    macs[6..].copy_from_slice(&guest_mac(from, lane).0);
    macs
}

/// Returns the first packet of a stream, with this many bytes of payload.
fn frame(from: u8, payload: usize, checksum: Checksum) -> anyhow::Result<Vec<u8>> {
    let to = 3 - from;
    let flags = tcp::Flags::ACK;
    let headers = Frame {
        src: guest_mac(from, 0),
        dst: guest_mac(to, 0),
        tags: [None, None],
        net: Net::v4(Ipv4Addr::new(198, 18, 0, from), Ipv4Addr::new(198, 18, 0, to)),
        transport: Transport::Tcp { src_port: 1000, dst_port: 2000, seq: 0, ack: 1, flags, window: 1000 },
        payload_len: u16::try_from(payload)?,
    };
    let mut frame = vec![0; HEADERS + payload];
    headers.emit(&mut frame, checksum)?;
    let noise = noise();
    for (nth, segment) in (0..).zip(frame[HEADERS..].chunks_mut(SEGMENT_PAYLOAD)) {
        segment.copy_from_slice(&noise[..segment.len()]);
        segment[..STAMP].copy_from_slice(&stamp(nth * SEGMENT_PAYLOAD as u64));
    }
    Ok(frame)
}

/// Returns the virtio-net header of a frame of this length (virtio 1.2, 5.1.6.2). From a driver, it
/// requests a checksum and segmentation. From a device, it reports that these are still to be done.
fn asked(frame: usize, left: bool) -> anyhow::Result<NetHeader> {
    if !left {
        return Ok(NetHeader::default());
    }
    let flags = NEEDS_CSUM;
    let csum_start = u16::try_from(L4)?;
    let header = NetHeader { flags, csum_start, csum_offset: u16::try_from(tcp::CHECKSUM)?, ..NetHeader::default() };
    if frame <= HEADERS + SEGMENT_PAYLOAD {
        return Ok(header);
    }
    let gso_size = u16::try_from(SEGMENT_PAYLOAD)?;
    let hdr_len = u16::try_from(HEADERS)?;
    Ok(NetHeader { gso_type: GSO_TCPV4, gso_size, hdr_len, ..header })
}

impl Stream {
    /// Makes the stream from guest 1 or 2 to the other one.
    pub(in crate::experiments) fn new(load: Workload, who: OffloadCase, from: u8) -> anyhow::Result<Stream> {
        let lens = lens(load, who.leaves())?;
        let mut different = lens.clone();
        different.sort_unstable();
        different.dedup();
        let shapes = different.iter().map(|&payload| Shape::new(from, payload, who.leaves()));
        Ok(Stream {
            shapes: shapes.collect::<anyhow::Result<_>>()?,
            order: lens.iter().filter_map(|len| different.binary_search(len).ok()).collect(),
            at: 0,
            sums: match who {
                OffloadCase::Passed | OffloadCase::Switch | OffloadCase::Coalesced => Sums::Left,
                OffloadCase::Guest => Sums::Made,
                OffloadCase::Nobody => Sums::Known,
            },
            level: Level::detect(),
            probe: frame(from, SMALL_PAYLOAD, Checksum::Zero)?,
            from,
            lanes: 1,
            packets: 0,
            payload: 0,
        })
    }

    /// Divides the stream into this many lanes, which its packets take in turn. Each lane has MAC
    /// addresses of its own.
    #[must_use]
    pub(in crate::experiments) fn in_lanes(mut self, lanes: u16) -> Stream {
        self.lanes = lanes.max(1);
        self
    }

    /// Puts a probe into a port, which is no part of the stream. Returns false if the port has no
    /// free buffer.
    pub(in crate::experiments) fn probe<P: TestPort>(&self, port: &mut P, probe: Probe) -> bool {
        port.send(self.shapes.len(), &NetHeader::default(), &self.probe, &[(SEQ, &probe.sequence().to_be_bytes())])
    }

    /// Puts the next packet into a port; returns false if the port has no free buffer.
    #[inline]
    pub(in crate::experiments) fn send<P: TestPort>(&mut self, port: &mut P) -> bool {
        let which = self.order[self.at];
        let shape = &self.shapes[which];
        let sequence = sequence(self.payload);
        let stamp = stamp(self.payload);
        let mut patch = shape.patch;
        patch[..4].copy_from_slice(&sequence);
        patch[PATCH - STAMP..].copy_from_slice(&stamp);
        if self.sums != Sums::Left {
            let mut sum = Sum::new();
            if self.sums == Sums::Made {
                straightline_simd::sum(self.level, &shape.frame[HEADERS + STAMP..], &mut sum);
            } else {
                sum.add_u16(shape.rest);
            }
            // The bytes summed so far have an even length, so these words are aligned as in the
            // packet.
            let words =
                [&sequence, &stamp].map(|bytes| u32::from_be_bytes(*bytes)).map(|two| (two >> 16) + (two & 0xffff));
            sum.add_u32(u32::from(shape.headers) + words[0] + words[1]);
            patch[CHECKSUM - SEQ..][..2].copy_from_slice(&sum.finish().to_be_bytes());
        }
        let is_sent = if self.lanes > 1 {
            let macs = macs(self.from, lane(self.packets, self.lanes));
            port.send(which, &shape.header, &shape.frame, &[(SEQ, &patch), (0, &macs)])
        } else {
            port.send(which, &shape.header, &shape.frame, &[(SEQ, &patch)])
        };
        if !is_sent {
            return false;
        }
        self.packets += 1;
        self.payload += shape.payload;
        self.at = if self.at + 1 < self.order.len() { self.at + 1 } else { 0 };
        true
    }
}

impl Shape {
    fn new(from: u8, payload: usize, left: bool) -> anyhow::Result<Shape> {
        let zero = frame(from, payload, Checksum::Zero)?;
        let ip = ipv4::Header::new_checked(&zero[L3..])?;
        let pseudo = ip.pseudo_header_sum(u16::try_from(zero.len() - L4)?);
        let headers = checksum::add(pseudo, checksum::sum(&zero[L4..HEADERS]));
        let rest = checksum::sum(&zero[HEADERS + STAMP..]);
        let frame = if left { frame(from, payload, Checksum::Partial)? } else { zero };
        let patch = frame.get(SEQ..SEQ + PATCH).and_then(|bytes| bytes.try_into().ok()).context("too short a frame")?;
        let header = asked(frame.len(), left)?;
        Ok(Shape { header, frame, payload: u64::try_from(payload)?, patch, headers, rest })
    }
}

/// A description of the stream that the other guest must receive.
#[derive(Debug)]
pub(in crate::experiments) struct Proof {
    /// The headers of any packet.
    headers: Vec<u8>,
    noise: Vec<u8>,
    /// Payload lengths, in an order that repeats. `left` tells whether packets arrive with partial
    /// checksums and unsegmented.
    lens: Vec<usize>,
    left: bool,
    /// True if packets arrive in lengths that are not known: the switch coalesces segments.
    coalesced: bool,
    from: u8,
    lanes: u16,
}

impl Proof {
    /// Makes the description of guest 1's or 2's stream.
    pub(in crate::experiments) fn new(load: Workload, who: OffloadCase, from: u8) -> anyhow::Result<Proof> {
        let left = who == OffloadCase::Passed;
        let coalesced = who == OffloadCase::Coalesced && load == Workload::Segments;
        let lens = lens(load, left || coalesced)?;
        Ok(Proof { headers: frame(from, 0, Checksum::Zero)?, noise: noise(), lens, left, coalesced, from, lanes: 1 })
    }

    /// Expects the stream in this many lanes.
    #[must_use]
    pub(in crate::experiments) fn in_lanes(mut self, lanes: u16) -> Proof {
        self.lanes = lanes.max(1);
        self
    }

    /// Returns the number of lanes.
    pub(super) fn lanes(&self) -> u16 {
        self.lanes
    }

    /// Returns the place in the stream of a packet: its number, and the offset of its payload. It
    /// is packet number `nth` of its lane. A stream in lanes has packets of one length.
    pub(super) fn place(&self, lane: u16, nth: u64) -> (u64, u64) {
        let number = nth * u64::from(self.lanes) + u64::from(lane);
        (number, number * self.lens.first().map_or(0, |&len| len as u64))
    }

    /// Returns the length that packet number `nth` should have, and whether its checksum is left to
    /// others.
    fn expected(&self, nth: u64, header: &NetHeader, frame: &[u8]) -> anyhow::Result<(usize, bool)> {
        if !self.coalesced {
            return Ok((HEADERS + self.lens[usize::try_from(nth % self.lens.len() as u64)?], self.left));
        }
        let payload = frame.len().saturating_sub(HEADERS);
        ensure!(
            payload > 0 && payload.is_multiple_of(SEGMENT_PAYLOAD) && payload <= LARGE_PAYLOAD,
            "the packet has {payload} bytes of payload; expected segments of {SEGMENT_PAYLOAD} bytes"
        );
        // A segment that was not coalesced arrives as it was sent by the wire: finished.
        Ok((frame.len(), payload > SEGMENT_PAYLOAD || header.flags & NEEDS_CSUM != 0))
    }

    /// Returns the length of the longest frame that is expected.
    pub(in crate::experiments) fn longest(&self) -> usize {
        HEADERS + self.lens.iter().copied().max().unwrap_or(0)
    }

    /// Checks every byte and all checksums of a received packet. It is packet number `nth`, and its
    /// payload is at this offset of the stream.
    pub(in crate::experiments) fn check(
        &self,
        nth: u64,
        offset: u64,
        header: &NetHeader,
        frame: &[u8],
    ) -> anyhow::Result<()> {
        let (len, left) = self.expected(nth, header, frame)?;
        ensure!(frame.len() == len, "the packet has {} bytes; expected {len}", frame.len());
        let asked = asked(len, left)?;
        let says = |header: &NetHeader| {
            let NetHeader { flags, gso_type, gso_size, csum_start, csum_offset, .. } = *header;
            [flags.into(), gso_type.into(), gso_size, csum_start, csum_offset]
        };
        ensure!(says(header) == says(&asked), "the packet's virtio-net header is {header:?}; expected {asked:?}");
        let ip = ipv4::Header::new_checked(&frame[L3..])?;
        ensure!(ip.checksum_ok(), "the packet's IPv4 header checksum is wrong");
        ensure!(
            usize::from(ip.total_len()) == len - L3,
            "the packet's IPv4 header has the total length {}",
            ip.total_len()
        );
        let should = macs(self.from, lane(nth, self.lanes));
        ensure!(
            frame[..MACS] == should,
            "the packet's MAC addresses are {:02x?}; expected {should:02x?}",
            &frame[..MACS]
        );
        // All other bytes except lengths, identification, checksums and the sequence number.
        for same in [MACS..16, 20..24, 26..SEQ, SEQ + 4..CHECKSUM, CHECKSUM + 2..HEADERS] {
            let is = &frame[same.clone()];
            let should = &self.headers[same.clone()];
            ensure!(is == should, "bytes {same:?} of the packet's headers are {is:02x?}; expected {should:02x?}");
        }
        let is = u32::from_be_bytes([frame[SEQ], frame[SEQ + 1], frame[SEQ + 2], frame[SEQ + 3]]);
        let should = u32::from_be_bytes(sequence(offset));
        ensure!(is == should, "the packet's sequence number is {is}; expected {should}");
        let pseudo = checksum::pseudo_header_v4(ip.src(), ip.dst(), IpProtocol::TCP, u16::try_from(len - L4)?);
        let is_right = if left {
            frame[CHECKSUM..CHECKSUM + 2] == pseudo.to_be_bytes()
        } else {
            checksum::add(pseudo, checksum::sum(&frame[L4..])) == 0xffff
        };
        ensure!(is_right, "the packet's TCP checksum is wrong");
        for (nth, segment) in (0..).zip(frame[HEADERS..].chunks(SEGMENT_PAYLOAD)) {
            let at = nth * SEGMENT_PAYLOAD as u64;
            ensure!(segment[..STAMP] == stamp(offset + at), "another segment is at byte {at} of the packet's payload");
            let is_same = segment[STAMP..] == self.noise[STAMP..segment.len()];
            ensure!(
                is_same,
                "its payload differs from what was sent, in the {SEGMENT_PAYLOAD} bytes from byte {at} \
             on"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{SlicedPacket, TransportSlice};

    use super::*;
    use straightline_guest::endpoints::Receiver;

    /// Receives each packet in one buffer.
    #[derive(Default)]
    struct Sink(Vec<(NetHeader, Vec<u8>)>);

    impl TestPort for Sink {
        fn free_buffers(&mut self) -> usize {
            usize::MAX
        }

        fn send(&mut self, _: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
            let mut frame = frame.to_vec();
            patches.iter().for_each(|&(at, bytes)| frame[at..at + bytes.len()].copy_from_slice(bytes));
            self.0.push((*header, frame));
            true
        }

        fn flush(&mut self) -> anyhow::Result<()> {
            Ok(())
        }

        fn receive(&mut self, _: usize, _: &mut impl Receiver) -> anyhow::Result<usize> {
            Ok(0)
        }
    }

    /// Returns the next packets of a stream, each with its offset.
    fn packets(stream: &mut Stream, count: usize) -> Vec<(u64, NetHeader, Vec<u8>)> {
        let mut sink = Sink::default();
        let mut offsets = Vec::new();
        for _ in 0..count {
            offsets.push(stream.payload);
            assert!(stream.send(&mut sink));
        }
        offsets.into_iter().zip(sink.0).map(|(offset, (header, frame))| (offset, header, frame)).collect()
    }

    /// The cases in which packets arrive as they were sent.
    const UNSEGMENTED: [(Workload, OffloadCase); 9] = [
        (Workload::Small, OffloadCase::Nobody),
        (Workload::Frames, OffloadCase::Passed),
        (Workload::Frames, OffloadCase::Guest),
        (Workload::Segments, OffloadCase::Passed),
        (Workload::Segments, OffloadCase::Guest),
        (Workload::Mix, OffloadCase::Passed),
        (Workload::Mix, OffloadCase::Guest),
        (Workload::Mix, OffloadCase::Nobody),
        (Workload::Frames, OffloadCase::Nobody),
    ];

    #[test]
    fn what_is_sent_is_what_should_come() {
        for (load, who) in UNSEGMENTED {
            let mut stream = Stream::new(load, who, 1).expect("a stream");
            let proof = Proof::new(load, who, 1).expect("a proof");
            // Sequence numbers wrap.
            stream.payload =
                (u64::from(u32::MAX) + 1).next_multiple_of(LARGE_PAYLOAD as u64) - 10 * LARGE_PAYLOAD as u64;
            for (nth, (offset, header, frame)) in (0..).zip(packets(&mut stream, 700)) {
                let found = proof.check(nth, offset, &header, &frame);
                found.unwrap_or_else(|why| panic!("{load:?} {who:?} {nth}: {why}"));
                assert!(frame.len() <= proof.longest() && frame.len() <= longest(load, who).expect("a length"));
                assert!(who == OffloadCase::Passed || strangers_find_it_right(&frame), "{load:?} {who:?} {nth}");
            }
        }
    }

    fn strangers_find_it_right(frame: &[u8]) -> bool {
        let packet = SlicedPacket::from_ethernet(frame).expect("a packet");
        let (Some(etherparse::NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) = (packet.net, packet.transport)
        else {
            return false;
        };
        let header = ip.header().to_header();
        let sum = tcp.to_header().calc_checksum_ipv4(&header, tcp.payload()).expect("a checksum");
        header.header_checksum == header.calc_header_checksum() && sum == tcp.checksum()
    }

    #[test]
    fn no_byte_may_be_another() {
        for (load, who) in UNSEGMENTED {
            let mut stream = Stream::new(load, who, 2).expect("a stream");
            let proof = Proof::new(load, who, 2).expect("a proof");
            let step = if stream.shapes.iter().any(|shape| shape.frame.len() > 2000) { 997 } else { 1 };
            for (nth, (offset, header, frame)) in (0..).zip(packets(&mut stream, 12)) {
                for at in (0..HEADERS + 8).chain((HEADERS..frame.len()).step_by(step)).filter(|&at| at < frame.len()) {
                    let mut other = frame.clone();
                    other[at] ^= 0x40;
                    assert!(proof.check(nth, offset, &header, &other).is_err(), "{load:?} {who:?} byte {at}");
                }
                for other in [&frame[..frame.len() - 1], &[&frame[..], &[0]].concat(), &[]] {
                    assert!(proof.check(nth, offset, &header, other).is_err());
                }
                let at_another_place = proof.check(nth, offset + SEGMENT_PAYLOAD as u64, &header, &frame);
                assert!(at_another_place.expect_err("another place").to_string().contains("sequence number"));
                for wrong in [NetHeader { flags: header.flags ^ 1, ..header }, NetHeader { gso_type: 4, ..header }] {
                    assert!(proof.check(nth, offset, &wrong, &frame).is_err());
                }
            }
        }
    }

    #[test]
    fn a_stream_in_lanes_has_addresses_and_an_order_in_each() {
        const LANES: u16 = 7;
        let load = Workload::Small;
        let who = OffloadCase::Nobody;
        let mut stream = Stream::new(load, who, 1).expect("a stream").in_lanes(LANES);
        let proof = Proof::new(load, who, 1).expect("a proof").in_lanes(LANES);
        let mut counts = [0; LANES as usize];
        let all = packets(&mut stream, 100);
        // All packets of a lane come before those of the next one.
        for lane in 0..LANES {
            for (_, header, frame) in all.iter().skip(lane.into()).step_by(LANES.into()) {
                assert_eq!(lane_of(frame[..6].try_into().expect("an address")), lane);
                let count = &mut counts[usize::from(lane)];
                let (nth, offset) = proof.place(lane, *count);
                *count += 1;
                proof.check(nth, offset, header, frame).expect("its place in its lane");
                assert!(strangers_find_it_right(frame));
                assert!(proof.check(nth + 1, offset, header, frame).is_err(), "another lane");
                assert!(proof.check(nth, offset + 6, header, frame).is_err(), "another place");
            }
        }
        assert_eq!(counts.iter().sum::<u64>(), 100);
    }

    #[test]
    fn coalesced_packets_may_have_any_number_of_segments() {
        let load = Workload::Segments;
        let who = OffloadCase::Coalesced;
        let mut stream = Stream::new(load, who, 1).expect("a stream");
        let proof = Proof::new(load, who, 1).expect("a proof");
        let (_, header, large) = packets(&mut stream, 1).remove(0);
        assert_eq!(proof.longest(), large.len());
        proof.check(5, 0, &header, &large).expect("as large as it was sent");
        // Another stream has the same bytes in single segments.
        let mut segments = Stream::new(Workload::Frames, OffloadCase::Guest, 1).expect("a stream");
        let frames = packets(&mut segments, 3);
        for (offset, header, frame) in &frames {
            proof.check(0, *offset, header, frame).expect("a segment by itself");
        }
        // Two of them in one packet.
        let two = [&large[..HEADERS], &large[HEADERS..][..2 * SEGMENT_PAYLOAD]].concat();
        let payload = u16::try_from(2 * SEGMENT_PAYLOAD).expect("a length");
        let mut expected = frame(1, payload.into(), Checksum::Partial).expect("a frame");
        expected[HEADERS..].copy_from_slice(&two[HEADERS..]);
        proof.check(0, 0, &header, &expected).expect("two segments");
        assert!(proof.check(0, 0, &NetHeader::default(), &expected).is_err(), "an unfinished checksum without a flag");
        let part = &expected[..expected.len() - 1];
        assert!(proof.check(0, 0, &header, part).is_err(), "a part of a segment");
    }

    #[test]
    fn pieces_that_change_places_are_found() {
        let mut stream = Stream::new(Workload::Segments, OffloadCase::Passed, 1).expect("a stream");
        let proof = Proof::new(Workload::Segments, OffloadCase::Passed, 1).expect("a proof");
        let (offset, header, mut frame) = packets(&mut stream, 1).remove(0);
        let (a, b) = frame[HEADERS..].split_at_mut(7 * SEGMENT_PAYLOAD);
        a[3 * SEGMENT_PAYLOAD..4 * SEGMENT_PAYLOAD].swap_with_slice(&mut b[..SEGMENT_PAYLOAD]);
        let why = proof.check(0, offset, &header, &frame).expect_err("two have changed places").to_string();
        assert!(why.contains("another segment") && why.contains("byte 4380 "), "{why}");
    }

    #[test]
    fn the_mix_averages_256_bytes_and_fits_a_ring() {
        let sizes: Sizes = MIX.parse().expect("sizes");
        assert!((sizes.mean(1) - 256.0).abs() < 1e-9, "{}", sizes.mean(1));
        let lens = lens(Workload::Mix, false).expect("lengths");
        let window = window(Workload::Mix).expect("a window");
        let mut most = 0;
        for first in 0..lens.len() {
            let mut sum = 0;
            let under_way = lens.iter().cycle().skip(first).take_while(|&&len| {
                sum += len;
                sum - len < window
            });
            most = most.max(under_way.count());
        }
        assert!((FRAMES..1024).contains(&most), "{most} packets");
        assert_eq!(window % (lens.iter().sum::<usize>() / lens.len()), 0);
        assert!(self::window(Workload::Segments).expect("a window") / SEGMENT_PAYLOAD + 44 < 1024);
    }
}

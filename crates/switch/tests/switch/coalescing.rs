//! Coalescing: segments and datagrams that a sender made itself arrive as the packet that they are,
//! at a guest that takes such packets. Everything else arrives byte by byte as it was sent.

use straightline_config::{PatchConfig, WhenFull};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::packets::{Kind, NEEDS_CSUM, check};
use straightline_testing::{self as testing, BASIC, Rig, mac, noise, patch, rig, take, vhost_user, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

use crate::segments::{CSUM, Packet, TAKE, guest};

const USO: u64 = f::VIRTIO_NET_F_GUEST_USO4 | f::VIRTIO_NET_F_GUEST_USO6;

/// The state of a sender's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    Partial,
    Finished,
}

impl Sums {
    const BOTH: [Sums; 2] = [Sums::Partial, Sums::Finished];

    /// Returns a segment as it is sent, with its header.
    fn of(self, segment: &Packet) -> (NetHeader, Vec<u8>) {
        match self {
            Sums::Partial => (NetHeader { gso_type: 0, gso_size: 0, ..segment.header(0) }, segment.frame(true)),
            Sums::Finished => (NetHeader::default(), segment.frame(false)),
        }
    }
}

/// Sends packets, which the switch sees all at once.
fn send_burst<'a>(from: &mut Guest, packets: impl IntoIterator<Item = &'a (NetHeader, Vec<u8>)>) {
    for (header, frame) in packets {
        assert!(from.send(header, frame));
    }
    from.flush();
}

/// Sends the segments of a packet, which the switch sees all at once.
fn send_split(from: &mut Guest, packet: &Packet, size: u16, sums: Sums) {
    send_burst(from, &packet.segments(size).iter().map(|segment| sums.of(segment)).collect::<Vec<_>>());
}

fn patched() -> Rig {
    rig(2, |config| {
        config.ports.iter_mut().for_each(|port| vhost_user(port).packed = true);
        config.patches.push(patch(0, 1));
    })
}

#[test]
fn segments_of_a_burst_arrive_as_the_packet_that_they_are() {
    let rings = [0, f::VIRTIO_F_RING_PACKED];
    for (features, packed) in [0, CSUM, CSUM | TAKE, CSUM | TAKE & !USO].into_iter().zip(rings.into_iter().cycle()) {
        let rig = patched();
        let mut source = guest(&rig, 0, CSUM | packed);
        let mut sink = guest(&rig, 1, features | packed);
        let mut sent = 0;
        let mut got = 0;
        for (kind, sums) in Kind::ALL.into_iter().flat_map(|kind| Sums::BOTH.map(|sums| (kind, sums))) {
            let uso = if kind.is_tcp() { 0 } else { USO };
            let takes = features & TAKE != 0 && features & uso == uso;
            for tags in 0..=2 {
                for (len, size) in [(4321, 999), (4200, 1400), (65_000, 1401), (2000, 1400)] {
                    let packet = Packet::new(kind, tags, noise(len as u64, len));
                    send_split(&mut source, &packet, size, sums);
                    let segments = packet.segments(size);
                    sent += segments.len() as u64;
                    if takes {
                        let (header, frame) = take(&mut sink, 1).remove(0);
                        assert_eq!(header, NetHeader { num_buffers: 1, ..packet.header(size) });
                        assert!(frame == packet.frame(true));
                        got += 1;
                    } else {
                        let is_partial = features & f::VIRTIO_NET_F_GUEST_CSUM != 0 && sums == Sums::Partial;
                        for ((_, frame), segment) in take(&mut sink, segments.len()).iter().zip(&segments) {
                            assert!(*frame == segment.frame(is_partial));
                        }
                        got += segments.len() as u64;
                    }
                    source.flush();
                }
            }
        }
        rig.no_drops();
        // The counters show what a ring was given.
        assert_eq!((rig.port(0).queues[0].rx.packets, rig.port(1).queues[0].tx.packets), (sent, got));
    }
}

/// A guest that computes its checksums itself sends a wrong one in the payload or in the field, in
/// any segment. All segments of the packet arrive as they are; what follows is coalesced again.
#[test]
fn a_wrong_checksum_arrives_as_it_was_sent() {
    for packed in [0, f::VIRTIO_F_RING_PACKED] {
        let rig = patched();
        let mut source = guest(&rig, 0, packed);
        let mut sink = guest(&rig, 1, CSUM | TAKE | packed);
        for kind in Kind::ALL {
            let good = Packet::new(kind, 0, noise(2, 3000));
            for wrong in 0..5 {
                let packet = Packet::new(kind, 0, noise(1, 4100));
                let mut frames: Vec<_> =
                    packet.segments(1000).iter().map(|segment| Sums::Finished.of(segment)).collect();
                let payload = frames[wrong].1.len() - packet.segments(1000)[wrong].payload.len();
                // The last byte, a byte of the head, a byte of the checksum.
                let field = usize::from(packet.header(1000).csum_start + packet.header(1000).csum_offset);
                for at in [frames[wrong].1.len() - 1, payload, field] {
                    frames[wrong].1[at] ^= 0x10;
                    let behind = good.segments(1000).iter().map(|segment| Sums::Finished.of(segment)).collect();
                    send_burst(&mut source, [&frames, &behind].into_iter().flatten());
                    let mut arrived = take(&mut sink, frames.len() + 1);
                    let (header, frame) = arrived.pop().expect("the last one");
                    assert_eq!(header, NetHeader { num_buffers: 1, ..good.header(1000) });
                    assert!(frame == good.frame(true));
                    for ((header, frame), sent) in arrived.iter().zip(&frames) {
                        assert_eq!(*header, NetHeader { num_buffers: 1, ..NetHeader::default() });
                        assert!(*frame == sent.1, "{kind:?}: byte {at} of segment {wrong}");
                    }
                    source.flush();
                    frames[wrong].1[at] ^= 0x10;
                }
            }
        }
        rig.no_drops();
    }
}

/// A run that is undone gives its buffers back, and its packets take them singly. If these are too
/// few, the last packets wait, or are dropped.
#[test]
fn a_wrong_checksum_before_a_full_ring_loses_nothing_that_could_wait() {
    for full in [WhenFull::Drop, WhenFull::Wait] {
        let rig = rig(2, |config| config.patches.push(PatchConfig { full, ..patch(0, 1) }));
        let mut source = guest(&rig, 0, 0);
        let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF | CSUM | TAKE;
        let options = GuestOptions { features, buffer_len: 2048, withhold: true, ..GuestOptions::default() };
        let mut sink = rig.guest(1, &options);
        // The coalesced packet takes seven buffers, its packets take ten.
        assert_eq!(sink.give(8), 8);
        let packet = Packet::new(Kind::Tcp4, 0, noise(1, 10 * 1400));
        let mut frames: Vec<_> = packet.segments(1400).iter().map(|segment| Sums::Finished.of(segment)).collect();
        frames[9].1[100] ^= 1;
        send_burst(&mut source, &frames);
        for ((_, frame), (_, sent)) in take(&mut sink, 8).iter().zip(&frames) {
            assert!(frame == sent);
        }
        if full == WhenFull::Drop {
            rig.wait_drops(1, "no-buffer", 2);
            continue;
        }
        sink.withhold(false);
        sink.give(usize::MAX);
        for ((_, frame), (_, sent)) in take(&mut sink, 2).iter().zip(&frames[8..]) {
            assert!(frame == sent);
        }
        rig.no_drops();
    }
}

/// Only the sender knows what a partial checksum covers. These packets have the checksum offset of
/// TCP, but are too short for a TCP header.
#[test]
fn what_ends_before_a_tcp_header_would_arrives_as_it_is() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = guest(&rig, 0, CSUM);
    let mut sink = guest(&rig, 1, CSUM | TAKE);
    let frame = Packet::new(Kind::Udp4, 0, Vec::new()).frame(false);
    let header = NetHeader { flags: NEEDS_CSUM, csum_start: 14, csum_offset: 16, ..NetHeader::default() };
    for _ in 0..3 {
        assert!(source.send(&header, &frame));
    }
    source.flush();
    for (got, bytes) in take(&mut sink, 3) {
        assert_eq!((got.flags, got.csum_start, got.csum_offset), (NEEDS_CSUM, 14, 16));
        assert!(bytes == frame);
    }
    rig.no_drops();
}

/// Two flows, and other packets between segments: nothing overtakes anything.
#[test]
fn flows_that_take_turns_stay_in_order() {
    for sums in Sums::BOTH {
        flows_that_take_turns(sums);
    }
}

fn flows_that_take_turns(sums: Sums) {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = guest(&rig, 0, CSUM);
    let mut sink = guest(&rig, 1, CSUM | TAKE);
    let one = Packet::new(Kind::Tcp4, 0, noise(1, 10_000)).segments(1000);
    let two = Packet::new(Kind::Tcp6, 0, noise(2, 10_000)).segments(1000);
    let other = testing::frame(mac(2), mac(1), 700, 3);
    // The packets in a row of each, and the number of packets they become.
    let rows: [(&[Packet], usize); 7] = [
        (&one[..1], 1),
        (&two[..1], 1),
        (&one[1..4], 1),
        (&two[1..3], 1),
        (&one[4..6], 1),
        // One is missing.
        (&[&one[6..8], &one[9..]].concat(), 2),
        (&two[3..], 1),
    ];
    let mut expected = Vec::new();
    for (row, packets) in rows {
        for segment in row {
            let (header, frame) = sums.of(segment);
            assert!(source.send(&header, &frame));
        }
        assert!(source.send(&NetHeader::default(), &other));
        expected.push((row.to_vec(), packets));
    }
    source.flush();
    let mut arrived = take(&mut sink, expected.iter().map(|(_, packets)| packets + 1).sum()).into_iter();
    for (row, packets) in expected {
        let bytes: Vec<u8> = row.iter().flat_map(|segment| segment.payload.clone()).collect();
        let got: Vec<_> = arrived.by_ref().take(packets).collect();
        let parsed: Vec<_> = got.iter().map(|(header, frame)| check(frame, header.flags & NEEDS_CSUM != 0)).collect();
        assert_eq!(parsed[0].seq, row[0].seq);
        assert!(parsed.into_iter().flat_map(|packet| packet.payload).eq(bytes));
        assert!(arrived.next().expect("it stands between").1 == other);
    }
    rig.no_drops();
}

/// If there are buffers for some of the packets but not for the coalesced one, they are delivered
/// singly.
#[test]
fn a_run_that_finds_no_room_goes_in_one_by_one() {
    for (full, sums) in
        [WhenFull::Drop, WhenFull::Wait].into_iter().flat_map(|full| Sums::BOTH.map(|sums| (full, sums)))
    {
        let rig = rig(2, |config| config.patches.push(PatchConfig { full, ..patch(0, 1) }));
        let mut source = guest(&rig, 0, CSUM);
        let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF | CSUM | TAKE;
        let options = GuestOptions { features, buffer_len: 2048, withhold: true, ..GuestOptions::default() };
        let mut sink = rig.guest(1, &options);
        assert_eq!(sink.give(5), 5);
        let packet = Packet::new(Kind::Tcp4, 0, noise(1, 20 * 1400));
        let segments = packet.segments(1400);
        send_split(&mut source, &packet, 1400, sums);
        for ((_, frame), segment) in take(&mut sink, 5).iter().zip(&segments) {
            assert!(*frame == sums.of(segment).1);
        }
        if full == WhenFull::Drop {
            rig.wait_drops(1, "no-buffer", 15);
            continue;
        }
        // The rest waits for buffers, and is then one packet, or as many as found buffers singly.
        sink.withhold(false);
        sink.give(usize::MAX);
        let mut payload = Vec::new();
        wait_until("the rest has arrived", || {
            for (header, frame) in testing::arrived(&mut sink) {
                payload.extend(check(&frame, header.flags & NEEDS_CSUM != 0).payload);
            }
            payload.len() >= 15 * 1400
        });
        assert!(payload == packet.payload[5 * 1400..]);
        rig.no_drops();
    }
}

//! Packets for a guest that accepts unsegmented packets. Consecutive segments of a flow are
//! coalesced. Packets that an attacker has made to look like segments are not.

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Down, Ring, Scene, valid};
use straightline_packet::double::Double;
use straightline_testing::packets::{Kind, NEEDS_CSUM, check, finish, partial};
use straightline_testing::{self as testing, mac, noise, take, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::{Descriptor, WRITE};
use straightline_wire::checksum;

use crate::once_packets::double;

const TAKES: u64 = f::VIRTIO_NET_F_GUEST_CSUM
    | f::VIRTIO_NET_F_GUEST_TSO4
    | f::VIRTIO_NET_F_GUEST_TSO6
    | f::VIRTIO_NET_F_GUEST_USO4
    | f::VIRTIO_NET_F_GUEST_USO6;
/// Bytes of payload in a segment, more than fit into a head.
const SIZE: usize = 1000;

type Packet = (NetHeader, Vec<u8>);

fn is_v4(kind: Kind) -> bool {
    matches!(kind, Kind::Tcp4 | Kind::Udp4)
}

fn l4(kind: Kind) -> usize {
    if is_v4(kind) { 34 } else { 54 }
}

/// Sets the IPv4 header's length and checksum to match the frame.
fn fix_ipv4_header(frame: &mut [u8]) {
    let len = u16::try_from(frame.len() - 14).expect("an IP packet");
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    frame[24..26].fill(0);
    let sum = !checksum::sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Returns three consecutive segments as an operating system creates them, with unfinished
/// checksums.
fn segments(kind: Kind, there: [u8; 2]) -> Vec<Packet> {
    let payload = noise(4, 3 * SIZE);
    let segment = |(n, part): (u16, &[u8])| {
        let (header, mut frame) = partial(kind, mac(there[0]), mac(there[1]), part);
        let at = l4(kind);
        if kind.is_tcp() {
            let seq = 0xffff_fff0_u32.wrapping_add(u32::from(n) * 1000);
            frame[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
            if n < 2 {
                // All but the last have the flag ACK only.
                frame[at + 13] = 0x10;
            }
        }
        if is_v4(kind) {
            frame[18..20].copy_from_slice(&n.to_be_bytes());
            fix_ipv4_header(&mut frame);
        }
        (header, frame)
    };
    (0..).zip(payload.chunks(SIZE)).map(segment).collect()
}

/// Finishes the checksums of packets.
fn finished(packets: Vec<Packet>) -> Vec<Packet> {
    packets.into_iter().map(|(header, mut frame)| (finish(header, &mut frame), frame)).collect()
}

/// Writes each packet behind its header into a buffer of the attacker, and returns the descriptors.
fn placed(guest: &Attacker, packets: &[Packet]) -> Vec<Descriptor> {
    let place = |(buffer, (header, bytes)): (u16, &Packet)| {
        let addr = guest.buffer_address(Ring::Transmit, buffer);
        guest.write_memory(addr, &header.to_bytes());
        guest.write_memory(addr + 12, bytes);
        Descriptor { addr, len: u32::try_from(12 + bytes.len()).expect("short"), flags: 0, next: 0 }
    };
    (0..).zip(packets).map(place).collect()
}

/// Makes all descriptors available together.
fn publish(guest: &Attacker, descriptors: &[Descriptor]) {
    guest.publish_all(Ring::Transmit, &descriptors.chunks(1).collect::<Vec<_>>());
}

/// A change that makes three TCP segments three separate packets. The first one stays the same.
type Change = fn(Kind, &mut [Packet]);

const CHANGES: [(&str, Change); 4] = [
    ("a gap in the sequence", |kind, packets| packets[1].1[l4(kind) + 7] ^= 1),
    ("a wrong length", |kind, packets| packets[1].1[if is_v4(kind) { 17 } else { 19 }] ^= 1),
    ("a longer one follows", |_, packets| packets[1].1.push(0)),
    ("a header longer than the packet", |kind, packets| packets[1].1[l4(kind) + 12] = 0xf0),
];

const CHANGES_OF_PARTIAL: [(&str, Change); 2] = [
    ("a checksum at another position", |_, packets| packets[1].0.csum_offset = 40),
    ("a wrong sum of the pseudo-header", |kind, packets| packets[1].1[l4(kind) + 17] ^= 1),
];

#[test]
fn what_only_looks_like_a_flow_in_a_row_arrives_as_it_is() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_good_features(layout, TAKES);
        let guest = scene.attacker_with(f::VIRTIO_NET_F_CSUM);
        for kind in Kind::ALL {
            // Unchanged segments are coalesced.
            let good = segments(kind, [2, 1]);
            for packets in [good.clone(), finished(good.clone())] {
                publish(&guest, &placed(&guest, &packets));
                arrive_as_one(&mut scene, kind);
                guest.wait_used(Ring::Transmit);
            }
            if !kind.is_tcp() {
                continue;
            }
            for (what, change) in CHANGES.iter().chain(&CHANGES_OF_PARTIAL) {
                let mut packets = good.clone();
                change(kind, &mut packets);
                as_they_are(&mut scene, &guest, &packets, what);
            }
            for (what, change) in CHANGES {
                let mut packets = good.clone();
                change(kind, &mut packets);
                as_they_are(&mut scene, &guest, &finished(packets), what);
            }
        }
        drop(guest);
        scene.recovers("what looks like a flow");
        scene.end();
    }
}

/// Asserts that the segments arrive as one packet.
fn arrive_as_one(scene: &mut Scene, kind: Kind) {
    let (header, packet) = take(&mut scene.good, 1).remove(0);
    assert_eq!((header.gso_type, usize::from(header.gso_size)), (kind.gso_type(), SIZE), "{kind:?}");
    assert!(check(&packet, true).payload == noise(4, 3 * SIZE), "{kind:?}");
}

/// A wrong checksum undoes the run. All packets arrive as they were sent, wrong and right ones.
#[test]
fn a_wrong_checksum_is_not_hidden() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_good_features(layout, TAKES);
        let guest = scene.attacker_with(0);
        for kind in Kind::ALL {
            for wrong in 0..3 {
                let mut packets = finished(segments(kind, [2, 1]));
                let last = packets[wrong].1.last_mut().expect("bytes");
                *last ^= 0x80;
                as_they_are(&mut scene, &guest, &packets, &format!("{kind:?}, segment {wrong}"));
            }
        }
        drop(guest);
        scene.recovers("wrong checksums");
        scene.end();
    }
}

/// The sender writes a byte of a body all the time, which is right or wrong. A packet that arrives
/// coalesced has the right one.
#[test]
fn a_body_that_is_rewritten_is_never_trusted_if_it_is_wrong() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_good_features(layout, TAKES);
        let guest = scene.attacker_with(0);
        let packets = finished(segments(Kind::Tcp4, [2, 1]));
        for round in 0..500 {
            let nth = round % 3;
            let descriptors = placed(&guest, &packets);
            let at = 12 + 700;
            let right = packets[nth].1[700];
            publish(&guest, &descriptors);
            let mut arrived: Vec<Packet> = Vec::new();
            wait_until("one packet or three have arrived", || {
                for _ in 0..10 {
                    for _ in 0..100 {
                        guest.write_memory(descriptors[nth].addr + at, &[right ^ 1]);
                        guest.write_memory(descriptors[nth].addr + at, &[right]);
                    }
                    arrived.extend(testing::arrived(&mut scene.good));
                    let is_one = arrived.first().is_some_and(|(header, _)| header.gso_type != 0);
                    if is_one || arrived.len() >= 3 {
                        return Ok(());
                    }
                }
                Err(arrived.len())
            });
            if arrived[0].0.gso_type == 0 {
                assert!(arrived.iter().all(|(header, _)| header.flags & NEEDS_CSUM == 0));
            } else {
                assert!(check(&arrived[0].1, true).payload == noise(4, 3 * SIZE));
            }
            guest.wait_used(Ring::Transmit);
        }
        drop(guest);
        scene.recovers("a body that is rewritten");
        scene.end();
    }
}

/// The sender of a UDP packet chooses the position of its checksum: here the position of TCP's, in
/// packets too short for a TCP header.
#[test]
fn udp_that_is_shaped_like_tcp_arrives_as_it_is() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_good_features(layout, TAKES);
        let guest = scene.attacker_with(f::VIRTIO_NET_F_CSUM);
        for len in 18..=40_u16 {
            let packet = |(header, mut frame): Packet| {
                frame.truncate(34 + usize::from(len));
                frame[23] = 17;
                // The length of UDP follows the ports.
                frame[38..40].copy_from_slice(&len.to_be_bytes());
                fix_ipv4_header(&mut frame);
                (header, frame)
            };
            let packets: Vec<_> = segments(Kind::Tcp4, [2, 1]).into_iter().map(packet).collect();
            as_they_are(&mut scene, &guest, &packets, &format!("UDP of {len} bytes"));
            // Said to be finished, their checksums are wrong.
            let packets: Vec<_> = packets.into_iter().map(|(_, frame)| (NetHeader::default(), frame)).collect();
            as_they_are(&mut scene, &guest, &packets, &format!("UDP of {len} bytes, finished"));
        }
        drop(guest);
        scene.recovers("UDP shaped like TCP");
        scene.end();
    }
}

/// Sends packets together, and asserts that each arrives unchanged.
fn as_they_are(scene: &mut Scene, guest: &Attacker, packets: &[Packet], what: &str) {
    publish(guest, &placed(guest, packets));
    for ((got, bytes), (sent, frame)) in take(&mut scene.good, packets.len()).iter().zip(packets) {
        assert!(bytes == frame, "{what}");
        let same = (got.csum_start, got.csum_offset) == (sent.csum_start, sent.csum_offset);
        assert!(same && got.gso_type == 0, "{what}: {got:?} of {sent:?}");
    }
    guest.wait_used(Ring::Transmit);
}

#[test]
fn once_packets_that_are_put_together() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_good_features(layout, TAKES);
        for kind in Kind::ALL {
            for packets in [segments(kind, [2, 1]), finished(segments(kind, [2, 1]))] {
                let guest = scene.attacker_with(f::VIRTIO_NET_F_CSUM);
                let descriptors = placed(&guest, &packets);
                let doubles: Vec<Double> = descriptors.iter().map(|desc| double(&guest, desc.addr, desc.len)).collect();
                publish(&guest, &descriptors);
                arrive_as_one(&mut scene, kind);
                guest.wait_used(Ring::Transmit);
                for double in &doubles {
                    assert!(double.loads().iter().all(|&loads| loads == 1), "{kind:?}: {:?}", double.loads());
                }
            }
        }
        scene.end();
    }
}

/// The attacker accepts unsegmented packets. It has buffers for a part of a coalesced packet, or an
/// invalid buffer in the middle.
#[test]
fn a_whole_that_finds_no_room_or_a_broken_ring_is_counted() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_good_features(layout, f::VIRTIO_NET_F_CSUM);
        for kind in Kind::ALL {
            let guest = scene.attacker_with(TAKES);
            let before = scene.rig.drops(0, "no-buffer");
            guest.publish(Ring::Receive, &[Descriptor { len: 2000, flags: WRITE, ..valid(&guest, Ring::Receive) }]);
            send(&mut scene, kind);
            scene.rig.wait_drops(0, "no-buffer", before + 2);
            guest.wait_used(Ring::Receive);
            let first = &segments(kind, [1, 2])[0].1;
            assert_eq!(guest.last_written(Ring::Receive) as usize, 12 + first.len());
            // Two more buffers, and a third that is invalid.
            let good = Descriptor { len: 1200, flags: WRITE, ..valid(&guest, Ring::Receive) };
            let counts = scene.dropped();
            let all: u64 = counts.values().sum();
            guest.publish_all(Ring::Receive, &[&[good], &[good], &[Descriptor { addr: 0, ..good }]]);
            send(&mut scene, kind);
            scene.expect_outcome("a buffer outside memory", &Down("receive ring: the buffer"), counts);
            // Two packets found a buffer each, the third packet found none.
            assert_eq!(scene.dropped().values().sum::<u64>(), all + 1);
            drop(guest);
            scene.recovers("a coalesced packet into a broken ring");
        }
        scene.end();
    }
}

/// Lets the good guest send segments that become visible together.
fn send(scene: &mut Scene, kind: Kind) {
    for (header, bytes) in segments(kind, [1, 2]) {
        assert!(scene.good.send(&header, &bytes));
    }
    scene.good.flush();
}

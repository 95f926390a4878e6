//! Bodies are copied once for each delivery and never more, and the count is no constant.

use straightline_config::Copies;
use straightline_guest::GuestOptions;
use straightline_packet::Level;
use straightline_testing::packets::Kind;
use straightline_testing::{
    self as testing, BASIC, BROADCAST, Rig, bridge, frame, mac, patch, rig, send, take, wait_until,
};
use straightline_virtio::features as f;

/// Returns bytes copied and bytes delivered, once the worker has updated both.
fn bodies(rig: &Rig, at_least: u64) -> (u64, u64) {
    let read = || {
        let worker = &rig.switch.source().runtime().workers[0];
        (worker.bodies_copied_bytes, worker.bodies_delivered_bytes)
    };
    wait_until("the counters are there", || read().1 >= at_least);
    read()
}

/// Sends lengths below and above the size of a slot; returns the bytes sent.
fn mixed(rig: &Rig) -> u64 {
    let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF;
    let options = GuestOptions { features, buffer_len: 9100, ..GuestOptions::default() };
    let mut source = rig.guest(0, &options);
    let mut sink = rig.guest(1, &options);
    let mut bytes = 0;
    for round in 0..40 {
        let lens = [60, 256, 257, 300, 566, 1514, 9000];
        for len in lens {
            send(&mut source, &frame(mac(2), mac(1), len, round));
            bytes += len as u64;
        }
        take(&mut sink, lens.len());
    }
    rig.no_drops();
    bytes
}

fn config(copies: Copies) -> Rig {
    rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.ports.iter_mut().for_each(|port| port.mtu = 9000);
        config.switch.copies = copies;
    })
}

/// Most of [`mixed`]'s bytes are bodies; the rest are heads.
const LEAST: u64 = 40 * (9000 + 1514 + 566 - 3 * 512);

#[test]
fn one_copy_is_at_most_one() {
    let rig = config(Copies::One);
    let sent = mixed(&rig);
    let (copied, delivered) = bodies(&rig, LEAST);
    assert!(delivered < sent, "heads are no bodies: {delivered} of {sent}");
    assert!(copied <= delivered, "{copied} bytes copied to deliver {delivered}");
    assert!(copied >= LEAST, "the count is stuck: {copied}");
}

#[test]
fn two_copies_are_two() {
    let rig = config(Copies::Two);
    mixed(&rig);
    let (copied, delivered) = bodies(&rig, LEAST);
    assert_eq!(copied, 2 * delivered);
}

#[test]
fn every_instruction_set_carries() {
    let ours = Level::supported().map(|level| (Some(level), None, level.name()));
    let others = Level::for_comparison().map(|level| (None, Some(level), level.name()));
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    for (simd, copy, name) in ours.chain(others) {
        let mut config = rig.switch.config();
        (config.switch.simd, config.switch.copy) = (simd, copy);
        let changes = rig.switch.reload(&config).expect("a reload");
        assert_eq!(changes.pauses, [""; 0]);
        assert_eq!(rig.switch.source().status().simd, name);
        for len in [60, 100, 255, 256, 257, 300, 391, 566, 1024, 1514] {
            let sent = frame(mac(2), mac(1), len, 3);
            send(&mut source, &sent);
            assert!(take(&mut sink, 1)[0].1 == sent, "{name}, {len} bytes");
        }
    }
    rig.no_drops();
}

#[test]
fn a_flood_is_copied_once_for_each_delivery() {
    const PORTS: usize = 5;
    let rig = rig(PORTS, |config| config.bridges.push(bridge(PORTS)));
    let mut guests: Vec<_> = (0..PORTS).map(|port| rig.guest(port, &GuestOptions::default())).collect();
    for round in 0..20 {
        send(&mut guests[0], &frame(BROADCAST, mac(1), 1514, round));
        for guest in &mut guests[1..] {
            assert_eq!(take(guest, 1)[0].1.len(), 1514);
        }
    }
    let (copied, delivered) = bodies(&rig, 4 * 20 * 1000);
    assert_eq!(copied, delivered);
    assert_eq!(delivered % 80, 0, "the same body 4 times in each of 20 rounds");
    assert!(delivered >= 80 * (1514 - 512));
}

#[test]
fn segments_of_one_body_are_copied_once_in_all() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let all = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4;
    let options = GuestOptions { features: all, buffer_len: 65_600, ring_size: 64, ..GuestOptions::default() };
    let mut source = rig.guest(0, &options);
    let mut sink = rig.guest(1, &GuestOptions::default());
    let (header, frame) = testing::packets::tcp4(mac(2), mac(1), 40 * 1448, 1448);
    assert!(source.send(&header, &frame));
    source.flush();
    take(&mut sink, 40);
    let (copied, delivered) = bodies(&rig, 1);
    assert_eq!(copied, delivered);
    assert!(delivered > 39 * 1448);
}

/// The copied bytes of a body are those of its segments that found buffers.
#[test]
fn segments_that_find_no_room_are_neither_copied_nor_delivered() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let all = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4;
    let options = GuestOptions { features: all, buffer_len: 65_600, ring_size: 64, ..GuestOptions::default() };
    let mut source = rig.guest(0, &options);
    let mut sink = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    sink.give(10);
    let (header, frame) = testing::packets::tcp4(mac(2), mac(1), 40 * 1448, 1448);
    assert!(source.send(&header, &frame));
    source.flush();
    rig.wait_drops(1, "no-buffer", 30);
    take(&mut sink, 10);
    let (copied, delivered) = bodies(&rig, 1);
    assert_eq!(copied, delivered);
    assert!((9 * 1448..10 * 1448).contains(&delivered), "{delivered}");
}

/// Finished checksums are verified in the one copy. A run with a wrong one is copied as far as that,
/// and then once more, packet by packet.
#[test]
fn coalesced_segments_are_copied_once_unless_a_checksum_is_wrong() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let takes = f::VIRTIO_NET_F_MRG_RXBUF | f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO6;
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions { features: BASIC | takes, ..GuestOptions::default() });
    let segment = |n: u32| {
        let (header, mut frame) = testing::packets::partial(Kind::Tcp6, mac(2), mac(1), &[7; 1400]);
        frame[58..62].copy_from_slice(&(1400 * n).to_be_bytes());
        frame[67] = 0x10;
        (testing::packets::finish(header, &mut frame), frame)
    };
    let body = |packets: u64| packets * (74 + 1400 - 256);
    for wrong in [None, Some(6)] {
        for n in 0..10 {
            let (header, mut frame) = segment(n);
            frame[1000] ^= u8::from(wrong == Some(n));
            assert!(source.send(&header, &frame));
        }
        source.flush();
        take(&mut sink, if wrong.is_some() { 10 } else { 1 });
        let (copied, delivered) = bodies(&rig, if wrong.is_some() { body(20) } else { body(10) });
        let (all, twice) = if wrong.is_some() { (20, 7) } else { (10, 0) };
        assert_eq!((copied, delivered), (body(all + twice), body(all)));
    }
}

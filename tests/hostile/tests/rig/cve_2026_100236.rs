//! CVE-2026-100236: segmentation copied a header that was longer than a segment.

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Dropped, Ring, Scene};
use straightline_testing::packets::{Kind, check, segmented};
use straightline_testing::{mac, noise, take};
use straightline_virtio::features::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
};
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::Descriptor;

const FEATURES: u64 = VIRTIO_NET_F_CSUM | VIRTIO_NET_F_HOST_TSO4 | VIRTIO_NET_F_HOST_TSO6 | VIRTIO_NET_F_HOST_USO;

/// Publishes a header and a frame as one chain, split at these bytes.
fn publish(guest: &Attacker, header: NetHeader, frame: &[u8], cuts: &[u32]) {
    let addr = guest.buffer_address(Ring::Transmit, 0);
    guest.write_memory(addr, &header.to_bytes());
    guest.write_memory(addr + 12, frame);
    let mut chain = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&u32::try_from(12 + frame.len()).expect("short")]) {
        chain.push(Descriptor { addr: addr + u64::from(from), len: to - from, flags: 0, next: 0 });
        from = to;
    }
    guest.publish(Ring::Transmit, &chain);
}

/// Returns the length of the transport header.
fn l4_len(kind: Kind) -> u16 {
    if kind.is_tcp() { 20 } else { 8 }
}

#[test]
fn cve_2026_100236_segments_smaller_than_their_header() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for kind in Kind::ALL {
            for size in (0..l4_len(kind)).step_by(3).chain([0, 1, l4_len(kind) - 1]) {
                let guest = scene.attacker_with(FEATURES);
                let before = scene.dropped();
                let (header, frame) = segmented(kind, mac(2), mac(1), &noise(1, 1800), size);
                publish(&guest, header, &frame, &[]);
                scene.expect_and_recover(
                    &format!("{kind:?} in segments of {size}"),
                    &Dropped("segment-size"),
                    before,
                    guest,
                );
            }
        }
        scene.end();
    }
}

#[test]
fn cve_2026_100236_the_smallest_segments_and_a_length_of_headers_that_lies() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = scene.attacker_with(FEATURES);
        for kind in Kind::ALL {
            for size in [l4_len(kind), l4_len(kind) + 1, 100, 600] {
                for lie in [0, 1, 13, 255, 2000, u16::MAX] {
                    let payload = noise(size.into(), usize::from(size) * 2 + 5);
                    let (header, frame) = segmented(kind, mac(2), mac(1), &payload, size);
                    publish(&guest, NetHeader { hdr_len: lie, ..header }, &frame, &[]);
                    let segments = take(&mut scene.good, 3);
                    let came: Vec<u8> = segments.iter().flat_map(|(_, bytes)| check(bytes, false).payload).collect();
                    assert!(came == payload, "{kind:?}, {size}, {lie}");
                }
            }
        }
        drop(guest);
        scene.recovers("the smallest segments");
        scene.end();
    }
}

#[test]
fn cve_2026_100236_headers_over_several_descriptors() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = scene.attacker_with(FEATURES);
        for kind in Kind::ALL {
            let payload = noise(9, 1500);
            let (header, frame) = segmented(kind, mac(2), mac(1), &payload, 700);
            let headers = u32::try_from(12 + frame.len() - payload.len()).expect("short");
            let mut cuts: Vec<Vec<u32>> = (1..=headers).map(|cut| vec![cut]).collect();
            cuts.extend((1..headers).step_by(7).map(|cut| vec![cut, cut + 1, headers]));
            cuts.push((1..15).map(|n| n * 5).collect());
            for cuts in cuts {
                publish(&guest, header, &frame, &cuts);
                let segments = take(&mut scene.good, 3);
                let came: Vec<u8> = segments.iter().flat_map(|(_, bytes)| check(bytes, false).payload).collect();
                assert!(came == payload, "{kind:?}, cut at {cuts:?}");
                // The longest chain leaves one descriptor of the ring, so the device must have returned all others.
                guest.wait_used(Ring::Transmit);
            }
        }
        drop(guest);
        scene.recovers("headers over several descriptors");
        scene.end();
    }
}

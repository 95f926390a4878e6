//! Every byte of a packet and of its virtio-net header is read once, on each path through the
//! switch.
//!
//! (In CVE-2024-11614, a header was also read twice: first to check it, then to use it.)

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use hostile::attacker::Layout;
use hostile::scene::{Ring, Scene, valid};
use straightline_guest::Guest;
use straightline_packet::MemorySegment;
use straightline_packet::double::Double;
use straightline_testing::packets::{Kind, NEEDS_CSUM, check, partial, segmented};
use straightline_testing::{frame, mac, noise, send, take};
use straightline_virtio::features::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
};
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::Descriptor;

use crate::cve_2026_86567::mapped_at;

const FEATURES: u64 = VIRTIO_NET_F_CSUM | VIRTIO_NET_F_HOST_TSO4 | VIRTIO_NET_F_HOST_TSO6 | VIRTIO_NET_F_HOST_USO;

/// Makes a double of guest memory as the switch sees it.
pub(crate) fn double(guest: &Guest, addr: u64, len: u32) -> Double {
    Double::complement(mapped_by_port(guest, addr, len))
}

/// Makes a double that counts the loads of guest memory as the switch sees it. Its bytes do not
/// change.
pub(crate) fn counted(guest: &Guest, addr: u64, len: u32) -> Double {
    let bytes = guest.read_memory(addr, len).expect("its own");
    Double::becomes(mapped_by_port(guest, addr, len), &bytes)
}

/// Returns guest memory in the port's mapping. This process has mapped the guest's file twice: by
/// the guest and by the port.
fn mapped_by_port(guest: &Guest, addr: u64, len: u32) -> MemorySegment<'static> {
    let region = &guest.memory().regions()[0];
    let own = guest.memory().segment(region.guest_addr(), 1, &mut 0).expect("its own").address();
    let starts = mapped_at(guest.file()).into_iter();
    let [start] = starts.filter(|&start| start != own).collect::<Vec<_>>()[..] else {
        panic!("mapped once by the port")
    };
    let at = start + usize::try_from(addr - region.guest_addr()).expect("in memory");
    // SAFETY: the port has mapped the whole file from `start` on until the guest leaves, which is
    // after the end of the double. There is no Rust reference into the mapping.
    unsafe { MemorySegment::new(std::ptr::with_exposed_provenance_mut(at), len) }
}

/// Publishes a header and a frame in a double, split at these bytes, and returns the `n` packets
/// that arrive.
fn sent(scene: &mut Scene, layout: Layout, header: NetHeader, bytes: &[u8], cuts: &[u32], n: usize) -> Vec<Vec<u8>> {
    let guest = scene.attacker_with(FEATURES);
    let addr = guest.buffer_address(Ring::Transmit, 0);
    guest.write_memory(addr, &header.to_bytes());
    guest.write_memory(addr + 12, bytes);
    let whole = u32::try_from(12 + bytes.len()).expect("short");
    let mut chain = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&whole]) {
        chain.push(Descriptor { addr: addr + u64::from(from), len: to - from, flags: 0, next: 0 });
        from = to;
    }
    let double = double(&guest, addr, whole);
    guest.publish(Ring::Transmit, &chain);
    let came = take(&mut scene.good, n).into_iter().map(|(_, bytes)| bytes).collect();
    guest.wait_used(Ring::Transmit);
    let loads = double.loads();
    assert!(loads.iter().all(|&loads| loads == 1), "{layout:?}, {header:?}, cut at {cuts:?}: {loads:?}");
    came
}

#[test]
fn once_packets_of_every_length() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for len in [14, 60, 243, 244, 255, 256, 257, 300, 512, 1000, 1518] {
            let bytes = frame(mac(2), mac(1), len, 6);
            for cuts in [&[][..], &[12], &[5], &[5, 13, 20]] {
                assert!(sent(&mut scene, layout, NetHeader::default(), &bytes, cuts, 1) == [&bytes[..]], "{len}");
            }
        }
        scene.end();
    }
}

#[test]
fn cve_2024_11614_the_header_is_read_once() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        // The switch finishes a checksum over bytes that have changed after its read. The
        // complement of the checksum's position is beyond any packet.
        for kind in Kind::ALL {
            for len in [1, 100, 300, 1400] {
                for cuts in [&[][..], &[7], &[6, 12, 40]] {
                    let payload = noise(7, len);
                    let (header, bytes) = partial(kind, mac(2), mac(1), &payload);
                    let came = sent(&mut scene, layout, header, &bytes, cuts, 1);
                    assert!(check(&came[0], false).payload == payload, "{kind:?}, {len}");
                }
            }
        }
        // A checksum field deep in the packet is copied to the head, from bytes that were not read
        // before.
        let bytes = frame(mac(2), mac(1), 1400, 8);
        let header = NetHeader { flags: NEEDS_CSUM, csum_start: 20, csum_offset: 400, ..NetHeader::default() };
        let came = sent(&mut scene, layout, header, &bytes, &[], 1);
        assert!(came[0][..420] == bytes[..420] && came[0][422..] == bytes[422..]);
        scene.end();
    }
}

#[test]
fn once_packets_that_are_segmented() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for kind in Kind::ALL {
            for cuts in [&[][..], &[11], &[12, 60, 90, 700]] {
                let payload = noise(8, 1800);
                let (header, bytes) = segmented(kind, mac(2), mac(1), &payload, 700);
                let came = sent(&mut scene, layout, header, &bytes, cuts, 3);
                let came: Vec<u8> = came.iter().flat_map(|bytes| check(bytes, false).payload).collect();
                assert!(came == payload, "{kind:?}, cut at {cuts:?}");
            }
        }
        scene.end();
    }
}

#[test]
fn once_packets_that_are_delivered() {
    // In a receive buffer, only the old header is read, once.
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for there in [NetHeader { num_buffers: 1, ..NetHeader::default() }, NetHeader::default()] {
            let guest = scene.attacker();
            let addr = guest.buffer_address(Ring::Receive, 0);
            guest.write_memory(addr, &there.to_bytes());
            let double = double(&guest, addr, 2000);
            guest.publish(Ring::Receive, &[Descriptor { len: 2000, ..valid(&guest, Ring::Receive) }]);
            let bytes = frame(mac(1), mac(2), 1500, 2);
            send(&mut scene.good, &bytes);
            guest.wait_used(Ring::Receive);
            assert!(guest.read_memory(addr + 12, 1500).expect("its own") == bytes);
            let loads = double.loads();
            assert!(loads[..12].iter().all(|&loads| loads == 1), "{loads:?}");
            assert!(loads[12..].iter().all(|&loads| loads == 0), "{loads:?}");
        }
        scene.end();
    }
}

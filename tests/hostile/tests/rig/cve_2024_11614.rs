//! CVE-2024-11614: a checksum start beyond the packet was accepted. (The header was also read
//! twice: see `once_packets`.)

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Dropped, Ring, Scene};
use straightline_testing::packets::NEEDS_CSUM;
use straightline_testing::{frame, mac, take};
use straightline_virtio::features::VIRTIO_NET_F_CSUM;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::Descriptor;

/// Length of the frame.
const LEN: usize = 60;

/// Returns the frame that a receiver gets if it does not accept unfinished checksums. The checksum
/// is the ones' complement sum from `start` on, including the old value of the field (RFC 1071),
/// and never 0.
fn finished(frame: &[u8], start: usize, field: usize) -> Vec<u8> {
    let mut sum: u32 =
        frame[start..].chunks(2).map(|p| u32::from(p[0]) << 8 | u32::from(*p.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let value = u16::try_from(!sum & 0xffff).expect("16 bits");
    let mut done = frame.to_vec();
    done[field..field + 2].copy_from_slice(&if value == 0 { 0xffff } else { value }.to_be_bytes());
    done
}

/// Publishes a frame for each pair of start and offset, all together.
fn publish(guest: &Attacker, frame: &[u8], pairs: &[(u16, u16)]) {
    let mut chains = Vec::new();
    for (buffer, &(csum_start, csum_offset)) in (0..).zip(pairs) {
        let addr = guest.buffer_address(Ring::Transmit, buffer);
        let header = NetHeader { flags: NEEDS_CSUM, csum_start, csum_offset, ..NetHeader::default() };
        guest.write_memory(addr, &header.to_bytes());
        guest.write_memory(addr + 12, frame);
        let len = u32::try_from(12 + frame.len()).expect("short");
        chains.push([Descriptor { addr, len, flags: 0, next: 0 }]);
    }
    let chains: Vec<&[Descriptor]> = chains.iter().map(|chain| &chain[..]).collect();
    guest.publish_all(Ring::Transmit, &chains);
}

#[test]
fn cve_2024_11614_every_start_and_offset() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = scene.attacker_with(VIRTIO_NET_F_CSUM);
        let bytes = frame(mac(2), mac(1), LEN, 5);
        let mut pairs: Vec<(u16, u16)> = (0..64).flat_map(|start| (0..64).map(move |offset| (start, offset))).collect();
        let edges = [0, 13, 14, 57, 58, 59, 60, 255, 256, 511, 0x7fff, 0x8000, 0xfffe, 0xffff];
        pairs.extend(edges.iter().flat_map(|&start| edges.map(|offset| (start, offset))));
        let before = scene.rig.drops(0, "checksum-range");
        let mut refused = 0;
        for pairs in pairs.chunks(16) {
            publish(&guest, &bytes, pairs);
            let field = |&(start, offset): &(u16, u16)| usize::from(start) + usize::from(offset);
            let good = pairs.iter().filter(|pair| pair.0 >= 14 && field(pair) + 2 <= LEN);
            let right: Vec<_> = good.map(|pair| finished(&bytes, pair.0.into(), field(pair))).collect();
            refused += u64::try_from(pairs.len() - right.len()).expect("few");
            guest.wait_used(Ring::Transmit);
            let came: Vec<_> = take(&mut scene.good, right.len()).into_iter().map(|(_, bytes)| bytes).collect();
            assert!(came == right, "{pairs:?}");
        }
        assert_eq!(scene.rig.drops(0, "checksum-range"), before + refused);
        scene.rig.wait_up(0);
        drop(guest);
        scene.recovers("checksums beyond the packet");
        scene.end();
    }
}

#[test]
fn cve_2024_11614_a_field_deep_in_the_body() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for (start, offset, reason) in
            [(14, 600, "checksum-depth"), (1400, 10, "checksum-depth"), (1490, 9, "checksum-range")]
        {
            let guest = scene.attacker_with(VIRTIO_NET_F_CSUM);
            let counts = scene.dropped();
            publish(&guest, &frame(mac(2), mac(1), 1500, 5), &[(start, offset)]);
            scene.expect_and_recover("a field deep in the body", &Dropped(reason), counts, guest);
        }
        scene.end();
    }
}

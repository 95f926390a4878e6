//! CVE-2018-1059: only the first byte of a guest's range was translated, and the last byte was in
//! another mapping.

use std::os::fd::AsFd;

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Down, Dropped, Ring, Scene, valid};
use straightline_guest::memory_file;
use straightline_testing::{frame, mac, noise, send, take};
use straightline_virtio::ring::{Descriptor, WRITE};
use straightline_virtio::vhost_user::{RegionRef, RegionSpec, RingAddresses};

use crate::messages::{frontend, region};

/// Bytes of the second region.
const SECOND: u64 = 1 << 16;

/// Adds a region of another file, `gap` bytes behind the end of the first one, in guest and user
/// addresses. Returns its start.
fn add_region(guest: &mut Attacker, gap: u64) -> u64 {
    let start = guest.end() + gap;
    let file = memory_file(SECOND).expect("memory");
    let spec = RegionSpec { guest_addr: start, size: SECOND, user_addr: start, mmap_offset: 0 };
    guest.client().add_mem_region(&RegionRef { spec, fd: file.as_fd() }).expect("a second region");
    start
}

#[test]
fn cve_2018_1059_a_buffer_over_the_edge_of_a_region() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        // Each region is followed by a guard page, so a copy from there crashes the process.
        for (before, len) in [(1, 2), (100, 101), (100, 4096), (1000, 60_000), (4096, 4097), (14, 65_000)] {
            for gap in [4096, 1 << 20] {
                let mut guest = scene.attacker();
                add_region(&mut guest, gap);
                let counts = scene.dropped();
                let over = Descriptor { addr: guest.end() - before, len, flags: 0, next: 0 };
                guest.publish(Ring::Transmit, &[Descriptor { len: 12, ..valid(&guest, Ring::Transmit) }, over]);
                scene.expect_outcome("a frame across a gap", &Dropped("bad-address"), counts);
                let counts = scene.dropped();
                guest.publish(Ring::Transmit, &[over]);
                scene.expect_and_recover("header and frame across a gap", &Dropped("bad-address"), counts, guest);
            }
        }
        for (before, len) in [(100, 101), (1000, 4096), (13, 2000)] {
            let mut guest = scene.attacker();
            add_region(&mut guest, 4096);
            let counts = scene.dropped();
            guest.publish(Ring::Receive, &[Descriptor { addr: guest.end() - before, len, flags: WRITE, next: 0 }]);
            send(&mut scene.good, &frame(mac(1), mac(2), 700, 1));
            scene.expect_and_recover(
                "a buffer across a gap",
                &Down("names memory that the guest does not have"),
                counts,
                guest,
            );
        }
        scene.end();
    }
}

#[test]
fn cve_2018_1059_regions_that_adjoin_are_followed_each_in_its_own_mapping() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let mut guest = scene.attacker();
        let border = add_region(&mut guest, 0);
        // The second region contains zeros: the guest itself has not mapped it.
        for before in [1_u32, 100, 600] {
            let len = 900;
            let bytes = noise(3, before as usize);
            guest.write_memory(border - u64::from(before), &bytes);
            guest.publish(
                Ring::Transmit,
                &[
                    Descriptor { len: 12, ..valid(&guest, Ring::Transmit) },
                    Descriptor { addr: border - u64::from(before), len, flags: 0, next: 0 },
                ],
            );
            let arrived = take(&mut scene.good, 1).remove(0).1;
            assert_eq!(arrived.len(), len as usize);
            assert!(arrived[..bytes.len()] == bytes && arrived[bytes.len()..].iter().all(|&b| b == 0));
        }
        // A buffer in both regions is filled, and no byte beyond it.
        let there = frame(mac(1), mac(2), 900, 4);
        guest.publish(Ring::Receive, &[Descriptor { addr: border - 500, len: 2000, flags: WRITE, next: 0 }]);
        send(&mut scene.good, &there);
        guest.wait_used(Ring::Receive);
        assert_eq!(guest.last_written(Ring::Receive), 912);
        assert_eq!(guest.read_memory(border - 488, 488).expect("its own"), there[..488]);
        drop(guest);
        scene.recovers("regions that adjoin");
        scene.end();
    }
}

#[test]
fn cve_2018_1059_a_ring_over_the_edge_of_a_region() {
    let mut scene = Scene::new();
    let memory = memory_file(1 << 20).expect("memory");
    let first = region(1 << 19, 0);
    let border = first.guest_addr + first.size;
    let second = RegionSpec { guest_addr: border, user_addr: border, mmap_offset: 1 << 19, ..first };
    let good = RingAddresses { desc: 0x1000, avail: 0x3000, used: 0x4000 };
    for (addresses, words) in [
        (RingAddresses { desc: border - 2048, ..good }, "its descriptor table is not in guest memory"),
        (RingAddresses { avail: border - 256, ..good }, "its available ring is not in guest memory"),
        (RingAddresses { used: border - 1024, ..good }, "its used ring is not in guest memory"),
    ] {
        let mut client = frontend(&scene);
        let regions = [first, second].map(|spec| RegionRef { spec, fd: memory.as_fd() });
        client.set_mem_table(&regions).expect("memory");
        client.set_vring_num(0, 256).expect("a size");
        client.set_vring_addr(0, addresses).expect("addresses");
        assert!(client.set_vring_kick(0, None).is_err(), "a ring in two mappings");
        scene.rig.wait_down(0, words);
        scene.victims.go_on();
        drop(client);
        scene.recovers(words);
    }
    scene.end();
}

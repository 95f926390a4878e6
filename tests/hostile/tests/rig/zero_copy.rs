//! The four bugs for which DPDK's zero-copy dequeue was removed. It used memory after it was
//! unmapped, gave buffers back twice, and kept using disabled rings. Rings also starved because
//! another guest held their buffers. The switch holds buffers for one turn only.

use std::os::fd::AsFd;

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Ring, Scene, valid};
use straightline_guest::{GuestOptions, memory_file};
use straightline_testing::{arrived, frame, mac, send, wait_until};
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::Descriptor;
use straightline_virtio::vhost_user::{RegionRef, RegionSpec};

use crate::cve_2026_86567::mappings;

const TX: Ring = Ring::Transmit;

// Cites vhost-user-rem-mem-reg-2.
#[test]
fn zero_copy_no_memory_is_used_after_it_was_unmapped() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = &mut scene.attacker();
        // The rings stay. The bodies are in a separate region, which is added and removed under
        // traffic.
        let spec = RegionSpec { guest_addr: 1 << 40, size: 1 << 20, user_addr: 1 << 40, mmap_offset: 0 };
        let mapped = mappings(guest.file());
        for round in 0..hostile::repeats(300, 10_000) {
            let bodies = memory_file(spec.size).expect("memory");
            guest.client().add_mem_region(&RegionRef { spec, fd: bodies.as_fd() }).expect("added");
            let header = Descriptor { len: 12, ..valid(guest, TX) };
            let body = Descriptor { addr: spec.guest_addr + 64 * (round as u64 % 100), len: 1500, flags: 0, next: 0 };
            guest.publish_all(TX, &[&[header, body], &[header, body], &[header, body], &[header, body]]);
            // The answer comes when no turn uses the region. It is then unmapped, and chains that
            // name it are refused.
            guest.client().remove_mem_region(&spec).expect("removed");
            assert_eq!(mappings(&bodies), 0, "answered, and still mapped");
            guest.wait_used(TX);
            for (_, bytes) in arrived(&mut scene.good) {
                assert!(bytes.iter().all(|&byte| byte == 0), "only what the guest had there");
            }
        }
        assert_eq!(mappings(guest.file()), mapped);
        scene.victims.go_on();
        scene.rig.wait_up(0);
        scene.end();
    }
}

#[test]
fn zero_copy_every_buffer_comes_back_once() {
    // Rings are stopped and started during traffic. The driver counts every chain; a used id that
    // is not in flight would be an error of the device.
    let mut scene = Scene::new();
    let mut guest = scene.rig.guest(0, &GuestOptions::default());
    let bytes = frame(mac(2), mac(1), 1500, 1);
    let mut sent = 0_u64;
    for round in 0..hostile::repeats(200, 10_000) {
        while guest.send(&NetHeader::default(), &bytes) {
            sent += 1;
        }
        if round % 2 == 0 {
            guest.flush();
        }
        let bases = guest.stop().expect("stopped");
        // In a stopped ring, all taken chains are given back, and all others are still available.
        assert_eq!(bases[0][1], u32::from(guest.used_index(TX)), "taken and not given back");
        let used = guest.used_index(TX);
        scene.victims.go_on();
        assert_eq!(guest.used_index(TX), used, "a stopped ring is given back to");
        guest.resume(&bases).expect("started again");
        arrived(&mut scene.good);
    }
    wait_until("every buffer is back", || {
        guest.flush();
        arrived(&mut scene.good);
        guest.spare() == 256
    });
    assert_eq!(u64::from(guest.used_index(TX)), sent % 65_536, "each of them once");
    drop(guest);
    scene.settle();
    scene.recovers("rings stopped under traffic");
    scene.end();
}

// Cites vhost-user-ring-states-3.
#[test]
fn zero_copy_a_disabled_ring_is_left_alone() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let mut guest = scene.attacker();
        for round in 0..hostile::repeats(50, 5000) {
            guest.client().set_vring_enable(0, false).expect("disabled");
            let buffer = Descriptor { len: 2000, ..valid(&guest, Ring::Receive) };
            guest.publish(Ring::Receive, &[buffer]);
            let before = ring_and_buffer(&guest);
            let counted = scene.rig.drops(0, "ring-disabled");
            send(&mut scene.good, &frame(mac(1), mac(2), 1500, round as u64));
            wait_until("it is dropped", || scene.rig.drops(0, "ring-disabled") == counted + 1);
            assert!(ring_and_buffer(&guest) == before, "nothing of a disabled ring is written");
            guest.client().set_vring_enable(0, true).expect("enabled");
            send(&mut scene.good, &frame(mac(1), mac(2), 1500, round as u64));
            guest.wait_used(Ring::Receive);
        }
        scene.victims.go_on();
        drop(guest);
        scene.recovers("a ring disabled again and again");
        scene.end();
    }
}

/// Returns the bytes of the receive ring and of its first buffer.
fn ring_and_buffer(guest: &Attacker) -> [Vec<u8>; 3] {
    let geometry = guest.geometry(Ring::Receive);
    let read = |addr, len| guest.read_memory(addr, len).expect("its own");
    [read(geometry.desc, 16 * 16), read(geometry.used, 4 + 8 * 16), read(guest.buffer_address(Ring::Receive, 0), 2000)]
}

#[test]
fn zero_copy_nobody_is_starved_by_a_guest_that_takes_nothing() {
    // Packets with bodies for a guest that publishes no buffer, then some, and then no more. The
    // sender gets its buffers back turn by turn, no matter what the receiver does.
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = scene.attacker();
        for buffers in [0, 3, 13] {
            for n in 0..buffers {
                let addr = guest.buffer_address(Ring::Receive, n);
                guest.publish(Ring::Receive, &[Descriptor { addr, len: 2048, ..valid(&guest, Ring::Receive) }]);
            }
            for n in 0..1000 {
                send(&mut scene.good, &frame(mac(1), mac(2), 1500, n));
            }
            wait_until("all buffers are back", || {
                scene.good.flush();
                scene.good.spare() == 256
            });
        }
        scene.rig.wait_drops(0, "no-buffer", 3000 - 16);
        scene.victims.go_on();
        drop(guest);
        scene.recovers("a guest that takes nothing");
        scene.end();
    }
}

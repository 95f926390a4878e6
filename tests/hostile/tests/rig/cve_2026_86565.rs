//! CVE-2026-86565: a ring's size was changed after its in-flight table was created, or while the
//! ring ran.

use std::os::fd::AsFd;

use hostile::attacker::Layout;
use hostile::scene::{Ring, Scene};
use straightline_guest::memory_file;
use straightline_testing::{frame, mac, take};
use straightline_virtio::vhost_user::{Message, RegionRef, Request, RingAddresses};

use crate::messages::{addresses, frontend, number, region, state};

/// Returns GET_INFLIGHT_FD for two rings of `size` entries ("Inflight description").
fn table(size: u16) -> Message {
    let mut payload = vec![0; 16];
    payload.extend(2_u16.to_ne_bytes());
    payload.extend(size.to_ne_bytes());
    Message::request(Request::GetInflightFd, payload)
}

#[test]
fn cve_2026_86565_a_ring_larger_than_its_table() {
    let mut scene = Scene::new();
    let memory = memory_file(1 << 20).expect("memory");
    let place = RingAddresses { desc: 0x1000, avail: 0x1_0000, used: 0x2_0000 };
    // Both orders: the table before the size, and the size before the table.
    for table_first in [true, false] {
        let mut client = frontend(&scene);
        client.set_mem_table(&[RegionRef { spec: region(1 << 20, 0), fd: memory.as_fd() }]).expect("memory");
        let mut messages = vec![table(64), state(Request::SetVringNum, 1, 256)];
        if !table_first {
            messages.reverse();
        }
        messages.extend([addresses(1, place), number(Request::SetVringKick, 1 | 1 << 8)]);
        for message in messages {
            if client.send_raw(&message, &[]).is_err() {
                break;
            }
        }
        scene.rig.wait_down(0, "a capacity of 64");
        scene.victims.go_on();
        drop(client);
        scene.recovers("a ring larger than its table");
    }
    scene.end();
}

#[test]
fn cve_2026_86565_a_size_that_changes_while_the_ring_runs() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let mut guest = scene.attacker();
        for size in [1, 8, 32, 256, 32_768] {
            assert!(guest.client().set_vring_num(1, size).is_err(), "{size} entries");
            assert!(guest.client().set_vring_base(1, 3).is_err());
        }
        // The ring keeps its old size.
        let bytes = frame(mac(2), mac(1), 900, 1);
        let addr = guest.buffer_address(Ring::Transmit, 0);
        guest.write_memory(addr, &[0; 12]);
        guest.write_memory(addr + 12, &bytes);
        for _ in 0..40 {
            guest.publish(
                Ring::Transmit,
                &[straightline_virtio::ring::Descriptor { addr, len: 912, flags: 0, next: 0 }],
            );
            assert!(take(&mut scene.good, 1)[0].1 == bytes);
            guest.wait_used(Ring::Transmit);
        }
        drop(guest);
        scene.recovers("a size that changes");
        scene.end();
    }
}

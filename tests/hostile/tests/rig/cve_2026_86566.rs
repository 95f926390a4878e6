//! CVE-2026-86566: a receive buffer shorter than the header made a length underflow.

use hostile::attacker::Layout;
use hostile::scene::{Down, Dropped, Ring, Scene, valid};
use straightline_testing::{frame, mac, send};
use straightline_virtio::ring::{Descriptor, WRITE};

#[test]
fn cve_2026_86566_a_buffer_too_short_for_the_header() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for len in 0..12 {
            scene.receives("alone", &Down("is too small for the 12-byte header"), |guest| {
                guest.publish(Ring::Receive, &[Descriptor { len, ..valid(guest, Ring::Receive) }]);
            });
            scene.receives("in two pieces", &Down("is too small for the 12-byte header"), |guest| {
                let valid = valid(guest, Ring::Receive);
                guest.publish(
                    Ring::Receive,
                    &[Descriptor { len: len / 2, ..valid }, Descriptor { len: len - len / 2, ..valid }],
                );
            });
        }
        scene.end();
    }
}

#[test]
fn cve_2026_86566_a_runt_as_second_buffer_of_a_packet() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for len in 0..12 {
            // The first buffer is valid, but too short for the packet.
            let then = if len == 0 { Down("an empty buffer") } else { Dropped("no-buffer") };
            scene.receives("a runt in the middle of a packet", &then, |guest| {
                let valid = valid(guest, Ring::Receive);
                let runt = Descriptor { len, addr: valid.addr + 200, ..valid };
                guest.publish_all(Ring::Receive, &[&[valid], &[runt]]);
            });
        }
        scene.end();
    }
}

#[test]
fn cve_2026_86566_a_runt_as_second_descriptor_of_a_buffer() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for (first, len) in (0..12).flat_map(|len| [(712 - len, len), (100, len), (12, len)]) {
            let guest = scene.attacker();
            let addr = guest.buffer_address(Ring::Receive, 0);
            let part = |at: u32, len| Descriptor { addr: addr + u64::from(at), len, flags: WRITE, next: 0 };
            guest.publish(Ring::Receive, &[part(0, first), part(first, len), part(first + len, 2000)]);
            let bytes = frame(mac(1), mac(2), 700, len.into());
            send(&mut scene.good, &bytes);
            guest.wait_used(Ring::Receive);
            assert_eq!(guest.last_written(Ring::Receive), 712);
            assert!(guest.read_memory(addr + 12, 700).expect("its own") == bytes, "{first} and {len} bytes");
            drop(guest);
            scene.recovers("a runt in a buffer");
        }
        scene.end();
    }
}

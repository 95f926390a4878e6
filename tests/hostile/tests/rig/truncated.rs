//! A guest that truncates its memory file while it is mapped: an access of ours is then SIGBUS. (With traffic that never
//! rests: the lab's `rules`.)

use rustix::fs::ftruncate;
use straightline_virtio::ring::Descriptor;

use crate::attacker::Layout;
use crate::common::{frame, mac, send};
use crate::scene::{Down, Ring, Scene, fine};

/// Up to the rings, up to the first buffers, and all of it.
const LEFT: [u64; 3] = [0, 2 << 16, (2 << 16) + 4096];

#[test]
fn a_memory_file_truncated_while_it_is_mapped() {
    for layout in Layout::BOTH {
        let mut scene = Scene::of(layout);
        for left in LEFT {
            for ring in [Ring::Transmit, Ring::Receive] {
                let guest = scene.attacker();
                let counts = scene.dropped();
                // The last buffer, which is gone with all three.
                let desc = Descriptor { addr: guest.buffer_address(ring, 15), len: 1500, ..fine(&guest, ring) };
                if left == 0 {
                    // What the worker reads next is the ring itself.
                    ftruncate(guest.file(), left).expect("truncate");
                    guest.bell(ring);
                } else {
                    guest.publish(ring, &[Descriptor { len: 12, ..fine(&guest, ring) }]);
                    ftruncate(guest.file(), left).expect("truncate");
                    guest.publish(ring, &[desc]);
                }
                for n in 0..4 {
                    send(&mut scene.good, &frame(mac(1), mac(2), 700, n));
                }
                scene.happens("truncated", &Down("truncated while it was mapped"), counts);
                // Its frontend can do what it likes with the rest of it.
                ftruncate(guest.file(), 1 << 20).expect("grown again");
                scene.victims.go_on();
                drop(guest);
                scene.settle();
                scene.recovers("truncated");
            }
        }
        scene.end();
    }
}

/// What was reserved for a packet that found no memory to go to is not used: who goes on with the ring finds it as it was.
#[test]
fn a_buffer_that_vanishes_while_it_is_reserved_is_not_taken() {
    for layout in Layout::BOTH {
        let mut scene = Scene::of(layout);
        let mut guest = scene.attacker();
        let (one, gone) = (fine(&guest, Ring::Receive), guest.buffer_address(Ring::Receive, 15));
        guest.publish(Ring::Receive, &[Descriptor { len: 1500, ..one }]);
        send(&mut scene.good, &frame(mac(1), mac(2), 700, 0));
        guest.wait_used(Ring::Receive);
        // What is left of the page that a file ends in is still there.
        let end = (gone - guest.memory().regions()[0].guest_addr()) / 4096 * 4096;
        ftruncate(guest.file(), end).expect("truncate");
        guest.publish(Ring::Receive, &[Descriptor { addr: gone, len: 1500, ..one }]);
        send(&mut scene.good, &frame(mac(1), mac(2), 700, 1));
        scene.rig.wait_down(0, "truncated while it was mapped");
        let base = guest.client().get_vring_base(0).expect("where it stands");
        assert_eq!(base, if layout == Layout::Packed { 0x8001_8001 } else { 1 }, "{layout:?}");
        scene.victims.go_on();
        drop(guest);
        scene.settle();
        scene.recovers("a buffer that vanishes");
        scene.end();
    }
}

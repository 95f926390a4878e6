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

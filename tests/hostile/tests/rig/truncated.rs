//! A guest that truncates its memory file while it is mapped: an access of ours is then SIGBUS. (With traffic that never
//! rests: the lab's `rules`.)

use std::process::Command;

use rustix::fs::ftruncate;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use straightline_virtio::memory::fault;
use straightline_virtio::ring::Descriptor;

use crate::attacker::Layout;
use crate::common::{frame, mac, send, wait_until};
use crate::scene::{Down, Ring, Scene, valid};

/// Up to the rings, up to the first buffers, and all of it.
const REMAINING: [u64; 3] = [0, 2 << 16, (2 << 16) + 4096];

#[test]
fn a_memory_file_truncated_while_it_is_mapped() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for left in REMAINING {
            for ring in [Ring::Transmit, Ring::Receive] {
                let guest = scene.attacker();
                let counts = scene.dropped();
                // The last buffer, which is gone with all three.
                let desc = Descriptor { addr: guest.buffer_address(ring, 15), len: 1500, ..valid(&guest, ring) };
                if left == 0 {
                    // What the worker reads next is the ring itself.
                    ftruncate(guest.file(), left).expect("truncate");
                    guest.kick(ring);
                } else {
                    guest.publish(ring, &[Descriptor { len: 12, ..valid(&guest, ring) }]);
                    ftruncate(guest.file(), left).expect("truncate");
                    guest.publish(ring, &[desc]);
                }
                for n in 0..4 {
                    send(&mut scene.good, &frame(mac(1), mac(2), 700, n));
                }
                scene.expect_outcome("truncated", &Down("truncated while it was mapped"), counts);
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
        let mut scene = Scene::with_layout(layout);
        let mut guest = scene.attacker();
        let (one, gone) = (valid(&guest, Ring::Receive), guest.buffer_address(Ring::Receive, 15));
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

/// Set for the process in which the test below runs: a limit is the whole process's.
const CHILD: &str = "STRAIGHTLINE_TEST_LIMITED";

/// The kernel refuses every private mapping here, as it does where a machine has no memory left to promise
/// (`vm.overcommit_memory=2`).
#[test]
fn a_memory_file_truncated_when_the_process_may_map_no_more() {
    if std::env::var_os(CHILD).is_none() {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let test = "truncated::a_memory_file_truncated_when_the_process_may_map_no_more";
        let child = command.args(["--exact", test, "--test-threads=1"]).env(CHILD, "1").output().expect("it runs");
        assert!(child.status.success(), "{}: {}", child.status, String::from_utf8_lossy(&child.stdout));
        return;
    }
    let before = getrlimit(Resource::Data);
    // A limit of 0 is none, for the kernel.
    let none_left = Rlimit { current: Some(4096), ..before };
    let mut scene = Scene::new();
    // The first time without: what threads allocate meanwhile is there the second time.
    for limit in [before, none_left] {
        let guest = scene.attacker();
        let counts = scene.dropped();
        guest.publish(Ring::Transmit, &[Descriptor { len: 12, ..valid(&guest, Ring::Transmit) }]);
        let epoch = fault::epoch();
        setrlimit(Resource::Data, limit).expect("a lower limit");
        ftruncate(guest.file(), 0).expect("truncate");
        guest.kick(Ring::Transmit);
        wait_until("a worker has come across it", || fault::epoch() != epoch);
        setrlimit(Resource::Data, before).expect("the limit from before");
        scene.expect_and_recover("truncated", &Down("truncated while it was mapped"), counts, guest);
    }
    scene.end();
}

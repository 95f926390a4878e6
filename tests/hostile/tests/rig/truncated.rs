//! A guest that truncates its memory file while it is mapped, so that an access of the switch
//! raises SIGBUS. (The lab's test `rules` does this under permanent traffic.)

use std::process::Command;

use hostile::attacker::Layout;
use hostile::scene::{Down, Ring, Scene, valid};
use rustix::fs::ftruncate;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use straightline_testing::{frame, mac, send, wait_until};
use straightline_virtio::memory::fault;
use straightline_virtio::ring::Descriptor;

/// Remaining lengths of the file: nothing, the rings, the rings and the first page of buffers.
const REMAINING: [u64; 3] = [0, 2 << 16, (2 << 16) + 4096];

#[test]
fn a_memory_file_truncated_while_it_is_mapped() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for left in REMAINING {
            for ring in [Ring::Transmit, Ring::Receive] {
                let guest = scene.attacker();
                let counts = scene.dropped();
                // The last buffer, which vanishes with all three lengths.
                let desc = Descriptor { addr: guest.buffer_address(ring, 15), len: 1500, ..valid(&guest, ring) };
                if left == 0 {
                    // The worker reads the ring itself next.
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
                // The frontend may change the file again.
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

/// A buffer that vanished after it was reserved for a packet is not used. The next device half of
/// the ring finds the ring unchanged.
#[test]
fn a_buffer_that_vanishes_while_it_is_reserved_is_not_taken() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let mut guest = scene.attacker();
        let one = valid(&guest, Ring::Receive);
        let gone = guest.buffer_address(Ring::Receive, 15);
        guest.publish(Ring::Receive, &[Descriptor { len: 1500, ..one }]);
        send(&mut scene.good, &frame(mac(1), mac(2), 700, 0));
        guest.wait_used(Ring::Receive);
        // The rest of the file's last page stays mapped.
        let end = (gone - guest.memory().regions()[0].guest_addr()) / 4096 * 4096;
        ftruncate(guest.file(), end).expect("truncate");
        guest.publish(Ring::Receive, &[Descriptor { addr: gone, len: 1500, ..one }]);
        send(&mut scene.good, &frame(mac(1), mac(2), 700, 1));
        scene.rig.wait_down(0, "truncated while it was mapped");
        let base = guest.client().get_vring_base(0).expect("the ring's position");
        assert_eq!(base, if layout == Layout::Packed { 0x8001_8001 } else { 1 }, "{layout:?}");
        scene.victims.go_on();
        drop(guest);
        scene.settle();
        scene.recovers("a buffer that vanishes");
        scene.end();
    }
}

/// Environment variable of the process in which the test below runs. It needs its own process,
/// because a limit applies to the whole process.
const CHILD: &str = "STRAIGHTLINE_TEST_LIMITED";

/// The kernel refuses every private mapping here, as it does if a machine cannot commit more memory
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
    // For the kernel, a limit of 0 means no limit.
    let none_left = Rlimit { current: Some(4096), ..before };
    let mut scene = Scene::new();
    // The first run has no lower limit, so that the threads' allocations exist in the second run.
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

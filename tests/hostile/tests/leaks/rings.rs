//! Guests that break a rule of their rings, leave, and return.

use std::os::fd::AsFd;

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Ring, Scene, valid};
use rustix::fs::ftruncate;
use straightline_guest::memory_file;
use straightline_testing::{arrived, frame, mac, send};
use straightline_virtio::ring::{Descriptor, INDIRECT, NEXT, WRITE};
use straightline_virtio::vhost_user::{RegionRef, RegionSpec};

use crate::alone;
use crate::footprint::Footprint;

const TX: Ring = Ring::Transmit;
const RX: Ring = Ring::Receive;

/// An attack: its name, words of the reason why the port goes down (`None` if the port stays up),
/// and the attack itself.
type Attack = (&'static str, Option<&'static str>, fn(&mut Scene, &mut Attacker));

const ATTACKS: [Attack; 10] = [
    ("a bad address", None, |_, guest| {
        guest.publish(TX, &[Descriptor { addr: 0, ..valid(guest, TX) }]);
        guest.wait_used(TX);
    }),
    ("a bad table", None, |_, guest| {
        guest.publish(TX, &[Descriptor { len: 17, flags: INDIRECT, ..valid(guest, TX) }]);
        guest.wait_used(TX);
    }),
    ("a chain without an end", Some("it loops"), |_, guest| {
        guest.publish(TX, &[Descriptor { flags: NEXT, ..valid(guest, TX) }; 16]);
    }),
    ("a read-only buffer", Some("receive ring"), |scene, guest| {
        guest.publish(RX, &[Descriptor { flags: 0, ..valid(guest, RX) }]);
        send_to_both(scene, 700);
    }),
    ("a runt", Some("is too small for the 12-byte header"), |scene, guest| {
        guest.publish(RX, &[Descriptor { len: 11, flags: WRITE, ..valid(guest, RX) }]);
        send_to_both(scene, 700);
    }),
    ("memory truncated", Some("truncated"), |_, guest| {
        ftruncate(guest.file(), 0).expect("truncate");
        guest.kick(TX);
    }),
    ("regions that come and go", None, |_, guest| {
        let file = memory_file(1 << 16).expect("memory");
        let spec = RegionSpec { guest_addr: 1 << 40, size: 1 << 16, user_addr: 1 << 40, mmap_offset: 0 };
        for _ in 0..3 {
            // Add the region once for each queue pair, as QEMU does.
            for _ in 0..2 {
                guest.client().add_mem_region(&RegionRef { spec, fd: file.as_fd() }).expect("added");
            }
            assert!(guest.client().add_mem_region(&RegionRef { spec, fd: file.as_fd() }).is_err(), "it overlaps");
            for _ in 0..2 {
                guest.client().remove_mem_region(&spec).expect("removed");
            }
        }
    }),
    ("rings stopped and started", None, |_, guest| {
        for _ in 0..3 {
            let bases = guest.stop().expect("stopped");
            guest.resume(&bases).expect("started");
        }
    }),
    ("pairs that come and go", None, |_, guest| {
        for count in [0, 2, 1, 2] {
            guest.enable(count).expect("enabled");
            guest.client().get_vring_base(3).expect("stopped");
            guest.client().set_vring_kick(3, None).expect("started");
        }
    }),
    ("an end in the midst of packets", None, |scene, guest| {
        guest.publish(RX, &[Descriptor { len: 2000, ..valid(guest, RX) }]);
        guest.publish(TX, &[valid(guest, TX), valid(guest, TX)]);
        send_to_both(scene, 1500);
    }),
];

/// Sends packets of several flows, so that both receive rings get one.
fn send_to_both(scene: &mut Scene, len: usize) {
    (0..8).for_each(|n| send(&mut scene.good, &frame(mac(n), mac(2), len, 1)));
}

fn attack(scene: &mut Scene, (_, words, f): Attack) {
    let mut guest = scene.attacker();
    f(scene, &mut guest);
    if let Some(words) = words {
        scene.rig.wait_down(0, words);
    }
    drop(guest);
    scene.rig.wait_down(0, "waiting for a frontend");
    arrived(&mut scene.good);
}

#[test]
fn leaks_guests_that_attack_and_come_again() {
    let _alone = alone();
    for layout in Layout::BOTH {
        let mut scene = Scene::with_queues(layout, 2);
        for what in ATTACKS {
            attack(&mut scene, what);
        }
        let before = Footprint::now();
        let rounds = hostile::repeats(300, 10_000) / ATTACKS.len();
        for what in ATTACKS {
            (0..rounds).for_each(|_| attack(&mut scene, what));
            before.is_as_before(what.0);
            scene.victims.go_on();
        }
        scene.settle();
        scene.recovers("attacks again and again");
        scene.end();
    }
}

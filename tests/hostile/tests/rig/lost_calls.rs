//! A guest that answers no call, as if it had lost them all. Its port's thread must not repeat the
//! call for ever.

use std::os::fd::AsFd;
use std::time::Duration;

use hostile::attacker::Layout;
use hostile::scene::{Ring, Scene, valid};
use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::GuestOptions;
use straightline_testing::{frame, mac, send, vhost_user, wait_until};
use straightline_virtio::ring::Descriptor;

/// The pauses of the repeats here, shorter than those of real ports.
const PAUSES: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(40)];

#[test]
fn a_call_that_is_never_answered_is_repeated_three_times() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_good_guest(layout, 1, &GuestOptions::default(), |config| {
            vhost_user(&mut config.ports[0]).call_pauses = PAUSES;
        });
        let mut guest = scene.attacker();
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        guest.client().set_vring_call(Ring::Receive as u16, Some(call.as_fd())).expect("a call");
        guest.publish(Ring::Receive, &[Descriptor { len: 2000, ..valid(&guest, Ring::Receive) }]);
        // The driver requests a call for the first used entry. (`publish` writes the event
        // suppression of a packed ring, so it comes first.)
        let at = guest.geometry(Ring::Receive);
        match layout {
            Layout::Split => guest.write_memory(at.avail + 4 + 2 * u64::from(at.size), &[0; 2]),
            Layout::Packed => guest.write_driver_events(Ring::Receive, 0x8000, 2),
        };
        send(&mut scene.good, &frame(mac(1), mac(2), 700, 1));
        let mut calls = 0;
        let mut count = || {
            let mut bytes = [0; 8];
            calls += rustix::io::read(&call, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes));
            calls
        };
        scene.measure_gap("calls that are never answered", |_| {
            // One call for the new descriptor, one for the entry, and its repetitions.
            wait_until("the call is repeated three times", || count() >= 2 + 3);
            // The time is the subject: several times the longest pause before a repetition.
            std::thread::sleep(5 * PAUSES[2]);
        });
        assert_eq!(count(), 2 + 3);
        assert_eq!(scene.rig.port(0).queues[0].calls_repeated, 3);
        scene.victims.go_on();
        drop(guest);
        scene.settle();
        scene.recovers("a guest that answers no call");
        scene.end();
    }
}

//! Guests that lose calls on purpose: a call that is not answered is repeated, three times at most.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use straightline_graph::Clock;
use straightline_guest::{Guest, GuestOptions, Ring};
use straightline_port::vhost_user::CALL_PAUSES;
use straightline_testing::{Rig, frame, mac, patch, rig_by, send, take, wait_moving, wait_until};
use straightline_virtio::features as f;

/// A time after which all repeats of a call are over.
const HOUR: Duration = Duration::from_secs(3600);

/// Two patched ports, and a clock.
fn patched() -> Rig {
    rig_by(2, &Clock::moved(), |config| config.patches.push(patch(0, 1)))
}

fn options(packed: bool) -> GuestOptions {
    let layout = if packed { f::VIRTIO_F_RING_PACKED } else { 0 };
    GuestOptions { features: GuestOptions::default().features | layout, ring_size: 16, ..GuestOptions::default() }
}

/// A ring's calls, to which its driver does not react.
struct Calls {
    event: OwnedFd,
    count: u64,
}

impl Calls {
    fn of(guest: &mut Guest, ring: Ring) -> Calls {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        guest.client().set_vring_call(ring as u16, Some(event.as_fd())).expect("a call");
        let mut calls = Calls { event, count: 0 };
        // A new descriptor is called once, wanted or not.
        wait_until("the new descriptor is called", || calls.count() >= 1);
        calls.count -= 1;
        calls
    }

    fn count(&mut self) -> u64 {
        let mut bytes = [0; 8];
        if rustix::io::read(&self.event, &mut bytes).is_ok() {
            self.count += u64::from_ne_bytes(bytes);
        }
        self.count
    }

    fn wait(&mut self, count: u64) {
        wait_until(&format!("there are {count} calls"), || self.count() >= count);
        assert_eq!(self.count, count);
    }

    /// Lets the time pass until there are so many calls.
    fn wait_repeated(&mut self, rig: &Rig, count: u64) {
        wait_moving(&rig.clock, CALL_PAUSES[0], &format!("there are {count} calls"), || self.count() >= count);
        assert_eq!(self.count, count);
    }
}

/// Asks for a call with the `n`th used entry of the ring.
fn ask(guest: &Guest, ring: Ring, packed: bool, n: u16) {
    let geometry = guest.geometry(ring);
    if packed {
        let wrap = (n / geometry.size).is_multiple_of(2);
        guest.write_driver_events(ring, (n % geometry.size) | (u16::from(wrap) << 15), 2);
    } else {
        guest.write_memory(geometry.avail + 4 + 2 * u64::from(geometry.size), &n.to_le_bytes());
    }
}

fn repeated(rig: &Rig) -> u64 {
    rig.port(0).queues[0].calls_repeated
}

/// Runs a case with both layouts.
fn with_both_layouts(case: impl Fn(bool)) {
    [false, true].into_iter().for_each(case);
}

/// Lets so much time pass that each repeat that was due has come.
fn let_time_pass(rig: &Rig, guest: &mut Guest) {
    looks_at_calls(guest);
    rig.clock.advance(HOUR);
    looks_at_calls(guest);
}

/// Waits until the port's thread has looked for lost calls. It looks after each message of its frontend, so
/// its answer to the second one follows a look.
fn looks_at_calls(guest: &mut Guest) {
    for _ in 0..2 {
        guest.client().get_features().expect("an answer");
    }
}

#[test]
fn a_lost_call_is_repeated_at_most_three_times_until_something_moves() {
    with_both_layouts(|packed| {
        let rig = patched();
        let mut a = rig.guest(0, &options(packed));
        let mut b = rig.guest(1, &options(false));
        let mut calls = Calls::of(&mut a, Ring::Receive);
        ask(&a, Ring::Receive, packed, 0);
        let sent = [0, 1, 2].map(|n| frame(mac(1), mac(2), 100, n));
        send(&mut b, &sent[0]);
        // The call, which is lost, and all its repeats, which are lost as well.
        calls.wait_repeated(&rig, 4);
        assert_eq!(repeated(&rig), 3);
        let_time_pass(&rig, &mut a);
        assert_eq!((calls.count(), repeated(&rig)), (4, 3), "no more, forever");

        // More entries are used. The driver has not asked for a call again, so none is due for
        // them. But the lost call is repeated.
        send(&mut b, &sent[1]);
        calls.wait_repeated(&rig, 7);
        assert_eq!(repeated(&rig), 6);

        // The driver gets one of the repeated calls at last, and asks for the next call.
        assert!(take(&mut a, 2).iter().map(|(_, bytes)| bytes).eq(&sent[..2]));
        ask(&a, Ring::Receive, packed, 2);
        send(&mut b, &sent[2]);
        calls.wait_repeated(&rig, 11);
        assert_eq!(repeated(&rig), 9);
        assert_eq!(rig.port(0).queues[0].calls_sent, 2);
        assert!(take(&mut a, 1)[0].1 == sent[2]);
    });
}

#[test]
fn a_lost_call_of_a_transmit_ring_is_repeated_and_an_answered_one_is_not() {
    with_both_layouts(|packed| {
        let rig = patched();
        let mut a = rig.guest(0, &options(packed));
        let mut b = rig.guest(1, &options(false));
        let mut received = Calls::of(&mut a, Ring::Receive);
        let mut sent = Calls::of(&mut a, Ring::Transmit);
        // The state after the driver has seen what is about to be used: it waits for the next
        // entry.
        ask(&a, Ring::Receive, packed, 1);
        ask(&a, Ring::Transmit, packed, 0);
        // The first used entry of a ring is always called for.
        send(&mut b, &frame(mac(1), mac(2), 100, 1));
        received.wait(1);
        send(&mut a, &frame(mac(2), mac(1), 100, 2));
        sent.wait_repeated(&rig, 4);
        let_time_pass(&rig, &mut a);
        assert_eq!((received.count(), sent.count()), (1, 4));
        assert_eq!(repeated(&rig), 3, "those of the transmit ring");
        assert_eq!((take(&mut a, 1).len(), take(&mut b, 1).len()), (1, 1));
    });
}

#[test]
fn a_driver_that_polls_is_not_called_again() {
    with_both_layouts(|packed| does_not_call(&options(packed)));
}

/// Its ring does not show what it waits for.
#[test]
fn a_driver_without_the_event_index_is_not_called_again() {
    with_both_layouts(|packed| {
        let GuestOptions { features, .. } = options(packed);
        does_not_call(&GuestOptions { features: features & !f::VIRTIO_F_EVENT_IDX, ..options(packed) });
    });
}

fn does_not_call(options: &GuestOptions) {
    let rig = patched();
    let mut a = rig.guest(0, options);
    let mut b = rig.guest(1, options);
    for n in 0..100 {
        send(&mut b, &frame(mac(1), mac(2), 100, n));
        send(&mut a, &frame(mac(2), mac(1), 100, n));
        assert_eq!((take(&mut a, 1).len(), take(&mut b, 1).len()), (1, 1));
        rig.clock.advance(CALL_PAUSES[0]);
    }
    let_time_pass(&rig, &mut a);
    assert_eq!(repeated(&rig), 0);
}

/// A call that gets lost while the ring is set up: an earlier backend has used an entry without a
/// call.
#[test]
fn the_call_of_a_new_descriptor_is_repeated_too() {
    with_both_layouts(|packed| {
        let rig = patched();
        let mut a = rig.guest(0, &options(packed));
        let mut b = rig.guest(1, &options(false));
        send(&mut b, &frame(mac(1), mac(2), 100, 1));
        wait_until("it is delivered", || rig.port(0).queues[0].tx.packets == 1);
        let_time_pass(&rig, &mut a);
        ask(&a, Ring::Receive, packed, 0);
        let mut calls = Calls::of(&mut a, Ring::Receive);
        calls.wait_repeated(&rig, 3);
        assert_eq!(repeated(&rig), 3);
        // Nothing has moved, but calls to the next descriptor may arrive.
        let mut calls = Calls::of(&mut a, Ring::Receive);
        calls.wait_repeated(&rig, 3);
        assert_eq!(repeated(&rig), 6);
        assert_eq!(take(&mut a, 1).len(), 1);
    });
}

/// Returns all bytes of the guest's memory.
fn memory(guest: &Guest) -> Vec<u8> {
    let region = &guest.memory().regions()[0];
    let len = region.size().try_into().expect("a small guest");
    guest.read_memory(region.guest_addr(), len).expect("its memory")
}

/// A lost call would be repeated, and packets come for the guest: but its rings are stopped.
// Cites vhost-user-suspended-1, vhost-user-suspended-2.
#[test]
fn a_guest_whose_rings_are_stopped_gets_neither_bytes_nor_calls() {
    with_both_layouts(|packed| {
        let rig = patched();
        let mut a = rig.guest(0, &options(packed));
        let mut b = rig.guest(1, &options(false));
        let mut calls = Calls::of(&mut a, Ring::Receive);
        ask(&a, Ring::Receive, packed, 0);
        send(&mut b, &frame(mac(1), mac(2), 100, 1));
        wait_until("there is a call", || calls.count() >= 1);
        let bases = a.stop().expect("the rings stop");
        let heard = calls.count();
        ask(&a, Ring::Receive, packed, 1);
        let before = memory(&a);
        for n in 2..12 {
            send(&mut b, &frame(mac(1), mac(2), 100, n));
        }
        rig.wait_drops(0, "link-down", 10);
        let_time_pass(&rig, &mut a);
        assert_eq!(calls.count(), heard);
        assert!(memory(&a) == before);
        a.resume(&bases).expect("the rings start");
        rig.wait_up(0);
        send(&mut b, &frame(mac(1), mac(2), 100, 12));
        assert_eq!(take(&mut a, 2).len(), 2);
    });
}

/// The loop of every guest's driver: it sleeps until it is called. Two of three calls are lost, so
/// that it would get stuck at once without repeats.
#[test]
fn a_guest_that_loses_calls_goes_on() {
    with_both_layouts(|packed| {
        let rig = patched();
        let mut a = rig.guest(0, &options(packed));
        let mut b = rig.guest(1, &options(false));
        let mut calls = Calls::of(&mut a, Ring::Receive);
        let mut seen = 0;
        let mut heard = 0;
        while seen < 8 {
            ask(&a, Ring::Receive, packed, seen);
            send(&mut b, &frame(mac(1), mac(2), 100, seen.into()));
            wait_moving(&rig.clock, CALL_PAUSES[0], "a call is not lost", || {
                let new = calls.count() - heard;
                heard += new;
                (heard - new..heard).any(|n| n % 3 == 2)
            });
            assert_eq!(take(&mut a, 1).len(), 1);
            seen += 1;
        }
        assert!(repeated(&rig) >= 8, "two of three calls are lost");
    });
}

//! Another process holds all asynchronous requests of the system. The switch must notify its guests
//! in another way, which must not delay its workers.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Ring, Scene, valid};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use straightline_switch::api::Status;
use straightline_testing::{PATIENCE, frame, mac, send, wait_until};
use straightline_virtio::ring::Descriptor;

use crate::peers::fill_calls_that_block;

/// Runs `f` on a thread without asynchronous requests, as if another process held all of
/// `fs.aio-max-nr`: the error of the kernel is the same. Threads that `f` starts inherit this.
fn without_requests(f: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        let refused = [libc::SYS_io_setup, libc::SYS_io_submit].map(|call| (call, Vec::new()));
        let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a processor that is known");
        let others = SeccompAction::Allow;
        let these = SeccompAction::Errno(libc::EAGAIN.unsigned_abs());
        let filter = SeccompFilter::new(BTreeMap::from(refused), others, these, arch).expect("a filter");
        apply_filter(&BpfProgram::try_from(filter).expect("a program")).expect("the kernel takes it");
        f();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn method(scene: &Scene) -> String {
    scene.rig.switch.source().status().notifications
}

#[test]
fn status_tells_how_guests_are_notified() {
    let scene = Scene::new();
    assert_eq!(method(&scene), Status::AIO);
    scene.end();
    without_requests(|| {
        let scene = Scene::new();
        assert_eq!(method(&scene), Status::HELPER_THREAD);
        scene.end();
    });
}

#[test]
fn guests_are_notified_without_asynchronous_requests() {
    without_requests(|| {
        for layout in Layout::BOTH {
            let mut scene = Scene::with_layout(layout);
            let mut guest = scene.attacker();
            let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
            let wait_for_call = || {
                let mut fds = [PollFd::new(&call, PollFlags::IN)];
                let patience = Timespec::try_from(PATIENCE).expect("a time");
                assert_eq!(poll(&mut fds, Some(&patience)), Ok(1), "the guest is notified");
                rustix::io::read(&call, &mut [0; 8]).expect("a count");
            };
            guest.client().set_vring_call(Ring::Receive as u16, Some(call.as_fd())).expect("a call");
            wait_for_call();
            for n in 0..100 {
                ask_for_call(&guest, layout, Ring::Receive);
                guest.publish(Ring::Receive, &[Descriptor { len: 2000, ..valid(&guest, Ring::Receive) }]);
                send(&mut scene.good, &frame(mac(1), mac(2), 700, n));
                guest.wait_used(Ring::Receive);
                wait_for_call();
            }
            drop(guest);
            scene.recovers("notifications by a helper");
            scene.end();
        }
    });
}

#[test]
fn a_call_that_is_full_and_blocks_holds_nobody_up_without_asynchronous_requests() {
    without_requests(|| {
        for layout in Layout::BOTH {
            fill_calls_that_block(Scene::with_layout(layout));
        }
    });
}

/// Watches an eventfd by many epoll instances, each by many descriptors. A signal wakes all of them
/// one after the other.
fn watches(event: &OwnedFd) -> Vec<OwnedFd> {
    let descriptors: Vec<_> = (0..200).map(|_| event.try_clone().expect("a descriptor")).collect();
    let watch = || {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
        for fd in &descriptors {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).expect("a watch");
        }
        epoll
    };
    let epolls: Vec<_> = (0..300).map(|_| watch()).collect();
    epolls.into_iter().chain(descriptors).collect()
}

/// Requests a call for the next used element.
fn ask_for_call(guest: &Attacker, layout: Layout, ring: Ring) {
    // A packed ring requests a call for each.
    if layout == Layout::Split {
        let at = guest.geometry(ring);
        let event = guest.memory().area(at.avail + 4 + 2 * u64::from(at.size), 2, 2).expect("in memory");
        event.release_u16(0, guest.used_index(ring));
    }
}

/// Transmits a packet, and waits until the switch returns it.
fn transmit(guest: &Attacker, layout: Layout) {
    ask_for_call(guest, layout, Ring::Transmit);
    guest.publish(Ring::Transmit, &[Descriptor { len: 412, ..valid(guest, Ring::Transmit) }]);
    guest.wait_used(Ring::Transmit);
}

#[test]
fn an_eventfd_that_is_watched_too_often_is_left_to_the_helper() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let mut guest = scene.attacker();
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let watches = watches(&call);
        let slow = |scene: &Scene| scene.rig.port(0).slow_calls;
        guest.client().set_vring_call(Ring::Transmit as u16, Some(call.as_fd())).expect("a call");
        let bytes = frame(mac(2), mac(1), 400, 2);
        guest.write_memory(guest.buffer_address(Ring::Transmit, 0), &[0; 12]);
        guest.write_memory(guest.buffer_address(Ring::Transmit, 0) + 12, &bytes);
        let mut sent = 0;
        while !slow(&scene) && sent < 1000 {
            transmit(&guest, layout);
            sent += 1;
        }
        assert!(slow(&scene), "{layout:?}: after {sent} packets, workers still send the guest's calls");
        // The guest is notified as before.
        let mut counted = [0; 8];
        let _ = rustix::io::read(&call, &mut counted);
        transmit(&guest, layout);
        wait_until("the guest is notified", || rustix::io::read(&call, &mut counted).is_ok());
        scene.victims.go_on();
        drop((watches, guest));
        scene.settle();
        scene.recovers("a call that takes long");
        assert!(!slow(&scene), "the next frontend starts anew");
        scene.end();
    }
}

// Cites vhost-user-set-vring-err-1.
#[test]
fn a_frontend_that_asks_is_told_that_its_ring_failed() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let mut guest = scene.attacker();
        let error = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        guest.client().set_vring_err(Ring::Receive as u16, Some(error.as_fd())).expect("an error descriptor");
        let is_told = |limit: Duration| {
            let mut fds = [PollFd::new(&error, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::try_from(limit).expect("a time"))) == Ok(1)
        };
        scene.rig.wait_up(0);
        assert!(!is_told(Duration::ZERO), "nothing has failed yet");
        guest.publish(Ring::Receive, &[Descriptor { flags: 0, ..valid(&guest, Ring::Receive) }]);
        send(&mut scene.good, &frame(mac(1), mac(2), 700, 1));
        assert!(is_told(PATIENCE), "the ring has failed");
        scene.rig.wait_down(0, "receive ring");
        drop(guest);
        scene.recovers("a ring that failed");
        scene.end();
    }
}

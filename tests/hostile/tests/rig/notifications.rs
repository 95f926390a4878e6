//! Another process holds all asynchronous requests of the system. The switch must notify its guests
//! in another way, which must not delay its workers.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use straightline_switch::api::Status;
use straightline_virtio::ring::Descriptor;

use crate::attacker::Layout;
use crate::common::{PATIENCE, frame, mac, send};
use crate::peers::fill_calls_that_block;
use crate::scene::{Ring, Scene, valid};

/// Runs `f` on a thread without asynchronous requests, as if another process held all of
/// `fs.aio-max-nr`: the error of the kernel is the same. Threads that `f` starts inherit this.
fn without_requests(f: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        let refused = [libc::SYS_io_setup, libc::SYS_io_submit].map(|call| (call, Vec::new()));
        let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a processor that is known");
        let (others, these) = (SeccompAction::Allow, SeccompAction::Errno(libc::EAGAIN.unsigned_abs()));
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
                if layout == Layout::Split {
                    // The event index requests a call for the next used element.
                    let at = guest.geometry(Ring::Receive);
                    let event = guest.memory().area(at.avail + 4 + 2 * u64::from(at.size), 2, 2).expect("in memory");
                    event.release_u16(0, guest.used_index(Ring::Receive));
                }
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

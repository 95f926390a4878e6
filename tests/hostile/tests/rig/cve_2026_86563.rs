//! CVE-2026-86563: a dirty log's offset was applied twice.

use std::os::fd::AsFd;

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Ring, Scene, valid};
use straightline_guest::memory_file;
use straightline_testing::{frame, mac, send};
use straightline_virtio::features::VHOST_F_LOG_ALL;
use straightline_virtio::ring::Descriptor;
use straightline_virtio::vhost_user::{Message, Request};

use crate::cve_2026_86567::own_region;

/// Bytes of guest memory for each bit of the log (vhost-user, "Migration").
const PAGE: u64 = 4096;

/// Size of the log's file.
const FILE: u64 = 1 << 17;

/// Size of the log.
const LOG: u64 = 1 << 15;

/// Returns a copy of the guest's memory.
fn snapshot(guest: &Attacker) -> Vec<u8> {
    let whole = own_region(guest);
    guest.read_memory(whole.guest_addr, u32::try_from(whole.size).expect("a small guest")).expect("its own")
}

// Cites vhost-user-migration-5.
#[test]
fn cve_2026_86563_marks_are_where_the_log_is() {
    for layout in Layout::BOTH {
        for offset in [0, 4096, 8192, 3 * LOG] {
            let mut scene = Scene::with_layout(layout);
            let mut guest = scene.attacker();
            let file = memory_file(FILE).expect("a log");
            let payload = [LOG.to_ne_bytes(), offset.to_ne_bytes()].concat();
            let base = Message::request(Request::SetLogBase, payload);
            guest.client().send_raw(&base, &[file.as_fd()]).expect("sent");
            let answer = guest.client().recv_raw().expect("answered").expect("not closed");
            assert_eq!(answer.request, Request::SetLogBase.code());
            let features = guest.features() | VHOST_F_LOG_ALL;
            guest.client().set_features(features).expect("the log is turned on");

            let before = snapshot(&guest);
            for n in 0..5 {
                let buffer = Descriptor {
                    addr: guest.buffer_address(Ring::Receive, 2 * n),
                    len: 2000,
                    ..valid(&guest, Ring::Receive)
                };
                guest.publish(Ring::Receive, &[buffer]);
                send(&mut scene.good, &frame(mac(1), mac(2), 1200, n.into()));
                guest.wait_used(Ring::Receive);
                guest.publish(Ring::Transmit, &[valid(&guest, Ring::Transmit)]);
                guest.wait_used(Ring::Transmit);
            }
            let bases = guest.stop().expect("stopped: every mark is made");
            drop(bases);
            let after = snapshot(&guest);
            let mut log = vec![0; usize::try_from(FILE).expect("small")];
            assert_eq!(rustix::io::pread(&file, &mut log, 0).expect("the log"), log.len());

            let start = own_region(&guest).guest_addr / PAGE;
            let marked = |page: u64| {
                let at = usize::try_from(offset + page / 8).expect("small");
                log[at] & 1 << (page % 8) != 0
            };
            let pages = before.chunks(4096).zip(after.chunks(4096));
            let mut changed = 0;
            let mut marks = 0;
            for (page, (before, after)) in (start..).zip(pages) {
                // The snapshots also differ by the driver's own writes. Only the device writes
                // receive buffers, so each changed page there must be marked.
                marks += u32::from(marked(page));
                let at = page * PAGE;
                let buffers = guest.buffer_address(Ring::Receive, 0)..guest.buffer_address(Ring::Receive, 16);
                if before != after && buffers.contains(&at) {
                    changed += 1;
                    assert!(marked(page), "{layout:?}: page {page:#x} was written and is not marked");
                }
            }
            assert!(changed >= 3 && marks >= changed, "{changed} pages, {marks} marks");
            let all: u32 = log.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(all, marks, "{layout:?}, offset {offset:#x}: the log has marks outside of the guest's pages");
            drop(guest);
            scene.settle();
            scene.recovers("a log at an offset");
            scene.end();
        }
    }
}

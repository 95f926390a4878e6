//! CVE-2021-3839: an in-flight table was created for more queues than are possible.

use std::os::fd::AsFd;

use hostile::scene::Scene;
use straightline_guest::memory_file;
use straightline_virtio::vhost_user::{Message, Request};

use crate::messages::frontend;

/// Returns an "Inflight description": size and offset of the mapping, number of rings, entries of
/// the largest ring.
fn description(queues: u16, size: u16) -> Vec<u8> {
    let mut payload = [(1_u64 << 20).to_ne_bytes(), 0_u64.to_ne_bytes()].concat();
    payload.extend(queues.to_ne_bytes());
    payload.extend(size.to_ne_bytes());
    payload
}

/// Sends a description, then another request. Returns `false` if the port closes the connection
/// instead.
fn is_taken(scene: &Scene, request: Request, queues: u16, size: u16) -> bool {
    let client = frontend(scene);
    let file = memory_file(1 << 20).expect("a table");
    let fds = [file.as_fd()];
    let fds = if request == Request::SetInflightFd { &fds[..] } else { &[] };
    client.send_raw(&Message::request(request, description(queues, size)), fds).expect("it is there");
    client.send_raw(&Message::request(Request::GetFeatures, Vec::new()), &[]).is_ok()
        && client.recv_raw().is_ok_and(|answer| answer.is_some())
}

#[test]
fn cve_2021_3839_the_whole_range_of_queues_and_sizes() {
    let mut scene = Scene::new();
    // A receive and a transmit ring. A third one, for control, may exist, so that number is not
    // tried.
    let rings = 2;
    let edges: Vec<u16> =
        (0..16).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]).chain([u16::MAX]).collect();
    let stride = 65_536 / hostile::repeats(64, 65_536);
    let queues: Vec<u16> =
        edges.iter().copied().chain((0..=u16::MAX).step_by(stride)).filter(|&n| n != rings + 1).collect();
    for request in [Request::GetInflightFd, Request::SetInflightFd] {
        for &queues in &queues {
            let good = (1..=rings).contains(&queues);
            assert_eq!(is_taken(&scene, request, queues, 256), good, "{request} for {queues} rings");
        }
        for &size in &edges {
            let good = (1..=1 << 15).contains(&size);
            // A valid size may be too large for the file of 1 MiB.
            let taken = is_taken(&scene, request, 2, size);
            assert!(taken == good || (size > 16_384 && !taken), "{request} for rings of {size}");
        }
        scene.victims.go_on();
        scene.recovers("tables of any size");
    }
    scene.end();
}

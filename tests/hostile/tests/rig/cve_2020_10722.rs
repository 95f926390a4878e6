//! CVE-2020-10722: the sum of a dirty log's size and offset overflowed.

use std::os::fd::AsFd;

use hostile::scene::Scene;
use straightline_guest::memory_file;
use straightline_virtio::vhost_user::{Message, Request};

use crate::cve_2026_86567::mappings;
use crate::messages::{frontend, number};

/// Size of the file.
const FILE: u64 = 1 << 20;

#[test]
fn cve_2020_10722_size_and_offset_of_a_log() {
    let mut scene = Scene::new();
    let file = memory_file(FILE).expect("a log");
    let edges =
        [0, 1, 4095, 4096, FILE - 1, FILE, FILE + 1, 1 << 32, 1 << 63, u64::MAX - FILE, u64::MAX - 4095, u64::MAX];
    for size in edges {
        for offset in edges {
            let good = size > 0 && offset.checked_add(size).is_some_and(|end| end <= FILE);
            let client = frontend(&scene);
            let payload = [size.to_ne_bytes(), offset.to_ne_bytes()].concat();
            client.send_raw(&Message::request(Request::SetLogBase, payload), &[file.as_fd()]).expect("it is there");
            let answer = client.recv_raw().ok().flatten();
            let taken = answer.is_some_and(|answer| answer.payload == number(Request::SetLogBase, 0).payload);
            assert_eq!(taken, good, "{size:#x} bytes at {offset:#x}");
            if !good {
                scene.rig.wait_down(0, "");
                assert_eq!(mappings(&file), 0, "{size:#x} bytes at {offset:#x}");
            }
        }
        scene.victims.go_on();
    }
    scene.recovers("logs that overflow");
    scene.settle();
    assert_eq!(mappings(&file), 0, "a log stays mapped");
    scene.end();
}

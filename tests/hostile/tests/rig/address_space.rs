//! Large sparse files. Mapping them takes address space of the switch, which other ports need too.

use std::os::fd::AsFd;

use hostile::scene::Scene;
use straightline_guest::memory_file;
use straightline_virtio::vhost_user::{Message, RegionRef, RegionSpec, Request};

use crate::cve_2026_86567::mappings;
use crate::messages::{frontend, number};

const TIB: u64 = 1 << 40;

/// Returns region `n` of `size` bytes.
fn region(n: u64, size: u64) -> RegionSpec {
    RegionSpec { guest_addr: n * size, size, user_addr: n * size, mmap_offset: 0 }
}

/// Adds a region to the good guest on another port, and removes it again.
fn others_can_map(scene: &mut Scene) {
    let file = memory_file(1 << 20).expect("memory");
    let spec = RegionSpec { guest_addr: 1 << 46, size: 1 << 20, user_addr: 1 << 46, mmap_offset: 0 };
    let client = scene.good.client();
    client.add_mem_region(&RegionRef { spec, fd: file.as_fd() }).expect("another port's memory is mapped");
    client.remove_mem_region(&spec).expect("and unmapped");
}

#[test]
fn a_table_of_all_the_address_space() {
    let mut scene = Scene::new();
    let file = memory_file(16 * TIB).expect("a sparse file");
    let mut client = frontend(&scene);
    let table: Vec<_> = (0..8).map(|n| RegionRef { spec: region(n, 16 * TIB), fd: file.as_fd() }).collect();
    assert!(client.set_mem_table(&table).is_err());
    scene.rig.wait_down(0, "memory regions of 0x800000000000 bytes together; at most 0x100000000000 are taken");
    assert_eq!(mappings(&file), 0);
    others_can_map(&mut scene);
    drop(client);
    scene.recovers("a table of all the address space");
    scene.end();
}

#[test]
fn regions_added_until_no_more_is_taken() {
    let mut scene = Scene::new();
    let file = memory_file(TIB).expect("a sparse file");
    let mut client = frontend(&scene);
    let add = |n| client.add_mem_region(&RegionRef { spec: region(n, TIB), fd: file.as_fd() }).is_ok();
    // There are enough slots for the rest of the address space.
    let add_all = |_: &Scene| (0..500).map(add).take_while(|added| *added).count();
    let added = scene.measure_gap("regions added until no more is taken", add_all);
    others_can_map(&mut scene);
    assert_eq!(added, 16);
    scene.victims.go_on();
    drop(client);
    scene.recovers("regions added until no more is taken");
    scene.end();
}

#[test]
fn a_log_larger_than_any_guest() {
    let mut scene = Scene::new();
    let file = memory_file(16 * TIB).expect("a sparse file");
    for size in [(1 << 37) + 1, 16 * TIB] {
        let client = frontend(&scene);
        let payload = [size.to_ne_bytes(), 0_u64.to_ne_bytes()].concat();
        client.send_raw(&Message::request(Request::SetLogBase, payload), &[file.as_fd()]).expect("it is there");
        let answer = client.recv_raw().ok().flatten();
        let yes = number(Request::SetLogBase, 0).payload;
        assert!(answer.is_none_or(|answer| answer.payload != yes), "a log of {size:#x} bytes is taken");
        scene.rig.wait_down(0, "");
        assert_eq!(mappings(&file), 0);
        others_can_map(&mut scene);
        drop(client);
        scene.recovers("a log larger than any guest");
    }
    scene.end();
}

//! Many regions: each has guard pages of its own, the table of watched regions is finite, and its
//! entries are reused. One test alone in its process, because it fills the table and checks the
//! address space.

use std::os::fd::AsFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_virtio::memory::fault::MAX_REGIONS;
use straightline_virtio::memory::{MapError, Region};

/// Returns the number of bytes of this process's address space that are not accessible.
fn guarded() -> usize {
    let number = |hex| usize::from_str_radix(hex, 16).expect("a number");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
    let ranges = maps.lines().filter_map(|line| line.split_once(" ---p")?.0.split_once('-'));
    ranges.map(|(start, end)| number(end) - number(start)).sum()
}

#[test]
fn guards_and_entries_are_each_regions_own() {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd_create");
    ftruncate(&fd, 4096).expect("ftruncate");
    let map = || Region::map(fd.as_fd(), 0, 4096, 0, 0);
    let before = guarded();
    let some: Vec<_> = (0..100).map(|_| map().expect("the table has a free entry")).collect();
    assert!(guarded() - before >= 100 * 2 * 4096, "a neighbour's guard page is none of ours");
    drop(some);
    for _ in 0..10_000 {
        map().expect("what was mapped before is gone");
    }
    let mut all: Vec<_> = (0..MAX_REGIONS).map(|_| map().expect("the table has a free entry")).collect();
    for _ in 0..3 {
        assert!(matches!(map(), Err(MapError::TooMany(_))));
    }
    Region::map_own(fd.as_fd(), 4096).expect("frontends take no entry of the process's own");
    all.swap_remove(MAX_REGIONS / 2);
    all.push(map().expect("one entry is free"));
    assert!(matches!(map(), Err(MapError::TooMany(_))));
    drop(all);
    map().expect("all are free");
}

//! CVE-2026-86567: a ring was still used after its memory had been unmapped.

use std::os::fd::{AsFd, OwnedFd};

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Ring, Scene, valid};
use rustix::fs::fstat;
use straightline_guest::{Guest, memory_file};
use straightline_testing::{arrived, frame, mac, send, take};
use straightline_virtio::ring::Descriptor;
use straightline_virtio::vhost_user::{RegionRef, RegionSpec};

/// Returns how many times this process has mapped a file. The guest itself maps it once.
pub(crate) fn mappings(file: &OwnedFd) -> usize {
    mapped_at(file).len()
}

/// Returns the addresses at which this process has mapped a memory file.
pub(crate) fn mapped_at(file: &OwnedFd) -> Vec<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
    starts(&maps, fstat(file).expect("a file").st_ino)
}

/// Returns the addresses of a memory file's mappings, by its inode. A library on a disk may have
/// the same inode number, because numbers of memory files increase, so the path is checked too.
fn starts(maps: &str, inode: u64) -> Vec<usize> {
    let of_file = |line: &&str| {
        let mut words = line.split_whitespace().skip(4);
        words.next() == Some(&inode.to_string()) && words.next().is_some_and(|path| path.starts_with("/memfd:"))
    };
    let start = |line: &str| usize::from_str_radix(line.split('-').next()?, 16).ok();
    maps.lines().filter(of_file).filter_map(start).collect()
}

#[test]
fn a_library_with_the_inode_of_a_guest_is_no_mapping_of_it() {
    let maps = "\
7f0010000000-7f0010028000 r--p 00000000 fe:00 326269    /usr/lib/x86_64-linux-gnu/libc.so.6
7f0010028000-7f00101bd000 r-xp 00028000 fe:00 326269    /usr/lib/x86_64-linux-gnu/libc.so.6
7f0020000000-7f0020100000 rw-s 00000000 00:01 326269    /memfd:guest (deleted)
7f0030000000-7f0030100000 rw-s 00000000 00:01 326270    /memfd:guest (deleted)
7f0040000000-7f0040001000 rw-p 00000000 00:00 0
";
    assert_eq!(starts(maps, 326_269), [0x7f00_2000_0000]);
    assert!(starts(maps, 326_271).is_empty());
}

/// Returns the guest's only region.
pub(crate) fn own_region(guest: &Guest) -> RegionSpec {
    let region = &guest.memory().regions()[0];
    let guest_addr = region.guest_addr();
    let user_addr = region.user_addr();
    let size = region.size();
    RegionSpec { guest_addr, size, user_addr, mmap_offset: 0 }
}

/// Asserts that the switch takes no chain after the memory is removed. The victims' packets show
/// that workers have run.
fn takes_nothing(scene: &mut Scene, guest: &Attacker) {
    assert_eq!(mappings(guest.file()), 1, "answered, and still mapped");
    let whole = own_region(guest);
    let bytes = |guest: &Attacker| {
        let len = u32::try_from(whole.size).expect("a small guest");
        guest.read_memory(whole.guest_addr, len).expect("its own")
    };
    // The driver continues to publish.
    guest.publish(Ring::Transmit, &[valid(guest, Ring::Transmit)]);
    let before = bytes(guest);
    scene.victims.go_on();
    assert!(bytes(guest) == before, "the switch wrote into memory that was removed");
}

// Cites vhost-user-ring-states-1, vhost-user-rem-mem-reg-2.
#[test]
fn cve_2026_86567_memory_taken_away_while_rings_are_polled() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for round in 0..hostile::repeats(40, 2000) {
            let mut guest = scene.attacker();
            let spec = own_region(&guest);
            // Both rings have work when the memory is removed.
            let large = frame(mac(2), mac(1), 1400, round as u64);
            let addr = guest.buffer_address(Ring::Transmit, 2);
            guest.write_memory(addr, &[0; 12]);
            guest.write_memory(addr + 12, &large);
            let sent = Descriptor { addr, len: 1412, flags: 0, next: 0 };
            let buffer = Descriptor { len: 2000, ..valid(&guest, Ring::Receive) };
            guest.publish_all(Ring::Receive, &[&[buffer], &[buffer]]);
            guest.publish_all(Ring::Transmit, &[&[sent], &[sent], &[sent], &[sent]]);
            send(&mut scene.good, &frame(mac(1), mac(2), 700, 1));
            match round % 3 {
                0 => guest.client().remove_mem_region(&spec).expect("removed"),
                1 => guest.client().set_mem_table(&[]).expect("an empty table"),
                _ => {
                    // Other memory at the same addresses. It is zero, so its rings are empty.
                    let other = memory_file(spec.size).expect("memory");
                    guest.client().set_mem_table(&[RegionRef { spec, fd: other.as_fd() }]).expect("other memory");
                }
            }
            takes_nothing(&mut scene, &guest);
            drop(guest);
            if round % 10 == 0 {
                scene.settle();
                scene.recovers("memory taken away");
            }
        }
        scene.settle();
        scene.end();
    }
}

#[test]
fn cve_2026_86567_memory_that_comes_back() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let mut guest = scene.attacker();
        let spec = own_region(&guest);
        for round in 0..10 {
            guest.client().remove_mem_region(&spec).expect("removed");
            let addr = guest.buffer_address(Ring::Transmit, 0);
            let bytes = frame(mac(2), mac(1), 900, round);
            guest.write_memory(addr, &[0; 12]);
            guest.write_memory(addr + 12, &bytes);
            guest.publish(Ring::Transmit, &[Descriptor { addr, len: 912, flags: 0, next: 0 }]);
            scene.victims.go_on();
            assert!(arrived(&mut scene.good).is_empty());
            let file = rustix::io::dup(guest.file()).expect("its file");
            guest.client().add_mem_region(&RegionRef { spec, fd: file.as_fd() }).expect("added");
            assert!(take(&mut scene.good, 1)[0].1 == bytes, "the rings go on where they were");
            guest.wait_used(Ring::Transmit);
        }
        scene.rig.wait_up(0);
        drop(guest);
        scene.recovers("memory that comes back");
        scene.end();
    }
}

//! The dirty log alone. A mark sets the right bits and no others, and never writes outside of the
//! log.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use rustix::thread::{CpuSet, sched_setaffinity};
use straightline_virtio::memory::{DirtyLog, GuestMemory, LOG_PAGE, MapError, Region};

fn file(len: u64) -> OwnedFd {
    let fd = memfd_create("log", MemfdFlags::CLOEXEC).expect("memfd_create");
    ftruncate(&fd, len).expect("ftruncate");
    fd
}

/// Returns the complete file.
fn bytes(file: &OwnedFd, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(pread(file, &mut bytes, 0), Ok(len));
    bytes
}

// Cites vhost-user-migration-4, vhost-user-migration-5, vhost-user-migration-7.
#[test]
fn marks_are_those_of_a_model_wherever_the_log_lies_in_its_file() {
    const SIZE: u64 = 100;
    let end = SIZE * 8 * LOG_PAGE;
    // CVE-2026-86563 applied the offset twice.
    for offset in [0, 1, 7, 8, 500, 4096, 8000] {
        let fd = file(8192);
        let log = DirtyLog::map(fd.as_fd(), offset, SIZE).expect("a log");
        let mut model = vec![0_u8; 8192];
        let marks = log.after_writes();
        for (addr, len) in [
            (0, 1),
            (LOG_PAGE, 0),
            (3 * LOG_PAGE - 1, 1),
            (4 * LOG_PAGE - 1, 2),
            (7 * LOG_PAGE, 3 * LOG_PAGE),
            (100 * LOG_PAGE + 5, 12 * LOG_PAGE),
            (end - 1, 1),
            (end, 0),
            (u64::MAX, 0),
        ] {
            marks.mark(addr, len);
            for byte in addr..addr.saturating_add(len) {
                let page = byte / LOG_PAGE;
                model[usize::try_from(offset + page / 8).unwrap()] |= 1 << (page % 8);
            }
        }
        assert!(log.is_intact());
        assert_eq!(bytes(&fd, 8192), model, "offset {offset}");
        // A bit that the frontend has cleared is set anew.
        pwrite(&fd, &[0], offset).expect("pwrite");
        log.after_writes().mark(0, 1);
        model[usize::try_from(offset).unwrap()] = 1;
        assert_eq!(bytes(&fd, 8192), model);
    }
}

#[test]
fn a_mark_outside_is_none_and_is_remembered() {
    let end = 8 * 8 * LOG_PAGE;
    for (addr, len) in [
        (end, 1),
        (end - 1, 2),
        (0, end + 1),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (1, u64::MAX),
        (u64::MAX - 4095, 4096),
        (1 << 63, 1),
    ] {
        let fd = file(4096);
        let log = DirtyLog::map(fd.as_fd(), 8, 8).expect("a log");
        assert!(log.is_intact());
        log.after_writes().mark(addr, len);
        assert!(!log.is_intact(), "{addr:#x} + {len:#x}");
        assert_eq!(bytes(&fd, 4096), vec![0; 4096]);
    }
}

// Cites vhost-user-migration-6.
#[test]
fn a_log_covers_memory_up_to_its_last_byte() {
    let fd = file(1 << 20);
    let memory = |regions: &[(u64, u64)]| {
        let map = |&(guest, size): &(u64, u64)| Arc::new(Region::map(fd.as_fd(), 0, size, guest, guest).unwrap());
        GuestMemory::new(regions.iter().map(map).collect()).unwrap()
    };
    let log = |size| DirtyLog::map(fd.as_fd(), 0, size).unwrap();
    assert!(log(1).covers(&memory(&[])));
    for (end, needed) in [(LOG_PAGE, 1), (8 * LOG_PAGE, 1), (8 * LOG_PAGE + 1, 2), (64 * LOG_PAGE, 8)] {
        let memory = memory(&[(end - LOG_PAGE / 2, LOG_PAGE / 2), (0, 16)]);
        assert_eq!(memory.end(), end);
        assert!(log(needed).covers(&memory));
        assert_eq!(needed > 1, !log((needed - 1).max(1)).covers(&memory));
    }
    let memory = memory(&[(1 << 63, 1 << 20), (u64::MAX - (1 << 20), 1 << 20)]);
    assert!(!log(1 << 20).covers(&memory));
}

#[test]
fn a_log_must_lie_in_its_file() {
    let fd = file(4096);
    for (offset, size) in [(0, 0), (0, 4097), (4096, 1), (1, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX)] {
        assert!(DirtyLog::map(fd.as_fd(), offset, size).is_err(), "{offset:#x} {size:#x}");
    }
    let (read, _write) = rustix::pipe::pipe().unwrap();
    assert!(matches!(DirtyLog::map(read.as_fd(), 0, 1), Err(MapError::NotShareable(_))));
}

#[test]
fn a_log_that_vanished_is_known_and_nothing_else_happens() {
    let fd = file(4096);
    let log = DirtyLog::map(fd.as_fd(), 0, 4096).expect("a log");
    log.after_writes().mark(0, 1);
    ftruncate(&fd, 0).expect("ftruncate");
    assert!(log.is_intact(), "nobody has looked");
    log.after_writes().mark(0, 1);
    assert!(!log.is_intact());
}

// Cites vhost-user-migration-8.
#[test]
fn marks_of_several_threads_in_one_byte_are_all_there() {
    let fd = file(4096);
    let log = DirtyLog::map(fd.as_fd(), 0, 4096).expect("a log");
    let seen = GuestMemory::new(vec![Arc::new(Region::map(fd.as_fd(), 0, 4096, 0, 0).expect("the same"))]);
    let seen = seen.and_then(|memory| memory.area(0, 8, 8)).expect("in the log");
    // Each thread clears its four bits, as a frontend does, and marks them again.
    std::thread::scope(|s| {
        for (cpu, own) in [0..4_u64, 4..8].into_iter().enumerate() {
            let log = &log;
            let seen = &seen;
            s.spawn(move || {
                // On one processor the threads would hardly ever meet. A machine may have only one.
                let mut set = CpuSet::new();
                set.set(cpu);
                let _ = sched_setaffinity(None, &set);
                let bits = own.clone().map(|page| 1 << page).sum::<u64>();
                for _ in 0..1_000_000 {
                    seen.cells64()[0].fetch_and(!bits, Ordering::SeqCst);
                    own.clone().for_each(|page| log.after_writes().mark(page * LOG_PAGE, 1));
                    assert_eq!(seen.read_u64(0) & bits, bits, "a mark of another thread took one away");
                }
            });
        }
    });
}

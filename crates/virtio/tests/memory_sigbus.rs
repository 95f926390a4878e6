//! Guest memory that vanishes: the access continues with zeros, its region is poisoned, and
//! everything else is untouched. A fault outside guest memory ends the process, as it would without
//! the handler.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use straightline_packet::IgnorePoison;
use straightline_simd::{Level, Sum, reference};
use straightline_virtio::memory::{GuestMemory, Region, fault};

const PAGE: u64 = 4096;

/// The epoch belongs to the process, so tests that check it take turns.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().ignore_poison()
}

fn memfd(len: u64) -> OwnedFd {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd_create");
    ftruncate(&fd, len).expect("ftruncate");
    fd
}

fn memory(fd: &OwnedFd, size: u64) -> GuestMemory {
    let region = Region::map(fd.as_fd(), 0, size, 0, 0x7000_0000).expect("a good region");
    GuestMemory::new(vec![Arc::new(region)]).expect("one region")
}

fn read(memory: &GuestMemory, addr: u64, level: Level) -> [u8; 100] {
    let mut bytes = [0x11; 100];
    memory.segment(addr, 100, &mut 0).expect("in memory").read(level, &mut bytes);
    bytes
}

#[test]
fn what_has_vanished_reads_as_zeros_and_is_known() {
    let _alone = alone();
    for level in Level::supported() {
        let fd = memfd(4 * PAGE);
        let other = memfd(PAGE);
        let (memory, untouched) = (memory(&fd, 4 * PAGE), self::memory(&other, PAGE));
        for at in [0, PAGE - 50, 3 * PAGE] {
            memory.segment(at, 100, &mut 0).expect("in memory").write(level, &[0xab; 100]);
        }
        untouched.segment(0, 100, &mut 0).expect("in memory").write(level, &[0xcd; 100]);
        let area = memory.area(0x7000_3000, 16, 16).expect("in memory");
        let before = fault::epoch();
        ftruncate(&fd, PAGE).expect("ftruncate");
        assert_eq!((fault::epoch(), memory.poisoned(), area.poisoned()), (before, false, false), "nobody has looked");

        // The part that remains is unchanged.
        assert_eq!(read(&memory, 0, level), [0xab; 100]);
        assert!(!memory.poisoned());
        // A range that has vanished by half.
        let mut expected = [0; 100];
        expected[..50].fill(0xab);
        assert_eq!(read(&memory, PAGE - 50, level), expected);
        assert!(memory.poisoned() && area.poisoned());
        let after = fault::epoch();
        assert_ne!(after, before);

        // Access every page behind it, by loads and stores, by kernels and atomics. All pages were
        // replaced at once, so that a guest cannot make us hold a mapping for each.
        memory.segment(2 * PAGE, 100, &mut 0).expect("in memory").write(level, &[0xef; 100]);
        assert_eq!(read(&memory, 2 * PAGE, level), [0xef; 100]);
        assert_eq!(area.read_u64(0), 0);
        area.write_u64(0, 5);
        assert_eq!(area.read_u64(0), 5);
        assert_eq!(fault::epoch(), after);

        assert!(!untouched.poisoned());
        assert_eq!(read(&untouched, 0, level), [0xcd; 100]);
        // The next region in the same table entry begins unpoisoned.
        drop((memory, area));
        assert!(!self::memory(&other, PAGE).poisoned());
    }
}

/// Returns the bytes that are allocated for vanished memory, in the whole process.
fn substitutes() -> u64 {
    let fds = std::fs::read_dir("/proc/self/fd").expect("proc").filter_map(|entry| Some(entry.ok()?.path()));
    let is_ours = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("straightline-vanished"))
    };
    let file = fds.into_iter().find(is_ours).expect("the file of zeros");
    std::fs::metadata(file).expect("its size").blocks() * 512
}

#[test]
fn what_was_written_to_vanished_memory_is_seen_by_no_other_and_freed() {
    let _alone = alone();
    // The kernel usually maps a region where another one was before, unless a thread of the test
    // program takes the place meanwhile.
    assert!((0..20).any(|_| vanishes_and_is_freed()), "no region is where another one was");
}

/// Writes to vanished memory, frees it and maps regions again. Returns whether one of them is at the
/// same address.
fn vanishes_and_is_freed() -> bool {
    let two = [memfd(64 * PAGE), memfd(64 * PAGE)];
    let memories = two.each_ref().map(|fd| memory(fd, 64 * PAGE));
    let at = |memory: &GuestMemory| memory.segment(0, 1, &mut 0).expect("in memory").address();
    let before = substitutes();
    two.iter().for_each(|fd| ftruncate(fd, 0).expect("ftruncate"));
    for page in 0..64 {
        memories[0].segment(page * PAGE, 100, &mut 0).expect("in memory").write(Level::Scalar, &[0xab; 100]);
        assert_eq!(read(&memories[1], page * PAGE, Level::Scalar), [0; 100]);
    }
    assert!(substitutes() - before >= 2 * 64 * PAGE);
    let was_at = memories.each_ref().map(at);
    drop(memories);
    assert_eq!(substitutes(), before);
    ftruncate(&two[0], 64 * PAGE).expect("ftruncate");
    let next = [memory(&two[0], 64 * PAGE), memory(&two[0], 64 * PAGE)];
    let is_reused = next.iter().any(|memory| at(memory) == was_at[0]);
    ftruncate(&two[0], 0).expect("ftruncate");
    for memory in &next {
        assert_eq!(read(memory, 5 * PAGE, Level::Scalar), [0; 100]);
    }
    is_reused
}

#[test]
fn a_copy_across_the_border_goes_on_and_sums_what_it_stored() {
    let _alone = alone();
    for level in Level::supported() {
        let from = memfd(2 * PAGE);
        let to = memfd(2 * PAGE);
        let source = memory(&from, 2 * PAGE);
        let destination = memory(&to, 2 * PAGE);
        source.segment(0, 8192, &mut 0).expect("in memory").write(level, &[0x77; 8192]);
        ftruncate(&from, PAGE).expect("ftruncate");
        let mut sum = Sum::new();
        let into = destination.segment(0, 8000, &mut 0).expect("in memory");
        let n = into.copy_from(level, source.segment(100, 8000, &mut 0).expect("in memory"), Some(&mut sum));
        assert_eq!(n, 8000);
        assert!(source.poisoned() && !destination.poisoned());
        let mut stored = vec![1; 8000];
        into.read(level, &mut stored);
        assert!(stored[..3996].iter().all(|b| [0x77, 0].contains(b)));
        assert!(stored[3996..].iter().all(|&b| b == 0));
        assert_eq!(sum.fold(), reference::sum(&[&stored]));
    }
}

#[test]
fn threads_that_fault_at_once_all_go_on() {
    let _alone = alone();
    let fd = memfd(64 * PAGE);
    let memory = memory(&fd, 64 * PAGE);
    ftruncate(&fd, 0).expect("ftruncate");
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for page in 0..64 {
                    assert_eq!(read(&memory, page * PAGE, Level::Scalar), [0; 100]);
                }
            });
        }
    });
    assert!(memory.poisoned());
}

const CHILD: &str = "STRAIGHTLINE_TEST_CHILD";

/// Runs one test of this file in a process of its own, as `what`; returns the signal that ended it.
/// A child that ends without a signal must pass its test.
fn child(test: &str, what: &str) -> Option<i32> {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    let output = command.args(["--exact", test, "--test-threads=1"]).env(CHILD, what).output().expect("a child");
    assert!(output.status.signal().is_some() || output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    output.status.signal()
}

/// A private mapping would be charged to the process, whose limit may be used up.
#[test]
fn memory_vanishes_when_the_process_may_map_no_more() {
    const NAME: &str = "memory_vanishes_when_the_process_may_map_no_more";
    if std::env::var_os(CHILD).is_none() {
        return assert_eq!(child(NAME, "limited"), None);
    }
    let fd = memfd(4 * PAGE);
    let memory = memory(&fd, 4 * PAGE);
    memory.segment(0, 100, &mut 0).expect("in memory").write(Level::Scalar, &[0xab; 100]);
    ftruncate(&fd, 0).expect("ftruncate");
    let before = getrlimit(Resource::Data);
    // A limit of 0 would mean no limit, for the sake of old debuggers.
    setrlimit(Resource::Data, Rlimit { current: Some(PAGE), ..before }).expect("a lower limit");
    let seen = read(&memory, 2 * PAGE, Level::Scalar);
    memory.segment(0, 100, &mut 0).expect("in memory").write(Level::Scalar, &[0xcd; 100]);
    let stored = read(&memory, 0, Level::Scalar);
    setrlimit(Resource::Data, before).expect("the limit from before");
    assert!(memory.poisoned());
    assert_eq!((seen, stored), ([0; 100], [0xcd; 100]));
}

fn touch(at: usize) {
    // SAFETY: the process must end here, by a signal. The code reads a byte and writes nothing.
    let byte = unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() };
    panic!("the page was there: {byte}");
}

#[test]
fn faults_that_are_not_of_guest_memory_end_the_process() {
    const NAME: &str = "faults_that_are_not_of_guest_memory_end_the_process";
    let Ok(what) = std::env::var(CHILD) else {
        assert_eq!(child(NAME, "elsewhere"), Some(libc::SIGBUS));
        assert_eq!(child(NAME, "dropped"), Some(libc::SIGSEGV));
        assert_eq!(child(NAME, "before"), Some(libc::SIGSEGV));
        assert_eq!(child(NAME, "behind"), Some(libc::SIGSEGV));
        assert_eq!(child(NAME, "none"), None);
        return;
    };
    let fd = memfd(PAGE);
    let memory = memory(&fd, PAGE);
    let first = memory.segment(0, 1, &mut 0).expect("in memory").address();
    match what.as_str() {
        "elsewhere" => {
            let other = memfd(PAGE);
            // SAFETY: this is a fresh mapping, at an address that the kernel chooses.
            let at = unsafe {
                mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, other.as_fd(), 0).expect("mmap")
            };
            ftruncate(&other, 0).expect("ftruncate");
            touch(at.expose_provenance());
        }
        "dropped" => {
            drop(memory);
            touch(first);
        }
        "before" => touch(first - 1),
        "behind" => touch(first + 4096),
        _ => {}
    }
}

//! Guest memory: the files that are accepted, the positions of regions, and the translation of
//! addresses.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use straightline_packet::Level;
use straightline_virtio::memory::{GuestMemory, MapError, Region};

const PAGE: u64 = 4096;

fn memfd(len: u64) -> OwnedFd {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memfd_create");
    ftruncate(&fd, len).expect("ftruncate");
    fd
}

fn region(fd: &OwnedFd, offset: u64, size: u64, guest: u64, user: u64) -> Arc<Region> {
    Arc::new(Region::map(fd.as_fd(), offset, size, guest, user).expect("a good region"))
}

fn fill(memory: &GuestMemory, addr: u64, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("small");
    memory.segment(addr, len, &mut 0).expect("in memory").write(Level::Scalar, bytes);
}

fn read(memory: &GuestMemory, addr: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let n = u32::try_from(len).expect("small");
    memory.segment(addr, n, &mut 0).expect("in memory").read(Level::Scalar, &mut bytes);
    bytes
}

fn refusal(fd: BorrowedFd<'_>, offset: u64, size: u64, guest: u64, user: u64) -> MapError {
    Region::map(fd, offset, size, guest, user).expect_err("must be refused")
}

#[test]
fn the_node_of_memory_is_that_of_its_page() {
    let fd = memfd(2 * PAGE);
    let memory = GuestMemory::new(vec![region(&fd, 0, 2 * PAGE, 0x1_0000, 0x7000_0000)]).expect("a map");
    fill(&memory, 0x1_0000, &[1]);
    let others = [0x1_0000, 0x7000_0000 - 1, 0x7000_0000 + 2 * PAGE, u64::MAX];
    assert_eq!(others.map(|addr| memory.node(addr)), [None; 4]);
    let Some(node) = memory.node(0x7000_0000) else {
        let _ = writeln!(std::io::stdout(), "\nskipped the_node_of_memory_is_that_of_its_page: the kernel tells none");
        return;
    };
    assert!(std::path::Path::new(&format!("/sys/devices/system/node/node{node}")).exists(), "{node}");
    // The kernel finds memory that has vanished by itself: there is no signal.
    ftruncate(&fd, 0).expect("ftruncate");
    assert_eq!(memory.node(0x7000_0000), None);
}

#[test]
fn regions_that_cannot_be_are_refused() {
    let fd = memfd(4 * PAGE);
    let map = |offset, size, guest, user| refusal(fd.as_fd(), offset, size, guest, user);
    assert!(matches!(map(0, 0, 7, 7), MapError::Empty(7)));
    assert!(matches!(map(0, 4 * PAGE + 1, 0, 0), MapError::BeyondFile { end, len, .. } if end == len + 1));
    assert!(matches!(map(3 * PAGE, PAGE + 1, 0, 0), MapError::BeyondFile { .. }));
    assert!(matches!(map(4 * PAGE, 1, 0, 0), MapError::BeyondFile { .. }));
    assert!(matches!(map(u64::MAX, PAGE, 0, 0), MapError::Overflow { .. }));
    assert!(matches!(map(1, u64::MAX, 0, 0), MapError::Overflow { .. }));
    assert!(matches!(map(0, u64::MAX, 0, 0), MapError::BeyondFile { .. }));
    assert!(matches!(map(0, PAGE, u64::MAX - PAGE + 1, 0), MapError::Overflow { .. }));
    assert!(matches!(map(0, PAGE, 0, u64::MAX - PAGE + 1), MapError::Overflow { .. }));
    assert!(Region::map(fd.as_fd(), 0, PAGE, u64::MAX - PAGE, u64::MAX - PAGE).is_ok());
    let message = map(0, 5 * PAGE, 0x1000, 0).to_string();
    assert_eq!(message, "region at 0x1000 ends at byte 0x5000 of its file, but the file has 0x4000 bytes");
}

#[test]
fn files_that_are_no_guest_memory_are_refused() {
    // On disk the file's pages may be anywhere, and a guest could make us wait for them.
    let manifest = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).expect("our own manifest");
    let refused = refusal(manifest.as_fd(), 0, 16, 0, 0);
    if matches!(refused, MapError::NotShareable(_)) {
        assert!(refused.to_string().contains("memfd"), "{refused}");
    } else {
        // If the source tree is on tmpfs, the file is refused because it is read-only.
        assert!(matches!(refused, MapError::System { .. }), "{refused}");
    }
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    assert!(matches!(refusal(socket.as_fd(), 0, 1, 0, 0), MapError::NotShareable(_)));
    let proc = File::open("/proc/self/maps").expect("proc");
    assert!(matches!(refusal(proc.as_fd(), 0, 1, 0, 0), MapError::NotShareable(_)));
    // A device node lies on a tmpfs too.
    let zero = File::options().read(true).write(true).open("/dev/zero").expect("zeros");
    let refused = refusal(zero.as_fd(), 0, PAGE, 0, 0);
    assert!(matches!(refused, MapError::BeyondFile { len: 0, .. } | MapError::NotShareable(_)), "{refused}");
}

#[test]
fn memory_that_may_not_be_written_is_refused() {
    let fd = memfd(PAGE);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    let read_only = File::open(path).expect("a second look at it");
    assert!(matches!(refusal(read_only.as_fd(), 0, PAGE, 0, 0), MapError::System { .. }));
    fcntl_add_seals(&fd, SealFlags::WRITE).expect("sealing");
    assert!(matches!(refusal(fd.as_fd(), 0, PAGE, 0, 0), MapError::System { .. }));
}

#[test]
fn a_refused_region_leaves_nothing_mapped() {
    let fd = memfd(PAGE);
    fcntl_add_seals(&fd, SealFlags::WRITE).expect("sealing");
    // Each leak would be a separate mapping; the kernel's limit is some 65000.
    let before = mappings().len();
    for _ in 0..1000 {
        let _ = refusal(fd.as_fd(), 0, PAGE, 0, 0);
    }
    assert!(mappings().len() < before + 500);
}

/// Start, end and permissions of each mapping of this process.
fn mappings() -> Vec<(usize, usize, String)> {
    let text = std::fs::read_to_string("/proc/self/maps").expect("proc");
    let number = |hex| usize::from_str_radix(hex, 16).expect("a number");
    text.lines()
        .map(|line| {
            let (range, rest) = line.split_once(' ').expect("range and more");
            let (start, end) = range.split_once('-').expect("two ends");
            (number(start), number(end), rest[..4].to_owned())
        })
        .collect()
}

fn permissions(at: usize) -> String {
    let found = mappings().into_iter().find(|&(start, end, _)| (start..end).contains(&at));
    found.map_or_else(|| "none".to_owned(), |(_, _, p)| p)
}

#[test]
fn a_page_without_access_stands_on_either_side() {
    let fd = memfd(8 * PAGE);
    for (offset, size) in [(0, 8 * PAGE), (0, 1), (PAGE, PAGE), (PAGE + 100, 2 * PAGE), (8 * PAGE - 1, 1)] {
        let memory = GuestMemory::new(vec![region(&fd, offset, size, 0, 0)]).expect("one region");
        let first = memory.segment(0, 1, &mut 0).expect("its first byte").address();
        let size = usize::try_from(size).expect("small");
        let page_of_first = first & !4095;
        let page_of_last = (first + size - 1) & !4095;
        assert_eq!(permissions(first), "rw-s");
        assert_eq!(permissions(first + size - 1), "rw-s");
        assert_eq!(permissions(page_of_first - 1), "---p", "{offset:#x}, {size:#x}");
        assert_eq!(permissions(page_of_last + 4096), "---p", "{offset:#x}, {size:#x}");
        assert_eq!(permissions(page_of_last + 2 * 4096 - 1), "---p");
    }
}

#[test]
fn an_offset_within_a_page_is_respected() {
    let fd = memfd(4 * PAGE);
    let whole = GuestMemory::new(vec![region(&fd, 0, 4 * PAGE, 0, 0)]).expect("one region");
    let part = GuestMemory::new(vec![region(&fd, PAGE + 123, 2 * PAGE, 0x5000, 0)]).expect("one region");
    fill(&part, 0x5000, b"first");
    fill(&part, 0x5000 + 2 * PAGE - 4, b"last");
    assert_eq!(read(&whole, PAGE + 123, 5), b"first");
    assert_eq!(read(&whole, PAGE + 123 + 2 * PAGE - 4, 4), b"last");
    assert!(part.segment(0x5000 + 2 * PAGE, 1, &mut 0).is_none());
    assert!(part.segment(0x4fff, 1, &mut 0).is_none());
}

#[test]
fn huge_pages_are_taken() {
    const HUGE: u64 = 2 << 20;
    // `cargo xtask test` counts this line. `println!` would be captured.
    let skip = |why: &str| drop(writeln!(std::io::stdout(), "\nskipped huge_pages_are_taken: {why}"));
    let made = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB);
    let fd = match made.and_then(|fd| ftruncate(&fd, 2 * HUGE).map(|()| fd)) {
        Ok(fd) => fd,
        Err(error) => return skip(&format!("this machine has no huge pages: {error}")),
    };
    let memory = match Region::map(fd.as_fd(), HUGE - 4096, 8192, 0, 0) {
        Ok(region) => GuestMemory::new(vec![Arc::new(region)]).expect("one region"),
        Err(error) => return skip(&format!("no huge pages are free: {error}")),
    };
    if free_huge_pages() < 4 {
        return skip("fewer than four huge pages are free");
    }
    // Across two huge pages.
    fill(&memory, 4090, b"huge pages");
    assert_eq!(read(&memory, 4090, 10), b"huge pages");
    assert!(memory.segment(8191, 2, &mut 0).is_none());
    let other = GuestMemory::new(vec![region(&fd, 0, 2 * HUGE, 0, 0)]).expect("one region");
    assert_eq!(read(&other, HUGE - 6, 10), b"huge pages");
    // Huge pages vanish as a whole too.
    ftruncate(&fd, 0).expect("ftruncate");
    assert_eq!(read(&other, HUGE - 6, 10), [0; 10]);
    assert!(other.poisoned());
}

fn free_huge_pages() -> u32 {
    let text = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    text.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn regions_that_overlap_are_no_memory() {
    let fd = memfd(4 * PAGE);
    let at = |guest, size| region(&fd, 0, size, guest, 0);
    assert!(GuestMemory::new(vec![at(0, PAGE), at(PAGE, PAGE)]).is_some());
    assert!(GuestMemory::new(vec![at(PAGE, PAGE), at(0, PAGE)]).is_some());
    assert!(GuestMemory::new(vec![at(0, PAGE + 1), at(PAGE, PAGE)]).is_none());
    assert!(GuestMemory::new(vec![at(PAGE, PAGE), at(PAGE, PAGE)]).is_none());
    assert!(GuestMemory::new(vec![at(0, 3 * PAGE), at(PAGE, PAGE)]).is_none());
    let sorted = GuestMemory::new(vec![at(3 * PAGE, 1), at(0, 1), at(PAGE, 1)]).expect("apart");
    let starts: Vec<_> = sorted.regions().iter().map(|r| r.guest_addr()).collect();
    assert_eq!(starts, [0, PAGE, 3 * PAGE]);
}

#[test]
fn no_memory_has_no_bytes() {
    let memory = GuestMemory::default();
    assert!(memory.segment(0, 0, &mut 0).is_none());
    assert!(!memory.segments(0, 1, &mut 3, |_| panic!("a byte out of nothing")));
    assert!(memory.segments(u64::MAX, 0, &mut 3, |_| panic!("a byte out of nothing")));
    assert!(memory.area(0, 1, 1).is_none());
    assert!(!memory.poisoned());
}

/// Regions as (gap before, size), at the bottom, in the middle or at the top of the address space.
fn layouts() -> impl Strategy<Value = (u64, Vec<(u64, u64)>)> {
    let gap = prop_oneof![Just(0), Just(0), Just(1), 1..50_u64];
    let regions = prop::collection::vec((gap, 1..60_u64), 1..7);
    (prop_oneof![Just(0_u64), Just(0xffff_f000), Just(u64::MAX)], regions).prop_map(|(base, regions)| {
        let span: u64 = regions.iter().map(|(gap, size)| gap + size).sum();
        (base.min(u64::MAX - span), regions)
    })
}

proptest! {
    /// Compares translation with a table that has the location of every single byte.
    // Cites vhost-user-memory-2.
    #[test]
    fn translation_is_byte_for_byte(
        (base, layout) in layouts(), asks in prop::collection::vec((0..500_u64, 0..200_u32, 0..9_usize), 1..60),
    ) {
        let fd = memfd(PAGE);
        let mut addr = base;
        let mut regions = Vec::new();
        for &(gap, size) in &layout {
            regions.push(region(&fd, 7, size, addr + gap, addr + gap));
            addr += gap + size;
        }
        let memory = GuestMemory::new(regions).expect("no overlap");
        // Region and host address of the byte `base + i`.
        let mut table = Vec::new();
        for (i, &(gap, size)) in layout.iter().enumerate() {
            table.extend((0..gap).map(|_| None));
            let start = base + u64::try_from(table.len()).expect("small");
            let host = memory.segment(start, 1, &mut 0).expect("its first byte").address();
            table.extend((0..size).map(|n| Some((i, host + usize::try_from(n).expect("small")))));
        }
        for (at, len, hint) in asks {
            let at_table = usize::try_from(at).expect("small");
            let addr = base.wrapping_add(at);
            let bytes: Vec<_> = (0..len as usize).map(|n| table.get(at_table + n).copied().flatten()).collect();
            let all: Option<Vec<_>> = bytes.into_iter().collect();

            let mut new_hint = hint;
            let found = memory.segment(addr, len, &mut new_hint);
            let here = table.get(at_table).copied().flatten();
            let one = here.filter(|h| all.as_ref().is_some_and(|all| all.iter().all(|b| b.0 == h.0)));
            prop_assert_eq!(found.map(|s| (s.address(), s.len())), one.map(|(_, host)| (host, len)));
            if let Some((of, _)) = one {
                prop_assert!(new_hint == of || new_hint == hint, "the hint is the region that was hit");
                let again = memory.segment(addr, len, &mut new_hint);
                prop_assert_eq!(again.map(|s| s.address()), found.map(|s| s.address()));
            }

            let mut segments = Vec::new();
            let mut new_hint = hint;
            let is_complete = memory.segments(addr, len, &mut new_hint, |s| segments.push(s));
            prop_assert_eq!(is_complete, all.is_some(), "{:#x}+{:#x}", addr, len);
            prop_assert!(segments.iter().all(|p| !p.is_empty()));
            let hosts = segments.iter().flat_map(|p| p.address()..p.address() + p.len() as usize);
            let hosts: Vec<_> = hosts.collect();
            if let Some(all) = all {
                prop_assert_eq!(&hosts, &all.iter().map(|b| b.1).collect::<Vec<_>>());
                let boundaries = all.windows(2).filter(|w| w[0].0 != w[1].0).count();
                prop_assert_eq!(segments.len(), if all.is_empty() { 0 } else { boundaries + 1 });
            } else {
                prop_assert!(hosts.iter().all(|h| table.iter().flatten().any(|b| b.1 == *h)));
            }
        }
    }

    #[test]
    fn far_away_addresses_are_nowhere(addr: u64, len: u32, hint in 0..3_usize) {
        let fd = memfd(2 * PAGE);
        let regions = vec![region(&fd, 0, PAGE, PAGE, 0), region(&fd, PAGE, PAGE, u64::MAX - PAGE, PAGE)];
        let memory = GuestMemory::new(regions).expect("no overlap");
        let inside = |start: u64| addr >= start && u128::from(addr) + u128::from(len) <= u128::from(start + PAGE)
            && addr < start + PAGE;
        let expected = inside(PAGE) || inside(u64::MAX - PAGE);
        prop_assert_eq!(memory.segment(addr, len, &mut hint.clone()).is_some(), expected);
        let mut segments = 0;
        let is_complete = memory.segments(addr, len, &mut hint.clone(), |_| segments += 1);
        prop_assert_eq!(is_complete, expected || len == 0);
        prop_assert!(segments <= 1);
    }
}

// Cites vhost-user-memory-1.
#[test]
fn areas_are_aligned_here_and_within_one_region() {
    let fd = memfd(4 * PAGE);
    // The second region adjoins the first one in the frontend's addresses, and its bytes begin at
    // an odd offset of the file.
    let regions = vec![region(&fd, 0, PAGE, 0, 0x7000_0000), region(&fd, PAGE + 2, PAGE, PAGE, 0x7000_1000)];
    let memory = GuestMemory::new(regions).expect("no overlap");
    let area = |user, len, align| memory.area(user, len, align);
    assert!(area(0x7000_0000, 4096, 16).is_some());
    assert!(area(0x7000_0000, 4097, 16).is_none(), "beyond the region, though the next one adjoins");
    assert!(area(0x7000_0fff, 1, 1).is_some());
    assert!(area(0x7000_0ff0, 16, 16).is_some());
    assert!(area(0x7000_0ff8, 8, 16).is_none());
    assert!(area(0x7000_0001, 2, 2).is_none());
    assert!(area(0x6fff_ffff, 1, 1).is_none());
    assert!(area(0x7000_2000, 1, 1).is_none());
    assert!(area(0x7000_0000, 0, 1).is_none());
    assert!(area(0x7000_0000, usize::MAX, 1).is_none());
    assert!(area(u64::MAX, 1, 1).is_none());
    // The address in this process matters: atomics need it.
    assert!(area(0x7000_1000, 16, 16).is_none());
    assert!(area(0x7000_1000, 16, 2).is_some());
    assert!(area(0x7000_100e, 16, 16).is_some());
}

#[test]
fn an_area_is_little_endian_and_checks_every_access() {
    let fd = memfd(PAGE);
    let memory = GuestMemory::new(vec![region(&fd, 0, PAGE, 0, 0x7000_0000)]).expect("one region");
    let area = memory.area(0x7000_0010, 32, 16).expect("in memory");
    area.write_u64(0, 0x0807_0605_0403_0201);
    area.write_u32(8, 0x0c0b_0a09);
    area.write_u16(12, 0x0e0d);
    area.release_u16(14, 0x100f);
    assert_eq!(read(&memory, 16, 16), (1..=16).collect::<Vec<u8>>());
    assert_eq!((area.read_u64(8), area.read_u32(4), area.read_u16(2)), (0x100f_0e0d_0c0b_0a09, 0x0807_0605, 0x0403));
    assert_eq!(area.acquire_u16(14), 0x100f);
    let narrow = memory.area(0x7000_0002, 10, 2).expect("in memory");
    let bad: [&dyn Fn(); 10] = [
        &|| area.write_u64(32, 0),
        &|| area.write_u64(28, 0),
        &|| area.write_u64(usize::MAX - 7, 0),
        &|| area.write_u16(1, 0),
        &|| _ = area.read_u32(2),
        &|| _ = area.read_u64(4),
        &|| _ = area.read_u16(usize::MAX - 1),
        &|| _ = narrow.read_u32(0),
        &|| _ = narrow.acquire_u16(10),
        &|| _ = narrow.read_u64(0),
    ];
    for (i, access) in bad.into_iter().enumerate() {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(access));
        assert!(result.is_err(), "access {i} was let through");
    }
}

#[test]
fn an_area_keeps_its_region_mapped() {
    let fd = memfd(PAGE);
    let memory = GuestMemory::new(vec![region(&fd, 0, PAGE, 0, 0x7000_0000)]).expect("one region");
    let area = memory.area(0x7000_0000, 16, 16).expect("in memory");
    area.write_u64(0, 42);
    drop(memory);
    assert_eq!(area.read_u64(0), 42);
}

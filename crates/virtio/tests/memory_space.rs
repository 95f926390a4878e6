//! The limit on the address space of all regions together. One test alone in its process, because
//! it takes all of it.

use std::os::fd::AsFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_virtio::memory::{MAX_MAPPED, MapError, Region};

#[test]
fn regions_leave_half_of_the_address_space() {
    let quarter = u64::try_from(MAX_MAPPED / 4).expect("64 bits");
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd_create");
    ftruncate(&fd, quarter).expect("ftruncate");
    // Four quarters of the limit would exceed it, because of their guard pages.
    let map = |size| Region::map(fd.as_fd(), 0, size, 0x1000, 0);
    let mut regions: Vec<_> = (0..3).map(|_| map(quarter).expect("there is space")).collect();
    let refused = map(quarter).expect_err("it is too much");
    let mapped = 3 * (MAX_MAPPED / 4 + 3 * 4096);
    assert!(matches!(refused, MapError::NoSpace { mapped: already, .. } if already == mapped), "{refused:?}");
    assert_eq!(
        refused.to_string(),
        "region at 0x1000 of 0x100000000000 bytes: the regions of all ports may have 0x400000000000 bytes of address \
         space together, and have 0x300000009000 already"
    );
    regions.push(map(quarter - (1 << 20)).expect("there is space for this"));
    // A refused region takes no address space, neither of the limit nor from the kernel.
    for _ in 0..100 {
        assert!(map(quarter).is_err());
        assert!(Region::map(fd.as_fd(), 1, 1 << 12, 0, u64::MAX).is_err());
    }
    map(4096).expect("a small one");
    // Memory of the process itself is outside the limit, and takes nothing of it.
    let own: Vec<_> = (0..4).map(|_| Region::map_own(fd.as_fd(), 1 << 21).expect("its own")).collect();
    map(4096).expect("a small one");
    drop(own);
    drop(regions);
    let all: Result<Vec<_>, _> = (0..4).map(|_| map(quarter - (1 << 20))).collect();
    assert!(all.is_ok_and(|regions| regions.len() == 4), "what was dropped is free");
}

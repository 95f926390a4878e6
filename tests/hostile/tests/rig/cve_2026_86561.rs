//! CVE-2026-86561: a region's size was not checked before it was mapped.

use std::os::fd::{AsFd, OwnedFd};

use hostile::scene::Scene;
use straightline_guest::memory_file;
use straightline_virtio::vhost_user::{RegionRef, RegionSpec};

use crate::messages::{frontend, region};

#[test]
fn cve_2026_86561_memory_that_cannot_be_mapped() {
    let mut scene = Scene::new();
    let memory = memory_file(1 << 20).expect("memory");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let on_disk = std::fs::File::create_new(dir.path().join("memory")).expect("a file");
    on_disk.set_len(1 << 20).expect("its length");
    let on_disk = OwnedFd::from(on_disk);
    let cases = [
        (&memory, region(1 << 21, 0), "but the file has"),
        (&memory, region(1 << 20, 4096), "but the file has"),
        (&memory, region(1 << 43, 1 << 62), "but the file has"),
        (&on_disk, region(1 << 20, 0), "must be a memfd"),
    ];
    for (file, spec, words) in cases {
        let mut client = frontend(&scene);
        if rustix::fs::fstatfs(file).is_ok_and(|fs| fs.f_type == 0x0102_1994) && words.contains("memfd") {
            // The build folder itself is on a tmpfs, so the file is valid.
            continue;
        }
        let refused = client.set_mem_table(&[RegionRef { spec, fd: file.as_fd() }]);
        assert!(refused.is_err(), "{spec:?}");
        scene.rig.wait_down(0, words);
        scene.victims.go_on();
        drop(client);
        scene.recovers(words);
    }
    // A length of 0 and addresses that overflow are refused before anything is mapped.
    for spec in
        [region(0, 0), region(1 << 20, u64::MAX - 4095), RegionSpec { guest_addr: u64::MAX - 10, ..region(1 << 20, 0) }]
    {
        let mut client = frontend(&scene);
        assert!(client.set_mem_table(&[RegionRef { spec, fd: memory.as_fd() }]).is_err());
        drop(client);
        scene.recovers("a region of nothing");
    }
    scene.end();
}

#[test]
fn cve_2026_86561_a_region_that_is_added() {
    let mut scene = Scene::new();
    let memory = memory_file(1 << 20).expect("memory");
    let bad = [
        region(0, 0),
        region((1 << 20) + 1, 0),
        region(1 << 20, 1),
        region(1 << 40, 0),
        region(u64::MAX, 0),
        region(1 << 20, u64::MAX - (1 << 20)),
        region(4096, 1 << 63),
        RegionSpec { guest_addr: u64::MAX - 4095, ..region(4096, 0) },
        RegionSpec { user_addr: u64::MAX - 4095, ..region(4096, 0) },
    ];
    let mut client = frontend(&scene);
    for spec in bad {
        assert!(client.add_mem_region(&RegionRef { spec, fd: memory.as_fd() }).is_err(), "{spec:?}");
        scene.victims.go_on();
    }
    // The acknowledgement of each message reported the refusal, and the session continues.
    client.add_mem_region(&RegionRef { spec: region(1 << 20, 0), fd: memory.as_fd() }).expect("a good one");
    drop(client);
    scene.recovers("regions that cannot be mapped");
    scene.end();
}

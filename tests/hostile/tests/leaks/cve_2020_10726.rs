//! CVE-2020-10726: each GET_INFLIGHT_FD created a table, and the previous table was not freed.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use hostile::attacker::Layout;
use hostile::scene::Scene;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::fstat;
use rustix::io::pread;
use straightline_guest::GuestOptions;
use straightline_testing::{BASIC, frame, mac, send, take, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{Message, Request};

use crate::alone;
use crate::footprint::Footprint;

#[test]
fn cve_2020_10726_get_inflight_fd_in_a_loop() {
    let _alone = alone();
    let mut scene = Scene::new();
    scene.recovers("a first one");
    scene.settle();
    let before = Footprint::now();
    let mut stream = UnixStream::connect(scene.rig.socket(0)).expect("connect");
    let number = |request, value: u64| Message::request(request, value.to_ne_bytes().to_vec()).to_bytes();
    stream.write_all(&number(Request::SetFeatures, BASIC | f::VHOST_USER_F_PROTOCOL_FEATURES)).expect("sent");
    stream.write_all(&number(Request::SetProtocolFeatures, f::VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD)).expect("sent");
    let mut payload = vec![0; 16];
    payload.extend(2_u16.to_ne_bytes());
    payload.extend(1024_u16.to_ne_bytes());
    let ask = Message::request(Request::GetInflightFd, payload).to_bytes();
    let mut during = None;
    for _ in 0..hostile::repeats(1000, 10_000) {
        stream.write_all(&ask).expect("sent");
        // The answer has the length of the request. Its descriptor is not received, so the kernel
        // closes it.
        let mut answer = vec![0; ask.len()];
        stream.read_exact(&mut answer).expect("a table");
        // Only one table is kept.
        during.get_or_insert_with(Footprint::now).is_as_before("a table");
    }
    drop(stream);
    scene.rig.wait_down(0, "waiting for a frontend");
    before.is_as_before("tables in a loop");
    scene.recovers("tables in a loop");
    scene.end();
}

/// A ring that started with a table kept that table mapped when the next table came. With a table
/// for each ring, a few frontends used up all the mappings that the process can watch.
#[test]
fn cve_2020_10726_a_table_for_each_ring() {
    let _alone = alone();
    let mut scene = Scene::new();
    let options = GuestOptions { keep_inflight: true, ..GuestOptions::default() };
    let mut guest = scene.rig.guest(0, &options);
    scene.rig.wait_up(0);
    let kick = eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
    let before = Footprint::now();
    for ring in [0, 1, 0, 1] {
        let client = guest.client();
        drop(client.get_inflight_fd(2, options.ring_size).expect("a table"));
        let base = client.get_vring_base(ring).expect("it stops");
        client.set_vring_base(ring, base).expect("where it was");
        client.set_vring_kick(ring, Some(kick.as_fd())).expect("it starts");
        before.is_as_before("a table for each ring");
    }
    drop(guest);
    scene.recovers("a table for each ring");
    scene.end();
}

/// A frontend may keep each file, and the memory that running rings wrote into it was charged to
/// the switch.
#[test]
fn cve_2020_10726_all_tables_are_in_one_file() {
    let _alone = alone();
    for (layout, features) in [(Layout::Split, 0), (Layout::Packed, f::VIRTIO_F_RING_PACKED)] {
        let mut scene = Scene::with_layout(layout);
        let options = GuestOptions::default();
        let options = GuestOptions { keep_inflight: true, features: options.features | features, ..options };
        let mut guest = scene.rig.guest(0, &options);
        scene.rig.wait_up(0);
        let sizes = [options.ring_size, 1 << 15, 2 * options.ring_size];
        let mut kept = Vec::new();
        let before = Footprint::now();
        for n in 0..hostile::repeats(100, 10_000) {
            let size = sizes[n % sizes.len()];
            kept.extend(guest.client().get_inflight_fd(2, size).expect("it is answered"));
        }
        let stats: Vec<_> = kept.iter().map(|(_, file)| fstat(file).expect("its size")).collect();
        let files: BTreeSet<_> = stats.iter().map(|stat| stat.st_ino).collect();
        assert_eq!(files.len(), 1, "{} questions", kept.len());
        drop(kept);
        before.is_as_before("all tables in one file");
        // The rings have moved to each of the tables, and still work.
        let there = frame(mac(2), mac(1), 1300, 1);
        send(&mut guest, &there);
        assert!(take(&mut scene.good, 1)[0].1 == there);
        scene.victims.go_on();
        drop(guest);
        scene.recovers("all tables in one file");
        scene.end();
    }
}

/// A repeated request returns the same table, with the entries that the rings have written.
#[test]
fn cve_2020_10726_the_same_table_again() {
    let _alone = alone();
    let mut scene = Scene::new();
    let options = GuestOptions::default();
    let mut guest = scene.rig.guest(0, &options);
    scene.rig.wait_up(0);
    let table = |guest: &mut straightline_guest::Guest| {
        let (spec, file) = guest.client().get_inflight_fd(2, options.ring_size).expect("an answer").expect("a table");
        let mut bytes = vec![0; usize::try_from(spec.mmap_size).expect("small")];
        assert_eq!(pread(&file, &mut bytes, spec.mmap_offset).expect("its bytes"), bytes.len());
        (spec, file, bytes)
    };
    let (spec, file, _) = table(&mut guest);
    for round in 1..4 {
        let there = frame(mac(2), mac(1), 1300, round);
        send(&mut guest, &there);
        assert!(take(&mut scene.good, 1)[0].1 == there);
    }
    // The transmit ring's version and used index ("Inflight I/O tracking").
    let half = usize::try_from(spec.mmap_size / 2).expect("small");
    let index = |bytes: &[u8]| u16::from_le_bytes([bytes[half + 14], bytes[half + 15]]);
    wait_until("three packets are given back", || {
        let mut bytes = vec![0; 2 * half];
        assert_eq!(pread(&file, &mut bytes, spec.mmap_offset).expect("its bytes"), bytes.len());
        index(&bytes) == 3
    });
    let (again, other, bytes) = table(&mut guest);
    assert_eq!((again.mmap_size, again.mmap_offset), (spec.mmap_size, spec.mmap_offset));
    assert_eq!((bytes[half + 8], index(&bytes)), (1, 3));
    assert_eq!(fstat(&file).expect("its number").st_ino, fstat(&other).expect("its number").st_ino);
    // Entries of a stopped ring are not in flight for another ring.
    guest.client().set_mem_table(&[]).expect("both rings stop");
    let (_, _, bytes) = table(&mut guest);
    assert_eq!((bytes[8], bytes[half + 8]), (0, 0));
    drop(guest);
    scene.recovers("the same table again");
    scene.end();
}

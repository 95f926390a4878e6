//! Memory that comes and goes while packets pass: unrelated traffic continues, and what fails
//! changes nothing.

use std::os::fd::{AsFd, OwnedFd};

use straightline_guest::{Guest, GuestOptions, Ring, Sequence, Stream, memory_file};
use straightline_switch::api::Link;
use straightline_testing::{self as testing, Rig, frame, mac, patch, rig, send, take, wait_until};
use straightline_virtio::vhost_user::{RegionRef, RegionSpec};

fn pair() -> (Rig, Guest, Guest) {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let guests = [0, 1].map(|port| rig.guest(port, &GuestOptions::default()));
    let [one, two] = guests;
    (rig, one, two)
}

/// Returns the guest's one region, as its backend was told.
fn whole(guest: &Guest) -> RegionSpec {
    let region = &guest.memory().regions()[0];
    RegionSpec { guest_addr: region.guest_addr(), size: region.size(), user_addr: region.user_addr(), mmap_offset: 0 }
}

fn file(guest: &Guest) -> OwnedFd {
    guest.file().try_clone().expect("a descriptor")
}

/// Sends once more in both directions.
fn passes(one: &mut Guest, two: &mut Guest, seed: u64) {
    let there = frame(mac(2), mac(1), 1300, seed);
    send(one, &there);
    assert!(take(two, 1)[0].1 == there);
    let back = frame(mac(1), mac(2), 700, seed);
    send(two, &back);
    assert!(take(one, 1)[0].1 == back);
}

#[test]
fn an_unrelated_region_comes_and_goes_and_no_packet_is_lost() {
    let (rig, mut source, mut sink) = pair();
    let more = memory_file(1 << 20).expect("memory");
    // Before and after the guest's memory: entries move in the lookup table.
    let specs = [0x1000, 0x8000_0000].map(|at| RegionSpec {
        guest_addr: at,
        size: 1 << 20,
        user_addr: 0x7f00_0000_0000 + at,
        mmap_offset: 0,
    });
    let mut stream = Stream::prepare(&mut source, mac(1), mac(2), &[60, 1514, 566]).expect("a stream");
    let mut seen = Sequence::default();
    for round in 0..200 {
        while stream.sent() - seen.packets < 128 && stream.send(&mut source) {}
        source.flush();
        let region = RegionRef { spec: specs[round % 2], fd: more.as_fd() };
        // In turn at the sending and at the receiving guest, with packets under way.
        let guest = if round / 2 % 2 == 0 { &mut source } else { &mut sink };
        guest.client().add_mem_region(&region).expect("a slot");
        let level = sink.level();
        sink.receive(64, |_, parts| seen.note(level, parts));
        while stream.sent() - seen.packets < 128 && stream.send(&mut source) {}
        source.flush();
        let guest = if round / 2 % 2 == 0 { &mut source } else { &mut sink };
        guest.client().remove_mem_region(&region.spec).expect("no slot");
    }
    wait_until("all have arrived", || {
        let level = sink.level();
        sink.receive(64, |_, parts| seen.note(level, parts));
        source.flush();
        seen.packets == stream.sent()
    });
    assert!(stream.sent() > 1000, "{}", stream.sent());
    assert_eq!((seen.lost(stream.sent()), seen.late), (0, 0));
    rig.no_drops();
}

// Cites vhost-user-ring-states-1, vhost-user-add-mem-reg-1.
#[test]
fn a_region_with_rings_in_it_stops_them_and_they_go_on_when_it_is_back() {
    let (rig, mut one, mut two) = pair();
    let spec = whole(&one);
    let file = file(&one);
    for round in 0..20 {
        passes(&mut one, &mut two, round);
        one.client().remove_mem_region(&spec).expect("gone");
        rig.wait_down(0, "no memory table");
        assert_eq!(rig.port(1).link, Link::Up);
        // Sent while the backend cannot see it: it waits in the ring.
        let waits = frame(mac(2), mac(1), 900, round);
        send(&mut one, &waits);
        one.client().add_mem_region(&RegionRef { spec, fd: file.as_fd() }).expect("back");
        rig.wait_up(0);
        assert!(take(&mut two, 1)[0].1 == waits);
    }
    passes(&mut one, &mut two, 100);
    rig.no_drops();
}

#[test]
fn a_table_that_fails_leaves_the_old_one_and_its_rings() {
    let (rig, mut one, mut two) = pair();
    let spec = whole(&one);
    let file = file(&one);
    let used = one.geometry(Ring::Transmit).used;
    for round in 0..10 {
        passes(&mut one, &mut two, round);
        // The receive ring fits, and of the transmit ring only the start of each part.
        let short = RegionSpec { size: used + 4 - spec.user_addr, ..spec };
        let refused = one.client().set_mem_table(&[RegionRef { spec: short, fd: file.as_fd() }]);
        assert!(refused.is_err());
        rig.wait_up(0);
        assert_eq!(rig.port(0).regions, 1);
        passes(&mut one, &mut two, 100 + round);
    }
    rig.no_drops();
}

#[test]
fn a_slot_that_fails_can_be_had_again() {
    let (rig, mut one, mut two) = pair();
    let spec = whole(&one);
    let file = file(&one);
    let transmit = one.geometry(Ring::Transmit);
    let split = transmit.desc - spec.user_addr;
    let front = RegionSpec { size: split, ..spec };
    let back = RegionSpec {
        guest_addr: spec.guest_addr + split,
        size: spec.size - split,
        user_addr: spec.user_addr + split,
        mmap_offset: split,
    };
    one.client().set_mem_table(&[RegionRef { spec: front, fd: file.as_fd() }]).expect("the front");
    rig.wait_down(0, "ring outside");
    for round in 0..10 {
        let short = RegionSpec { size: transmit.used + 4 - transmit.desc, ..back };
        assert!(one.client().add_mem_region(&RegionRef { spec: short, fd: file.as_fd() }).is_err());
        assert_eq!(rig.port(0).regions, 1);
        one.client().add_mem_region(&RegionRef { spec: back, fd: file.as_fd() }).expect("the back");
        rig.wait_up(0);
        passes(&mut one, &mut two, round);
        one.client().remove_mem_region(&back).expect("gone");
    }
    rig.no_drops();
}

// Cites vhost-user-send-rarp-1.
#[test]
fn a_guest_that_moved_here_is_announced() {
    let rig = rig(3, |config| config.bridges.push(testing::bridge(3)));
    let mut guests = [0, 1, 2].map(|port| rig.guest(port, &GuestOptions::default()));
    for n in 0..20 {
        guests[0].client().send_rarp([2, 0, 0, 0, 0, n]).expect("an announcement");
        for guest in &mut guests[1..] {
            let got = take(guest, 1).remove(0).1;
            assert_eq!((got.len(), &got[..6], &got[6..12]), (60, &[0xff; 6][..], &[2, 0, 0, 0, 0, n][..]));
            assert_eq!((&got[12..14], &got[20..22]), (&[0x80, 0x35][..], &[0, 3][..]));
        }
    }
    // The address was learned, so packets for it go to this port alone.
    send(&mut guests[1], &frame(mac(7), mac(0x77), 100, 1));
    take(&mut guests[0], 1);
    testing::nothing(&rig.switch, &mut guests[2]);
    assert_eq!(rig.port(0).queues[0].rx.packets, 20);
    // No station has this address: dropped by the bridge, as if the guest had sent it.
    guests[0].client().send_rarp([0xff; 6]).expect("an announcement");
    rig.wait_drops(0, "bad-source", 1);
}

// Cites vhost-user-get-vring-base-1.
#[test]
fn a_device_with_status_0_says_where_its_rings_stood_and_goes_on_there() {
    // QEMU 7.2 stops and moves a guest this way: the status first, then the positions.
    let (rig, mut one, mut two) = pair();
    for round in 0..5 {
        passes(&mut one, &mut two, round);
        one.client().set_status(0).expect("stopped");
        rig.wait_down(0, "no kick descriptor");
        let bases = one.stop().expect("where they stand");
        let stood = u32::from(one.used_index(Ring::Transmit));
        assert_eq!(bases, [[u32::from(one.used_index(Ring::Receive)), stood]]);
        assert!(stood > 0);
        one.resume(&bases).expect("resumed");
        rig.wait_up(0);
    }
    passes(&mut one, &mut two, 99);
    rig.no_drops();
}

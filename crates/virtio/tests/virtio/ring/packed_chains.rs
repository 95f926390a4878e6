//! Chains and positions of the packed ring: what no split ring has.

use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, END, GuestRing, USED, USER};
use straightline_virtio::ring::{
    Chain, ChainFault, Device, Direction, Fault, First, Geometry, INDIRECT, NEXT, PackedDevice, PackedDriver,
    RingFault, RingOptions, WRITE,
};

use super::chains::{ALL, TABLE, from_guest, read, refused};
use super::layout::Layout;
use super::packed::{FLAG_AVAIL, FLAG_USED, Packed, START, descriptor, device};

const SIZE: u16 = Packed::SIZE;

fn put(guest: &GuestRing, index: u16, addr: u64, len: u32, flags: u16) {
    Packed::put(guest, index, addr, len, flags);
}

#[test]
fn the_id_of_a_chain_is_that_of_its_last_descriptor() {
    let guest = GuestRing::new(SIZE);
    for i in 0..SIZE {
        put(&guest, i, BUFFERS, 10, if i + 1 < SIZE { NEXT } else { 0 });
    }
    let mut first = [First::default(); 2];
    assert_eq!(device(&guest, START, true, true).find(&mut first), Ok(1));
    assert_eq!(first[0].head, 100 + SIZE - 1);
}

// Cites packed-2.8.1-4, packed-2.8.15-3.
#[test]
fn what_is_available() {
    let guest = GuestRing::new(SIZE);
    for (flags, wrap, available) in [
        (FLAG_AVAIL, true, true),
        (FLAG_USED, true, false),
        (0, true, false),
        (FLAG_AVAIL | FLAG_USED, true, false),
        (FLAG_USED, false, true),
        (FLAG_AVAIL, false, false),
        (0, false, false),
        (FLAG_AVAIL | FLAG_USED, false, false),
    ] {
        descriptor(&guest, DESC, 4, (BUFFERS, 10, 7, flags));
        let mut device = device(&guest, 4 | u32::from(wrap) << 15, true, false);
        assert_eq!(device.find(&mut [First::default()]), Ok(available.into()), "{flags:#x} {wrap}");
        assert_eq!(device.arm(0), Ok(available));
    }
}

// Cites packed-2.8.17-2.
#[test]
fn a_chain_longer_than_the_ring_or_into_what_is_taken() {
    let guest = GuestRing::new(SIZE);
    let mut first = [First::default(); 2];
    for i in 0..SIZE {
        put(&guest, i, BUFFERS, 10, NEXT);
    }
    assert_eq!(device(&guest, START, true, false).find(&mut first), Err(RingFault::Loop { head: 0, size: SIZE }));
    // Two are taken. The four behind them must not continue into them, across the end of the ring.
    put(&guest, 1, BUFFERS, 10, 0);
    let mut device = device(&guest, START, true, false);
    assert_eq!(device.find(&mut first[..1]), Ok(1));
    device.take(&first[0]);
    assert_eq!(device.find(&mut first), Err(RingFault::Loop { head: 2, size: SIZE }));
    put(&guest, 5, BUFFERS, 10, 0);
    assert_eq!(device.find(&mut first), Ok(1));
    device.take(&first[0]);
    // All are taken: there are no more, even if the driver writes now.
    for i in 0..SIZE {
        descriptor(&guest, DESC, i, (BUFFERS, 10, i, FLAG_USED));
    }
    assert_eq!((device.find(&mut first), device.arm(0)), (Ok(0), Ok(false)));
    device.untake(1);
    assert_eq!(device.outstanding(), 1);
    // The descriptor that was not taken is read again: it is no longer available.
    assert_eq!(device.find(&mut first), Ok(0));
}

/// WRITE is the only flag with a meaning in a table (2.8.7), and only in tables for the device to
/// write. DPDK's driver sets WRITE in some entries of packets that it sends.
#[test]
fn flags_in_a_table_have_no_meaning() {
    let mut guest = GuestRing::new(SIZE);
    Packed::table(
        &guest,
        TABLE,
        &[(BUFFERS, 100, 0), (BUFFERS, 0, NEXT), (BUFFERS + 500, 50, INDIRECT), (BUFFERS, 7, 0xfffd)],
    );
    put(&guest, 0, TABLE, 64, INDIRECT);
    assert_eq!(from_guest::<Packed>(&mut guest), read(&[100, 50, 7]));
    put(&guest, 0, TABLE, 32, INDIRECT);
    for (header, body) in [(WRITE, 0), (0, WRITE), (WRITE, WRITE)] {
        Packed::table(&guest, TABLE, &[(BUFFERS, 12, header), (BUFFERS, 100, body)]);
        assert_eq!(from_guest::<Packed>(&mut guest), read(&[12, 100]));
    }
}

#[test]
fn a_table_does_not_follow_a_descriptor_of_the_ring() {
    let mut guest = GuestRing::new(SIZE);
    Packed::table(&guest, TABLE, &[(BUFFERS, 100, 0)]);
    put(&guest, 0, BUFFERS, 100, NEXT);
    put(&guest, 1, TABLE, 16, INDIRECT);
    assert_eq!(refused::<Packed>(&mut guest), Fault::Chain(ChainFault::Indirect));
}

/// Writes of the driver after a chain was read change nothing.
#[test]
fn chains_looked_at_are_ours() {
    let mut guest = GuestRing::new(SIZE);
    let (mut device, mut driver) = Packed::halves(&guest, true);
    let id = driver.add(&[(BUFFERS, 14, false), (BUFFERS, 6, false)]).expect("free descriptors");
    driver.publish();
    let mut first = [First::default()];
    assert_eq!(device.find(&mut first), Ok(1));
    for i in 0..SIZE {
        descriptor(&guest, DESC, i, (u64::MAX, u32::MAX, 0xffff, 0xffff));
    }
    device.take(&first[0]);
    guest.turn(|turn, memory| {
        let mark = turn.mark();
        assert_eq!(device.chain(memory, turn, &first[0], Direction::FromGuest), Ok(Chain { len: 20, readable: 20 }));
        assert_eq!(turn.staged(mark).len(), 2);
    });
    device.give_back(1);
    assert_eq!(driver.used(), Some(Ok((id, 0))));
    assert_eq!((driver.used(), driver.free()), (None, SIZE));
}

/// A used descriptor has WRITE if, and only if, its length has a meaning (2.8.4).
// Cites packed-2.8.1-5, packed-2.8.3-2.
#[test]
fn used_descriptors_say_whether_bytes_were_written() {
    let guest = GuestRing::new(SIZE);
    let (mut device, mut driver) = Packed::halves(&guest, true);
    let mut first = [First::default()];
    for (position, bytes) in [(0, 0), (1, 60)] {
        driver.add(&[(BUFFERS, 64, true)]).expect("free descriptors");
        driver.publish();
        assert_eq!(device.find(&mut first), Ok(1));
        device.take(&first[0]);
        device.written(bytes);
        device.give_back(1);
        let flags = guest.read16(DESC + 16 * position + 14);
        assert_eq!(flags, FLAG_AVAIL | FLAG_USED | if bytes > 0 { WRITE } else { 0 });
    }
}

/// Before `publish` the device sees nothing of a batch. After it, the device sees the whole batch.
// Cites packed-2.8.17-5.
#[test]
fn a_batch_is_seen_at_once() {
    let guest = GuestRing::new(SIZE);
    let (mut device, mut driver) = Packed::halves(&guest, true);
    let mut firsts = [First::default(); 8];
    for _ in 0..20 {
        for n in [1, 2, 2] {
            driver.add(&vec![(BUFFERS, 64, false); n]).expect("free descriptors");
            assert_eq!(device.find(&mut firsts), Ok(0));
        }
        assert!(!driver.must_kick(), "nothing is published");
        driver.publish();
        assert!(driver.must_kick());
        assert_eq!(device.find(&mut firsts), Ok(3));
        firsts[..3].iter().for_each(|first| device.take(first));
        device.give_back(3);
        while let Some(used) = driver.used() {
            used.expect("an outstanding id");
        }
        assert_eq!(driver.free(), SIZE);
    }
    // A batch of the whole ring is an exception: recovery could not distinguish it from what a
    // killed device leaves.
    for n in [1, 2, 3] {
        driver.add(&vec![(BUFFERS, 64, false); n]).expect("free descriptors");
    }
    assert_eq!(device.find(&mut firsts), Ok(2));
    driver.publish();
    assert!(driver.must_kick());
    assert_eq!(device.find(&mut firsts), Ok(3));
}

// Cites packed-2.8-1, packed-2.8.10.1-1, packed-2.8.10.1-2, packed-2.8.11-1.
#[test]
fn rings_that_cannot_be() {
    let guest = GuestRing::new(SIZE);
    let good = guest.geometry();
    let make = |geometry: Geometry| {
        let device = PackedDevice::new(&guest.ours, geometry, 0x8000, ALL);
        let driver = PackedDriver::new(&guest.ours, geometry, RingOptions::default());
        assert_eq!(device.as_ref().err(), driver.as_ref().err());
        device.map(|device| assert_eq!((device.size(), device.base()), (geometry.size, START))).err()
    };
    for size in [1, 3, 255, 32767, 32768] {
        assert_eq!(make(Geometry { size, ..good }), None);
    }
    for size in [0, 32769, 65535] {
        assert_eq!(make(Geometry { size, ..good }), Some("size"));
    }
    for (geometry, part) in [
        (Geometry { desc: good.desc + 8, ..good }, "descriptor ring"),
        (Geometry { desc: USER + END - 16 * u64::from(SIZE) + 16, ..good }, "descriptor ring"),
        (Geometry { avail: USER + AVAIL + 2, ..good }, "driver event suppression"),
        (Geometry { avail: USER + END, ..good }, "driver event suppression"),
        (Geometry { used: USER + USED + 1, ..good }, "device event suppression"),
        (Geometry { used: u64::MAX - 3, ..good }, "device event suppression"),
    ] {
        assert_eq!(make(geometry), Some(part));
    }
    for base in [u32::from(SIZE), 0x8000 | u32::from(SIZE), 0xffff, 0x7fff] {
        assert!(PackedDevice::new(&guest.ours, good, base, ALL).is_err());
    }
}

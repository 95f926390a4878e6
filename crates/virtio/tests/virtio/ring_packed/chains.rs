//! Every kind of chain that a driver may make or must not make, and every kind of device that a
//! driver may meet.

use straightline_packet::MAX_FRAME;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, END, GuestRing, USED, USER};
use straightline_virtio::ring::{
    Chain, ChainFault, Device, DeviceFault, Direction, Fault, First, Geometry, INDIRECT, NEXT, PackedDevice,
    PackedDriver, RingFault, RingOptions, WRITE,
};

use super::common::{FLAG_AVAIL, FLAG_USED, START, descriptor, device, driver, halves};

const SIZE: u16 = 6;
/// Guest address of indirect tables.
const TABLE: u64 = BUFFERS + 0x8000;

/// Takes the chain that begins at position 0; returns the result of its walk, and the lengths of
/// the staged segments.
fn walk(guest: &mut GuestRing, indirect: bool, direction: Direction) -> (Result<Chain, Fault>, Vec<u32>) {
    let mut device = device(guest, START, true, indirect);
    let mut first = [First::default()];
    assert_eq!(device.find(&mut first), Ok(1));
    device.take(&first[0]);
    guest.turn(|turn, memory| {
        let mark = turn.mark();
        let result = device.chain(memory, turn, &first[0], direction);
        (result, turn.staged(mark).iter().map(|s| s.len()).collect())
    })
}

fn from_guest(guest: &mut GuestRing) -> (Result<Chain, Fault>, Vec<u32>) {
    walk(guest, true, Direction::FromGuest)
}

fn refused(guest: &mut GuestRing) -> Fault {
    let (result, staged) = from_guest(guest);
    assert!(staged.is_empty(), "a fault stages nothing");
    result.expect_err("must be refused")
}

/// Writes an available descriptor at position `index` of the first round.
fn put(guest: &GuestRing, index: u16, addr: u64, len: u32, flags: u16) {
    descriptor(guest, DESC, index, (addr, len, 100 + index, flags | FLAG_AVAIL));
}

// Cites packed-2.8.6-2, packed-2.8.13-1, packed-2.8.18-1.
#[test]
fn direct_chains() {
    let mut guest = GuestRing::new(SIZE);
    put(&guest, 0, BUFFERS, 100, NEXT);
    put(&guest, 1, u64::MAX, 0, NEXT);
    put(&guest, 2, END - 50, 50, 0);
    assert_eq!(
        from_guest(&mut guest),
        (Ok(Chain { len: 150, readable: 150 }), vec![100, 50]),
        "no bytes may be anywhere"
    );
    // Undefined flags are no fault.
    put(&guest, 2, BUFFERS, 50, 0x7f78);
    assert_eq!(from_guest(&mut guest).0, Ok(Chain { len: 150, readable: 150 }));
    // A chain of all descriptors of the ring. Its id is the id of the last one.
    for i in 0..SIZE {
        put(&guest, i, BUFFERS, 10, if i + 1 < SIZE { NEXT } else { 0 });
    }
    assert_eq!(from_guest(&mut guest), (Ok(Chain { len: 60, readable: 60 }), vec![10; 6]));
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

#[test]
fn buffers_outside_memory_and_too_long() {
    let mut guest = GuestRing::new(SIZE);
    for (addr, len) in [(END, 1), (END - 1, 2), (u64::MAX, 1), (u64::MAX - 10, 100), (1 << 40, 1), (0, 0x20_0001)] {
        put(&guest, 0, BUFFERS, 100, NEXT);
        put(&guest, 1, addr, len, NEXT);
        put(&guest, 2, BUFFERS, 100, 0);
        let long = len > MAX_FRAME;
        let fault = if long { ChainFault::Long } else { ChainFault::Address };
        assert_eq!(refused(&mut guest), Fault::Chain(fault), "{addr:#x}+{len}");
    }
    put(&guest, 0, BUFFERS, 12, NEXT);
    put(&guest, 1, BUFFERS, MAX_FRAME, 0);
    assert_eq!(from_guest(&mut guest).0, Ok(Chain { len: MAX_FRAME + 12, readable: MAX_FRAME + 12 }));
    put(&guest, 1, BUFFERS, MAX_FRAME + 1, 0);
    assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Long));
    // Receive buffers may be larger.
    put(&guest, 0, BUFFERS, 12, WRITE | NEXT);
    put(&guest, 1, BUFFERS, MAX_FRAME + 1, WRITE);
    assert_eq!(walk(&mut guest, true, Direction::ToGuest).0, Ok(Chain { len: MAX_FRAME + 13, readable: 0 }));
}

// Cites packed-2.8.3-1, packed-2.8.15-1, packed-2.8.15-2.
#[test]
fn the_wrong_direction() {
    let mut guest = GuestRing::new(SIZE);
    for (one, two) in [(WRITE, 0), (0, WRITE), (WRITE, WRITE)] {
        put(&guest, 0, BUFFERS, 100, one | NEXT);
        put(&guest, 1, BUFFERS, 100, two);
        assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Direction));
        let to_guest = walk(&mut guest, true, Direction::ToGuest);
        assert_eq!(to_guest.0.is_ok(), (one, two) == (WRITE, WRITE));
        assert_eq!(to_guest.1.is_empty(), to_guest.0.is_err());
    }
}

// Cites packed-2.8.7-1, packed-2.8.7-2, packed-2.8.7-4, packed-2.8.18-2, packed-2.8.19-3.
#[test]
fn indirect_tables() {
    let mut guest = GuestRing::new(SIZE);
    let table = |guest: &GuestRing, entries: &[(u64, u32, u16)]| {
        for (i, &(addr, len, flags)) in (0..).zip(entries) {
            descriptor(guest, TABLE, i, (addr, len, 0xffff, flags));
        }
    };
    // WRITE is the only flag with a meaning in a table, and the flags of the table's own descriptor
    // have none (2.8.7).
    table(&guest, &[(BUFFERS, 100, 0), (BUFFERS, 0, NEXT), (BUFFERS + 500, 50, INDIRECT), (BUFFERS, 7, 0xfffd)]);
    for outer in [INDIRECT, INDIRECT | WRITE] {
        put(&guest, 0, TABLE, 64, outer);
        assert_eq!(from_guest(&mut guest), (Ok(Chain { len: 157, readable: 157 }), vec![100, 50, 7]));
    }
    // DPDK's driver sets WRITE in some entries of packets that it sends.
    put(&guest, 0, TABLE, 32, INDIRECT);
    for (header, body) in [(WRITE, 0), (0, WRITE), (WRITE, WRITE)] {
        table(&guest, &[(BUFFERS, 12, header), (BUFFERS, 100, body)]);
        assert_eq!(from_guest(&mut guest), (Ok(Chain { len: 112, readable: 112 }), vec![12, 100]));
    }
    table(&guest, &[(BUFFERS, 12, 0), (BUFFERS, 100, WRITE)]);
    assert_eq!(walk(&mut guest, true, Direction::ToGuest).0, Err(Fault::Chain(ChainFault::Direction)));
    let whole = [(BUFFERS, 10, 0); SIZE as usize + 1];
    table(&guest, &whole);
    put(&guest, 0, TABLE, 16 * u32::from(SIZE), INDIRECT);
    assert_eq!(from_guest(&mut guest).0, Ok(Chain { len: 60, readable: 60 }));
    for len in [0, 1, 15, 17, 24, 16 * (u32::from(SIZE) + 1), u32::MAX, u32::MAX - 15] {
        put(&guest, 0, TABLE, len, INDIRECT);
        assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Indirect), "table of {len}");
    }
    for addr in [END, END - 16, u64::MAX, u64::MAX - 31] {
        put(&guest, 0, addr, 32, INDIRECT);
        assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Address), "table at {addr:#x}");
    }
    // Its entries are checked like the ring's descriptors.
    for (entry, fault) in [((END, 1, 0), ChainFault::Address), ((BUFFERS, u32::MAX, 0), ChainFault::Long)] {
        table(&guest, &[(BUFFERS, 100, 0), entry, (BUFFERS, 1, 0)]);
        put(&guest, 0, TABLE, 48, INDIRECT);
        assert_eq!(refused(&mut guest), Fault::Chain(fault));
    }
}

// Cites packed-2.8.5-1, packed-2.8.19-1, packed-2.8.19-4.
#[test]
fn indirect_stands_alone_and_only_where_negotiated() {
    let mut guest = GuestRing::new(SIZE);
    descriptor(&guest, TABLE, 0, (BUFFERS, 100, 0, 0));
    for (one, two) in [(INDIRECT | NEXT, 0), (NEXT, INDIRECT)] {
        let at = |flags| if flags & INDIRECT != 0 { (TABLE, 16) } else { (BUFFERS, 100) };
        put(&guest, 0, at(one).0, at(one).1, one);
        put(&guest, 1, at(two).0, at(two).1, two);
        assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Indirect));
    }
    put(&guest, 0, TABLE, 16, INDIRECT);
    let (result, staged) = walk(&mut guest, false, Direction::FromGuest);
    assert_eq!((result, staged), (Err(Fault::Ring(RingFault::Indirect(100))), vec![]));
    assert_eq!(walk(&mut guest, true, Direction::FromGuest).0, Ok(Chain { len: 100, readable: 100 }));
}

/// Writes of the driver after a chain was read change nothing.
#[test]
fn chains_looked_at_are_ours() {
    let mut guest = GuestRing::new(SIZE);
    let (mut device, mut driver) = halves(&guest, true);
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
    let (mut device, mut driver) = halves(&guest, true);
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

#[test]
fn bytes_are_those_of_the_chain_that_is_left_when_another_is_taken_back() {
    let guest = GuestRing::new(SIZE);
    let (mut device, mut driver) = halves(&guest, true);
    let id = driver.add(&[(BUFFERS, 64, true)]).expect("free descriptors");
    driver.add(&[(BUFFERS, 64, true)]).expect("free descriptors");
    driver.publish();
    let mut firsts = [First::default(); 2];
    assert_eq!(device.find(&mut firsts), Ok(2));
    device.take_all(&firsts, |_| 60);
    device.untake(1);
    device.written(50);
    device.give_back(1);
    assert_eq!(driver.used(), Some(Ok((id, 50))));
}

/// Before `publish` the device sees nothing of a batch. After it, the device sees the whole batch.
// Cites packed-2.8.17-5.
#[test]
fn a_batch_is_seen_at_once() {
    let guest = GuestRing::new(SIZE);
    let (mut device, mut driver) = halves(&guest, true);
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

/// A device that does not keep the order (2.8.6): each used descriptor is at the position where the
/// last one's chain ended.
// Cites packed-2.8.1-5, packed-2.8.4-2, packed-2.8.6-5.
#[test]
fn the_driver_takes_chains_back_in_any_order() {
    let guest = GuestRing::new(SIZE);
    let mut driver = driver(&guest, true);
    let mut at = 0;
    let mut wrap = true;
    for _ in 0..20 {
        let ids = [1, 2, 3].map(|n| driver.add(&vec![(BUFFERS, 64, true); n]).expect("free descriptors"));
        driver.publish();
        for n in [3, 1, 2] {
            let id = ids[usize::from(n) - 1];
            let flags = if wrap { FLAG_AVAIL | FLAG_USED } else { 0 };
            // Without WRITE the length means nothing (2.8.4).
            let (write, bytes) = if n == 2 { (0, 0) } else { (WRITE, 5) };
            descriptor(&guest, DESC, at, (0, 5, id, flags | write));
            assert_eq!(driver.used(), Some(Ok((id, bytes))));
            assert_eq!(driver.used(), None);
            at += n;
            (at, wrap) = if at >= SIZE { (at - SIZE, !wrap) } else { (at, wrap) };
        }
        assert_eq!(driver.free(), SIZE);
    }
}

#[test]
fn an_id_that_is_not_out_breaks_the_driver() {
    for id in [1, SIZE - 1, SIZE, 0x7fff, 0xffff] {
        let guest = GuestRing::new(SIZE);
        let mut driver = driver(&guest, true);
        assert_eq!(driver.add(&[(BUFFERS, 64, false)]), Some(0));
        driver.publish();
        descriptor(&guest, DESC, 0, (0, 5, id, FLAG_AVAIL | FLAG_USED));
        assert_eq!(driver.used(), Some(Err(DeviceFault::Id(id.into()))));
        // The driver half stays broken even if the device corrects itself.
        descriptor(&guest, DESC, 0, (0, 5, 0, FLAG_AVAIL | FLAG_USED));
        assert_eq!((driver.used(), driver.want_interrupt(true)), (None, false));
        assert_eq!((driver.add(&[(BUFFERS, 64, false)]), driver.free()), (None, SIZE - 1));
    }
}

// Cites packed-2.8-1, packed-2.8.10.1-1, packed-2.8.10.1-2, packed-2.8.11-1.
#[test]
fn rings_that_cannot_be() {
    let guest = GuestRing::new(SIZE);
    let good = guest.geometry();
    let make = |geometry: Geometry| {
        let device = PackedDevice::new(
            &guest.ours,
            geometry,
            0x8000,
            RingOptions { event_idx: true, indirect: true, in_order: false },
        );
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
        assert!(
            PackedDevice::new(
                &guest.ours,
                good,
                base,
                RingOptions { event_idx: true, indirect: true, in_order: false }
            )
            .is_err()
        );
    }
}

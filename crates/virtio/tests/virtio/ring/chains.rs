//! Every kind of chain that a driver may make or must not make.

use straightline_packet::MAX_FRAME;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, END, GuestRing, USED, USER};
use straightline_virtio::ring::{
    Chain, ChainFault, Device, Direction, Fault, First, Geometry, INDIRECT, NEXT, RingFault, RingOptions, SplitDevice,
    WRITE,
};

const ALL: RingOptions = RingOptions { event_idx: true, indirect: true, in_order: false };

const SIZE: u16 = 8;
/// Guest address of indirect tables.
const TABLE: u64 = BUFFERS + 0x8000;

/// Takes the chain that begins with descriptor 0; returns the result of its walk, and the lengths
/// of the staged segments.
fn walk(guest: &mut GuestRing, indirect: bool, direction: Direction) -> (Result<Chain, Fault>, Vec<u32>) {
    guest.offer(0, 0);
    let mut device = guest.device(0, RingOptions { indirect, ..ALL });
    let mut first = [First::default()];
    assert_eq!(device.available(1), Ok(1));
    device.peek(&mut first).expect("a good head");
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

#[test]
fn direct_chains() {
    let mut guest = GuestRing::new(SIZE);
    guest.descriptor(DESC, 0, BUFFERS, 100, NEXT, 5);
    guest.descriptor(DESC, 5, BUFFERS + 500, 0, NEXT, 2);
    guest.descriptor(DESC, 2, END - 50, 50, 0, 77);
    assert_eq!(
        from_guest(&mut guest),
        (Ok(Chain { len: 150, readable: 150 }), vec![100, 50]),
        "the last `next` means nothing"
    );
    // Undefined flags are no fault.
    guest.descriptor(DESC, 2, BUFFERS, 50, 0xfff8, 77);
    assert_eq!(from_guest(&mut guest).0, Ok(Chain { len: 150, readable: 150 }));
    // A zero-length buffer may point anywhere.
    guest.descriptor(DESC, 5, u64::MAX, 0, NEXT, 2);
    assert_eq!(from_guest(&mut guest).0, Ok(Chain { len: 150, readable: 150 }));
    // A chain of all descriptors of the ring.
    for i in 0..SIZE {
        guest.descriptor(DESC, i, BUFFERS, 10, if i + 1 < SIZE { NEXT } else { 0 }, i + 1);
    }
    assert_eq!(from_guest(&mut guest), (Ok(Chain { len: 80, readable: 80 }), vec![10; 8]));
}

#[test]
fn buffers_outside_memory() {
    let mut guest = GuestRing::new(SIZE);
    for (addr, len) in [(END, 1), (END - 1, 2), (u64::MAX, 1), (u64::MAX - 10, 100), (1 << 40, 1), (0, 0x20_0001)] {
        guest.descriptor(DESC, 0, BUFFERS, 100, NEXT, 1);
        guest.descriptor(DESC, 1, addr, len, 0, 0);
        let fault = refused(&mut guest);
        let long = len > MAX_FRAME;
        assert_eq!(fault, Fault::Chain(if long { ChainFault::Long } else { ChainFault::Address }), "{addr:#x}+{len}");
    }
}

#[test]
fn buffers_over_several_regions() {
    // A region that adjoins, then a gap of a byte, then another region.
    let mut guest = GuestRing::with_more(SIZE, &[(END, 100), (END + 101, 1000)]);
    guest.descriptor(DESC, 0, END - 30, 130, 0, 0);
    assert_eq!(from_guest(&mut guest), (Ok(Chain { len: 130, readable: 130 }), vec![30, 100]));
    for (addr, len) in [(END - 30, 131), (END - 30, 140), (END + 100, 1), (END + 99, 3)] {
        guest.descriptor(DESC, 0, addr, len, 0, 0);
        assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Address), "{addr:#x}+{len}");
    }
    guest.descriptor(DESC, 0, END + 101, 1000, 0, 0);
    assert_eq!(from_guest(&mut guest).1, [1000]);
}

#[test]
fn directions() {
    let mut guest = GuestRing::new(SIZE);
    guest.descriptor(DESC, 0, BUFFERS, 100, NEXT, 1);
    guest.descriptor(DESC, 1, BUFFERS, 100, WRITE, 0);
    assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Direction));
    assert_eq!(walk(&mut guest, true, Direction::ToGuest).0, Err(Fault::Chain(ChainFault::Direction)));
    guest.descriptor(DESC, 0, BUFFERS, 100, NEXT | WRITE, 1);
    assert_eq!(walk(&mut guest, true, Direction::ToGuest), (Ok(Chain { len: 200, readable: 0 }), vec![100, 100]));
}

#[test]
fn chains_longer_than_a_frame() {
    let mut guest = GuestRing::new(SIZE);
    guest.descriptor(DESC, 0, BUFFERS, 12, NEXT, 1);
    guest.descriptor(DESC, 1, BUFFERS, MAX_FRAME, 0, 0);
    assert_eq!(from_guest(&mut guest).0, Ok(Chain { len: MAX_FRAME + 12, readable: MAX_FRAME + 12 }));
    guest.descriptor(DESC, 1, BUFFERS, MAX_FRAME + 1, 0, 0);
    assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Long));
    // Lengths whose sum wraps.
    guest.descriptor(DESC, 0, BUFFERS, u32::MAX, NEXT, 1);
    guest.descriptor(DESC, 1, BUFFERS, 100, 0, 0);
    assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Long));
    // A driver may offer receive buffers of any size.
    for i in 0..SIZE {
        guest.descriptor(DESC, i, 0, 0x20_0000, WRITE | if i + 1 < SIZE { NEXT } else { 0 }, i + 1);
    }
    let (result, staged) = walk(&mut guest, true, Direction::ToGuest);
    assert_eq!((result, staged.len()), (Ok(Chain { len: 0x100_0000, readable: 0 }), 8));
}

#[test]
fn chains_that_cannot_be_followed_stop_the_ring() {
    let mut guest = GuestRing::new(SIZE);
    guest.descriptor(DESC, 0, BUFFERS, 1, NEXT, 1);
    guest.descriptor(DESC, 1, BUFFERS, 1, NEXT, 0);
    assert_eq!(refused(&mut guest), Fault::Ring(RingFault::Loop { head: 0, size: SIZE }));
    guest.descriptor(DESC, 0, BUFFERS, 1, NEXT, 0);
    assert_eq!(refused(&mut guest), Fault::Ring(RingFault::Loop { head: 0, size: SIZE }));
    guest.descriptor(DESC, 0, BUFFERS, 1, NEXT, SIZE);
    assert_eq!(refused(&mut guest), Fault::Ring(RingFault::Next { at: 0, next: SIZE, size: SIZE }));
    // A fault of the chain alone does not hide the ring's fault.
    guest.descriptor(DESC, 0, u64::MAX, 1, NEXT, 1);
    guest.descriptor(DESC, 1, BUFFERS, 1, NEXT, u16::MAX);
    assert_eq!(refused(&mut guest), Fault::Ring(RingFault::Next { at: 1, next: u16::MAX, size: SIZE }));
}

/// Descriptor 0 names a table of `entries`, each with 10 bytes, one after the other.
fn table(guest: &GuestRing, entries: u16) {
    guest.descriptor(DESC, 0, TABLE, 16 * u32::from(entries), INDIRECT, 0);
    for i in 0..entries {
        guest.descriptor(TABLE, i, BUFFERS, 10, if i + 1 < entries { NEXT } else { 0 }, i + 1);
    }
}

#[test]
fn indirect_tables() {
    let mut guest = GuestRing::new(SIZE);
    for entries in 1..=SIZE {
        table(&guest, entries);
        let staged = vec![10; entries.into()];
        assert_eq!(
            from_guest(&mut guest),
            (Ok(Chain { len: 10 * u32::from(entries), readable: 10 * u32::from(entries) }), staged)
        );
    }
    // The chain visits the table's entries in another order, and not all of them.
    table(&guest, 4);
    guest.descriptor(TABLE, 0, BUFFERS, 1, NEXT, 3);
    guest.descriptor(TABLE, 3, BUFFERS, 3, NEXT, 1);
    guest.descriptor(TABLE, 1, BUFFERS, 2, 0, 0);
    assert_eq!(from_guest(&mut guest).1, [1, 3, 2]);
    // WRITE of the outer descriptor has no meaning (2.7.5.3.2), and neither has alignment.
    guest.descriptor(DESC, 0, TABLE, 64, INDIRECT | WRITE, 0);
    assert_eq!(from_guest(&mut guest).1, [1, 3, 2]);
    guest.descriptor(TABLE + 1, 0, BUFFERS, 7, 0, 0);
    guest.descriptor(DESC, 0, TABLE + 1, 16, INDIRECT, 0);
    assert_eq!(from_guest(&mut guest).1, [7]);
    // A table behind descriptors of the ring, as the last of the chain.
    guest.descriptor(DESC, 0, BUFFERS, 100, NEXT, 1);
    guest.descriptor(DESC, 1, TABLE + 1, 16, INDIRECT, 0);
    assert_eq!(from_guest(&mut guest), (Ok(Chain { len: 107, readable: 107 }), vec![100, 7]));
}

#[test]
fn indirect_tables_that_may_not_be() {
    let mut guest = GuestRing::new(SIZE);
    let bad = Fault::Chain(ChainFault::Indirect);
    for len in [0, 1, 15, 17, 31, 16 * (u32::from(SIZE) + 1), 0x1_0000, u32::MAX, u32::MAX - 15] {
        table(&guest, 4);
        guest.descriptor(DESC, 0, TABLE, len, INDIRECT, 0);
        assert_eq!(refused(&mut guest), bad, "length {len}");
    }
    table(&guest, 4);
    guest.descriptor(TABLE, 1, TABLE, 16, INDIRECT, 0);
    assert_eq!(refused(&mut guest), bad, "nested");
    for next in [4, u16::MAX] {
        table(&guest, 4);
        guest.descriptor(TABLE, 2, BUFFERS, 10, NEXT, next);
        assert_eq!(refused(&mut guest), bad, "next {next}");
    }
    table(&guest, 4);
    guest.descriptor(TABLE, 3, BUFFERS, 10, NEXT, 0);
    assert_eq!(refused(&mut guest), bad, "a loop");
    table(&guest, 4);
    guest.descriptor(DESC, 0, TABLE, 64, INDIRECT | NEXT, 1);
    guest.descriptor(DESC, 1, BUFFERS, 10, 0, 0);
    assert_eq!(refused(&mut guest), bad, "both flags (2.7.5.3.1)");
    for addr in [END, END - 63, u64::MAX, u64::MAX - 63] {
        guest.descriptor(DESC, 0, addr, 64, INDIRECT, 0);
        assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Address), "{addr:#x}");
    }
    table(&guest, 4);
    guest.descriptor(TABLE, 2, END, 1, 0, 0);
    assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Address));
    table(&guest, 4);
    guest.descriptor(TABLE, 2, BUFFERS, 1, WRITE, 0);
    assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Direction));
    table(&guest, 4);
    guest.descriptor(TABLE, 2, BUFFERS, MAX_FRAME, 0, 0);
    assert_eq!(refused(&mut guest), Fault::Chain(ChainFault::Long));
    // Indirect descriptors were not negotiated.
    table(&guest, 1);
    assert_eq!(walk(&mut guest, false, Direction::FromGuest).0, Err(Fault::Ring(RingFault::Indirect(0))));
}

#[test]
fn one_buffer_in_one_region_needs_no_staging() {
    let mut guest = GuestRing::with_more(SIZE, &[(END, 100)]);
    let device = guest.device(0, ALL);
    let mut single = |addr, len, flags, direction| {
        guest.descriptor(DESC, 0, addr, len, flags, 3);
        guest.offer(0, 0);
        let mut device: SplitDevice = guest.device(0, ALL);
        let mut first = [First::default()];
        device.peek(&mut first).expect("a good head");
        guest.turn(|_, memory| device.single(memory, &first[0], direction).map(|s| s.len()))
    };
    let from = Direction::FromGuest;
    let to = Direction::ToGuest;
    assert_eq!(single(BUFFERS, 100, 0, from), Some(100));
    assert_eq!(single(BUFFERS, 100, WRITE, to), Some(100));
    assert_eq!(single(BUFFERS, 100, WRITE, from), None);
    assert_eq!(single(BUFFERS, 100, 0, to), None);
    assert_eq!(single(BUFFERS, 100, NEXT, from), None);
    assert_eq!(single(BUFFERS, 160, INDIRECT, from), None);
    assert_eq!(single(END - 10, 20, 0, from), None, "two regions");
    assert_eq!(single(END + 90, 11, 0, from), None);
    assert_eq!(single(END + 90, 10, 0, from), Some(10));
    assert_eq!(device.size(), SIZE);
}

#[test]
fn what_the_driver_makes_available_is_checked() {
    let guest = GuestRing::new(SIZE);
    let mut device = guest.device(65_530, ALL);
    let index = |n| guest.write16(AVAIL + 2, n);
    index(65_530);
    assert_eq!(device.available(1), Ok(0));
    index(2); // 65538, eight more
    assert_eq!(device.available(1), Ok(SIZE));
    index(3);
    assert_eq!(device.available(1), Ok(SIZE), "no look where enough are known");
    assert_eq!(device.available(9), Err(RingFault::IndexJump { index: 3, taken: 65_530, size: SIZE }));
    index(65_529);
    assert!(matches!(device.available(9), Err(RingFault::IndexJump { .. })), "backwards");
    assert!(device.arm(0).is_err());

    // Descriptors of taken chains cannot be offered again before they are given back.
    index(2);
    let mut firsts = [First::default(); 4];
    device.peek(&mut firsts).expect("good heads");
    firsts.iter().for_each(|first| device.take(first));
    assert_eq!((device.available(4), device.outstanding()), (Ok(4), 4));
    index(3);
    let jump = RingFault::IndexJump { index: 3, taken: 65_534, size: SIZE };
    assert_eq!(device.available(5), Err(jump));
    device.give_back(1);
    assert_eq!(device.available(5), Ok(5));

    for head in [SIZE, u16::MAX] {
        guest.write16(AVAIL + 4 + 2 * u64::from(65_535 % SIZE), head);
        let entry = 65_535 % SIZE;
        assert_eq!(device.peek(&mut firsts), Err(RingFault::Head { entry, head, size: SIZE }));
    }
}

#[test]
fn a_used_index_that_the_guest_moves_changes_nothing() {
    let guest = GuestRing::new(SIZE);
    let mut device = guest.device(0, RingOptions { event_idx: false, ..ALL });
    guest.offer(0, 3);
    let mut first = [First::default()];
    assert_eq!(device.available(1), Ok(1));
    device.peek(&mut first).expect("a good head");
    device.take(&first[0]);
    device.written(77);
    guest.write16(USED + 2, 0x1234);
    device.give_back(1);
    assert_eq!(guest.read16(USED + 2), 1);
    assert_eq!([guest.read16(USED + 4), guest.read16(USED + 8)], [3, 77]);
}

#[test]
fn bytes_are_those_of_the_chain_that_is_left_when_another_is_taken_back() {
    let guest = GuestRing::new(SIZE);
    let mut device = guest.device(0, ALL);
    guest.offer(0, 3);
    guest.offer(1, 5);
    let mut firsts = [First::default(); 2];
    assert_eq!(device.available(2), Ok(2));
    device.peek(&mut firsts).expect("good heads");
    device.take_all(&firsts, |i| if i == 0 { 60 } else { 70 });
    device.untake(1);
    device.written(77);
    device.give_back(1);
    assert_eq!([guest.read16(USED + 4), guest.read16(USED + 8)], [3, 77]);
}

#[test]
fn rings_that_are_not_in_memory() {
    let guest = GuestRing::new(SIZE);
    let good = guest.geometry();
    let new = |geometry: Geometry| SplitDevice::new(&guest.ours, geometry, 0, ALL).map(|d| d.size());
    assert_eq!(new(good), Ok(SIZE));
    for size in [0, 3, 7, 0xffff, 0x8001] {
        assert_eq!(new(Geometry { size, ..good }), Err("size"));
    }
    assert_eq!(new(Geometry { size: 32_768, ..good }), Ok(32_768));
    assert_eq!(new(Geometry { desc: USER + 8, ..good }), Err("descriptor table"));
    assert_eq!(new(Geometry { desc: USER + END - 112, ..good }), Err("descriptor table"));
    assert_eq!(new(Geometry { desc: 0, ..good }), Err("descriptor table"));
    assert_eq!(new(Geometry { avail: USER + 1, ..good }), Err("available ring"));
    assert_eq!(new(Geometry { avail: USER + END - 20, ..good }), Err("available ring"));
    assert_eq!(new(Geometry { used: USER + 2, ..good }), Err("used ring"));
    assert_eq!(new(Geometry { used: u64::MAX - 3, ..good }), Err("used ring"));
    // The very last bytes of memory.
    let last = Geometry { used: USER + END - 72, ..good };
    assert_eq!(new(last), Ok(SIZE));
    assert_eq!(new(Geometry { used: USER + END - 68, ..good }), Err("used ring"));
}

// Cites packed-2.8-2.
#[test]
fn a_command_is_read_first_and_answered_behind() {
    let mut guest = GuestRing::new(SIZE);
    guest.descriptor(DESC, 0, BUFFERS, 10, NEXT, 1);
    guest.descriptor(DESC, 1, BUFFERS + 100, 20, NEXT, 2);
    guest.descriptor(DESC, 2, BUFFERS + 200, 1, WRITE, 0);
    let command = |guest: &mut GuestRing| walk(guest, true, Direction::Command);
    assert_eq!(command(&mut guest), (Ok(Chain { len: 31, readable: 30 }), vec![10, 20, 1]));
    // A command without space for an answer, and a chain with space for an answer only.
    guest.descriptor(DESC, 1, BUFFERS + 100, 20, 0, 2);
    assert_eq!(command(&mut guest).0, Ok(Chain { len: 30, readable: 30 }));
    guest.descriptor(DESC, 0, BUFFERS, 10, WRITE, 1);
    assert_eq!(command(&mut guest).0, Ok(Chain { len: 10, readable: 0 }));
    // The wrong order, and a command that is too long.
    guest.descriptor(DESC, 0, BUFFERS, 10, WRITE | NEXT, 1);
    assert_eq!(command(&mut guest), (Err(Fault::Chain(ChainFault::Direction)), vec![]));
    guest.descriptor(DESC, 0, BUFFERS, MAX_FRAME + 13, 0, 1);
    assert_eq!(command(&mut guest), (Err(Fault::Chain(ChainFault::Long)), vec![]));
}

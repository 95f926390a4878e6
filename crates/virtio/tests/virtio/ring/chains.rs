//! Every kind of chain that a driver may make or must not make.

use straightline_packet::MAX_FRAME;
use straightline_testing::guest_ring::{BUFFERS, END, GuestRing};
use straightline_virtio::ring::{
    Chain, ChainFault, Device, DeviceFault, Direction, Fault, First, INDIRECT, NEXT, RingFault, RingOptions, WRITE,
};

use super::layout::{DeviceHalf, DriverHalf, Layout, for_both_layouts};

for_both_layouts!(
    direct_chains,
    buffers_outside_memory,
    buffers_over_several_regions,
    directions,
    chains_longer_than_a_frame,
    indirect_tables,
    indirect_tables_that_may_not_be,
    one_buffer_in_one_region_needs_no_staging,
    bytes_are_those_of_the_chain_that_is_left_when_another_is_taken_back,
    a_command_is_read_first_and_answered_behind,
    the_driver_takes_chains_back_in_any_order,
    an_id_that_is_not_out_breaks_the_driver,
);

pub(super) const ALL: RingOptions = RingOptions { event_idx: true, indirect: true, in_order: false };

/// Guest address of indirect tables.
pub(super) const TABLE: u64 = BUFFERS + 0x8000;

/// The result of a walk, and the lengths of the staged segments.
type Walked = (Result<Chain, Fault>, Vec<u32>);

/// Takes the chain that begins with descriptor 0, and walks it.
pub(super) fn walk<L: Layout>(guest: &mut GuestRing, indirect: bool, direction: Direction) -> Walked {
    L::offer(guest);
    let mut device = L::device(guest, RingOptions { indirect, ..ALL });
    let mut first = [First::default()];
    assert_eq!(device.find(&mut first), Ok(1));
    device.take(&first[0]);
    guest.turn(|turn, memory| {
        let mark = turn.mark();
        let result = device.chain(memory, turn, &first[0], direction);
        (result, turn.staged(mark).iter().map(|s| s.len()).collect())
    })
}

pub(super) fn from_guest<L: Layout>(guest: &mut GuestRing) -> Walked {
    walk::<L>(guest, true, Direction::FromGuest)
}

fn to_guest<L: Layout>(guest: &mut GuestRing) -> Walked {
    walk::<L>(guest, true, Direction::ToGuest)
}

pub(super) fn refused<L: Layout>(guest: &mut GuestRing) -> Fault {
    let (result, staged) = from_guest::<L>(guest);
    assert!(staged.is_empty(), "a fault stages nothing");
    result.expect_err("must be refused")
}

/// Returns the result of a walk over buffers that are all read.
pub(super) fn read(lens: &[u32]) -> Walked {
    let len = lens.iter().sum();
    (Ok(Chain { len, readable: len }), lens.iter().copied().filter(|&len| len > 0).collect())
}

/// Writes a chain of all descriptors of the ring, each with `len` bytes from `addr` on.
fn put_all<L: Layout>(guest: &GuestRing, addr: u64, len: u32, flags: u16) {
    for i in 0..L::SIZE {
        L::put(guest, i, addr, len, flags | if i + 1 < L::SIZE { NEXT } else { 0 });
    }
}

// Cites packed-2.8.6-2, packed-2.8.13-1, packed-2.8.18-1.
fn direct_chains<L: Layout>() {
    let mut guest = GuestRing::new(L::SIZE);
    // A zero-length buffer may point anywhere.
    for empty in [BUFFERS + 500, u64::MAX] {
        L::put(&guest, 0, BUFFERS, 100, NEXT);
        L::put(&guest, 1, empty, 0, NEXT);
        L::put(&guest, 2, END - 50, 50, 0);
        assert_eq!(from_guest::<L>(&mut guest), read(&[100, 0, 50]));
    }
    // Undefined flags are no fault.
    L::put(&guest, 2, BUFFERS, 50, L::UNDEFINED);
    assert_eq!(from_guest::<L>(&mut guest), read(&[100, 50]));
    put_all::<L>(&guest, BUFFERS, 10, 0);
    assert_eq!(from_guest::<L>(&mut guest), read(&vec![10; L::SIZE.into()]));
}

fn buffers_outside_memory<L: Layout>() {
    let mut guest = GuestRing::new(L::SIZE);
    for (addr, len) in [(END, 1), (END - 1, 2), (u64::MAX, 1), (u64::MAX - 10, 100), (1 << 40, 1), (0, 0x20_0001)] {
        let long = len > MAX_FRAME;
        let fault = Fault::Chain(if long { ChainFault::Long } else { ChainFault::Address });
        // As the last buffer, and in the middle.
        for flags in [0, NEXT] {
            L::put(&guest, 0, BUFFERS, 100, NEXT);
            L::put(&guest, 1, addr, len, flags);
            L::put(&guest, 2, BUFFERS, 100, 0);
            assert_eq!(refused::<L>(&mut guest), fault, "{addr:#x}+{len}");
        }
    }
}

fn buffers_over_several_regions<L: Layout>() {
    // A region that adjoins, then a gap of a byte, then another region.
    let mut guest = GuestRing::with_more(L::SIZE, &[(END, 100), (END + 101, 1000)]);
    L::put(&guest, 0, END - 30, 130, 0);
    assert_eq!(from_guest::<L>(&mut guest), read(&[30, 100]));
    for (addr, len) in [(END - 30, 131), (END - 30, 140), (END + 100, 1), (END + 99, 3)] {
        L::put(&guest, 0, addr, len, 0);
        assert_eq!(refused::<L>(&mut guest), Fault::Chain(ChainFault::Address), "{addr:#x}+{len}");
    }
    L::put(&guest, 0, END + 101, 1000, 0);
    assert_eq!(from_guest::<L>(&mut guest), read(&[1000]));
}

// Cites packed-2.8.3-1, packed-2.8.15-1, packed-2.8.15-2.
fn directions<L: Layout>() {
    let mut guest = GuestRing::new(L::SIZE);
    let wrong = Fault::Chain(ChainFault::Direction);
    for (one, two) in [(WRITE, 0), (0, WRITE), (WRITE, WRITE)] {
        L::put(&guest, 0, BUFFERS, 100, one | NEXT);
        L::put(&guest, 1, BUFFERS, 100, two);
        assert_eq!(refused::<L>(&mut guest), wrong);
        let is_good = (one, two) == (WRITE, WRITE);
        let good = (Ok(Chain { len: 200, readable: 0 }), vec![100, 100]);
        assert_eq!(to_guest::<L>(&mut guest), if is_good { good } else { (Err(wrong), vec![]) });
    }
}

fn chains_longer_than_a_frame<L: Layout>() {
    let mut guest = GuestRing::new(L::SIZE);
    L::put(&guest, 0, BUFFERS, 12, NEXT);
    L::put(&guest, 1, BUFFERS, MAX_FRAME, 0);
    assert_eq!(from_guest::<L>(&mut guest), read(&[12, MAX_FRAME]));
    L::put(&guest, 1, BUFFERS, MAX_FRAME + 1, 0);
    assert_eq!(refused::<L>(&mut guest), Fault::Chain(ChainFault::Long));
    // Lengths whose sum wraps.
    L::put(&guest, 0, BUFFERS, u32::MAX, NEXT);
    L::put(&guest, 1, BUFFERS, 100, 0);
    assert_eq!(refused::<L>(&mut guest), Fault::Chain(ChainFault::Long));
    // A driver may offer receive buffers of any size.
    L::put(&guest, 0, BUFFERS, 12, WRITE | NEXT);
    L::put(&guest, 1, BUFFERS, MAX_FRAME + 1, WRITE);
    assert_eq!(to_guest::<L>(&mut guest).0, Ok(Chain { len: MAX_FRAME + 13, readable: 0 }));
    put_all::<L>(&guest, 0, 0x20_0000, WRITE);
    let (result, staged) = to_guest::<L>(&mut guest);
    let len = 0x20_0000 * u32::from(L::SIZE);
    assert_eq!((result, staged.len()), (Ok(Chain { len, readable: 0 }), L::SIZE.into()));
}

/// Descriptor 0 names a table of buffers with these lengths.
fn table<L: Layout>(guest: &GuestRing, lens: &[u32]) {
    let buffers: Vec<_> = lens.iter().map(|&len| (BUFFERS, len, 0)).collect();
    L::table(guest, TABLE, &buffers);
    L::put(guest, 0, TABLE, 16 * u32::try_from(lens.len()).expect("few"), INDIRECT);
}

// Cites packed-2.8.7-1, packed-2.8.7-2, packed-2.8.7-4, packed-2.8.18-2, packed-2.8.19-3.
fn indirect_tables<L: Layout>() {
    let mut guest = GuestRing::new(L::SIZE);
    for entries in 1..=L::SIZE {
        let lens = vec![10; entries.into()];
        table::<L>(&guest, &lens);
        assert_eq!(from_guest::<L>(&mut guest), read(&lens));
    }
    // WRITE of the outer descriptor has no meaning (2.7.5.3.2, 2.8.7), and neither has alignment.
    table::<L>(&guest, &[100, 0, 50, 7]);
    L::put(&guest, 0, TABLE, 64, INDIRECT | WRITE);
    assert_eq!(from_guest::<L>(&mut guest), read(&[100, 50, 7]));
    L::table(&guest, TABLE + 1, &[(BUFFERS, 7, 0)]);
    L::put(&guest, 0, TABLE + 1, 16, INDIRECT);
    assert_eq!(from_guest::<L>(&mut guest), read(&[7]));
}

// Cites packed-2.8.5-1, packed-2.8.19-1, packed-2.8.19-4.
fn indirect_tables_that_may_not_be<L: Layout>() {
    let mut guest = GuestRing::new(L::SIZE);
    let bad = Fault::Chain(ChainFault::Indirect);
    let four = [10; 4];
    for len in [0, 1, 15, 17, 24, 31, 16 * (u32::from(L::SIZE) + 1), 0x1_0000, u32::MAX, u32::MAX - 15] {
        table::<L>(&guest, &vec![10; usize::from(L::SIZE) + 1]);
        L::put(&guest, 0, TABLE, len, INDIRECT);
        assert_eq!(refused::<L>(&mut guest), bad, "length {len}");
    }
    table::<L>(&guest, &four);
    L::put(&guest, 0, TABLE, 64, INDIRECT | NEXT);
    L::put(&guest, 1, BUFFERS, 10, 0);
    assert_eq!(refused::<L>(&mut guest), bad, "both flags (2.7.5.3.1)");
    for addr in [END, END - 16, END - 63, u64::MAX, u64::MAX - 31, u64::MAX - 63] {
        L::put(&guest, 0, addr, 64, INDIRECT);
        assert_eq!(refused::<L>(&mut guest), Fault::Chain(ChainFault::Address), "{addr:#x}");
    }
    // Its entries are checked like the ring's descriptors.
    for (addr, len, fault) in
        [(END, 1, ChainFault::Address), (BUFFERS, MAX_FRAME, ChainFault::Long), (BUFFERS, u32::MAX, ChainFault::Long)]
    {
        L::table(&guest, TABLE, &[(BUFFERS, 10, 0), (BUFFERS, 10, 0), (addr, len, 0), (BUFFERS, 1, 0)]);
        L::put(&guest, 0, TABLE, 64, INDIRECT);
        assert_eq!(refused::<L>(&mut guest), Fault::Chain(fault));
    }
    L::table(&guest, TABLE, &[(BUFFERS, 10, 0), (BUFFERS, 10, WRITE)]);
    L::put(&guest, 0, TABLE, 32, INDIRECT);
    assert_eq!(to_guest::<L>(&mut guest), (Err(Fault::Chain(ChainFault::Direction)), vec![]));
    // Indirect descriptors were not negotiated.
    table::<L>(&guest, &[100]);
    let not_negotiated = walk::<L>(&mut guest, false, Direction::FromGuest);
    assert_eq!(not_negotiated, (Err(Fault::Ring(RingFault::Indirect(L::id()))), vec![]));
    assert_eq!(from_guest::<L>(&mut guest), read(&[100]));
}

fn one_buffer_in_one_region_needs_no_staging<L: Layout>() {
    let mut guest = GuestRing::with_more(L::SIZE, &[(END, 100)]);
    L::put(&guest, 1, BUFFERS, 100, 0);
    let mut single = |addr, len, flags, direction| {
        L::put(&guest, 0, addr, len, flags);
        L::offer(&guest);
        let mut device = L::device(&guest, ALL);
        assert_eq!(device.size(), L::SIZE);
        let mut first = [First::default()];
        assert_eq!(device.find(&mut first), Ok(1));
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
}

fn bytes_are_those_of_the_chain_that_is_left_when_another_is_taken_back<L: Layout>() {
    let guest = GuestRing::new(L::SIZE);
    let (mut device, mut driver) = L::halves(&guest, true);
    let id = driver.add(&[(BUFFERS, 64, true)]).expect("free descriptors");
    driver.add(&[(BUFFERS, 64, true)]).expect("free descriptors");
    driver.publish();
    let mut firsts = [First::default(); 2];
    assert_eq!(device.find(&mut firsts), Ok(2));
    device.take_all(&firsts, |i| if i == 0 { 60 } else { 64 });
    device.untake(1);
    device.written(50);
    device.give_back(1);
    assert_eq!(driver.used(), Some(Ok((id, 50))));
    assert_eq!(driver.used(), None);
}

// Cites packed-2.8-2.
fn a_command_is_read_first_and_answered_behind<L: Layout>() {
    let mut guest = GuestRing::new(L::SIZE);
    L::put(&guest, 0, BUFFERS, 10, NEXT);
    L::put(&guest, 1, BUFFERS + 100, 20, NEXT);
    L::put(&guest, 2, BUFFERS + 200, 1, WRITE);
    let command = |guest: &mut GuestRing| walk::<L>(guest, true, Direction::Command);
    assert_eq!(command(&mut guest), (Ok(Chain { len: 31, readable: 30 }), vec![10, 20, 1]));
    // A command without space for an answer, and a chain with space for an answer only.
    L::put(&guest, 1, BUFFERS + 100, 20, 0);
    assert_eq!(command(&mut guest).0, Ok(Chain { len: 30, readable: 30 }));
    L::put(&guest, 0, BUFFERS, 10, WRITE);
    assert_eq!(command(&mut guest).0, Ok(Chain { len: 10, readable: 0 }));
    // The wrong order, and a command that is too long.
    L::put(&guest, 0, BUFFERS, 10, WRITE | NEXT);
    assert_eq!(command(&mut guest), (Err(Fault::Chain(ChainFault::Direction)), vec![]));
    L::put(&guest, 0, BUFFERS, MAX_FRAME + 13, 0);
    assert_eq!(command(&mut guest), (Err(Fault::Chain(ChainFault::Long)), vec![]));
}

/// A device that does not keep the order (2.7.8, 2.8.6). In a packed ring, each used descriptor is at
/// the position where the last one's chain ended.
// Cites packed-2.8.1-5, packed-2.8.4-2, packed-2.8.6-5.
fn the_driver_takes_chains_back_in_any_order<L: Layout>() {
    let guest = GuestRing::new(L::SIZE);
    let mut driver = L::driver(&guest, RingOptions { event_idx: true, ..RingOptions::default() });
    let mut position = 0;
    for _ in 0..20 {
        let ids = [1, 2, 3].map(|n| driver.add(&vec![(BUFFERS, 64, true); n]).expect("free descriptors"));
        driver.publish();
        for n in [3, 1, 2] {
            let id = ids[usize::from(n) - 1];
            let bytes = (n != 2).then_some(5);
            let end = position + L::entries(n);
            L::report(&guest, position, end, id.into(), bytes);
            assert_eq!(driver.used(), Some(Ok((id, bytes.unwrap_or(0)))));
            assert_eq!(driver.used(), None);
            position = end;
        }
        assert_eq!(driver.free(), L::SIZE);
    }
}

fn an_id_that_is_not_out_breaks_the_driver<L: Layout>() {
    for id in [1, L::SIZE - 1, L::SIZE, 0x7fff, 0xffff] {
        let guest = GuestRing::new(L::SIZE);
        let mut driver = L::driver(&guest, RingOptions { event_idx: true, ..RingOptions::default() });
        assert_eq!(driver.add(&[(BUFFERS, 64, false)]), Some(0));
        driver.publish();
        L::report(&guest, 0, 1, id.into(), None);
        assert_eq!(driver.used(), Some(Err(DeviceFault::Id(id.into()))));
        // The driver half stays broken even if the device corrects itself.
        L::report(&guest, 0, 1, 0, None);
        assert_eq!((driver.used(), driver.want_interrupt(true)), (None, false));
        assert_eq!((driver.add(&[(BUFFERS, 64, false)]), driver.free()), (None, L::SIZE - 1));
    }
}

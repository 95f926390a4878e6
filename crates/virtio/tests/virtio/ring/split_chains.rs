//! Chains and indexes of the split ring: what no packed ring has.

use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, END, GuestRing, USED, USER};
use straightline_virtio::ring::{
    ChainFault, Device, Fault, First, Geometry, INDIRECT, NEXT, RingFault, RingOptions, SplitDevice, WRITE,
};

use super::chains::{ALL, TABLE, from_guest, read, refused};
use super::layout::Layout;
use super::split::Split;

const SIZE: u16 = Split::SIZE;

#[test]
fn a_chain_goes_where_next_leads() {
    let mut guest = GuestRing::new(SIZE);
    guest.descriptor(DESC, 0, BUFFERS, 100, NEXT, 5);
    guest.descriptor(DESC, 5, BUFFERS + 500, 0, NEXT, 2);
    guest.descriptor(DESC, 2, END - 50, 50, 0, 77);
    assert_eq!(from_guest::<Split>(&mut guest), read(&[100, 50]), "the last `next` means nothing");
}

#[test]
fn chains_that_cannot_be_followed_stop_the_ring() {
    let mut guest = GuestRing::new(SIZE);
    guest.descriptor(DESC, 0, BUFFERS, 1, NEXT, 1);
    guest.descriptor(DESC, 1, BUFFERS, 1, NEXT, 0);
    assert_eq!(refused::<Split>(&mut guest), Fault::Ring(RingFault::Loop { head: 0, size: SIZE }));
    guest.descriptor(DESC, 0, BUFFERS, 1, NEXT, 0);
    assert_eq!(refused::<Split>(&mut guest), Fault::Ring(RingFault::Loop { head: 0, size: SIZE }));
    guest.descriptor(DESC, 0, BUFFERS, 1, NEXT, SIZE);
    assert_eq!(refused::<Split>(&mut guest), Fault::Ring(RingFault::Next { at: 0, next: SIZE, size: SIZE }));
    // A fault of the chain alone does not hide the ring's fault.
    guest.descriptor(DESC, 0, u64::MAX, 1, NEXT, 1);
    guest.descriptor(DESC, 1, BUFFERS, 1, NEXT, u16::MAX);
    assert_eq!(refused::<Split>(&mut guest), Fault::Ring(RingFault::Next { at: 1, next: u16::MAX, size: SIZE }));
}

/// Writes a table of four buffers, which descriptor 0 names.
fn table(guest: &GuestRing) {
    Split::table(guest, TABLE, &[(BUFFERS, 10, 0); 4]);
    guest.descriptor(DESC, 0, TABLE, 64, INDIRECT, 0);
}

#[test]
fn a_table_has_a_chain_of_its_own() {
    let mut guest = GuestRing::new(SIZE);
    // The chain visits the table's entries in another order, and not all of them.
    table(&guest);
    guest.descriptor(TABLE, 0, BUFFERS, 1, NEXT, 3);
    guest.descriptor(TABLE, 3, BUFFERS, 3, NEXT, 1);
    guest.descriptor(TABLE, 1, BUFFERS, 2, 0, 0);
    assert_eq!(from_guest::<Split>(&mut guest), read(&[1, 3, 2]));
    // A table behind descriptors of the ring, as the last of the chain.
    guest.descriptor(TABLE + 1, 0, BUFFERS, 7, 0, 0);
    guest.descriptor(DESC, 0, BUFFERS, 100, NEXT, 1);
    guest.descriptor(DESC, 1, TABLE + 1, 16, INDIRECT, 0);
    assert_eq!(from_guest::<Split>(&mut guest), read(&[100, 7]));
}

#[test]
fn a_table_whose_chain_cannot_be_followed() {
    let mut guest = GuestRing::new(SIZE);
    let bad = Fault::Chain(ChainFault::Indirect);
    table(&guest);
    guest.descriptor(TABLE, 1, TABLE, 16, INDIRECT, 0);
    assert_eq!(refused::<Split>(&mut guest), bad, "nested");
    for next in [4, u16::MAX] {
        table(&guest);
        guest.descriptor(TABLE, 2, BUFFERS, 10, NEXT, next);
        assert_eq!(refused::<Split>(&mut guest), bad, "next {next}");
    }
    table(&guest);
    guest.descriptor(TABLE, 3, BUFFERS, 10, NEXT, 0);
    assert_eq!(refused::<Split>(&mut guest), bad, "a loop");
    table(&guest);
    guest.descriptor(TABLE, 2, BUFFERS, 1, WRITE, 0);
    assert_eq!(refused::<Split>(&mut guest), Fault::Chain(ChainFault::Direction));
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

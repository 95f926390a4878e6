//! IN_ORDER (virtio 1.2, 2.7.9, and 2.8, "In-order use of descriptors"): batches with one element, and
//! devices that report something impossible. Our device half of a packed ring writes one used
//! descriptor for each chain, so that its position can be recovered.

use straightline_testing::guest_ring::{BUFFERS, DESC, GuestRing, TABLE, TABLES, USED};
use straightline_virtio::ring::{Device, DeviceFault, First, INDIRECT, NEXT, RingOptions, SplitDevice, SplitDriver};

use super::layout::{DriverHalf, Layout, for_both_layouts};
use super::split::{Split, write_element};

for_both_layouts!(batches_of_chains, devices_that_break_the_driver);

const OPTIONS: RingOptions = RingOptions { event_idx: true, indirect: false, in_order: true };

/// Size of the split rings here.
const SIZE: u16 = Split::SIZE;

/// A third-party device may leave out elements of buffers that it has filled. The chains without an
/// element are wholly used.
// Cites packed-2.8.8-1, packed-2.8.8-2.
fn batches_of_chains<L: Layout>() {
    let guest = GuestRing::new(L::SIZE);
    let mut driver = L::driver(&guest, OPTIONS);
    let mut position = 0;
    for round in 0..30_u32 {
        let lens = [1, 2, 1, 1];
        let ids = lens.map(|n| driver.add(&vec![(BUFFERS, 10 * (round + 1), true); n]).expect("free descriptors"));
        driver.publish();
        let base = |position| L::base(position, position, L::SIZE);
        assert_eq!(driver.base(), base(position));
        // One element for the first three chains, and one for the last.
        let three = position + L::entries(1) + L::entries(2) + L::entries(1);
        L::report(&guest, position, three, ids[2].into(), Some(3));
        assert_eq!(driver.base(), base(three));
        let full = |n: u32| 10 * (round + 1) * n;
        assert_eq!(driver.used(), Some(Ok((ids[0], full(1)))));
        assert!(driver.want_interrupt(true), "the rest of the batch");
        assert_eq!(driver.base(), base(three));
        assert_eq!(driver.used(), Some(Ok((ids[1], full(2)))));
        assert_eq!(driver.used(), Some(Ok((ids[2], 3))));
        assert_eq!(driver.used(), None);
        position = three + L::entries(1);
        L::report(&guest, three, position, ids[3].into(), Some(5));
        assert_eq!(driver.used(), Some(Ok((ids[3], 5))));
        assert_eq!((driver.used(), driver.free(), driver.base()), (None, L::SIZE, base(position)));
    }
}

/// Creates a driver half that has published three chains, each with a buffer of 64 bytes.
fn three_published<L: Layout>(guest: &GuestRing) -> L::Driver {
    let mut driver = L::driver(guest, OPTIONS);
    (0..3).for_each(|id| assert_eq!(driver.add(&[(BUFFERS, 64, true)]), Some(id)));
    driver.publish();
    driver
}

/// Checks that the driver half finds `fault`, and stays broken even if the device corrects itself.
fn breaks<L: Layout>(guest: &GuestRing, mut driver: L::Driver, fault: DeviceFault) {
    assert_eq!(driver.used(), Some(Err(fault)));
    L::report(guest, 0, 1, 0, Some(5));
    assert_eq!((driver.used(), driver.want_interrupt(true)), (None, false));
    assert_eq!((driver.add(&[(BUFFERS, 64, true)]), driver.free()), (None, L::SIZE - 3));
}

fn devices_that_break_the_driver<L: Layout>() {
    for (id, bytes, fault) in [
        (3, 5, DeviceFault::Id(3)),
        (0xffff, 5, DeviceFault::Id(0xffff)),
        (0, 65, DeviceFault::Length { id: 0, bytes: 65, capacity: 64 }),
    ] {
        let guest = GuestRing::new(L::SIZE);
        let driver = three_published::<L>(&guest);
        L::report(&guest, 0, 1, id, Some(bytes));
        breaks::<L>(&guest, driver, fault);
    }
    // The length is the length of the batch's last chain.
    let guest = GuestRing::new(L::SIZE);
    let mut driver = three_published::<L>(&guest);
    L::report(&guest, 0, 2, 1, Some(65));
    assert_eq!(driver.used(), Some(Ok((0, 64))));
    assert_eq!(driver.used(), Some(Err(DeviceFault::Length { id: 1, bytes: 65, capacity: 64 })));
    assert_eq!(driver.used(), None);
}

#[test]
fn indexes_that_break_the_driver() {
    for (id, index, fault) in [
        (u32::MAX, 1, DeviceFault::Id(u32::MAX)),
        (0, 4, DeviceFault::IndexJump { ahead: 4, published: 3 }),
        (0, 0xffff, DeviceFault::IndexJump { ahead: 0xffff, published: 3 }),
        (2, 1, DeviceFault::Batch(2)),
    ] {
        let guest = GuestRing::new(SIZE);
        let driver = three_published::<Split>(&guest);
        Split::report(&guest, 0, index, id, Some(5));
        breaks::<Split>(&guest, driver, fault);
    }
    // A batch of three chains, but the index covers two.
    let guest = GuestRing::new(SIZE);
    let mut driver = three_published::<Split>(&guest);
    Split::report(&guest, 0, 2, 2, Some(5));
    assert_eq!(driver.used(), Some(Ok((0, 64))));
    assert_eq!(driver.used(), Some(Err(DeviceFault::Batch(2))));
    assert_eq!(driver.used(), None);
}

fn halves(guest: &GuestRing) -> (SplitDevice, SplitDriver) {
    (guest.device(0, OPTIONS), guest.driver(OPTIONS))
}

fn take(device: &mut SplitDevice, n: usize) {
    let mut firsts = vec![First::default(); n];
    assert!(device.available(u16::try_from(n).expect("small")).is_ok_and(|found| usize::from(found) >= n));
    device.peek(&mut firsts).expect("a good driver");
    firsts.iter().for_each(|first| device.take(first));
}

fn element(guest: &GuestRing, at: u16) -> (u16, u16) {
    let at = USED + 4 + 8 * u64::from(at % SIZE);
    (guest.read16(at), guest.read16(at + 4))
}

/// 2.7.5.2: descriptors are used around the table.
#[test]
fn descriptors_go_around_the_table() {
    let guest = GuestRing::new(SIZE);
    let (mut device, mut driver) = halves(&guest);
    let mut at = 0;
    for n in [3, 2, 1, 4, 8, 5, 7, 1, 8].into_iter().cycle().take(60) {
        assert_eq!(driver.add(&vec![(BUFFERS, 64, false); n]), Some(at));
        let n = u16::try_from(n).expect("small");
        for i in 0..n {
            let desc = DESC + 16 * u64::from((at + i) % SIZE);
            assert_eq!(guest.read16(desc + 12) & NEXT != 0, i + 1 < n);
            assert!(i + 1 == n || guest.read16(desc + 14) == (at + i + 1) % SIZE);
        }
        driver.publish();
        take(&mut device, 1);
        device.give_back(1);
        assert_eq!(driver.used(), Some(Ok((at, 0))));
        at = (at + n) % SIZE;
    }
}

#[test]
fn what_was_only_read_comes_back_by_one_element() {
    let guest = GuestRing::new(SIZE);
    let (mut device, mut driver) = halves(&guest);
    for round in 0..20 {
        let heads: Vec<_> = (0..4).map(|_| driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors")).collect();
        driver.publish();
        take(&mut device, 4);
        for i in 0..4 {
            write_element(&guest, round * 4 + i, 77, 77);
        }
        device.give_back(4);
        // The first element names the last chain; the next batch's element is four entries on.
        assert_eq!(element(&guest, round * 4), (heads[3], 0));
        assert_eq!(element(&guest, round * 4 + 1), (77, 77), "no other is written");
        for &head in &heads {
            assert_eq!(driver.used(), Some(Ok((head, 0))));
        }
        assert_eq!((driver.used(), driver.free()), (None, SIZE));
    }
}

#[test]
fn what_was_written_has_an_element_each() {
    let guest = GuestRing::new(SIZE);
    let (mut device, mut driver) = halves(&guest);
    let heads: Vec<_> = (0..4).map(|_| driver.add(&[(BUFFERS, 64, true)]).expect("free descriptors")).collect();
    driver.publish();
    for bytes in 57..61 {
        take(&mut device, 1);
        device.written(bytes);
    }
    device.give_back(4);
    for (&head, bytes) in heads.iter().zip(57..) {
        assert_eq!(driver.used(), Some(Ok((head, bytes))));
    }
}

#[test]
fn tables_where_a_chain_fits() {
    let guest = GuestRing::new(SIZE);
    let mut driver = guest.driver(RingOptions { indirect: true, ..OPTIONS });
    assert_eq!(driver.add(&[(BUFFERS, 1, false)]), Some(0));
    assert_eq!(driver.add(&[(BUFFERS, 1, false), (BUFFERS + 1, 2, true)]), Some(1));
    assert_eq!(driver.add(&[(BUFFERS, 1, false); 4]), Some(2), "longer than a table");
    assert_eq!(driver.free(), SIZE - 6);
    let word = |at: u64, n: u64| guest.read16(DESC + 16 * at + 2 * n);
    // The table of the second chain, which has two descriptors.
    let table = TABLES + 16 * u64::from(TABLE);
    assert_eq!(u64::from(word(1, 0)) | u64::from(word(1, 1)) << 16, table);
    assert_eq!((word(1, 4), word(1, 6)), (32, INDIRECT));
    let entry = |at: u64| (guest.read16(table + 16 * at + 8), guest.read16(table + 16 * at + 12));
    assert_eq!((entry(0), entry(1)), ((1, NEXT), (2, 2)));
    assert_eq!((word(0, 6), word(2, 6), word(5, 6)), (0, NEXT, 0));
    // Chains that no ring may have.
    assert_eq!(driver.add(&[(BUFFERS, 1, false); 9]), None);
    assert_eq!(driver.add(&[]), None);
}

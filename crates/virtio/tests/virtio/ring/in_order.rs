//! IN_ORDER in a split ring (virtio 1.2, 2.7.9): batches with one element, and devices that report
//! something impossible.

use straightline_testing::guest_ring::{BUFFERS, DESC, GuestRing, TABLE, TABLES, USED};
use straightline_virtio::ring::{Device, DeviceFault, First, INDIRECT, NEXT, RingOptions, SplitDevice, SplitDriver};

const OPTIONS: RingOptions = RingOptions { event_idx: true, indirect: false, in_order: true };
const SIZE: u16 = 8;

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

fn write_element(guest: &GuestRing, at: u16, id: u32, bytes: u32) {
    guest.write(USED + 4 + 8 * u64::from(at % SIZE), &[id.to_le_bytes(), bytes.to_le_bytes()].concat());
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

/// A third-party device may leave out elements of buffers that it has filled.
#[test]
fn skipped_chains_are_wholly_used() {
    let guest = GuestRing::new(SIZE);
    let (_, mut driver) = halves(&guest);
    for round in 0..20 {
        let add = |driver: &mut SplitDriver, n: u32| driver.add(&[(BUFFERS, 10 * n, true)]).expect("free descriptors");
        let heads: Vec<_> = (1..=5).map(|n| add(&mut driver, n)).collect();
        driver.publish();
        write_element(&guest, 5 * round, heads[2].into(), 7);
        write_element(&guest, 5 * round + 3, heads[4].into(), 9);
        guest.write16(USED + 2, 5 * round + 5);
        for (head, bytes) in heads.into_iter().zip([10, 20, 7, 40, 9]) {
            assert_eq!(driver.used(), Some(Ok((head, bytes))));
        }
        assert_eq!(driver.used(), None);
    }
}

#[test]
fn devices_that_break_the_driver() {
    let offered = |n: u32| {
        let guest = GuestRing::new(SIZE);
        let mut driver = guest.driver(OPTIONS);
        (0..n).for_each(|_| assert!(driver.add(&[(BUFFERS, 64, true)]).is_some()));
        driver.publish();
        (guest, driver)
    };
    for (id, bytes, index, fault) in [
        (3, 5, 1, DeviceFault::Id(3)),
        (u32::MAX, 5, 1, DeviceFault::Id(u32::MAX)),
        (0, 65, 1, DeviceFault::Length { id: 0, bytes: 65, capacity: 64 }),
        (0, 5, 4, DeviceFault::IndexJump { ahead: 4, published: 3 }),
        (0, 5, 0xffff, DeviceFault::IndexJump { ahead: 0xffff, published: 3 }),
        (2, 5, 1, DeviceFault::Batch(2)),
    ] {
        let (guest, mut driver) = offered(3);
        write_element(&guest, 0, id, bytes);
        guest.write16(USED + 2, index);
        assert_eq!(driver.used(), Some(Err(fault)));
        // The driver half stays broken even if the device corrects itself.
        write_element(&guest, 0, 0, 5);
        guest.write16(USED + 2, 1);
        assert_eq!((driver.used(), driver.want_interrupt(true)), (None, false));
        assert_eq!((driver.add(&[(BUFFERS, 64, true)]), driver.free()), (None, SIZE - 3));
    }
    // A batch of three chains, but the index covers two.
    let (guest, mut driver) = offered(3);
    write_element(&guest, 0, 2, 5);
    guest.write16(USED + 2, 2);
    assert_eq!(driver.used(), Some(Ok((0, 64))));
    assert_eq!(driver.used(), Some(Err(DeviceFault::Batch(2))));
    assert_eq!(driver.used(), None);
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

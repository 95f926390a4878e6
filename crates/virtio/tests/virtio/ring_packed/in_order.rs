//! IN_ORDER in a packed ring (virtio 1.2, 2.8, "In-order use of descriptors"): the driver half with
//! devices that write one used descriptor for a batch. Our device half writes one for each chain,
//! so that its position can be recovered.

use straightline_testing::guest_ring::{BUFFERS, DESC, GuestRing};
use straightline_virtio::ring::{DeviceFault, PackedDriver, RingOptions, WRITE};

use super::common::{FLAG_AVAIL, FLAG_USED, any_driver, bits, descriptor};

const SIZE: u16 = 7;

fn in_order(guest: &GuestRing) -> PackedDriver {
    any_driver(guest, RingOptions { event_idx: true, indirect: false, in_order: true })
}

/// Writes a used descriptor, `position` descriptors after the ring began.
fn use_at(guest: &GuestRing, position: u64, id: u16, bytes: u32) {
    let position = bits(position, SIZE);
    let flags = if position & 0x8000 != 0 { FLAG_AVAIL | FLAG_USED } else { 0 };
    descriptor(guest, DESC, position & 0x7fff, (0, bytes, id, flags | WRITE));
}

// Cites packed-2.8.8-1, packed-2.8.8-2.
#[test]
fn batches_of_chains() {
    let guest = GuestRing::new(SIZE);
    let mut driver = in_order(&guest);
    let mut position = 0;
    for round in 0..30_u32 {
        let lens = [1, 2, 1, 2];
        let ids = lens.map(|n| driver.add(&vec![(BUFFERS, 10 * (round + 1), true); n]).expect("free descriptors"));
        driver.publish();
        assert_eq!(driver.base() & 0xffff, u32::from(bits(position, SIZE)));
        // One used descriptor for the first three chains, and one for the last.
        use_at(&guest, position, ids[2], 3);
        assert_eq!(driver.base() & 0xffff, u32::from(bits(position + 4, SIZE)));
        let full = |n: u32| 10 * (round + 1) * n;
        assert_eq!(driver.used(), Some(Ok((ids[0], full(1)))));
        assert!(driver.want_interrupt(true), "the rest of the batch");
        assert_eq!(driver.base() & 0xffff, u32::from(bits(position + 4, SIZE)));
        assert_eq!(driver.used(), Some(Ok((ids[1], full(2)))));
        assert_eq!(driver.used(), Some(Ok((ids[2], 3))));
        assert_eq!(driver.used(), None);
        use_at(&guest, position + 4, ids[3], 5);
        assert_eq!(driver.used(), Some(Ok((ids[3], 5))));
        position += 6;
        assert_eq!((driver.free(), driver.base() & 0xffff), (SIZE, bits(position, SIZE).into()));
    }
}

#[test]
fn devices_that_break_the_driver() {
    for (id, bytes, fault) in [
        (3, 5, DeviceFault::Id(3)),
        (0xffff, 5, DeviceFault::Id(0xffff)),
        (0, 65, DeviceFault::Length { id: 0, bytes: 65, capacity: 64 }),
    ] {
        let guest = GuestRing::new(SIZE);
        let mut driver = in_order(&guest);
        (0..3).for_each(|id| assert_eq!(driver.add(&[(BUFFERS, 64, true)]), Some(id)));
        driver.publish();
        use_at(&guest, 0, id, bytes);
        assert_eq!(driver.used(), Some(Err(fault)));
        use_at(&guest, 0, 0, 5);
        assert_eq!((driver.used(), driver.want_interrupt(true)), (None, false));
        assert_eq!((driver.add(&[(BUFFERS, 64, true)]), driver.free()), (None, SIZE - 3));
    }
    // The length is the length of the batch's last chain.
    let guest = GuestRing::new(SIZE);
    let mut driver = in_order(&guest);
    (0..3).for_each(|id| assert_eq!(driver.add(&[(BUFFERS, 64, true)]), Some(id)));
    driver.publish();
    use_at(&guest, 0, 1, 65);
    assert_eq!(driver.used(), Some(Ok((0, 64))));
    assert_eq!(driver.used(), Some(Err(DeviceFault::Length { id: 1, bytes: 65, capacity: 64 })));
    assert_eq!(driver.used(), None);
}

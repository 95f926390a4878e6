//! The position at which a device half continues without a trustworthy base, also in rings that no
//! device could have left. `ring_killed` covers the rings that a killed device half leaves.

use std::ops::Range;

use proptest::prelude::*;
use straightline_testing::guest_ring::{BUFFERS, DESC, END, GuestRing};
use straightline_virtio::ring::{
    Device, Direction, First, INDIRECT, NEXT, PackedDevice, PackedDriver, RingOptions, WRITE,
};

use super::packed::{FLAG_AVAIL, FLAG_USED, START, descriptor, device, driver, recovered};

const OPTIONS: RingOptions = RingOptions { event_idx: true, indirect: true, in_order: false };

/// Returns the position at which a device continues: an index and a wrap counter.
fn position(device: &PackedDevice) -> (u32, bool) {
    assert_eq!(device.base() >> 16, device.base() & 0xffff, "one position");
    (device.base() & 0x7fff, device.base() & 0x8000 != 0)
}

#[test]
fn a_base_in_a_new_ring() {
    for size in [1, 2, 3, 8, 255] {
        let guest = GuestRing::new(size);
        for direction in [Direction::ToGuest, Direction::FromGuest] {
            let recover = |base: u32| {
                PackedDevice::recover(&guest.ours, guest.geometry(), base, OPTIONS, direction, None)
                    .map(|d| position(&d))
            };
            // A new ring, whose frontend may send 0: User Mode Linux does.
            assert_eq!((recover(0), recover(START)), (Ok((0, true)), Ok((0, true))));
            // No device has used the ring.
            assert_eq!(recover(u32::from(size - 1) | 0x8000), Ok((0, true)));
            // Two halves that differ: DPDK's driver sends the first alone.
            assert_eq!(recover(0x8000), Ok((0, true)));
            for base in [u32::from(size), 0x8000 | u32::from(size), 0xffff, 0x7fff, u32::MAX] {
                assert!(recover(base).is_err());
            }
        }
    }
}

#[test]
fn a_ring_of_one_round_or_many() {
    for size in [1, 2, 3, 8, 255] {
        let guest = GuestRing::new(size);
        let mut old = device(&guest, START, true, false);
        let mut driver = driver(&guest, true);
        for n in 0..4 * u32::from(size) {
            // With no chain available, with one, and with all.
            assert_eq!(recovered(&guest, true, Direction::FromGuest).base(), old.base(), "size {size}, {n}");
            driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
            driver.publish();
            assert_eq!(recovered(&guest, true, Direction::FromGuest).base(), old.base(), "size {size}, {n}");
            if n % 3 == 0 {
                while driver.add(&[(BUFFERS, 64, false)]).is_some() {}
                driver.publish();
                assert_eq!(recovered(&guest, true, Direction::FromGuest).base(), old.base(), "size {size}, {n}");
            }
            let mut firsts = vec![First::default(); size.into()];
            let found = old.find(&mut firsts).expect("a good driver");
            firsts[..found].iter().for_each(|first| old.take(first));
            // Chains that were taken and not given back are taken again.
            assert_eq!(recovered(&guest, true, Direction::FromGuest).base() >> 16, old.base() >> 16);
            old.give_back(old.outstanding());
            while let Some(used) = driver.used() {
                used.expect("a good device");
            }
        }
    }
}

/// QEMU while a backend is away. It gives back the available chains, beginning where it believes
/// the device to be. After that it knows the position (`virtqueue_packed_drop_all`).
#[test]
fn what_qemu_drops_of_a_transmit_ring_while_nobody_is_there() {
    const SIZE: u16 = 8;
    for start in 1..SIZE {
        for pending in SIZE - start + 1..=SIZE {
            let end = pending - (SIZE - start);
            for (from, more) in (0..end).flat_map(|from| (0..=SIZE - pending).map(move |more| (from, more))) {
                dropped(SIZE, start, pending, from..end, more);
            }
        }
    }
}

/// In the second round there are `pending` chains from `start` on. QEMU gives back those at
/// `places`. Then `more` chains come.
fn dropped(size: u16, start: u16, pending: u16, places: Range<u16>, more: u16) {
    let case = format!("from {start}, {pending}, {places:?} dropped, and {more}");
    let guest = GuestRing::new(size);
    let mut old = device(&guest, START, true, false);
    let mut driver = driver(&guest, true);
    let add = |driver: &mut PackedDriver| {
        driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
        driver.publish();
    };
    for _ in 0..size + start {
        add(&mut driver);
        exchange(&mut old, &mut driver, 1);
    }
    (0..pending).for_each(|_| add(&mut driver));
    let base = (u32::from(places.end) | 0x8000) * 0x1_0001;
    for at in places {
        let tail = DESC + 16 * u64::from(at) + 8;
        assert_eq!(guest.read16(tail + 6) & (FLAG_AVAIL | FLAG_USED), FLAG_AVAIL, "it finds it available");
        guest.write16(tail, 0);
        guest.write16(tail + 2, 0);
        guest.write16(tail + 6, FLAG_AVAIL | FLAG_USED);
    }
    (0..more).for_each(|_| add(&mut driver));
    let new = PackedDevice::recover(&guest.ours, guest.geometry(), base, OPTIONS, Direction::FromGuest, None);
    let mut new = new.expect("a ring in memory");
    assert_eq!(new.base(), base, "{case}");
    // The driver has all chains back, and continues.
    for n in 0..pending {
        assert!(matches!(driver.used(), Some(Ok(_))), "{case}: {n} came back");
    }
    assert!(driver.used().is_none(), "{case}");
    exchange(&mut new, &mut driver, more);
    for _ in 0..3 * size {
        add(&mut driver);
        exchange(&mut new, &mut driver, 1);
    }
}

/// A base that was right once, as QEMU sends it after its backend was lost.
#[test]
fn a_base_of_the_past_is_not_believed() {
    const SIZE: u16 = 8;
    for before in 0..2 * SIZE {
        let guest = GuestRing::new(SIZE);
        let mut old = device(&guest, START, true, false);
        let mut driver = driver(&guest, true);
        for _ in 0..before {
            driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
            driver.publish();
            exchange(&mut old, &mut driver, 1);
        }
        for pending in 0..=SIZE {
            if pending > 0 {
                driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
                driver.publish();
            }
            for past in 0..2 * SIZE {
                // The end of a chain of two looks the same if another device has marked its first
                // descriptor.
                if pending > 0 && past == (before + 1) % (2 * SIZE) {
                    continue;
                }
                let base = (u32::from(past % SIZE) | if past < SIZE { 0x8000 } else { 0 }) * 0x1_0001;
                for direction in [Direction::ToGuest, Direction::FromGuest] {
                    let new = PackedDevice::recover(&guest.ours, guest.geometry(), base, OPTIONS, direction, None);
                    assert_eq!(new.expect("a ring").base(), old.base(), "{before}, {pending}: {past}");
                }
            }
        }
    }
}

/// A device has to mark only the first descriptor of a used chain.
#[test]
fn a_base_behind_the_rest_of_a_chain_is_believed() {
    const SIZE: u16 = 8;
    for before in 0..2 * SIZE {
        for len in 2..=4 {
            let guest = GuestRing::new(SIZE);
            let mut old = device(&guest, START, true, false);
            let mut driver = driver(&guest, true);
            for _ in 0..before {
                driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
                driver.publish();
                exchange(&mut old, &mut driver, 1);
            }
            driver.add(&[(BUFFERS, 64, false); 4][..len.into()]).expect("free descriptors");
            driver.publish();
            let head = DESC + 16 * u64::from(before % SIZE);
            let wrap = before < SIZE;
            guest.write16(head + 14, if wrap { FLAG_AVAIL | FLAG_USED } else { 0 });
            let end = before + len;
            if end % SIZE == 0 {
                // A frontend that does not know the base sends this value, too.
                continue;
            }
            let base = u32::from(end % SIZE) | if (end / SIZE).is_multiple_of(2) { 0x8000 } else { 0 };
            let base = base * 0x1_0001;
            let new = PackedDevice::recover(&guest.ours, guest.geometry(), base, OPTIONS, Direction::FromGuest, None);
            assert_eq!(position(&new.expect("a ring")), (base & 0x7fff, base & 0x8000 != 0), "{before}, {len}");
        }
    }
}

/// Takes `count` chains and gives them back.
fn exchange(device: &mut PackedDevice, driver: &mut PackedDriver, count: u16) {
    let mut firsts = [First::default(); 8];
    let found = device.find(&mut firsts[..count.into()]).expect("a good driver");
    assert_eq!(found, usize::from(count));
    firsts[..found].iter().for_each(|first| device.take(first));
    device.give_back(count);
    (0..count).for_each(|_| assert!(matches!(driver.used(), Some(Ok(_)))));
}

/// A chain whose first descriptor is not published yet: the descriptors behind it belong to the
/// driver.
#[test]
fn a_driver_in_the_middle_of_a_chain() {
    const SIZE: u16 = 8;
    for before in 0..3 * SIZE {
        let guest = GuestRing::new(SIZE);
        let mut old = device(&guest, START, true, false);
        let mut driver = driver(&guest, true);
        for _ in 0..before {
            driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
            driver.publish();
            exchange(&mut old, &mut driver, 1);
        }
        for unpublished in 1..SIZE {
            for published in 0..=SIZE - unpublished {
                let kept: Vec<u16> = (0..SIZE).map(|at| guest.read16(DESC + 16 * u64::from(at) + 14)).collect();
                let flags = |n: u16, more: bool| {
                    let position = before + n;
                    let wrap = (position / SIZE).is_multiple_of(2);
                    let flags = if wrap { FLAG_AVAIL } else { FLAG_USED } | if more { NEXT } else { 0 };
                    guest.write16(DESC + 16 * u64::from(position % SIZE) + 14, flags);
                };
                (0..published).for_each(|n| flags(n, false));
                (published + 1..published + unpublished).for_each(|n| flags(n, n + 1 < published + unpublished));
                let device = recovered(&guest, true, Direction::FromGuest);
                assert_eq!(device.base(), old.base(), "{before}: {published} and {unpublished}");
                for (at, flags) in (0..).zip(kept) {
                    guest.write16(DESC + 16 * at + 14, flags);
                }
            }
        }
    }
}

/// A receive ring whose device was killed while it gave back a packet in two buffers. The second
/// buffer is published. The first buffer is an indirect table, of which at most 64 entries are
/// counted: a GSO packet needs no more. A guest may have a table as long as the ring at every
/// position.
#[test]
fn of_a_table_no_more_entries_are_looked_at_than_a_buffer_has() {
    for (entries, looked_at) in [(2, 2), (64, 64), (65, 64), (256, 64)] {
        let guest = GuestRing::new(256);
        let table = BUFFERS + 0x1_0000;
        for at in 0..entries {
            descriptor(&guest, table, at, (BUFFERS, 100, 0, WRITE));
        }
        // The header belongs to a packet in two buffers.
        guest.write16(BUFFERS + 10, 2);
        descriptor(&guest, DESC, 0, (table, 16 * u32::from(entries), 7, FLAG_AVAIL | INDIRECT));
        descriptor(&guest, DESC, 1, (BUFFERS, 100, 8, FLAG_AVAIL | FLAG_USED | WRITE));
        assert_eq!(position(&recovered(&guest, true, Direction::ToGuest)), (2, true));
        let [len, id] = [8, 12].map(|at| guest.read16(DESC + at));
        assert_eq!((len, id), (100 * looked_at, 7), "{entries} entries");
        assert_eq!(guest.read16(DESC + 14), FLAG_AVAIL | FLAG_USED | WRITE);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_ring_gives_a_place(
        size in prop_oneof![4 => 1..20_u16, 1 => 1..300_u16], to_guest: bool, indirect: bool,
        filling in prop::collection::vec((0..END + 100, any::<u32>(), any::<u16>(), any::<u16>()), 1..20),
        used in prop::collection::vec(prop::sample::select(vec![0, FLAG_AVAIL, FLAG_USED, FLAG_AVAIL | FLAG_USED]), 1..6),
        header: u16,
    ) {
        let guest = GuestRing::new(size);
        for at in 0..size {
            let (addr, len, id, flags) = filling[usize::from(at) % filling.len()];
            // Few boundaries, and buffers that are mostly in memory.
            let turn = used[usize::from(at) * used.len() / usize::from(size)];
            let flags = if flags % 8 == 0 { flags } else { turn | flags & (WRITE | NEXT | 4) };
            descriptor(&guest, DESC, at, (addr, len >> (id % 32), id, flags));
            guest.write16(BUFFERS + u64::from(at) * 2048 + 10, header);
        }
        let options = RingOptions { event_idx: false, indirect, in_order: false };
        let direction = if to_guest { Direction::ToGuest } else { Direction::FromGuest };
        let device = PackedDevice::recover(&guest.ours, guest.geometry(), 0, options, direction, None);
        let mut device = device.expect("the ring is in memory");
        prop_assert!(position(&device).0 < size.into());
        let _ = device.find(&mut [First::default(); 8]);
    }
}

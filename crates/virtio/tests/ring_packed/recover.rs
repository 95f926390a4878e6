//! Where a device half goes on that was told nothing it can believe, and in rings that nobody could have left. What a killed
//! one leaves behind is in `ring_killed`.

use proptest::prelude::*;
use straightline_virtio::ring::{Direction, First, INDIRECT, NEXT, Options, PackedDevice, WRITE};

use super::common::{FLAG_AVAIL, FLAG_USED, START, descriptor, device, driver, recovered};
use super::guest::{BUFFERS, DESC, END, Guest};

const OPTIONS: Options = Options { event_idx: true, indirect: true, in_order: false };

/// Where it goes on, as a place and a wrap counter.
fn place(device: &PackedDevice) -> (u32, bool) {
    assert_eq!(device.base() >> 16, device.base() & 0xffff, "one place");
    (device.base() & 0x7fff, device.base() & 0x8000 != 0)
}

#[test]
fn a_base_is_believed_but_for_two() {
    for size in [1, 2, 3, 8, 255] {
        let guest = Guest::new(size);
        for direction in [Direction::ToGuest, Direction::FromGuest] {
            let recover = |base: u32| {
                PackedDevice::recover(&guest.ours, guest.geometry(), base, OPTIONS, direction, None).map(|d| place(&d))
            };
            // A new ring, whose frontend may say 0: User Mode Linux does.
            assert_eq!((recover(0), recover(START)), (Ok((0, true)), Ok((0, true))));
            let last = u32::from(size - 1);
            assert_eq!(recover(last | 0x8000), Ok((last, true)));
            // Halves that differ: DPDK's driver sends the first alone.
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
        let guest = Guest::new(size);
        let (mut old, mut driver) = (device(&guest, START, true, false), driver(&guest, true));
        for n in 0..4 * u32::from(size) {
            // With nothing there, with one there, and with all there.
            assert_eq!(recovered(&guest, true, Direction::FromGuest).base(), old.base(), "size {size}, {n}");
            driver.add(&[(BUFFERS, 64, false)]).expect("room");
            driver.publish();
            assert_eq!(recovered(&guest, true, Direction::FromGuest).base(), old.base(), "size {size}, {n}");
            if n % 3 == 0 {
                while driver.add(&[(BUFFERS, 64, false)]).is_some() {}
                driver.publish();
                assert_eq!(recovered(&guest, true, Direction::FromGuest).base(), old.base(), "size {size}, {n}");
            }
            let mut firsts = vec![First::default(); size.into()];
            let found = old.look(&mut firsts).expect("a good driver");
            firsts[..found].iter().for_each(|first| old.take(first));
            // What is taken and not given back is taken again.
            assert_eq!(recovered(&guest, true, Direction::FromGuest).base() >> 16, old.base() >> 16);
            old.give_back(old.outstanding());
            while let Some(used) = driver.used() {
                used.expect("a good device");
            }
        }
    }
}

/// A chain whose first descriptor is not published yet: those behind it are the driver's business.
#[test]
fn a_driver_in_the_middle_of_a_chain() {
    const SIZE: u16 = 8;
    for before in 0..3 * SIZE {
        let guest = Guest::new(SIZE);
        let (mut old, mut driver) = (device(&guest, START, true, false), driver(&guest, true));
        for _ in 0..before {
            driver.add(&[(BUFFERS, 64, false)]).expect("room");
            driver.publish();
            let mut first = [First::default()];
            assert_eq!(old.look(&mut first), Ok(1));
            old.take(&first[0]);
            old.give_back(1);
            assert!(driver.used().is_some());
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

/// A receive ring whose device died while it gave back a packet in two buffers: the second is published, and of the first,
/// a table, one counts no more than what has room for a segment. A guest may have a table of the ring's size at each place.
#[test]
fn of_a_table_no_more_entries_are_looked_at_than_a_buffer_has() {
    for (entries, looked_at) in [(2, 2), (64, 64), (65, 64), (256, 64)] {
        let guest = Guest::new(256);
        let table = BUFFERS + 0x1_0000;
        for at in 0..entries {
            descriptor(&guest, table, at, (BUFFERS, 100, 0, WRITE));
        }
        // The header: of a packet in two buffers.
        guest.write16(BUFFERS + 10, 2);
        descriptor(&guest, DESC, 0, (table, 16 * u32::from(entries), 7, FLAG_AVAIL | INDIRECT));
        descriptor(&guest, DESC, 1, (BUFFERS, 100, 8, FLAG_AVAIL | FLAG_USED | WRITE));
        assert_eq!(place(&recovered(&guest, true, Direction::ToGuest)), (2, true));
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
        let guest = Guest::new(size);
        for at in 0..size {
            let (addr, len, id, flags) = filling[usize::from(at) % filling.len()];
            // Few borders, and buffers that are mostly in memory.
            let turn = used[usize::from(at) * used.len() / usize::from(size)];
            let flags = if flags % 8 == 0 { flags } else { turn | flags & (WRITE | NEXT | 4) };
            descriptor(&guest, DESC, at, (addr, len >> (id % 32), id, flags));
            guest.write16(BUFFERS + u64::from(at) * 2048 + 10, header);
        }
        let options = Options { event_idx: false, indirect, in_order: false };
        let direction = if to_guest { Direction::ToGuest } else { Direction::FromGuest };
        let device = PackedDevice::recover(&guest.ours, guest.geometry(), 0, options, direction, None);
        let mut device = device.expect("the ring is in memory");
        prop_assert!(place(&device).0 < size.into());
        let _ = device.look(&mut [First::default(); 8]);
    }
}

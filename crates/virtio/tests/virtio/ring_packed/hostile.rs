//! Each half of a ring against random bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use straightline_packet::MemorySegment;
use straightline_testing::guest_ring::{BUFFERS, DESC, END, GuestRing};
use straightline_virtio::ring::{BURST, Device, DeviceFault, Direction, First, PackedDevice, RingOptions};

use super::common::{DEVICE_SUPPRESSION, DRIVER_SUPPRESSION, FLAG_AVAIL, FLAG_USED, any_driver, descriptor, device};

/// Address, length, id, flags.
type Fields = (u64, u32, u16, u16);

/// Descriptors that are wrong in one field at a time more often than in all.
fn fields() -> impl Strategy<Value = Fields> {
    let addr = prop_oneof![4 => DESC..END + 0x10_0000, 1 => any::<u64>(), 1 => u64::MAX - 100..=u64::MAX];
    let len = prop_oneof![4 => 0..3000_u32, 3 => (0..20_u32).prop_map(|n| 16 * n), 1 => any::<u32>()];
    let turn =
        prop_oneof![4 => Just(FLAG_AVAIL), 2 => Just(FLAG_USED), 1 => Just(0), 1 => Just(FLAG_AVAIL | FLAG_USED)];
    let flags = prop_oneof![4 => (0..8_u16, turn).prop_map(|(a, b)| a | b), 1 => any::<u16>()];
    (addr, len, any::<u16>(), flags)
}

#[derive(Clone, Debug)]
enum Act {
    Scribble(u64, Vec<u8>),
    /// Available descriptors from a position on, written again.
    Refill(u16, Vec<Fields>),
    Burst(usize, bool),
    GiveBack(u16),
    Untake(u16),
    Rest,
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..64);
    prop_oneof![
        2 => (0..END - 64, bytes()).prop_map(|(at, b)| Act::Scribble(at, b)),
        2 => (0..2000_u64, bytes()).prop_map(|(at, b)| Act::Scribble(DESC + at, b)),
        1 => (any::<bool>(), bytes()).prop_map(|(of, b)| Act::Scribble(if of { DRIVER_SUPPRESSION } else { DEVICE_SUPPRESSION }, b)),
        4 => (any::<u16>(), prop::collection::vec(fields(), 1..40)).prop_map(|(at, f)| Act::Refill(at, f)),
        6 => (0..=BURST, any::<bool>()).prop_map(|(n, to)| Act::Burst(n, to)),
        3 => prop_oneof![0..9_u16, any::<u16>()].prop_map(Act::GiveBack),
        1 => prop_oneof![0..9_u16, any::<u16>()].prop_map(Act::Untake),
        2 => Just(Act::Rest),
    ]
}

fn size() -> impl Strategy<Value = u16> {
    prop_oneof![3 => 1..10_u16, 2 => 1..300_u16, 1 => Just(32767), 1 => Just(32768)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_device_half_bears_any_ring(
        size in size(), at: prop::sample::Index, wrap: bool, event_idx: bool, indirect: bool,
        filling in prop::collection::vec(fields(), 1..100), acts in prop::collection::vec(act(), 1..40),
    ) {
        let mut guest = GuestRing::new(size);
        let at = u16::try_from(at.index(size.into())).expect("less than the size");
        let mut device = device(&guest, u32::from(at | u16::from(wrap) << 15), event_idx, indirect);
        for i in 0..size.min(300) {
            let fields = filling[usize::from(i) % filling.len()];
            descriptor(&guest, DESC, ring_place(at, i, size), fields);
            // Tables for indirect descriptors.
            descriptor(&guest, BUFFERS, i, fields);
        }
        for act in acts {
            match act {
                Act::Scribble(at, bytes) => guest.write(at, &bytes),
                Act::Refill(skip, fields) => {
                    let next = u16::try_from(device.base() & 0x7fff).expect("15 bits");
                    for (i, fields) in (0..size).zip(fields) {
                        descriptor(&guest, DESC, ring_place(next, (skip % 3).min(size - 1) + i, size), fields);
                    }
                }
                Act::Burst(n, to_guest) => {
                    let mut firsts = vec![First::default(); n];
                    let Ok(found) = device.find(&mut firsts) else { continue };
                    prop_assert!(found <= n && found <= usize::from(size - device.outstanding()));
                    let direction = if to_guest { Direction::ToGuest } else { Direction::FromGuest };
                    for first in &firsts[..found] {
                        device.take(first);
                        follow(&mut guest, &mut device, first, direction);
                        device.written(17);
                    }
                }
                Act::GiveBack(n) => {
                    let before = device.outstanding();
                    device.give_back(n);
                    prop_assert_eq!(device.outstanding(), before.saturating_sub(n));
                }
                Act::Untake(n) => {
                    let before = device.outstanding();
                    device.untake(n);
                    prop_assert_eq!(device.outstanding(), before.saturating_sub(n));
                }
                Act::Rest => {
                    device.must_notify();
                    prop_assert!(device.arm(0).is_ok());
                    // Taken descriptors are not available.
                    prop_assert_eq!(device.arm(size - device.outstanding()), Ok(false));
                    device.disarm();
                    prop_assert!(!device.is_all_taken() || device.arm(0) == Ok(false));
                }
            }
            let [avail, used] = [device.base() & 0xffff, device.base() >> 16];
            prop_assert!(avail & 0x7fff < size.into() && used & 0x7fff < size.into(), "places are in the ring");
            let size = u32::from(size);
            // The descriptors of taken chains reach from the next used position to the next
            // available one, within a round.
            let avail_at = avail & 0x7fff;
            let used_at = used & 0x7fff;
            let spans = if avail & 0x8000 == used & 0x8000 {
                prop_assert!(avail_at >= used_at);
                avail_at - used_at
            } else {
                prop_assert!(avail_at <= used_at);
                avail_at + size - used_at
            };
            let outstanding = u32::from(device.outstanding());
            prop_assert!(u32::from(device.known()) <= size - spans);
            prop_assert!(outstanding <= spans && spans <= size && (outstanding > 0) == (spans > 0));
            prop_assert!(!device.poisoned());
        }
    }

    #[test]
    fn the_driver_half_bears_any_device(
        size in prop_oneof![1..9_u16, Just(255), Just(32768)], event_idx: bool, in_order: bool, indirect: bool,
        acts in prop::collection::vec((0..6_u8, any::<u16>(), prop_oneof![4 => 0..10_u16, 1 => any::<u16>()]), 1..200),
    ) {
        let guest = GuestRing::new(size);
        let options = RingOptions { event_idx, indirect: indirect && size < 1000, in_order };
        let mut driver = any_driver(&guest, options);
        // Outstanding chains: their ids and lengths.
        let mut out = BTreeMap::new();
        let mut taken = 0_u16;
        // The position at which the driver looks, as long as it is not broken.
        let mut next = 0_u16;
        let mut wrap = true;
        let mut broken = false;
        for (what, n, id) in acts {
            match what {
                0 | 1 => {
                    let count = 1 + n % 4;
                    let got = driver.add(&vec![(BUFFERS, 64, n % 2 == 0); count.into()]);
                    let count = guest.span(count.into(), options);
                    prop_assert_eq!(got.is_some(), count <= size - taken && !broken);
                    if let Some(id) = got {
                        prop_assert!(id < size && out.insert(id, count).is_none(), "an id that is outstanding already");
                        taken += count;
                    }
                    if n % 3 > 0 {
                        driver.publish();
                    }
                    driver.must_kick();
                }
                // A used descriptor at the driver's position, with any id, sometimes an outstanding
                // one.
                2 | 3 => {
                    let id = if n % 8 > 0 { out.keys().next().copied().unwrap_or(id) } else { id };
                    let flags = if wrap { FLAG_AVAIL | FLAG_USED } else { 0 };
                    descriptor(&guest, DESC, next, (0, 9, id, flags));
                }
                4 => {
                    descriptor(&guest, DESC, n % size, (id.into(), id.into(), id, n));
                    guest.write16(DEVICE_SUPPRESSION, n);
                    guest.write16(DEVICE_SUPPRESSION + 2, id);
                }
                _ => {
                    driver.want_interrupt(n % 2 == 0);
                    while let Some(used) = driver.used() {
                        prop_assert!(!broken, "nothing comes after an error");
                        match used {
                            Ok((id, _)) => {
                                let span = out.remove(&id);
                                prop_assert!(span.is_some(), "{} was not out", id);
                                taken -= span.unwrap_or(0);
                                next += span.unwrap_or(0);
                                (next, wrap) = if next >= size { (next - size, !wrap) } else { (next, wrap) };
                            }
                            Err(fault) => {
                                broken = true;
                                match fault {
                                    DeviceFault::Id(id) => prop_assert!(!out.keys().any(|&o| u32::from(o) == id)),
                                    DeviceFault::Length { id, bytes, capacity } => {
                                        prop_assert!(bytes > capacity && out.contains_key(&id));
                                    }
                                    fault => prop_assert!(false, "{}", fault),
                                }
                            }
                        }
                    }
                }
            }
            prop_assert_eq!(driver.free(), size - taken);
        }
    }
}

/// Returns the position `n` behind `at`, for less than two rounds.
fn ring_place(at: u16, n: u16, size: u16) -> u16 {
    u16::try_from((u32::from(at) + u32::from(n)) % u32::from(size)).expect("less than the size")
}

/// Follows a chain; all staged segments must lie in the guest's memory.
fn follow(guest: &mut GuestRing, device: &mut PackedDevice, first: &First, direction: Direction) {
    let size = usize::from(guest.size);
    guest.turn(|turn, memory| {
        let start = memory.segment(0, 1, &mut 0).expect("its first byte").address();
        let end = start + usize::try_from(END).expect("small");
        let inside = |s: MemorySegment<'_>| s.address() >= start && s.address() + s.len() as usize <= end;
        if let Some(single) = device.single(memory, first, direction) {
            assert!(inside(single));
        }
        let mark = turn.mark();
        let result = device.chain(memory, turn, first, direction);
        let staged = turn.staged(mark);
        assert!(staged.iter().all(|&s| inside(s)));
        match result {
            Ok(chain) => {
                let sum: u64 = staged.iter().map(|s| u64::from(s.len())).sum();
                assert_eq!(u64::from(chain.len), sum.min(u32::MAX.into()));
                // At most the ring's descriptors, or one table of as many.
                assert!(staged.len() <= size);
            }
            Err(_) => assert!(staged.is_empty()),
        }
    });
}

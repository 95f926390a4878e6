//! Each half of a ring against random bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, END, GuestRing, USED};
use straightline_virtio::ring::{BURST, Device, DeviceFault, Direction, First, RingOptions};

/// Descriptors that are wrong in one field at a time more often than in all.
fn descriptor(size: u16) -> impl Strategy<Value = Fields> {
    let addr = prop_oneof![4 => DESC..BUFFERS + 0x20_0000, 1 => any::<u64>(), 1 => u64::MAX - 100..=u64::MAX];
    let len = prop_oneof![4 => 0..3000_u32, 3 => (0..20_u32).prop_map(|n| 16 * n), 1 => any::<u32>()];
    let flags = prop_oneof![4 => 0..8_u16, 1 => any::<u16>()];
    let next = prop_oneof![6 => 0..size, 1 => any::<u16>()];
    (addr, len, flags, next)
}

#[derive(Clone, Debug)]
enum Act {
    Scribble(u64, Vec<u8>),
    Index(u16),
    Burst(usize, bool),
    GiveBack(u16),
    Untake(u16),
    Rest,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..0x20_0000_u64 - 64, prop::collection::vec(any::<u8>(), 1..64)).prop_map(|(at, b)| Act::Scribble(at, b)),
        2 => (0..2_u64, prop::collection::vec(any::<u8>(), 1..64)).prop_map(|(part, b)| {
            Act::Scribble(if part == 0 { AVAIL } else { USED }, b)
        }),
        4 => prop_oneof![0..100_u16, any::<u16>()].prop_map(Act::Index),
        6 => (0..=BURST, any::<bool>()).prop_map(|(n, to)| Act::Burst(n, to)),
        2 => any::<u16>().prop_map(Act::GiveBack),
        1 => any::<u16>().prop_map(Act::Untake),
        2 => Just(Act::Rest),
    ]
}

/// Address, length, flags, next.
type Fields = (u64, u32, u16, u16);

/// A ring's size, the descriptors and heads to fill it with, and the actions that follow.
fn case() -> impl Strategy<Value = (u16, Vec<Fields>, Vec<u16>, Vec<Act>)> {
    (0..=10_u32).prop_flat_map(|log| {
        let size = 1_u16 << log;
        let heads = prop_oneof![8 => 0..size, 1 => any::<u16>()];
        (
            Just(size),
            prop::collection::vec(descriptor(size), 1..100),
            prop::collection::vec(heads, 1..100),
            prop::collection::vec(act(), 1..40),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_device_half_bears_any_ring(
        (size, descriptors, heads, acts) in case(), base: u16, event_idx: bool, indirect: bool, in_order: bool,
    ) {
        let mut guest = GuestRing::new(size);
        for i in 0..size {
            let (addr, len, flags, next) = descriptors[usize::from(i) % descriptors.len()];
            guest.descriptor(DESC, i, addr, len, flags, next);
            // Tables for indirect descriptors. They overlap the ring's own memory and the buffers.
            guest.descriptor(BUFFERS, i, addr, len, flags, next);
            guest.write16(AVAIL + 4 + 2 * u64::from(i), heads[usize::from(i) % heads.len()]);
        }
        let mut device = guest.device(base, RingOptions { event_idx, indirect, in_order });
        for act in acts {
            match act {
                Act::Scribble(at, bytes) => guest.write(at, &bytes),
                Act::Index(ahead) => guest.write16(AVAIL + 2, base.wrapping_add(ahead)),
                Act::Burst(n, to_guest) => {
                    let Ok(available) = device.available(u16::try_from(n).unwrap()) else { continue };
                    prop_assert!(available <= size);
                    let mut firsts = vec![First::default(); n.min(available.into())];
                    if device.peek(&mut firsts).is_err() {
                        continue;
                    }
                    let direction = if to_guest { Direction::ToGuest } else { Direction::FromGuest };
                    for first in &firsts {
                        prop_assert!(first.head < size);
                        device.take(first);
                        burst_of_one(&mut guest, &mut device, first, direction);
                        device.written(17);
                    }
                }
                Act::GiveBack(n) => device.give_back(n.min(device.outstanding())),
                Act::Untake(n) => device.untake(n.min(device.outstanding())),
                Act::Rest => {
                    device.must_notify();
                    let _ = device.arm(0);
                    device.disarm();
                }
            }
            prop_assert!(device.outstanding() <= size, "more chains are taken than the ring has");
            prop_assert!(!device.poisoned());
        }
    }

    #[test]
    fn the_driver_half_bears_any_device(
        log in 0..6_u32, event_idx: bool, in_order: bool, indirect: bool,
        acts in prop::collection::vec((0..5_u8, any::<u16>(), prop_oneof![0..40_u32, any::<u32>()]), 1..200),
    ) {
        let size = 1_u16 << log;
        let guest = GuestRing::new(size);
        let options = RingOptions { event_idx, indirect, in_order };
        let mut driver = guest.driver(options);
        // Outstanding chains: their heads and lengths.
        let mut out = BTreeMap::new();
        let mut index = 0_u16;
        let mut broken = false;
        for (what, n, id) in acts {
            match what {
                0 | 1 => {
                    let count = 1 + n % 4;
                    let free = driver.free();
                    let head = driver.add(&vec![(BUFFERS, 64, n % 2 == 0); count.into()]);
                    let count = guest.span(count.into(), options);
                    prop_assert_eq!(head.is_some(), count <= free && !broken);
                    if let Some(head) = head {
                        prop_assert!(head < size && out.insert(head, count).is_none(), "a head that is outstanding already");
                    }
                    driver.publish();
                    driver.must_kick();
                }
                2 => {
                    let at = USED + 4 + 8 * u64::from(index % size);
                    guest.write(at, &[id.to_le_bytes(), 9_u32.to_le_bytes()].concat());
                    index = index.wrapping_add(1);
                    guest.write16(USED + 2, index);
                }
                // The device's index jumps; the device writes the descriptor table, which it must
                // not.
                3 if n % 8 == 0 => {
                    index = n;
                    guest.write16(USED + 2, index);
                }
                3 => guest.descriptor(DESC, n % size, id.into(), id, n, n),
                _ => {
                    driver.want_interrupt(n % 2 == 0);
                    while let Some(used) = driver.used() {
                        prop_assert!(!broken, "nothing comes after an error");
                        match used {
                            Ok((head, _)) => prop_assert!(out.remove(&head).is_some(), "{} was not out", head),
                            Err(fault) => {
                                broken = true;
                                match fault {
                                    DeviceFault::Id(id) => prop_assert!(!out.keys().any(|&o| u32::from(o) == id)),
                                    DeviceFault::IndexJump { ahead, published } => prop_assert!(ahead > published),
                                    DeviceFault::Length { id, bytes, capacity } => {
                                        prop_assert!(bytes > capacity && out.contains_key(&id));
                                    }
                                    DeviceFault::Batch(id) => prop_assert!(in_order && out.contains_key(&id)),
                                }
                            }
                        }
                    }
                }
            }
            let taken: u16 = out.values().sum();
            prop_assert_eq!(driver.free(), size - taken);
        }
    }
}

/// Follows a chain in both directions; all staged segments must lie in the guest's memory.
fn burst_of_one(
    guest: &mut GuestRing,
    device: &mut straightline_virtio::ring::SplitDevice,
    first: &First,
    direction: Direction,
) {
    let size = u64::from(guest.size);
    guest.turn(|turn, memory| {
        let start = memory.segment(0, 1, &mut 0).expect("its first byte").address();
        let end = start + usize::try_from(END).expect("small");
        let inside =
            |s: straightline_packet::MemorySegment<'_>| s.address() >= start && s.address() + s.len() as usize <= end;
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
                // At most a chain of the ring's size, and one indirect table at its end.
                assert!(staged.len() as u64 <= 2 * size);
            }
            Err(_) => assert!(staged.is_empty()),
        }
    });
}

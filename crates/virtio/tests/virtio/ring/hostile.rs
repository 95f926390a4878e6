//! Each half of a ring against random bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use straightline_packet::MemorySegment;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, END, GuestRing, USED};
use straightline_virtio::ring::{BURST, Device, DeviceFault, Direction, First, PackedDevice, RingOptions, SplitDevice};

use super::layout::{DeviceHalf, DriverHalf, Layout, for_both_layouts};
use super::packed::{DEVICE_SUPPRESSION, FLAG_AVAIL, FLAG_USED, Packed, descriptor};
use super::split::Split;

for_both_layouts!(the_device_half_bears_any_ring, the_driver_half_bears_any_device);

/// Address, length, flags, and `next` or the id.
type Fields = (u64, u32, u16, u16);

/// A layout whose fields are filled with random values.
trait Hostile: Layout {
    /// Most segments of a chain, for each descriptor of the ring.
    const SEGMENTS: usize;

    fn device_sizes() -> BoxedStrategy<u16>;
    fn driver_sizes() -> BoxedStrategy<u16>;
    fn bases(size: u16) -> BoxedStrategy<u32>;
    fn flags() -> BoxedStrategy<u16>;
    /// Writes the descriptor that is the `n`th behind `base`.
    fn put_behind(guest: &GuestRing, base: u32, n: u16, fields: Fields);
    /// Writes descriptors for a device half in its present state, and makes some available.
    fn refill(guest: &GuestRing, device: &Self::Device, start: u32, n: u16, fields: &[Fields]);
    /// Writes entry `i` of the available ring, if there is one.
    fn put_head(guest: &GuestRing, i: u16, head: u16);
    fn put_in_table(guest: &GuestRing, i: u16, fields: Fields);
    /// Lets a device half look as before a sleep.
    fn arm(device: &mut Self::Device, size: u16);
    /// Checks the positions of a device half.
    fn check(device: &Self::Device, size: u16);
    /// Writes what a device must not write, or moves its index to another position.
    fn misbehave(guest: &GuestRing, position: &mut u64, n: u16, id: u32);
}

impl Hostile for Split {
    // A chain of the ring's size, and one indirect table at its end.
    const SEGMENTS: usize = 2;

    fn device_sizes() -> BoxedStrategy<u16> {
        (0..=10_u32).prop_map(|log| 1 << log).boxed()
    }

    fn driver_sizes() -> BoxedStrategy<u16> {
        (0..6_u32).prop_map(|log| 1 << log).boxed()
    }

    fn bases(_: u16) -> BoxedStrategy<u32> {
        any::<u16>().prop_map(u32::from).boxed()
    }

    fn flags() -> BoxedStrategy<u16> {
        prop_oneof![4 => 0..8_u16, 1 => any::<u16>()].boxed()
    }

    fn put_behind(guest: &GuestRing, _: u32, n: u16, (addr, len, flags, next): Fields) {
        guest.descriptor(DESC, n % guest.size, addr, len, flags, next);
    }

    fn refill(guest: &GuestRing, _: &SplitDevice, start: u32, n: u16, _: &[Fields]) {
        let start = u16::try_from(start).expect("an index");
        guest.write16(AVAIL + 2, start.wrapping_add(n));
    }

    fn put_head(guest: &GuestRing, i: u16, head: u16) {
        guest.write16(AVAIL + 4 + 2 * u64::from(i), head);
    }

    fn put_in_table(guest: &GuestRing, i: u16, (addr, len, flags, next): Fields) {
        guest.descriptor(BUFFERS, i, addr, len, flags, next);
    }

    fn arm(device: &mut SplitDevice, _: u16) {
        let _ = device.arm(0);
        device.disarm();
    }

    fn check(device: &SplitDevice, size: u16) {
        assert!(device.outstanding() <= size, "more chains are taken than the ring has");
    }

    fn misbehave(guest: &GuestRing, position: &mut u64, n: u16, id: u32) {
        if n.is_multiple_of(8) {
            *position = n.into();
            guest.write16(USED + 2, n);
        } else {
            guest.descriptor(DESC, n % guest.size, id.into(), id, n, n);
        }
    }
}

impl Hostile for Packed {
    // The ring's descriptors, or one table of as many.
    const SEGMENTS: usize = 1;

    fn device_sizes() -> BoxedStrategy<u16> {
        prop_oneof![3 => 1..10_u16, 2 => 1..300_u16, 1 => Just(32767), 1 => Just(32768)].boxed()
    }

    fn driver_sizes() -> BoxedStrategy<u16> {
        prop_oneof![1..9_u16, Just(255), Just(32768)].boxed()
    }

    fn bases(size: u16) -> BoxedStrategy<u32> {
        Packed::event(size).prop_map(u32::from).boxed()
    }

    fn flags() -> BoxedStrategy<u16> {
        let turn =
            prop_oneof![4 => Just(FLAG_AVAIL), 2 => Just(FLAG_USED), 1 => Just(0), 1 => Just(FLAG_AVAIL | FLAG_USED)];
        prop_oneof![4 => (0..8_u16, turn).prop_map(|(a, b)| a | b), 1 => any::<u16>()].boxed()
    }

    fn put_behind(guest: &GuestRing, base: u32, n: u16, (addr, len, flags, id): Fields) {
        let at = ((base & 0x7fff) + u32::from(n)) % u32::from(guest.size);
        descriptor(guest, DESC, u16::try_from(at).expect("less than the size"), (addr, len, id, flags));
    }

    fn refill(guest: &GuestRing, device: &PackedDevice, _: u32, n: u16, fields: &[Fields]) {
        let size = guest.size;
        for (i, &fields) in (0..size).zip(fields) {
            Self::put_behind(guest, device.base(), (n % 3).min(size - 1) + i, fields);
        }
    }

    fn put_head(_: &GuestRing, _: u16, _: u16) {}

    fn put_in_table(guest: &GuestRing, i: u16, (addr, len, flags, id): Fields) {
        descriptor(guest, BUFFERS, i, (addr, len, id, flags));
    }

    fn arm(device: &mut PackedDevice, size: u16) {
        assert!(device.arm(0).is_ok());
        // Taken descriptors are not available.
        assert_eq!(device.arm(size - device.outstanding()), Ok(false));
        device.disarm();
        assert!(!device.is_all_taken() || device.arm(0) == Ok(false));
    }

    fn check(device: &PackedDevice, size: u16) {
        let size = u32::from(size);
        let avail = device.base() & 0xffff;
        let used = device.base() >> 16;
        let avail_at = avail & 0x7fff;
        let used_at = used & 0x7fff;
        assert!(avail_at < size && used_at < size, "places are in the ring");
        // The descriptors of taken chains reach from the next used position to the next available
        // one, within a round.
        let spans = if avail & 0x8000 == used & 0x8000 {
            assert!(avail_at >= used_at);
            avail_at - used_at
        } else {
            assert!(avail_at <= used_at);
            avail_at + size - used_at
        };
        let outstanding = u32::from(device.outstanding());
        assert!(u32::from(device.known()) <= size - spans);
        assert!(outstanding <= spans && spans <= size && (outstanding > 0) == (spans > 0));
    }

    fn misbehave(guest: &GuestRing, _: &mut u64, n: u16, id: u32) {
        let id = u16::try_from(id & 0xffff).expect("16 bits");
        descriptor(guest, DESC, n % guest.size, (id.into(), id.into(), id, n));
        guest.write16(DEVICE_SUPPRESSION, n);
        guest.write16(DEVICE_SUPPRESSION + 2, id);
    }
}

/// Descriptors that are wrong in one field at a time more often than in all.
fn fields<L: Hostile>(size: u16) -> impl Strategy<Value = Fields> {
    let addr = prop_oneof![4 => DESC..END + 0x10_0000, 1 => any::<u64>(), 1 => u64::MAX - 100..=u64::MAX];
    let len = prop_oneof![4 => 0..3000_u32, 3 => (0..20_u32).prop_map(|n| 16 * n), 1 => any::<u32>()];
    let next = prop_oneof![6 => 0..size, 1 => any::<u16>()];
    (addr, len, L::flags(), next)
}

#[derive(Clone, Debug)]
enum Act {
    Scribble(u64, Vec<u8>),
    /// Available descriptors or an index, written again.
    Refill(u16, Vec<Fields>),
    Burst(usize, bool),
    GiveBack(u16),
    Untake(u16),
    Rest,
}

fn act<L: Hostile>(size: u16) -> impl Strategy<Value = Act> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..64);
    let few = || prop_oneof![0..9_u16, any::<u16>()];
    prop_oneof![
        2 => (0..END - 64, bytes()).prop_map(|(at, b)| Act::Scribble(at, b)),
        2 => (0..2000_u64, bytes()).prop_map(|(at, b)| Act::Scribble(DESC + at, b)),
        2 => (any::<bool>(), bytes()).prop_map(|(of, b)| Act::Scribble(if of { AVAIL } else { USED }, b)),
        4 => (prop_oneof![0..100_u16, any::<u16>()], prop::collection::vec(fields::<L>(size), 1..40))
            .prop_map(|(n, f)| Act::Refill(n, f)),
        6 => (0..=BURST, any::<bool>()).prop_map(|(n, to)| Act::Burst(n, to)),
        3 => few().prop_map(Act::GiveBack),
        1 => few().prop_map(Act::Untake),
        2 => Just(Act::Rest),
    ]
}

/// A ring's size and base, the descriptors and heads to fill it with, and the actions that follow.
#[derive(Clone, Debug)]
struct Case {
    size: u16,
    base: u32,
    filling: Vec<Fields>,
    heads: Vec<u16>,
    acts: Vec<Act>,
}

fn case<L: Hostile>() -> impl Strategy<Value = Case> {
    L::device_sizes()
        .prop_flat_map(|size| {
            let heads = prop_oneof![8 => 0..size, 1 => any::<u16>()];
            (
                Just(size),
                L::bases(size),
                prop::collection::vec(fields::<L>(size), 1..100),
                prop::collection::vec(heads, 1..100),
                prop::collection::vec(act::<L>(size), 1..40),
            )
        })
        .prop_map(|(size, base, filling, heads, acts)| Case { size, base, filling, heads, acts })
}

fn the_device_half_bears_any_ring<L: Hostile>() {
    proptest!(ProptestConfig::with_cases(400), |(
        case in case::<L>(), event_idx: bool, indirect: bool, in_order: bool,
    )| {
        let Case { size, base, filling, heads, acts } = case;
        let mut guest = GuestRing::new(size);
        let mut device = L::successor(&guest, base, RingOptions { event_idx, indirect, in_order });
        for i in 0..size.min(1024) {
            let fields = filling[usize::from(i) % filling.len()];
            L::put_behind(&guest, base, i, fields);
            // Tables for indirect descriptors. They overlap the buffers.
            L::put_in_table(&guest, i, fields);
            L::put_head(&guest, i, heads[usize::from(i) % heads.len()]);
        }
        for act in acts {
            let before = device.outstanding();
            match act {
                Act::Scribble(at, bytes) => guest.write(at, &bytes),
                Act::Refill(n, fields) => L::refill(&guest, &device, base, n, &fields),
                Act::Burst(n, to_guest) => {
                    let mut firsts = vec![First::default(); n];
                    let Ok(found) = device.find(&mut firsts) else { continue };
                    prop_assert!(found <= n && found <= usize::from(size - before));
                    let direction = if to_guest { Direction::ToGuest } else { Direction::FromGuest };
                    for first in &firsts[..found] {
                        prop_assert!(!L::HAS_INDEXES || first.head < size);
                        device.take(first);
                        follow::<L>(&mut guest, &mut device, first, direction);
                        device.written(17);
                    }
                }
                Act::GiveBack(n) => {
                    // The device half of a split ring relies on its caller.
                    device.give_back(if L::HAS_INDEXES { n.min(before) } else { n });
                    prop_assert_eq!(device.outstanding(), before.saturating_sub(n));
                }
                Act::Untake(n) => {
                    device.untake(if L::HAS_INDEXES { n.min(before) } else { n });
                    prop_assert_eq!(device.outstanding(), before.saturating_sub(n));
                }
                Act::Rest => {
                    device.must_notify();
                    L::arm(&mut device, size);
                }
            }
            L::check(&device, size);
            prop_assert!(!device.poisoned());
        }
    });
}

/// Follows a chain; all staged segments must lie in the guest's memory.
fn follow<L: Hostile>(guest: &mut GuestRing, device: &mut L::Device, first: &First, direction: Direction) {
    let most = L::SEGMENTS * usize::from(guest.size);
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
                assert!(staged.len() <= most);
            }
            Err(_) => assert!(staged.is_empty()),
        }
    });
}

fn the_driver_half_bears_any_device<L: Hostile>() {
    let ids = prop_oneof![4 => 0..40_u32, 1 => any::<u32>()];
    proptest!(ProptestConfig::with_cases(400), |(
        size in L::driver_sizes(), event_idx: bool, in_order: bool, indirect: bool,
        acts in prop::collection::vec((0..6_u8, any::<u16>(), ids), 1..200),
    )| {
        let guest = GuestRing::new(size);
        let options = RingOptions { event_idx, indirect: indirect && size < 1000, in_order };
        let mut driver = L::driver(&guest, options);
        // Outstanding chains: their ids and lengths.
        let mut out = BTreeMap::new();
        let mut taken = 0_u16;
        // The position of the next report: behind the last one in a split ring, and where the
        // driver looks in a packed ring.
        let mut position = 0_u64;
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
                // Any id, often an outstanding one.
                2 | 3 => {
                    let id = if n % 8 > 2 { out.keys().next().map_or(id, |&id| id.into()) } else { id };
                    L::report(&guest, position, position + 1, id, (n % 5 > 0).then_some(9));
                    position += u64::from(L::HAS_INDEXES);
                }
                4 => L::misbehave(&guest, &mut position, n, id),
                _ => {
                    driver.want_interrupt(n % 2 == 0);
                    while let Some(used) = driver.used() {
                        prop_assert!(!broken, "nothing comes after an error");
                        match used {
                            Ok((id, _)) => {
                                let span = out.remove(&id);
                                prop_assert!(span.is_some(), "{} was not out", id);
                                taken -= span.unwrap_or(0);
                                if !L::HAS_INDEXES {
                                    position += u64::from(span.unwrap_or(0));
                                }
                            }
                            Err(fault) => {
                                broken = true;
                                match fault {
                                    DeviceFault::Id(id) => prop_assert!(!out.keys().any(|&o| u32::from(o) == id)),
                                    DeviceFault::Length { id, bytes, capacity } => {
                                        prop_assert!(bytes > capacity && out.contains_key(&id));
                                    }
                                    DeviceFault::IndexJump { ahead, published } => {
                                        prop_assert!(L::HAS_INDEXES && ahead > published);
                                    }
                                    DeviceFault::Batch(id) => {
                                        prop_assert!(L::HAS_INDEXES && in_order && out.contains_key(&id));
                                    }
                                }
                            }
                        }
                    }
                }
            }
            prop_assert_eq!(driver.free(), size - taken);
        }
    });
}

//! Every field of a packed ring that the driver owns is read once.

use straightline_packet::double::Double;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, GuestRing};
use straightline_virtio::ring::{Device, Direction, First, INDIRECT, NEXT, PackedDevice, RingOptions, WRITE};

const TABLE: u64 = BUFFERS + 0x1_0000;

/// Flag of an available descriptor in the first round (virtio 1.2, 2.8.1).
const AVAILABLE: u16 = 1 << 7;

/// Flag of a used descriptor in the first round, together with `AVAILABLE`.
const USED: u16 = 1 << 15;

fn double(guest: &GuestRing, addr: u64, len: u32) -> Double {
    Double::complement(guest.ours.segment(addr, len, &mut 0).expect("in memory"))
}

fn device(guest: &GuestRing, event_idx: bool) -> PackedDevice {
    let options = RingOptions { event_idx, indirect: true, in_order: false };
    PackedDevice::new(&guest.ours, guest.geometry(), 0x8000_8000, options).expect("the ring is in memory")
}

/// Writes a descriptor: address, length, id, flags.
fn descriptor(guest: &GuestRing, table: u64, at: u16, (addr, len, id, flags): (u64, u32, u16, u16)) {
    guest.descriptor(table, at, addr, len, id, flags);
}

fn walk(guest: &mut GuestRing, device: &mut PackedDevice, first: &First, direction: Direction) -> Vec<(u64, u32)> {
    let base = guest.ours.segment(0, 1, &mut 0).expect("in memory").address();
    guest.turn(|turn, memory| {
        let mark = turn.mark();
        device.chain(memory, turn, first, direction).expect("a good chain");
        let staged = turn.staged(mark).iter();
        staged.map(|segment| (u64::try_from(segment.address() - base).expect("in order"), segment.len())).collect()
    })
}

#[test]
fn once_packed_every_descriptor_of_a_burst() {
    // Bursts of every length, so that descriptors are read one by one and several at a time.
    for burst in 1..=12 {
        let mut guest = GuestRing::new(16);
        let mut device = device(&guest, true);
        for at in 0..burst {
            let addr = BUFFERS + 0x1000 * u64::from(at);
            descriptor(&guest, DESC, at, (addr, 100 + u32::from(at), 50 + at, AVAILABLE));
        }
        let doubles: Vec<_> = (0..burst).map(|at| double(&guest, DESC + 16 * u64::from(at), 16)).collect();
        let mut firsts = [First::default(); 12];
        assert_eq!(device.find(&mut firsts[..burst.into()]), Ok(burst.into()));
        for (at, first) in (0..burst).zip(&firsts) {
            device.take(first);
            assert_eq!((first.head, first.desc.len), (50 + at, 100 + u32::from(at)));
            let found = walk(&mut guest, &mut device, first, Direction::FromGuest);
            assert_eq!(found, [(BUFFERS + 0x1000 * u64::from(at), 100 + u32::from(at))]);
        }
        for (at, double) in doubles.iter().enumerate() {
            assert_eq!(double.loads(), [1; 16], "descriptor {at} of {burst}");
        }
        device.give_back(burst);
    }
}

#[test]
fn once_packed_every_descriptor_of_a_chain() {
    for direction in [Direction::FromGuest, Direction::ToGuest] {
        let write = if direction == Direction::ToGuest { WRITE } else { 0 };
        let mut guest = GuestRing::new(16);
        let mut device = device(&guest, true);
        for at in 0..3_u16 {
            let more = if at < 2 { NEXT } else { 0 };
            let addr = BUFFERS + 0x1000 * u64::from(at);
            descriptor(&guest, DESC, at, (addr, 100, 60 + at, AVAILABLE | write | more));
        }
        let doubles = [0, 16, 32].map(|at| double(&guest, DESC + at, 16));
        let mut firsts = [First::default()];
        assert_eq!(device.find(&mut firsts), Ok(1));
        device.take(&firsts[0]);
        let found = walk(&mut guest, &mut device, &firsts[0], direction);
        assert_eq!(found, [(BUFFERS, 100), (BUFFERS + 0x1000, 100), (BUFFERS + 0x2000, 100)]);
        assert_eq!(firsts[0].head, 62);
        for double in doubles {
            assert_eq!(double.loads(), [1; 16]);
        }
    }
}

#[test]
fn cve_2026_86562_93683_a_packed_indirect_table_and_its_length_are_read_once() {
    let mut guest = GuestRing::new(16);
    let mut device = device(&guest, true);
    descriptor(&guest, DESC, 0, (TABLE, 48, 7, AVAILABLE | INDIRECT));
    for at in 0..3_u16 {
        descriptor(&guest, TABLE, at, (BUFFERS + 0x1000 * u64::from(at), 100, 0, 0));
    }
    let outer = double(&guest, DESC, 16);
    let table = double(&guest, TABLE, 48);
    let mut firsts = [First::default()];
    assert_eq!(device.find(&mut firsts), Ok(1));
    device.take(&firsts[0]);
    let found = walk(&mut guest, &mut device, &firsts[0], Direction::FromGuest);
    assert_eq!(found, [(BUFFERS, 100), (BUFFERS + 0x1000, 100), (BUFFERS + 0x2000, 100)]);
    assert_eq!(outer.loads(), [1; 16]);
    // Whole entries are read, although id and most flags have no meaning.
    assert_eq!(table.loads(), [1; 48]);
}

/// Before a worker sleeps, it arms every ring of every port. A guest may have 254 rings of 32768
/// available descriptors, so only one descriptor of a ring is read.
#[test]
fn once_packed_one_place_before_a_sleep() {
    for (beyond, there) in [(0, true), (5, true), (15, true), (16, false)] {
        let guest = GuestRing::new(16);
        let mut device = device(&guest, true);
        for at in 0..16 {
            descriptor(&guest, DESC, at, (BUFFERS, 100, at, AVAILABLE));
        }
        let table = double(&guest, DESC, 16 * 16);
        assert_eq!(device.arm(beyond), Ok(there));
        let looked: u32 = table.loads().iter().sum();
        assert_eq!(looked, if there { 8 } else { 0 }, "length, id and flags of one descriptor");
    }
}

#[test]
fn once_packed_what_the_driver_wants_to_be_told() {
    /// Event suppression (virtio 1.2, 2.8.10).
    const OFF: u16 = 1;
    const AT: u16 = 2;
    let guest = GuestRing::new(16);
    let mut device = device(&guest, true);
    let mut firsts = [First::default()];
    for n in 0..12_u16 {
        descriptor(&guest, DESC, n, (BUFFERS, 100, n, AVAILABLE));
        let mode = if n % 3 == 0 { OFF } else { AT };
        // The driver requests a call for this descriptor, or for a distant one.
        let wanted = n % 3 == 1;
        guest.write16(AVAIL, if wanted { n } else { n.wrapping_add(14) % 16 } | 0x8000);
        guest.write16(AVAIL + 2, mode);
        let place = double(&guest, AVAIL, 2);
        let mode_of = double(&guest, AVAIL + 2, 2);
        assert_eq!(device.find(&mut firsts), Ok(1));
        device.take(&firsts[0]);
        device.give_back(1);
        let called = device.must_notify();
        // The first decision does not depend on positions, because none precedes it.
        if n > 0 {
            assert_eq!(called, wanted, "descriptor {n}");
            assert_eq!(place.loads(), vec![u32::from(mode == AT); 2]);
        }
        assert_eq!(mode_of.loads(), [1; 2]);
    }
}

#[test]
fn once_packed_a_batch_in_order() {
    // A single descriptor, a chain of three, a table and another single descriptor, with arbitrary
    // ids. The ids come back as they were read.
    for direction in [Direction::FromGuest, Direction::ToGuest] {
        let write = if direction == Direction::ToGuest { WRITE } else { 0 };
        let mut guest = GuestRing::new(16);
        let options = RingOptions { event_idx: true, indirect: true, in_order: true };
        let mut device =
            PackedDevice::new(&guest.ours, guest.geometry(), 0x8000_8000, options).expect("the ring is in memory");
        let buffer = |n: u16| BUFFERS + 0x1000 * u64::from(n);
        for (at, id, more) in [(0, 7, 0), (1, 900, NEXT), (2, 901, NEXT), (3, 7, 0), (5, 7, 0)] {
            descriptor(&guest, DESC, at, (buffer(at), 100, id, AVAILABLE | write | more));
        }
        descriptor(&guest, DESC, 4, (TABLE, 32, 0xffff, AVAILABLE | INDIRECT));
        descriptor(&guest, TABLE, 0, (buffer(6), 100, 0, write));
        descriptor(&guest, TABLE, 1, (buffer(7), 100, 0, write));
        let ring = double(&guest, DESC, 96);
        let table = double(&guest, TABLE, 32);
        let mut firsts = [First::default(); 4];
        assert_eq!(device.find(&mut firsts), Ok(4));
        for (n, (first, staged)) in (0..).zip(firsts.iter().zip([&[0][..], &[1, 2, 3], &[6, 7], &[5]])) {
            device.take(first);
            let expected: Vec<_> = staged.iter().map(|&n| (buffer(n), 100)).collect();
            assert_eq!(walk(&mut guest, &mut device, first, direction), expected);
            if direction == Direction::ToGuest {
                device.written(50 + n);
            }
        }
        assert!(ring.loads().iter().chain(&table.loads()).all(|&loads| loads == 1), "{:?}", ring.loads());
        device.give_back(4);
        assert!(ring.loads().iter().all(|&loads| loads == 1), "nothing is read again to give it back");
        drop((ring, table));
        for (at, id, bytes) in [(0, 7, 50), (1, 7, 51), (4, 0xffff, 52), (5, 7, 53)] {
            let bytes = if direction == Direction::ToGuest { bytes } else { 0 };
            let place = DESC + 16 * at;
            assert_eq!((guest.read16(place + 8), guest.read16(place + 12)), (bytes, id), "place {at}");
            assert_eq!(guest.read16(place + 14), AVAILABLE | USED | write, "place {at}");
        }
    }
}

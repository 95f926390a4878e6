//! Every field of a split ring that the driver owns is read once. In a double of guest memory, a
//! field changes right after its first read. (In CVE-2026-86562 and -93683, an indirect table's
//! length and a control command were read twice.)

use straightline_packet::double::Double;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, GuestRing, USED, events};
use straightline_virtio::ring::{Device, Direction, First, INDIRECT, NEXT, RingOptions, WRITE};

const ALL: RingOptions = RingOptions { event_idx: true, indirect: true, in_order: false };

const TABLE: u64 = BUFFERS + 0x1_0000;

/// Makes a double of `len` bytes from `addr` on.
fn double(guest: &GuestRing, addr: u64, len: u32) -> Double {
    Double::complement(guest.ours.segment(addr, len, &mut 0).expect("in memory"))
}

/// Returns the guest addresses and lengths of a chain's buffers, as the device staged them.
fn walk(guest: &mut GuestRing, device: &mut impl Device, first: &First, direction: Direction) -> Vec<(u64, u32)> {
    let base = guest.ours.segment(0, 1, &mut 0).expect("in memory").address();
    guest.turn(|turn, memory| {
        let mark = turn.mark();
        device.chain(memory, turn, first, direction).expect("a good chain");
        let staged = turn.staged(mark).iter();
        staged.map(|segment| (u64::try_from(segment.address() - base).expect("in order"), segment.len())).collect()
    })
}

#[test]
fn once_split_index_entry_and_descriptor() {
    let mut guest = GuestRing::new(16);
    let mut device = guest.device(0, ALL);
    guest.descriptor(DESC, 3, BUFFERS, 100, 0, 9);
    guest.offer(0, 3);
    let index = double(&guest, AVAIL + 2, 2);
    let entry = double(&guest, AVAIL + 4, 2);
    let desc = double(&guest, DESC + 48, 16);
    let mut firsts = [First::default(); 4];
    assert_eq!(device.find(&mut firsts), Ok(1));
    let first = firsts[0];
    device.take(&first);
    assert_eq!(walk(&mut guest, &mut device, &first, Direction::FromGuest), [(BUFFERS, 100)]);
    guest.turn(|_, memory| {
        let segment = device.single(memory, &first, Direction::FromGuest).expect("one buffer");
        assert_eq!(segment.len(), 100);
    });
    device.give_back(1);
    assert_eq!((first.head, first.desc.next), (3, 9));
    for (what, double) in [("index", index), ("entry", entry), ("descriptor", desc)] {
        assert!(double.loads().iter().all(|&loads| loads == 1), "{what}: {:?}", double.loads());
    }
}

#[test]
fn once_split_every_descriptor_of_a_chain() {
    for direction in [Direction::FromGuest, Direction::ToGuest] {
        let write = if direction == Direction::ToGuest { WRITE } else { 0 };
        let mut guest = GuestRing::new(16);
        let mut device = guest.device(0, ALL);
        let chain = [(5, 100, 7), (7, 200, 1), (1, 300, 0)];
        for (n, (at, len, next)) in (0..).zip(chain) {
            let more = if next == 0 { 0 } else { NEXT };
            guest.descriptor(DESC, at, BUFFERS + 0x1000 * n, len, write | more, next);
        }
        guest.offer(0, 5);
        let doubles = chain.map(|(at, ..)| double(&guest, DESC + 16 * u64::from(at), 16));
        let mut firsts = [First::default()];
        assert_eq!(device.find(&mut firsts), Ok(1));
        device.take(&firsts[0]);
        let found = walk(&mut guest, &mut device, &firsts[0], direction);
        assert_eq!(found, [(BUFFERS, 100), (BUFFERS + 0x1000, 200), (BUFFERS + 0x2000, 300)]);
        for double in doubles {
            assert_eq!(double.loads(), [1; 16]);
        }
    }
}

#[test]
fn cve_2026_86562_93683_an_indirect_table_and_its_length_are_read_once() {
    let mut guest = GuestRing::new(16);
    let mut device = guest.device(0, ALL);
    guest.descriptor(DESC, 2, TABLE, 48, INDIRECT, 0);
    for (n, (at, len, next)) in (0..).zip([(0, 100, 2), (2, 200, 1), (1, 300, 0)]) {
        let flags = if next == 0 { 0 } else { NEXT };
        guest.descriptor(TABLE, at, BUFFERS + 0x1000 * n, len, flags, next);
    }
    guest.offer(0, 2);
    // The length becomes a longer length that is also valid. The table's entries become their
    // complement.
    let before = guest.ours.segment(DESC + 32, 16, &mut 0).expect("in memory");
    let outer = Double::becomes(before, &longer(TABLE, 96, INDIRECT));
    let table = double(&guest, TABLE, 48);
    let mut firsts = [First::default()];
    assert_eq!(device.find(&mut firsts), Ok(1));
    device.take(&firsts[0]);
    let found = walk(&mut guest, &mut device, &firsts[0], Direction::FromGuest);
    assert_eq!(found, [(BUFFERS, 100), (BUFFERS + 0x1000, 200), (BUFFERS + 0x2000, 300)]);
    assert_eq!(outer.loads(), [1; 16]);
    assert_eq!(table.loads(), [1; 48]);
}

/// Returns a descriptor's bytes.
fn longer(addr: u64, len: u32, flags: u16) -> Vec<u8> {
    let mut bytes = addr.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

#[test]
fn once_split_what_the_driver_wants_to_be_told() {
    for event_idx in [false, true] {
        let guest = GuestRing::new(16);
        let mut device = guest.device(0, events(event_idx));
        let mut firsts = [First::default()];
        for n in 0..20 {
            guest.descriptor(DESC, n % 16, BUFFERS, 100, 0, 0);
            guest.offer(n, n % 16);
            // The driver requests a call for this chain, or none. The complement of either field
            // means something else.
            let wanted = n % 2 == 0;
            let event = if wanted { n } else { n.wrapping_sub(1) };
            guest.write16(AVAIL + 4 + 32, event);
            guest.write16(AVAIL, u16::from(!wanted));
            let flags = double(&guest, AVAIL, 2);
            let event_word = double(&guest, AVAIL + 4 + 32, 2);
            assert_eq!(device.find(&mut firsts), Ok(1));
            device.take(&firsts[0]);
            device.give_back(1);
            // Other tests check the first decision with the event index.
            let called = device.must_notify();
            assert!(called == wanted || (event_idx && n == 0), "chain {n}");
            let (read, left) = if event_idx { (event_word, flags) } else { (flags, event_word) };
            assert_eq!((read.loads(), left.loads()), (vec![1; 2], vec![0; 2]));
        }
    }
}

#[test]
fn once_split_a_batch_in_order() {
    // Heads in an arbitrary order: single descriptors, a chain of three, a table. The heads come
    // back as they were read. In a transmit ring only the last head of the batch comes back (virtio
    // 1.2, 2.7.9).
    for direction in [Direction::FromGuest, Direction::ToGuest] {
        let write = if direction == Direction::ToGuest { WRITE } else { 0 };
        let mut guest = GuestRing::new(16);
        let mut device = guest.device(0, RingOptions { in_order: true, ..ALL });
        let heads = [9, 3, 12, 6];
        let buffer = |n: u64| BUFFERS + 0x1000 * n;
        guest.descriptor(DESC, 9, buffer(0), 100, write, 0);
        for (n, (at, next)) in (1..).zip([(3, 5), (5, 4), (4, 0)]) {
            guest.descriptor(DESC, at, buffer(n), 100, write | if next == 0 { 0 } else { NEXT }, next);
        }
        guest.descriptor(DESC, 12, TABLE, 32, INDIRECT, 0);
        guest.descriptor(TABLE, 0, buffer(4), 100, write | NEXT, 1);
        guest.descriptor(TABLE, 1, buffer(5), 100, write, 0);
        guest.descriptor(DESC, 6, buffer(6), 100, write, 0);
        for (entry, head) in (0..).zip(heads) {
            guest.offer(entry, head);
        }
        let doubles =
            [(AVAIL + 2, 2), (AVAIL + 4, 8), (TABLE, 32), (DESC + 48, 64), (DESC + 144, 16), (DESC + 192, 16)]
                .map(|(addr, len)| double(&guest, addr, len));
        let mut firsts = [First::default(); 4];
        assert_eq!(device.find(&mut firsts), Ok(4));
        for (n, (first, staged)) in (0..).zip(firsts.iter().zip([&[0][..], &[1, 2, 3], &[4, 5], &[6]])) {
            device.take(first);
            let expected: Vec<_> = staged.iter().map(|&n| (buffer(n), 100)).collect();
            assert_eq!(walk(&mut guest, &mut device, first, direction), expected);
            if direction == Direction::ToGuest {
                Device::written(&mut device, 50 + n);
            }
        }
        device.give_back(4);
        let element = |at: u64| (guest.read16(USED + 4 + 8 * at), guest.read16(USED + 8 + 8 * at));
        if direction == Direction::ToGuest {
            assert_eq!([0, 1, 2, 3].map(element), [(9, 50), (3, 51), (12, 52), (6, 53)]);
        } else {
            assert_eq!(element(0), (6, 0), "the batch's last head");
        }
        assert_eq!(guest.read16(USED + 2), 4);
        for double in doubles {
            assert!(double.loads().iter().all(|&loads| loads == 1), "{direction:?}: {:?}", double.loads());
        }
    }
}

//! The in-flight table: how successors of several kinds of device continue from it.

use std::os::fd::AsFd;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use straightline_packet::Level;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, GuestRing, USED, USER};
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::ring::{
    Device, Direction, First, InflightError, InflightFile, InflightShape, InflightTable, PackedDevice, Ring,
    RingOptions, SplitDevice, WRITE,
};

const SIZE: u16 = 8;
/// Flags of a packed descriptor (virtio 1.2, 2.8.1).
const FLAG_AVAIL: u16 = 1 << 7;
const FLAG_USED: u16 = 1 << 15;

const SPLIT: InflightShape = InflightShape { packed: false, queues: 2, size: SIZE };
const PACKED: InflightShape = InflightShape { packed: true, ..SPLIT };

/// A table as its frontend keeps it, accessed from the outside.
struct Kept {
    file: InflightFile,
    shape: InflightShape,
    memory: GuestMemory,
}

impl Kept {
    fn new(shape: InflightShape) -> Kept {
        let file = InflightFile::create(shape.queues).unwrap();
        let region = Region::map(file.as_fd(), 0, shape.bytes(), 0, 0).unwrap();
        Kept { file, shape, memory: GuestMemory::new(vec![region.into()]).unwrap() }
    }

    fn table(&self) -> InflightTable {
        InflightTable::map(self.shape, 0, self.shape.bytes(), self.file.as_fd()).unwrap()
    }

    /// Ring 1 of the table, with both offsets from the specification's structures.
    fn at(&self, offset: u64) -> u64 {
        self.shape.bytes() / 2 + offset
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).unwrap();
        self.memory.segment(self.at(offset), len, &mut 0).unwrap().write(Level::Scalar, bytes);
    }

    fn write16(&self, offset: u64, value: u16) {
        self.write(offset, &value.to_le_bytes());
    }

    fn read16(&self, offset: u64) -> u16 {
        let mut bytes = [0; 2];
        self.memory.segment(self.at(offset), 2, &mut 0).unwrap().read(Level::Scalar, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// Writes the table of a split ring's predecessor with this used index and these heads in
    /// flight, oldest first.
    fn left_split(&self, used_idx: u16, heads: &[u16]) {
        self.write16(8, 1);
        self.write16(10, SIZE);
        self.write16(14, used_idx);
        for (counter, &head) in (100_u64..).zip(heads) {
            let state = 16 + 16 * u64::from(head);
            self.write(state + 8, &counter.to_le_bytes());
            self.write(state, &[1]);
        }
    }

    /// Writes a packed ring's table: the current position, the old position, and the chains in
    /// flight by entry, id and descriptors.
    fn left_packed(&self, new: (u16, u8), old: (u16, u8), chains: &[(u16, u16, u16)]) {
        self.write16(8, 1);
        self.write16(10, SIZE);
        // Empty lists of free entries.
        self.write16(12, SIZE);
        self.write16(14, SIZE);
        self.write16(16, new.0);
        self.write16(18, old.0);
        self.write(20, &[new.1, old.1]);
        for (counter, &(entry, id, num)) in (100_u64..).zip(chains) {
            let state = 32 + 32 * u64::from(entry);
            self.write16(state + 4, entry);
            self.write16(state + 6, num);
            self.write(state + 8, &counter.to_le_bytes());
            self.write16(state + 16, id);
            self.write(state, &[1]);
        }
    }

    fn is_flagged(&self, entry: u16) -> bool {
        let at = if self.shape.packed { 32 + 32 * u64::from(entry) } else { 16 + 16 * u64::from(entry) };
        self.read16(at) & 0xff == 1
    }

    fn flagged(&self) -> Vec<u16> {
        (0..SIZE).filter(|&entry| self.is_flagged(entry)).collect()
    }
}

/// Creates a device on ring 1 that trusts the table and the ring.
fn split(guest: &GuestRing, kept: &Kept) -> Result<SplitDevice, InflightError> {
    let inflight = kept.table().queue(1, SIZE, false)?.expect("ring 1 has a part");
    SplitDevice::tracked(&guest.ours, guest.geometry(), RingOptions::default(), None, inflight)
}

fn packed(guest: &GuestRing, kept: &Kept, base: u32) -> Result<PackedDevice, InflightError> {
    let inflight = kept.table().queue(1, SIZE, true)?.expect("ring 1 has a part");
    PackedDevice::tracked(
        &guest.ours,
        guest.geometry(),
        base,
        RingOptions::default(),
        Direction::FromGuest,
        None,
        inflight,
    )
}

/// Returns the next `n` heads.
fn take_split(device: &mut SplitDevice, n: usize) -> Vec<u16> {
    let mut found = vec![First::default(); n];
    assert!(usize::from(device.available(SIZE).unwrap()) >= n);
    device.peek(&mut found).unwrap();
    found.iter().for_each(|first| device.take(first));
    found.iter().map(|first| first.head).collect()
}

/// Returns the ids of the next chains, at most `n`.
fn take_packed(device: &mut PackedDevice, n: usize) -> Vec<u16> {
    let mut found = vec![First::default(); n];
    let n = device.find(&mut found).unwrap();
    found[..n].iter().for_each(|first| device.take(first));
    found[..n].iter().map(|first| first.head).collect()
}

/// Returns a used element: id and length.
fn used(guest: &GuestRing, entry: u16) -> (u16, u16) {
    let at = USED + 4 + 8 * u64::from(entry % SIZE);
    (guest.read16(at), guest.read16(at + 4))
}

/// Makes these heads available, as entries from `entry` on.
fn offer(guest: &GuestRing, entry: u16, heads: &[u16]) {
    for (i, &head) in (0..).zip(heads) {
        guest.descriptor(0, head, BUFFERS + 4096 * u64::from(head), 100, WRITE, 0);
        guest.offer(entry.wrapping_add(i), head);
    }
}

/// Makes ids available in a packed ring: one descriptor each, from `place` on in the round of
/// `wrap`.
fn offer_packed(guest: &GuestRing, place: u16, wrap: bool, ids: &[u16]) {
    for (i, &id) in (0..).zip(ids) {
        let flags = WRITE | if wrap { FLAG_AVAIL } else { FLAG_USED };
        guest.descriptor(0, place + i, BUFFERS + 4096 * u64::from(id), 100, id, flags);
    }
}

// Cites vhost-user-inflight-1, vhost-user-inflight-2, vhost-user-inflight-3, vhost-user-inflight-6.
// Cites vhost-user-inflight-7.
#[test]
fn a_successor_of_ours_goes_on_where_it_died() {
    let guest = GuestRing::new(SIZE);
    let kept = Kept::new(SPLIT);
    offer(&guest, 65_533, &[5, 1, 7, 2, 0]);
    // A new table for a ring that was used before.
    guest.write16(USED + 2, 65_533);
    let mut device = split(&guest, &kept).unwrap();
    assert_eq!(take_split(&mut device, 4), [5, 1, 7, 2]);
    device.give_back(3);
    drop(device);
    assert_eq!((kept.read16(8), kept.read16(10), kept.read16(14)), (1, SIZE, 0));
    // The device is killed with one chain taken. The base that the successor gets is the position
    // up to which the device had taken.
    let mut device = split(&guest, &kept).unwrap();
    assert_eq!((device.base(), take_split(&mut device, 2)), (0, vec![2, 0]));

    let guest = GuestRing::new(SIZE);
    let kept = Kept::new(PACKED);
    offer_packed(&guest, 0, true, &[5, 1, 7, 2, 0, 3, 4, 6]);
    let mut device = packed(&guest, &kept, 0x8000_8000).unwrap();
    assert_eq!(take_packed(&mut device, 8).len(), 8);
    device.give_back(8);
    offer_packed(&guest, 0, false, &[4, 3, 2]);
    assert_eq!(take_packed(&mut device, 8), [4, 3, 2]);
    device.give_back(2);
    drop(device);
    assert_eq!((kept.read16(16), kept.read16(18), kept.read16(20)), (2, 2, 0));
    let mut device = packed(&guest, &kept, 0).unwrap();
    assert_eq!((device.base(), take_packed(&mut device, 8)), (0x0002_0002, vec![2]));
}

#[test]
fn a_ring_that_runs_goes_over_to_another_table() {
    for shape in [SPLIT, PACKED] {
        let guest = GuestRing::new(SIZE);
        let first = Kept::new(shape);
        let second = Kept::new(shape);
        let mut ring = if shape.packed {
            offer_packed(&guest, 0, true, &[5, 1, 7, 2, 0]);
            Ring::Packed(packed(&guest, &first, 0x8000_8000).unwrap())
        } else {
            offer(&guest, 0, &[5, 1, 7, 2, 0]);
            Ring::Split(split(&guest, &first).unwrap())
        };
        match &mut ring {
            Ring::Split(ring) => assert_eq!(take_split(ring, 4), [5, 1, 7, 2]),
            Ring::Packed(ring) => assert_eq!(take_packed(ring, 4), [5, 1, 7, 2]),
        }
        ring.give_back(2);
        // The table's old contents are void: only our device uses this ring.
        if shape.packed {
            second.left_packed((7, 1), (6, 0), &[(0, 5, 1), (1, 1, 1)]);
        } else {
            second.left_split(5, &[5, 1]);
        }
        ring.track(second.table().queue_anew(1, SIZE, shape.packed));
        assert!(second.flagged().is_empty());
        let used_idx = if shape.packed { 16 } else { 14 };
        assert_eq!((second.read16(8), second.read16(used_idx)), (1, 2), "with two taken, and not given back");
        ring.give_back(1);
        assert_eq!((first.read16(used_idx), second.read16(used_idx)), (2, 3));
        drop(ring);
        if shape.packed {
            let mut device = packed(&guest, &second, 0).unwrap();
            assert_eq!((device.base(), take_packed(&mut device, 8)), (0x8003_8003, vec![2, 0]));
        } else {
            let mut device = split(&guest, &second).unwrap();
            assert_eq!((device.base(), take_split(&mut device, 2)), (3, vec![2, 0]));
        }
        // No part for a ring that the table does not cover.
        assert!(second.table().queue_anew(1, SIZE * 2, shape.packed).is_none());
        assert!(second.table().queue_anew(2, SIZE, shape.packed).is_none());
        assert!(second.table().queue_anew(1, SIZE, !shape.packed).is_none());
    }
}

// Cites vhost-user-inflight-11.
#[test]
fn what_stands_in_the_ring_is_taken_again() {
    // A predecessor that marks the chains that it takes, and works in order.
    let guest = GuestRing::new(SIZE);
    let kept = Kept::new(SPLIT);
    offer(&guest, 0, &[5, 1, 7]);
    kept.left_split(0, &[5, 1]);
    let mut device = split(&guest, &kept).unwrap();
    assert_eq!(take_split(&mut device, 3), [5, 1, 7]);
    assert_eq!((kept.flagged(), guest.read16(USED + 2)), (vec![], 0));

    let guest = GuestRing::new(SIZE);
    let kept = Kept::new(PACKED);
    offer_packed(&guest, 3, true, &[5, 1, 7]);
    kept.left_packed((3, 1), (3, 1), &[(0, 5, 1), (1, 1, 1)]);
    let mut device = packed(&guest, &kept, 0).unwrap();
    assert_eq!(take_packed(&mut device, 8), [5, 1, 7]);
    assert!(kept.flagged().is_empty());
}

// Cites vhost-user-inflight-5, vhost-user-inflight-6, vhost-user-inflight-11.
#[test]
fn what_another_order_left_is_given_back_oldest_first() {
    // Chains 5, 1, 7 and 2 were taken; 1 and 7 were given back. Then the driver made these two
    // available again.
    let guest = GuestRing::new(SIZE);
    let kept = Kept::new(SPLIT);
    offer(&guest, 0, &[5, 1, 7, 2, 1, 7]);
    guest.write16(USED + 2, 2);
    kept.left_split(2, &[5, 2]);
    let mut device = split(&guest, &kept).unwrap();
    assert_eq!(guest.read16(USED + 2), 4);
    assert_eq!([used(&guest, 2), used(&guest, 3)], [(5, 0), (2, 0)]);
    assert_eq!((kept.flagged(), kept.read16(14)), (vec![], 4));
    // The list of the last batch: 2, then 5.
    assert_eq!((kept.read16(12), kept.read16(16 + 16 * 2 + 6)), (2, 5));
    assert_eq!(take_split(&mut device, 2), [1, 7]);

    // A chain of two descriptors is in flight, and another chain has overwritten their positions.
    let guest = GuestRing::new(SIZE);
    let kept = Kept::new(PACKED);
    kept.left_packed((2, 1), (2, 1), &[(3, 5, 2), (0, 2, 1)]);
    offer_packed(&guest, 5, true, &[1, 7]);
    let mut device = packed(&guest, &kept, 0).unwrap();
    let desc = |at: u64| (guest.read16(16 * at + 8), guest.read16(16 * at + 12), guest.read16(16 * at + 14));
    let flags = FLAG_AVAIL | FLAG_USED;
    assert_eq!([desc(2), desc(4)], [(0, 5, flags), (0, 2, flags)]);
    assert_eq!((kept.flagged(), kept.read16(16), kept.read16(18)), (vec![], 5, 5));
    // The list of free entries, in both fields: entry 0, then entry 3.
    assert_eq!((kept.read16(12), kept.read16(14), kept.read16(32 + 2)), (0, 0, 3));
    assert_eq!(take_packed(&mut device, 8), [1, 7]);
}

// Cites vhost-user-inflight-8, vhost-user-inflight-9, vhost-user-inflight-10.
#[test]
fn a_batch_that_was_published_is_not_in_flight() {
    // The batch was published, and the device killed before it cleared its flags: 1, then 5, which
    // is the list's head.
    let guest = GuestRing::new(SIZE);
    let kept = Kept::new(SPLIT);
    offer(&guest, 0, &[5, 1, 7]);
    guest.write16(USED + 2, 2);
    kept.left_split(0, &[5, 1, 7]);
    kept.write16(12, 5);
    kept.write16(16 + 16 * 5 + 6, 1);
    let mut device = split(&guest, &kept).unwrap();
    assert_eq!((kept.flagged(), guest.read16(USED + 2)), (vec![], 2));
    assert_eq!(take_split(&mut device, 1), [7], "it is in the ring");

    for published in [false, true] {
        let guest = GuestRing::new(SIZE);
        let kept = Kept::new(PACKED);
        offer_packed(&guest, 0, true, &[5, 1, 7]);
        kept.left_packed((1, 1), (0, 1), &[(0, 5, 1), (1, 1, 1)]);
        // Entry 0, which belongs to 5, is free if the batch was published.
        kept.write16(12, 0);
        kept.write16(32 + 2, SIZE);
        if published {
            guest.write16(14, FLAG_AVAIL | FLAG_USED | WRITE);
        }
        let mut device = packed(&guest, &kept, 0).unwrap();
        let want: &[u16] = if published { &[1, 7] } else { &[5, 1, 7] };
        assert_eq!(take_packed(&mut device, 8), want);
        assert!(kept.flagged().is_empty());
        let stands = u16::from(published);
        assert_eq!((kept.read16(16), kept.read16(18)), (stands, stands));
    }
}

#[test]
fn a_ring_that_was_stopped_is_forgotten() {
    let guest = GuestRing::new(SIZE);
    let kept = Kept::new(SPLIT);
    offer(&guest, 0, &[5, 1]);
    guest.write16(USED + 2, 3);
    kept.left_split(3, &[0]);
    kept.table().clear(1);
    guest.write16(USED + 2, 0);
    assert_eq!(split(&guest, &kept).unwrap().base(), 0);
    assert!(kept.flagged().is_empty());
}

#[test]
fn one_file_has_all_tables_and_each_begins_empty() {
    let kept = Kept::new(SPLIT);
    kept.left_split(3, &[0, 5]);
    let largest = InflightShape { size: 1 << 15, ..PACKED };
    let allocated = |kept: &Kept| fstat(&kept.file).unwrap().st_blocks;
    for shape in [SPLIT, PACKED, largest, SPLIT] {
        assert!(allocated(&kept) > 0);
        let table = kept.file.table(shape).unwrap();
        assert_eq!((table.shape(), allocated(&kept)), (shape, 0));
        drop(table.queue_anew(1, SIZE, shape.packed).expect("ring 1 has a part"));
    }
    assert!(kept.file.table(InflightShape { queues: 3, ..largest }).is_err(), "made for two rings");
}

#[test]
fn tables_that_do_not_fit() {
    let kept = Kept::new(SPLIT);
    assert!(ftruncate(&kept.file, 0).is_err() && ftruncate(&kept.file, 1 << 20).is_err(), "it is sealed");
    let error = |result: Result<_, InflightError>| result.map(|_: Option<_>| ()).unwrap_err().to_string();
    assert!(error(kept.table().queue(1, 2 * SIZE, false)).contains("16 entries"));
    assert!(error(kept.table().queue(1, SIZE, true)).contains("is for split rings"));
    assert!(kept.table().queue(2, SIZE, false).unwrap().is_none(), "made for two rings");
    assert!(kept.table().queue(1, SIZE / 2, false).unwrap().is_some(), "one of them may be smaller");
    kept.write16(8, 2);
    assert!(error(kept.table().queue(1, SIZE, false)).contains("version 2"));

    // A file with exactly this table.
    let bytes = SPLIT.bytes();
    let file = memfd_create("kept", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes).unwrap();
    let map = |shape, offset, bytes| InflightTable::map(shape, offset, bytes, file.as_fd());
    assert!(map(SPLIT, 0, bytes).is_ok());
    for (offset, bytes) in
        [(0, bytes - 1), (0, 0), (8, bytes), (4, bytes), (u64::MAX - 7, bytes), (!7, u64::MAX), (1 << 63, bytes)]
    {
        assert!(map(SPLIT, offset, bytes).is_err(), "{bytes:#x} bytes at {offset:#x}");
    }
    for shape in [PACKED, InflightShape { queues: 3, ..SPLIT }, InflightShape { size: 32_768, ..SPLIT }] {
        assert!(map(shape, 0, u64::MAX).is_err(), "{shape:?}");
    }
    assert!(map(InflightShape { queues: 1, ..SPLIT }, bytes / 2, bytes).is_ok(), "the second half");
}

#[test]
fn tables_that_contradict_themselves() {
    let guest = GuestRing::new(SIZE);
    let fails = |prepare: fn(&Kept), packed_ring: bool| {
        let kept = Kept::new(if packed_ring { PACKED } else { SPLIT });
        prepare(&kept);
        let result = if packed_ring { packed(&guest, &kept, 0).err() } else { split(&guest, &kept).err() };
        assert!(matches!(result, Some(InflightError::Inconsistent(_))), "{result:?}");
    };
    fails(|kept| kept.left_split(100, &[]), false);
    let far = |kept: &Kept| {
        kept.left_split(u16::MAX, &[]);
        kept.write16(12, SIZE);
    };
    fails(far, false);
    fails(|kept| kept.left_packed((SIZE, 1), (0, 1), &[]), true);
    fails(|kept| kept.left_packed((0, 1), (0x7fff, 1), &[]), true);
    fails(|kept| kept.left_packed((0, 1), (0, 1), &[(0, 0, 0)]), true);
    fails(|kept| kept.left_packed((0, 1), (0, 1), &[(0, 0, u16::MAX)]), true);
    fails(|kept| kept.left_packed((0, 1), (0, 1), &[(0, 0, 5), (1, 1, 5)]), true);
}

proptest! {
    /// With any contents of a table and a ring, the result is a device or an error, and the device
    /// works within the ring.
    #[test]
    fn any_table_over_any_ring(
        table in proptest::collection::vec(any::<u8>(), 600),
        ring in proptest::collection::vec(any::<u8>(), 128),
        index in proptest::collection::vec(0_u16..20, 3),
        is_packed: bool,
    ) {
        let guest = GuestRing::new(SIZE);
        let kept = Kept::new(if is_packed { PACKED } else { SPLIT });
        let capacity = usize::try_from(kept.shape.bytes() / 2).unwrap();
        kept.write(0, &table[..capacity.min(table.len())]);
        kept.write16(8, 1);
        kept.write16(if is_packed { 16 } else { 14 }, index[0]);
        if is_packed {
            kept.write16(18, index[1]);
        }
        guest.write(USER - USER, &ring);
        guest.write(AVAIL + 4, &ring[..32]);
        guest.write16(AVAIL + 2, index[1]);
        guest.write16(USED + 2, index[2]);
        if is_packed {
            if let Ok(mut device) = packed(&guest, &kept, 0) {
                let mut found = [First::default(); 4];
                let n = device.find(&mut found).unwrap_or(0);
                found[..n].iter().for_each(|first| device.take(first));
                device.give_back(u16::try_from(n).unwrap());
            }
        } else if let Ok(mut device) = split(&guest, &kept)
            && let Ok(n) = device.available(1)
            && n > 0
            && device.peek(&mut [First::default()]).is_ok()
        {
            device.take(&First::default());
            device.give_back(1);
        }
    }
}

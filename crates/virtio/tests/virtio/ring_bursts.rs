//! The driver halves for bursts, with a device that the test plays: in order, out of order, and
//! hostile.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_virtio::memory::{Area, GuestMemory, Region};
use straightline_virtio::ring::{
    Buffers, Bursts, DeviceFault, Geometry, Moved, NEXT, PackedBursts, RingOptions, SplitBursts, WRITE,
};

const SIZE: u16 = 8;
const CAPACITY: u32 = 2048;

fn memory() -> GuestMemory {
    let file = memfd_create("bursts", MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&file, 0x4000).expect("its size");
    let region = Region::map(file.as_fd(), 0, 0x4000, 0, 0).expect("a region");
    GuestMemory::new(vec![Arc::new(region)]).expect("one region")
}

fn geometry(place: u64) -> Geometry {
    Geometry { size: SIZE, desc: place, avail: place + 0x400, used: place + 0x800 }
}

/// The device of one ring: the available chains that it sees, and the ways in which it uses them.
trait Device {
    type Driver: Bursts;
    fn new(memory: &GuestMemory, place: u64, in_order: bool, buffers: Buffers) -> (Self, Self::Driver)
    where
        Self: Sized;
    /// Takes all available chains: id, address, length, and whether the device writes the buffer.
    fn take(&mut self) -> Vec<(u32, u64, u32, bool)>;
    fn use_up(&mut self, id: u32, len: u32);
    /// Uses the next `n` chains; the last one's element represents all of them.
    fn use_batch(&mut self, n: u32, last: u32);
    fn want_kicks(&mut self, wanted: bool);
}

struct Split {
    desc: Area,
    avail: Area,
    used: Area,
    seen: u16,
    given: u16,
}

fn at(n: impl Into<u32>) -> usize {
    usize::try_from(n.into()).expect("an offset")
}

impl Device for Split {
    type Driver = SplitBursts;

    fn new(memory: &GuestMemory, place: u64, in_order: bool, buffers: Buffers) -> (Self, SplitBursts) {
        let geometry = geometry(place);
        let options = RingOptions { in_order, ..RingOptions::default() };
        let driver = SplitBursts::new(memory, geometry, options, buffers).expect("a ring");
        let area = |at, len| memory.area(at, len, 16).expect("an area");
        let desc = area(geometry.desc, 128);
        let avail = area(geometry.avail, 32);
        let used = area(geometry.used, 128);
        assert_eq!(avail.read_u16(0), 1, "it wants no interrupts");
        (Split { desc, avail, used, seen: 0, given: 0 }, driver)
    }

    fn take(&mut self) -> Vec<(u32, u64, u32, bool)> {
        let mut found = Vec::new();
        while self.seen != self.avail.acquire_u16(2) {
            let id = self.avail.read_u16(at(4 + 2 * (self.seen % SIZE)));
            let flags = self.desc.read_u16(at(16 * id + 12));
            assert_eq!(flags & !WRITE, 0);
            let addr = self.desc.read_u64(at(16 * id));
            let len = self.desc.read_u32(at(16 * id + 8));
            found.push((id.into(), addr, len, flags & WRITE != 0));
            self.seen = self.seen.wrapping_add(1);
        }
        found
    }

    fn use_up(&mut self, id: u32, len: u32) {
        self.used.write_u32(at(4 + 8 * (self.given % SIZE)), id);
        self.used.write_u32(at(8 + 8 * (self.given % SIZE)), len);
        self.given = self.given.wrapping_add(1);
        self.used.release_u16(2, self.given);
    }

    fn use_batch(&mut self, n: u32, last: u32) {
        // One element, with the index of all (2.7.9).
        self.used.write_u32(at(4 + 8 * (self.given % SIZE)), last);
        self.given = self.given.wrapping_add(u16::try_from(n).expect("few"));
        self.used.release_u16(2, self.given);
    }

    fn want_kicks(&mut self, wanted: bool) {
        self.used.write_u16(0, u16::from(!wanted));
    }
}

struct Packed {
    desc: Area,
    device: Area,
    seen: u32,
    given: u32,
}

impl Packed {
    fn flags(position: u32) -> u16 {
        if (position / u32::from(SIZE)).is_multiple_of(2) { 1 << 7 | 1 << 15 } else { 0 }
    }

    /// Uses a chain. `write` is WRITE, or 0 if the device has written nothing.
    fn use_with(&mut self, id: u32, len: u32, write: u16) {
        let place = 16 * (self.given % u32::from(SIZE));
        self.desc.write_u32(at(place + 8), len);
        self.desc.write_u16(at(place + 12), u16::try_from(id).expect("an id"));
        self.desc.release_u16(at(place + 14), Self::flags(self.given) | write);
        self.given += 1;
    }
}

impl Device for Packed {
    type Driver = PackedBursts;

    fn new(memory: &GuestMemory, place: u64, in_order: bool, buffers: Buffers) -> (Self, PackedBursts) {
        let geometry = geometry(place);
        let options = RingOptions { in_order, ..RingOptions::default() };
        let driver = PackedBursts::new(memory, geometry, options, buffers).expect("a ring");
        let area = |at, len| memory.area(at, len, 16).expect("an area");
        assert_eq!(area(geometry.avail, 4).read_u16(2), 1, "it wants no interrupts");
        (Packed { desc: area(geometry.desc, 128), device: area(geometry.used, 4), seen: 0, given: 0 }, driver)
    }

    fn take(&mut self) -> Vec<(u32, u64, u32, bool)> {
        let mut found = Vec::new();
        while found.len() < usize::from(SIZE) {
            let place = 16 * (self.seen % u32::from(SIZE));
            let flags = self.desc.acquire_u16(at(place + 14));
            let available = if Self::flags(self.seen) == 0 { 1 << 15 } else { 1 << 7 };
            if flags & (1 << 7 | 1 << 15) != available {
                break;
            }
            assert_eq!(flags & NEXT, 0);
            let id = self.desc.read_u16(at(place + 12));
            let addr = self.desc.read_u64(at(place));
            let len = self.desc.read_u32(at(place + 8));
            found.push((id.into(), addr, len, flags & WRITE != 0));
            self.seen += 1;
        }
        found
    }

    fn use_up(&mut self, id: u32, len: u32) {
        self.use_with(id, len, WRITE);
    }

    fn use_batch(&mut self, n: u32, last: u32) {
        self.use_with(last, 0, 0);
        self.given += n - 1;
    }

    fn want_kicks(&mut self, wanted: bool) {
        self.device.write_u16(2, u16::from(!wanted));
    }
}

/// A receive ring that is full of the buffers 1000, 2000 ..., an empty transmit ring, and spare
/// buffers.
struct Rig<D: Device> {
    receive: D,
    from: D::Driver,
    /// Buffers of the device for packets to come: id and address.
    given: Vec<(u32, u64)>,
    transmit: D,
    to: D::Driver,
    spare: Vec<u64>,
}

fn rig<D: Device>(in_order: bool) -> Rig<D> {
    let memory = memory();
    let (mut receive, mut from) = D::new(&memory, 0, in_order, Buffers::Receive(CAPACITY));
    let (transmit, to) = D::new(&memory, 0x2000, in_order, Buffers::Transmit);
    assert_eq!(from.fill((1..=100).map(|n| (1000 * n, 0))), usize::from(SIZE), "as many as there are free descriptors");
    let given = receive.take();
    assert!(given.iter().all(|&(_, _, len, write)| len == CAPACITY && write));
    let given: Vec<_> = given.iter().map(|&(id, addr, ..)| (id, addr)).collect();
    assert_eq!(given.iter().map(|g| g.1).collect::<Vec<_>>(), (1..=8).map(|n| 1000 * n).collect::<Vec<_>>());
    Rig { receive, from, given, transmit, to, spare: (1..=8).map(|n| 100_000 * n).collect() }
}

/// Forwards bursts of every size. Every fourth burst is received in reverse, every third given back
/// in reverse.
fn forwards<D: Device>(in_order: bool) {
    let Rig::<D> { mut receive, mut from, mut given, mut transmit, mut to, mut spare } = rig(in_order);
    for round in 0..100_usize {
        let count = 1 + round % usize::from(SIZE);
        let mut came: Vec<_> = given.drain(..count).collect();
        if round % 4 == 3 && !in_order {
            came.reverse();
        }
        let lens: Vec<u32> = (0..count).map(|n| 60 + u32::try_from(7 * round + n).expect("a length")).collect();
        for (&(id, _), &len) in came.iter().zip(&lens) {
            receive.use_up(id, len);
        }
        let mut seen = Vec::new();
        let each = |addr, len| seen.push((addr, len, false));
        let moved = D::Driver::forward_each(&mut from, &mut to, &mut spare, 64, each).expect("a sound device");
        let bytes = lens.iter().copied().map(u64::from).sum();
        assert_eq!(moved, Moved { packets: count, bytes, longest: lens.iter().copied().max().unwrap_or(0) });
        let sent = transmit.take();
        let expected: Vec<_> = came.iter().zip(&lens).map(|(c, &len)| (c.1, len, false)).collect();
        assert_eq!(sent.iter().map(|s| (s.1, s.2, s.3)).collect::<Vec<_>>(), expected, "round {round}");
        assert_eq!(seen, expected, "round {round}");
        let refilled = receive.take();
        assert!(refilled.len() == count && refilled.iter().all(|r| r.2 == CAPACITY && r.3));
        given.extend(refilled.iter().map(|r| (r.0, r.1)));
        let mut ids: Vec<u32> = sent.iter().map(|s| s.0).collect();
        if round % 3 == 2 && !in_order {
            ids.reverse();
        }
        if in_order {
            transmit.use_batch(u32::try_from(count).expect("few"), ids[count - 1]);
        } else {
            ids.iter().for_each(|&id| transmit.use_up(id, 77));
        }
        assert_eq!(to.out(), count);
        assert_eq!(to.reclaim(&mut spare).expect("a sound device"), count);
        assert_eq!((to.out(), from.out(), spare.len()), (0, usize::from(SIZE), 8));
    }
    let mut all: Vec<u64> = spare.iter().copied().chain(given.iter().map(|g| g.1)).collect();
    all.sort_unstable();
    let expected: Vec<u64> = (1..=8).map(|n| 1000 * n).chain((1..=8).map(|n| 100_000 * n)).collect();
    assert_eq!(all, expected, "no buffer is lost, none is there twice");
}

/// Free descriptors of the transmit ring, spare buffers and the requested number each limit a
/// burst; the rest waits.
fn is_bounded<D: Device>() {
    let Rig::<D> { mut receive, mut from, given, mut transmit, mut to, mut spare } = rig(false);
    given.iter().for_each(|&(id, _)| receive.use_up(id, 100));
    let forward = |from: &mut D::Driver, to: &mut D::Driver, spare: &mut Vec<u64>, most| {
        D::Driver::forward(from, to, spare, most).expect("a sound device").packets
    };
    assert_eq!(forward(&mut from, &mut to, &mut spare, 2), 2);
    let mut two = spare.split_off(spare.len() - 2);
    assert_eq!(forward(&mut from, &mut to, &mut two, 64), 2);
    assert_eq!((to.fill([(1, 1), (2, 2)]), transmit.take().len()), (2, 6));
    assert_eq!(forward(&mut from, &mut to, &mut spare, 64), 2, "two places were free");
    assert_eq!(forward(&mut from, &mut to, &mut spare, 64), 0);
    let mut left = Vec::new();
    assert_eq!(from.collect(usize::MAX, |addr, len| left.push((addr, len))).expect("a sound device"), 2);
    assert_eq!(left, [(7000, 100), (8000, 100)]);
    assert_eq!(from.out(), 6);
}

/// Received packets are dropped, sent packets are sent again.
fn recycles<D: Device>(in_order: bool) {
    let Rig::<D> { mut receive, mut from, mut given, mut transmit, mut to, .. } = rig(in_order);
    assert_eq!(to.fill((1..=8).map(|n| (n << 20, 60 + u32::try_from(n).expect("small")))), 8);
    let mut sent = transmit.take();
    for round in 0..50_usize {
        let count = 1 + round % usize::from(SIZE);
        let came: Vec<_> = given.drain(..count).collect();
        came.iter().for_each(|&(id, _)| receive.use_up(id, 100));
        let mut seen = Vec::new();
        let mut each = |addr, len| seen.push((addr, len));
        // Every other round uses the call that does not show the packets.
        let moved = if round % 2 == 0 { from.recycle_each(64, &mut each) } else { from.recycle(64) };
        let moved = moved.expect("a sound device");
        assert_eq!((moved.packets, moved.bytes), (count, 100 * u64::try_from(count).expect("few")));
        let again: Vec<_> = receive.take().iter().map(|r| (r.0, r.1)).collect();
        assert_eq!(again, came);
        given.extend(again);
        let done: Vec<_> = sent.drain(..count).collect();
        if in_order {
            transmit.use_batch(u32::try_from(count).expect("few"), done[count - 1].0);
        } else {
            done.iter().for_each(|d| transmit.use_up(d.0, 0));
        }
        let mut resent = Vec::new();
        let mut each = |addr, len| resent.push((addr, len));
        let moved = if round % 2 == 0 { to.recycle_each(64, &mut each) } else { to.recycle(64) };
        assert_eq!(moved.expect("a sound device").packets, count);
        if round % 2 == 0 {
            assert_eq!(seen, came.iter().map(|c| (c.1, 100)).collect::<Vec<_>>(), "round {round}");
            assert_eq!(resent, done.iter().map(|d| (d.1, d.2)).collect::<Vec<_>>(), "round {round}");
        }
        let again = transmit.take();
        assert_eq!(again, done, "round {round}");
        sent.extend(again);
    }
}

fn tells_when_to_kick<D: Device>() {
    let Rig::<D> { mut receive, mut from, given, .. } = rig(false);
    receive.want_kicks(false);
    assert!(!from.kick_due());
    receive.want_kicks(true);
    assert!(from.kick_due(), "what was made available before is not forgotten");
    assert!(!from.kick_due(), "once");
    receive.use_up(given[0].0, 60);
    assert_eq!(from.recycle(64).expect("a sound device").packets, 1);
    assert!(from.kick_due());
}

/// A hostile device: each impossible report is an error, and nothing of that burst is sent.
fn refuses<D: Device>() {
    for (id, len) in [(8, 60), (65_535, 60), (1, 2049), (1, u32::MAX)] {
        let Rig::<D> { mut receive, mut from, mut transmit, mut to, mut spare, .. } = rig(false);
        receive.use_up(0, 60);
        receive.use_up(id, len);
        let error = D::Driver::forward(&mut from, &mut to, &mut spare, 64).expect_err("a hostile device");
        let wrong_len = DeviceFault::Length { id: 1, bytes: len, capacity: CAPACITY };
        assert_eq!(error, if id == 1 { wrong_len } else { DeviceFault::Id(id) });
        assert_eq!(transmit.take(), []);
    }
    // The same chain twice.
    let Rig::<D> { mut receive, mut from, mut to, mut spare, .. } = rig(false);
    receive.use_up(3, 60);
    receive.use_up(3, 60);
    let error = D::Driver::forward(&mut from, &mut to, &mut spare, 64).expect_err("a hostile device");
    assert_eq!(error, DeviceFault::Id(3));
    // With in-order use, the device returns a chain that is not the next one.
    let Rig::<D> { mut receive, mut from, .. } = rig(true);
    receive.use_up(1, 60);
    assert_eq!(from.recycle(64).expect_err("a hostile device"), DeviceFault::Id(1));
}

#[test]
fn split_rings_forward() {
    forwards::<Split>(false);
    forwards::<Split>(true);
}

// Cites packed-2.8.1-4, packed-2.8.1-5, packed-2.8.3-1, packed-2.8.8-1, packed-2.8.8-2.
// Cites packed-2.8.13-1.
#[test]
fn packed_rings_forward() {
    forwards::<Packed>(false);
    forwards::<Packed>(true);
}

// Cites packed-2.8-4.
#[test]
fn room_bounds_a_burst() {
    is_bounded::<Split>();
    is_bounded::<Packed>();
}

#[test]
fn rings_give_the_same_again() {
    recycles::<Split>(false);
    recycles::<Split>(true);
    recycles::<Packed>(false);
    recycles::<Packed>(true);
}

#[test]
fn a_receive_descriptor_is_written_only_for_another_buffer() {
    let Rig::<Split> { mut receive, mut from, given, .. } = rig(false);
    let first = given[0];
    let second = given[1];
    // The driver half gets the same buffer for the first descriptor, and another one for the second.
    for (id, _) in [first, second] {
        receive.use_up(id, 100);
        receive.desc.write_u32(at(16 * id), 4711);
    }
    let mut came = Vec::new();
    assert_eq!(from.collect(64, |addr, _| came.push(addr)), Ok(2));
    assert_eq!(came, [first.1, second.1]);
    assert_eq!(from.fill([(first.1, 0), (500_000, 0)]), 2);
    let again: Vec<_> = receive.take().iter().map(|r| (r.0, r.1)).collect();
    assert_eq!(again, [(first.0, 4711), (second.0, 500_000)]);
    // The next round compares with the latest buffers.
    again.iter().for_each(|&(id, _)| receive.use_up(id, 100));
    assert_eq!(from.collect(64, |addr, _| came.push(addr)), Ok(2));
    assert_eq!(came[2..], [first.1, 500_000]);
    for (id, _) in given[2..].iter().copied() {
        receive.use_up(id, 100);
    }
    assert_eq!(from.collect(64, |_, _| {}), Ok(6));
    assert_eq!(from.fill((1..=8).map(|n| (10_000 * n, 0))), 8);
    let other: Vec<_> = receive.take().iter().map(|r| (r.1, r.2, r.3)).collect();
    assert_eq!(other, (1..=8).map(|n| (10_000 * n, CAPACITY, true)).collect::<Vec<_>>());
}

// Cites packed-2.8.4-1, packed-2.8.4-2.
#[test]
fn a_length_counts_only_where_the_device_has_written() {
    let Rig::<Packed> { mut receive, mut from, given, mut transmit, mut to, mut spare } = rig(false);
    let moved = |bytes, longest| Moved { packets: 2, bytes, longest };
    // The second time around, both wrap counters are 0.
    for _ in 0..2 {
        receive.use_with(given[0].0, 100, 0);
        receive.use_with(given[1].0, 60, WRITE);
        let mut seen = Vec::new();
        let done = from.recycle_each(64, |_, len| seen.push(len)).expect("a sound device");
        assert_eq!((done, seen), (moved(60, 60), vec![0, 60]));
        receive.use_with(given[2].0, 70, WRITE);
        // No buffer is as long, but the length means nothing.
        receive.use_with(given[3].0, u32::MAX, 0);
        let done = PackedBursts::forward(&mut from, &mut to, &mut spare, 64).expect("a sound device");
        assert_eq!(done, moved(70, 70));
        let sent: Vec<_> = transmit.take().iter().map(|&(id, _, len, _)| (id, len)).collect();
        assert_eq!(sent.iter().map(|s| s.1).collect::<Vec<_>>(), [70, 0]);
        sent.iter().for_each(|s| transmit.use_with(s.0, u32::MAX, 0));
        assert_eq!(to.reclaim(&mut spare).expect("a sound device"), 2);
        for &(id, _) in &given[4..] {
            receive.use_with(id, 100, 0);
        }
        let done = from.recycle(64).expect("a sound device");
        assert_eq!(done, Moved { packets: 4, bytes: 0, longest: 0 });
    }
    receive.use_with(given[0].0, 100, 0);
    let mut seen = Vec::new();
    assert_eq!(from.collect(64, |_, len| seen.push(len)).expect("a sound device"), 1);
    assert_eq!(seen, [0]);
}

// Cites packed-2.8.10-1.
#[test]
fn kicks_are_due_where_they_are_wanted() {
    tells_when_to_kick::<Split>();
    tells_when_to_kick::<Packed>();
}

#[test]
fn hostile_devices_are_errors() {
    refuses::<Split>();
    refuses::<Packed>();
    // A used index beyond the available one; an element in order that is not outstanding.
    let Rig::<Split> { receive, mut from, .. } = rig(false);
    receive.used.write_u16(2, 9);
    assert_eq!(from.recycle(64).expect_err("a hostile device"), DeviceFault::IndexJump { ahead: 9, published: 8 });
    let Rig::<Packed> { mut transmit, mut to, mut spare, .. } = rig(true);
    assert_eq!(to.fill([(1, 1), (2, 2)]), 2);
    transmit.use_up(5, 0);
    assert_eq!(to.reclaim(&mut spare).expect_err("a hostile device"), DeviceFault::Id(5));
}

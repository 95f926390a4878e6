//! A device half that is killed at any step of giving buffers back, and its successor. No buffer is
//! lost, and each returns once. Sent packets are delivered. A received packet is complete or
//! absent.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use proptest::prelude::*;
use straightline_packet::Level;
use straightline_testing::guest_ring::{BUFFERS, GuestRing, USED};
use straightline_virtio::fail;
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::{
    Device, DeviceFault, Direction, First, PackedDevice, PackedDriver, RingOptions, SplitDevice, SplitDriver,
};

/// Bytes for the buffers of one chain.
const SLOT: u64 = 4096;

#[derive(Clone, Debug)]
enum Op {
    /// The driver makes chains of buffers of these lengths visible to the device at once.
    Offer(Vec<Vec<u32>>),
    /// In a receive ring, packets of these lengths arrive. In a transmit ring, the device takes as
    /// many chains. It gives back the oldest first, and the rest later.
    Burst(Vec<usize>, u16),
    Reap,
}

/// The payload with which a killed device half unwinds.
struct Killed;

/// A driver half of either layout.
enum Driver {
    Split(SplitDriver),
    Packed(PackedDriver),
}

impl Driver {
    fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16> {
        match self {
            Driver::Split(driver) => driver.add(buffers),
            Driver::Packed(driver) => driver.add(buffers),
        }
    }

    fn publish(&mut self) {
        match self {
            Driver::Split(driver) => driver.publish(),
            Driver::Packed(driver) => driver.publish(),
        }
    }

    fn used(&mut self) -> Option<Result<(u16, u32), DeviceFault>> {
        match self {
            Driver::Split(driver) => driver.used(),
            Driver::Packed(driver) => driver.used(),
        }
    }

    fn free(&self) -> u16 {
        match self {
            Driver::Split(driver) => driver.free(),
            Driver::Packed(driver) => driver.free(),
        }
    }
}

struct Chain {
    slot: u64,
    buffers: Vec<(u64, u32)>,
}

/// Numbers of packets, and the outcome of each packet.
#[derive(Default)]
struct Packets {
    next: u32,
    lens: Vec<usize>,
    /// The packets of a transmit ring as the device delivered them, or of a receive ring as the
    /// driver found them.
    seen: Vec<u32>,
    /// Packets of bursts that were killed.
    endangered: Vec<u32>,
    empty: usize,
}

struct World {
    guest: GuestRing,
    driver: Driver,
    device: Option<Box<dyn Device>>,
    options: RingOptions,
    direction: Direction,
    out: BTreeMap<u16, Chain>,
    slots: Vec<u64>,
    packets: Packets,
    hits: Rc<Cell<usize>>,
    kills: Vec<usize>,
    base_is_known: bool,
}

fn pattern(number: u32, at: usize) -> u8 {
    match at {
        0..4 => number.to_le_bytes()[at],
        _ => u8::try_from((number as usize * 31 + at * 7) % 251).expect("less than 251"),
    }
}

impl World {
    fn new(
        size: u16,
        packed: bool,
        options: RingOptions,
        direction: Direction,
        kills: Vec<usize>,
        base_is_known: bool,
    ) -> Self {
        let guest = GuestRing::new(size);
        let driver = if packed {
            let driver = PackedDriver::new(&guest.ours, guest.geometry(), options).expect("in memory");
            Driver::Packed(driver.with_tables(&guest.ours, guest.tables()).expect("in memory"))
        } else {
            Driver::Split(guest.driver(options))
        };
        let mut world = World {
            guest,
            driver,
            device: None,
            options,
            direction,
            out: BTreeMap::new(),
            slots: (0..u64::from(size)).map(|slot| BUFFERS + slot * SLOT).collect(),
            packets: Packets::default(),
            hits: Rc::default(),
            kills,
            base_is_known,
        };
        world.recover();
        world
    }

    /// Runs an operation of a device half; `None` if the half was killed.
    fn run<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> Option<R> {
        let hits = Rc::clone(&self.hits);
        let kills = self.kills.clone();
        let handler = move |_: &str| {
            hits.set(hits.get() + 1);
            if kills.contains(&hits.get()) {
                resume_unwind(Box::new(Killed));
            }
        };
        match catch_unwind(AssertUnwindSafe(|| fail::with(handler, || f(self)))) {
            Ok(result) => Some(result),
            Err(why) if why.is::<Killed>() => None,
            Err(why) => resume_unwind(why as Box<dyn Any + Send>),
        }
    }

    /// Creates a device half without knowledge of its predecessor. For a split ring it gets the
    /// used index. For a packed ring it gets the position that the driver sees as used, or none.
    fn recover(&mut self) {
        let made = |world: &mut Self| -> Box<dyn Device> {
            let memory = &world.guest.ours;
            let geometry = world.guest.geometry();
            match &world.driver {
                Driver::Split(_) => {
                    let base = world.guest.read16(USED + 2);
                    Box::new(SplitDevice::new(memory, geometry, base, world.options).expect("in memory"))
                }
                Driver::Packed(driver) => {
                    let base = if world.base_is_known { driver.base() } else { 0 };
                    let device = PackedDevice::recover(memory, geometry, base, world.options, world.direction, None);
                    Box::new(device.expect("in memory"))
                }
            }
        };
        self.device = None;
        while self.device.is_none() {
            // Recovery publishes as well. The device half may be killed meanwhile.
            self.device = self.run(made);
        }
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Offer(chains) => self.offer(chains),
            Op::Burst(lens, first) => {
                let killed = match self.direction {
                    Direction::FromGuest => self.run(|w| w.deliver(lens.len(), *first)).is_none(),
                    Direction::ToGuest => {
                        let before = self.packets.next;
                        let killed = self.run(|w| w.fill(lens, *first)).is_none();
                        if killed {
                            self.packets.endangered.extend(before..self.packets.next);
                        }
                        killed
                    }
                    Direction::Command => unreachable!("commands are carried out without a burst"),
                };
                if killed {
                    self.recover();
                }
            }
            Op::Reap => self.reap(),
        }
    }

    fn offer(&mut self, chains: &[Vec<u32>]) {
        for lens in chains {
            let Some(slot) = self.slots.last().copied() else { break };
            let mut addr = slot;
            let write = self.direction == Direction::ToGuest;
            let mut buffers = Vec::new();
            for &len in lens {
                buffers.push((addr, len));
                addr += u64::from(len);
            }
            let offered: Vec<_> = buffers.iter().map(|&(addr, len)| (addr, len, write)).collect();
            let Some(id) = self.driver.add(&offered) else { break };
            self.slots.pop();
            if !write {
                self.guest.write(slot, &self.packets.next.to_le_bytes());
                self.packets.next += 1;
            }
            assert!(self.out.insert(id, Chain { slot, buffers }).is_none());
        }
        self.driver.publish();
    }

    /// Runs a burst of a transmit ring. All packets of the burst are sent before any chain is given
    /// back.
    fn deliver(&mut self, n: usize, first: u16) {
        let device = self.device.as_mut().expect("alive");
        let mut firsts = vec![First::default(); n];
        let found = device.find(&mut firsts).expect("a good driver");
        for first in &firsts[..found] {
            device.take(first);
            let number = self.guest.turn(|turn, memory| {
                let mark = turn.mark();
                device.chain(memory, turn, first, Direction::FromGuest).expect("a good chain");
                let mut number = [0; 4];
                turn.staged(mark)[0].read(Level::Scalar, &mut number);
                u32::from_le_bytes(number)
            });
            self.packets.seen.push(number);
        }
        device.give_back(first.min(device.outstanding()));
        device.give_back(device.outstanding());
    }

    /// Runs a receive ring's burst, with as many buffers as each packet needs.
    fn fill(&mut self, lens: &[usize], first: u16) {
        let device = self.device.as_mut().expect("alive");
        let mut merged = false;
        for &len in lens {
            let number = self.packets.next;
            let mut bytes: Vec<_> = std::iter::repeat_n(0, LEN).chain((0..len).map(|at| pattern(number, at))).collect();
            let mut firsts = Vec::new();
            let mut capacity = Vec::new();
            while capacity.iter().sum::<usize>() < bytes.len() {
                let mut one = [First::default()];
                if device.find(&mut one).expect("a good driver") == 0 {
                    break;
                }
                device.take(&one[0]);
                let (at, got) =
                    (capacity.iter().sum::<usize>(), self.out[&one[0].head].buffers.iter().map(|b| b.1).sum::<u32>());
                device.written(got.min(u32::try_from(bytes.len() - at).expect("small")));
                firsts.push(one[0].head);
                capacity.push(got as usize);
            }
            let count = u16::try_from(firsts.len()).expect("small");
            if capacity.iter().sum::<usize>() < bytes.len() {
                device.untake(count);
                break;
            }
            bytes[..LEN].copy_from_slice(&NetHeader { num_buffers: count, ..NetHeader::default() }.to_bytes());
            merged |= count > 1;
            let mut rest = &bytes[..];
            for &(addr, len) in firsts.iter().flat_map(|head| &self.out[head].buffers) {
                let (part, behind) = rest.split_at(rest.len().min(len as usize));
                self.guest.write(addr, part);
                rest = behind;
            }
            self.packets.next += 1;
            self.packets.lens.push(len);
        }
        // A packet becomes visible as a whole.
        device.give_back(if merged { 0 } else { first.min(device.outstanding()) });
        device.give_back(device.outstanding());
    }

    fn reap(&mut self) {
        while let Some((chain, bytes)) = self.next_used() {
            if self.direction == Direction::FromGuest {
                continue;
            }
            let mut header = [0; LEN];
            let mut got = self.contents(&chain, bytes);
            assert!(got.len() >= LEN, "a buffer without a header");
            header.copy_from_slice(&got[..LEN]);
            let header = NetHeader::parse(&header);
            if got.len() == LEN {
                assert_eq!(header, NetHeader { num_buffers: 1, ..NetHeader::default() });
                self.packets.empty += 1;
                continue;
            }
            for _ in 1..header.num_buffers {
                let (chain, bytes) = self.next_used().expect("a packet is visible whole");
                got.extend(self.contents(&chain, bytes));
            }
            let number = u32::from_le_bytes(got[LEN..LEN + 4].try_into().expect("four bytes"));
            let len = self.packets.lens[number as usize];
            assert_eq!(got.len(), LEN + len, "packet {number}");
            assert!(got[LEN..].iter().enumerate().all(|(at, &byte)| byte == pattern(number, at)), "packet {number}");
            self.packets.seen.push(number);
        }
    }

    fn next_used(&mut self) -> Option<(Chain, u32)> {
        let (id, bytes) = self.driver.used()?.expect("an outstanding id");
        let chain = self.out.remove(&id).expect("given back once");
        self.slots.push(chain.slot);
        Some((chain, bytes))
    }

    fn contents(&self, chain: &Chain, bytes: u32) -> Vec<u8> {
        let mut contents = vec![0; bytes as usize];
        self.guest.ours.segment(chain.slot, bytes, &mut 0).expect("in memory").read(Level::Scalar, &mut contents);
        contents
    }

    /// Uses up everything in the ring; then nothing may be missing.
    fn end(mut self, size: u16) {
        self.kills.clear();
        loop {
            self.reap();
            if self.out.is_empty() {
                break;
            }
            let before = self.driver.free();
            self.step(&Op::Burst(vec![4], 0));
            self.reap();
            assert!(self.driver.free() > before, "a buffer is lost");
        }
        assert_eq!(self.driver.free(), size);
        let seen = &self.packets.seen;
        let mut once = seen.clone();
        once.sort_unstable();
        once.dedup();
        match self.direction {
            Direction::FromGuest => assert!((0..self.packets.next).eq(once), "a packet is lost"),
            Direction::ToGuest => {
                assert_eq!(&once, seen, "a packet came twice, or late");
                let lost = (0..self.packets.next).filter(|n| !seen.contains(n));
                assert!(lost.into_iter().all(|n| self.packets.endangered.contains(&n)), "a packet is lost");
                assert!(self.packets.empty == 0 || !self.packets.endangered.is_empty());
            }
            Direction::Command => unreachable!("commands are carried out without a burst"),
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let chain = prop::collection::vec(prop_oneof![Just(64_u32), 12..100_u32], 1..=4);
    let chain = chain.prop_map(|mut lens| {
        // Space for the header, and for the number behind it.
        lens[0] = lens[0].max(16);
        lens
    });
    let lens = prop_oneof![2 => 4..50_usize, 1 => 4..400_usize];
    prop_oneof![
        3 => prop::collection::vec(chain, 1..6).prop_map(Op::Offer),
        3 => (prop::collection::vec(lens, 1..6), 0..4_u16).prop_map(|(lens, first)| Op::Burst(lens, first)),
        2 => Just(Op::Reap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // Cites packed-2.8.9-1, packed-2.8.12-3.
    #[test]
    fn killed_at_every_step(
        size in prop::sample::select(vec![2_u16, 4, 8, 16, 3, 5, 7]), packed: bool, indirect: bool, in_order: bool, to_guest: bool, base_is_known: bool,
        ops in prop::collection::vec(op(), 1..30), again in 1..12_usize,
    ) {
        let packed = packed || !size.is_power_of_two();
        let direction = if to_guest { Direction::ToGuest } else { Direction::FromGuest };
        let options = RingOptions { event_idx: false, indirect, in_order };
        let run = |kills: Vec<usize>| {
            let mut world = World::new(size, packed, options, direction, kills, base_is_known);
            for op in &ops {
                world.step(op);
            }
            let hits = world.hits.get();
            world.end(size);
            hits
        };
        // The first run has no kill and counts the steps. Each later run kills the device half at
        // one step, and its successor `again` steps later.
        for step in 1..=run(Vec::new()) {
            run(vec![step, step + again]);
        }
    }
}

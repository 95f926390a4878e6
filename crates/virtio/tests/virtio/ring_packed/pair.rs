//! Both halves of a ring against each other and against a model.

use std::collections::VecDeque;

use proptest::prelude::*;
use straightline_testing::guest_ring::{BUFFERS, END, GuestRing, events};
use straightline_virtio::ring::{Device, Direction, First, INDIRECT, PackedDevice, PackedDriver, RingOptions};

use super::common::{DEVICE_SUPPRESSION, DRIVER_SUPPRESSION, START, any_driver, bits, device, is_notified, recovered};

const SIZES: [u16; 7] = [1, 2, 3, 5, 8, 255, 256];

#[derive(Clone, Debug)]
enum Op {
    /// A chain of buffers of these lengths.
    Add(Vec<u32>),
    /// A chain of as many buffers as descriptors are free.
    Fill,
    Publish,
    Take(usize),
    Untake(u16),
    GiveBack(u16),
    Reap(usize),
    MustKick,
    MustNotify,
    /// The number of descriptors beyond which the device asks for a kick, at most those that it
    /// knows.
    DeviceArm(u64),
    DeviceDisarm,
    DriverWants(bool),
    /// A new device half replaces the old one: with its position, or after the old one was lost.
    Successor(bool),
}

#[derive(Debug)]
struct Chain {
    id: u16,
    buffers: Vec<(u64, u32)>,
    span: u64,
    written: u32,
}

/// Progress of both sides, as numbers of descriptors since the ring began.
#[derive(Default)]
struct Positions {
    published: u64,
    kicked: u64,
    given: u64,
    notified: Option<u64>,
}

struct Pair {
    guest: GuestRing,
    device: PackedDevice,
    driver: PackedDriver,
    options: RingOptions,
    direction: Direction,
    /// A chain is in one of these queues, and goes through them in this order.
    added: VecDeque<Chain>,
    published: VecDeque<Chain>,
    taken: VecDeque<Chain>,
    used: VecDeque<Chain>,
    at: Positions,
    /// The device sleeps until there are more than this many.
    device_sleeps: Option<u64>,
    driver_sleeps: bool,
    addr: u64,
}

fn span<'c>(chains: impl IntoIterator<Item = &'c Chain>) -> u64 {
    chains.into_iter().map(|chain| chain.span).sum()
}

impl Pair {
    fn new(size: u16, options: RingOptions, direction: Direction) -> Self {
        let guest = GuestRing::new(size);
        Pair {
            device: device(&guest, START, options.event_idx, options.indirect),
            driver: any_driver(&guest, options),
            guest,
            options,
            direction,
            added: VecDeque::new(),
            published: VecDeque::new(),
            taken: VecDeque::new(),
            used: VecDeque::new(),
            at: Positions::default(),
            device_sleeps: None,
            driver_sleeps: false,
            addr: BUFFERS,
        }
    }

    fn out(&self) -> impl Iterator<Item = &Chain> {
        self.added.iter().chain(&self.published).chain(&self.taken).chain(&self.used)
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Add(lens) => self.add(lens),
            Op::Fill => self.add(&vec![16; self.driver.free().into()]),
            Op::Publish => {
                self.driver.publish();
                self.publish();
            }
            Op::Take(n) => self.take(*n),
            Op::Untake(n) => {
                let n = (*n).min(self.device.outstanding());
                self.device.untake(n);
                for _ in 0..n {
                    self.device_sleeps = None;
                    let mut chain = self.taken.pop_back().expect("as many as the device has");
                    chain.written = 0;
                    self.published.push_front(chain);
                }
            }
            Op::GiveBack(n) => {
                let n = (*n).min(self.device.outstanding());
                self.device.give_back(n);
                self.at.given += span(self.taken.range(..usize::from(n)));
                self.used.extend(self.taken.drain(..usize::from(n)));
            }
            Op::Reap(n) => self.reap(*n),
            Op::MustKick => self.must_kick(),
            Op::MustNotify => self.must_notify(),
            Op::DeviceArm(beyond) => {
                // The number counts descriptors, in any number of chains.
                let there = span(&self.published);
                let beyond = *beyond.min(&there);
                let more = self.device.arm(u16::try_from(beyond).expect("a ring's")).expect("a well-behaved driver");
                assert_eq!(more, there > beyond);
                self.device_sleeps = (!more).then_some(beyond);
            }
            Op::DeviceDisarm => {
                self.device.disarm();
                self.device_sleeps = None;
            }
            Op::DriverWants(wanted) => {
                let more = self.driver.want_interrupt(*wanted);
                assert_eq!(more, !self.used.is_empty());
                self.driver_sleeps = *wanted && !more;
            }
            Op::Successor(true) => {
                if self.taken.is_empty() {
                    self.device =
                        device(&self.guest, self.device.base(), self.options.event_idx, self.options.indirect);
                    self.at.notified = None;
                }
            }
            Op::Successor(false) => {
                // A chain of the whole ring whose head is missing looks like an interrupted burst.
                if span(&self.added) == u64::from(self.guest.size) {
                    return;
                }
                self.device = recovered(&self.guest, self.options.event_idx, self.direction);
                self.at.notified = None;
                self.device_sleeps = None;
                for mut chain in self.taken.drain(..).rev() {
                    chain.written = 0;
                    self.published.push_front(chain);
                }
            }
        }
        self.check();
    }

    fn publish(&mut self) {
        self.at.published += span(&self.added);
        self.published.append(&mut self.added);
    }

    fn check(&mut self) {
        let size = self.guest.size;
        assert_eq!(usize::from(self.device.outstanding()), self.taken.len());
        assert_eq!(u64::from(self.driver.free()), u64::from(size) - span(self.out()));
        let [low, high] = [self.at.published - span(&self.published), self.at.given].map(|p| u32::from(bits(p, size)));
        assert_eq!(self.device.base(), low | high << 16);
        assert!(u64::from(self.device.known()) <= span(&self.published));
        assert_eq!(self.device.is_all_taken(), span(&self.taken) == u64::from(size));
    }

    fn add(&mut self, lens: &[u32]) {
        let write = self.direction == Direction::ToGuest;
        let mut buffers = Vec::new();
        for &len in lens {
            if self.addr + u64::from(len) > END {
                self.addr = BUFFERS;
            }
            buffers.push((self.addr, len));
            self.addr += u64::from(len);
        }
        let given: Vec<_> = buffers.iter().map(|&(addr, len)| (addr, len, write)).collect();
        let taken = u64::from(self.guest.span(lens.len(), self.options));
        let fits = !lens.is_empty() && taken <= u64::from(self.guest.size) - span(self.out());
        let id = self.driver.add(&given);
        assert_eq!(id.is_some(), fits);
        if fits && !self.added.is_empty() && span(&self.added) + taken == u64::from(self.guest.size) {
            // The whole ring is never published at once.
            self.publish();
        }
        if let Some(id) = id {
            assert!(
                id < self.guest.size && self.out().all(|chain| chain.id != id),
                "an id that is outstanding already"
            );
            self.added.push_back(Chain { id, buffers, span: taken, written: 0 });
        }
    }

    fn take(&mut self, n: usize) {
        // One chain more is looked for than is taken: a caller need not take all chains.
        let mut firsts = vec![First::default(); n + 1];
        let found = self.device.find(&mut firsts).expect("a well-behaved driver");
        assert_eq!(found, self.published.len().min(n + 1));
        for (i, first) in firsts[..found.min(n)].iter().enumerate() {
            let mut chain = self.published.pop_front().expect("counted");
            assert_eq!(first.head, chain.id);
            self.device.take(first);
            // A side that takes is awake, no matter what woke it.
            self.device_sleeps = None;
            self.follow(first, &chain);
            // 0 is included: then the used descriptor has no WRITE flag.
            let bytes = u32::try_from(i).expect("small") * 100;
            let capacity = chain.buffers.iter().map(|b| b.1).sum();
            let bytes = if self.direction == Direction::ToGuest { bytes.min(capacity) } else { bytes };
            // A length written into a chain that is only read has no meaning.
            chain.written = if self.direction == Direction::ToGuest { bytes } else { 0 };
            self.device.written(bytes);
            self.taken.push_back(chain);
        }
        let left = self.published.range(..found - found.min(n));
        assert_eq!(u64::from(self.device.known()), span(left), "what was looked at and not taken");
    }

    fn follow(&mut self, first: &First, chain: &Chain) {
        let device = &mut self.device;
        let direction = self.direction;
        self.guest.turn(|turn, memory| {
            let mark = turn.mark();
            let got = device.chain(memory, turn, first, direction).expect("a good chain");
            assert_eq!(got.len, chain.buffers.iter().map(|b| b.1).sum::<u32>());
            let expected = chain.buffers.iter().filter(|b| b.1 > 0);
            let expected: Vec<_> = expected
                .map(|&(addr, len)| (memory.segment(addr, 1, &mut 0).expect("in memory").address(), len))
                .collect();
            let staged: Vec<_> = turn.staged(mark).iter().map(|s| (s.address(), s.len())).collect();
            assert_eq!(staged, expected);
            let single = device.single(memory, first, direction);
            assert_eq!(single.map(|s| s.len()), (chain.buffers.len() == 1).then(|| chain.buffers[0].1));
            // With the wrong direction, the chain is refused.
            let reverse = if direction == Direction::ToGuest { Direction::FromGuest } else { Direction::ToGuest };
            // Exception: in a table of buffers that a guest sends, WRITE is ignored.
            if reverse == Direction::ToGuest || first.desc.flags & INDIRECT == 0 {
                assert!(device.chain(memory, turn, first, reverse).is_err());
                assert_eq!(turn.mark(), mark + expected.len(), "a fault stages nothing");
            }
            assert!(device.single(memory, first, reverse).is_none());
        });
    }

    fn reap(&mut self, n: usize) {
        for _ in 0..n {
            let Some(used) = self.driver.used() else {
                assert!(self.used.is_empty());
                return;
            };
            let chain = self.used.pop_front().expect("the model has as many");
            assert_eq!(used, Ok((chain.id, chain.written)));
            self.driver_sleeps = false;
        }
    }

    fn must_kick(&mut self) {
        let new = self.at.published;
        let expected = is_notified(&self.guest, DEVICE_SUPPRESSION, self.options.event_idx, self.at.kicked, new);
        let kick = self.driver.must_kick();
        assert_eq!(kick, expected);
        let there = span(&self.published);
        let is_due = self.device_sleeps.is_some_and(|beyond| there > beyond);
        assert!(kick || !is_due, "the device sleeps, and is not woken");
        if kick {
            self.device_sleeps = None;
        }
        self.at.kicked = new;
    }

    fn must_notify(&mut self) {
        let new = self.at.given;
        let expected = match self.at.notified {
            Some(old) => is_notified(&self.guest, DRIVER_SUPPRESSION, self.options.event_idx, old, new),
            // The last decision is not known, so the driver is notified unless it polls.
            None => self.guest.read16(DRIVER_SUPPRESSION + 2) != 1,
        };
        let notify = self.device.must_notify();
        assert_eq!(notify, expected);
        assert!(notify || !self.driver_sleeps || self.used.is_empty(), "the driver sleeps, and is not woken");
        if notify {
            self.driver_sleeps = false;
        }
        self.at.notified = Some(new);
    }
}

fn op(size: u16) -> impl Strategy<Value = Op> {
    let len = prop_oneof![Just(0_u32), 1..2000_u32];
    let few = 0..=usize::from(size).min(40);
    prop_oneof![
        4 => prop::collection::vec(len, 0..=usize::from(size).min(5) + 1).prop_map(Op::Add),
        1 => Just(Op::Fill),
        3 => Just(Op::Publish),
        3 => few.clone().prop_map(Op::Take),
        1 => (0..5_u16).prop_map(Op::Untake),
        3 => (0..20_u16).prop_map(Op::GiveBack),
        3 => few.prop_map(Op::Reap),
        2 => Just(Op::MustKick),
        2 => Just(Op::MustNotify),
        1 => prop_oneof![Just(0), 0..300_u64].prop_map(Op::DeviceArm),
        1 => Just(Op::DeviceDisarm),
        1 => any::<bool>().prop_map(Op::DriverWants),
        2 => any::<bool>().prop_map(Op::Successor),
    ]
}

fn ops() -> impl Strategy<Value = (u16, Vec<Op>)> {
    prop::sample::select(SIZES.to_vec()).prop_flat_map(|size| (Just(size), prop::collection::vec(op(size), 1..250)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // Cites packed-2.8-3, packed-2.8-4, packed-2.8.3-1, packed-2.8.4-1, packed-2.8.6-1.
    // Cites packed-2.8.6-2, packed-2.8.6-4, packed-2.8.6-5, packed-2.8.7-1, packed-2.8.7-3.
    // Cites packed-2.8.10.1-2, packed-2.8.12-1, packed-2.8.12-2, packed-2.8.17-2, packed-2.8.17-4.
    // Cites packed-2.8.18-1, packed-2.8.19-1, packed-2.8.19-3, packed-2.8.21.1-1, packed-6.2-1.
    // Cites vhost-user-get-vring-base-2.
    #[test]
    fn any_order_of_operations(
        (size, ops) in ops(), event_idx: bool, indirect: bool, in_order: bool, to_guest: bool,
    ) {
        let direction = if to_guest { Direction::ToGuest } else { Direction::FromGuest };
        let mut pair = Pair::new(size, RingOptions { event_idx, indirect, in_order }, direction);
        for op in &ops {
            pair.step(op);
        }
    }
}

/// Runs long enough that both wrap counters change many times, with every operation at every
/// distance from the wrap.
// Cites packed-2.8.1-1, packed-2.8.1-2, packed-2.8.1-3, packed-2.8.10.1-2.
#[test]
fn wrap_counters_change() {
    for (size, event_idx) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let direction = if event_idx { Direction::FromGuest } else { Direction::ToGuest };
        let mut pair = Pair::new(size, events(event_idx), direction);
        let mut random = 1_u64;
        while pair.at.given < 30 * u64::from(size).max(10) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let kind = random >> 33;
            let n = usize::try_from(random >> 60).expect("four bits");
            pair.step(&match kind % 24 {
                0..5 => Op::Add(vec![64; 1 + n % 3]),
                5..8 => Op::Publish,
                8..11 => Op::Take(n),
                11..14 => Op::GiveBack(16),
                14..17 => Op::Reap(16),
                17 => Op::Untake(1),
                18 => Op::MustKick,
                19 => Op::MustNotify,
                20 => Op::DeviceArm(n as u64),
                21 => Op::DriverWants(n % 2 == 0),
                22 => Op::Successor(n % 2 == 0),
                _ => Op::DeviceDisarm,
            });
        }
    }
}

//! Device and driver over the same memory, in any order of operations, compared with queues of
//! plain values.

use std::collections::VecDeque;

use proptest::prelude::*;
use straightline_packet::Level;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, END, GuestRing, events};
use straightline_virtio::ring::{Device, Direction, First, RingOptions};

use super::layout::{DeviceHalf, DriverHalf, Layout, for_both_layouts};
use super::packed::Packed;
use super::split::Split;

for_both_layouts!(any_order_of_operations, taken_chains_are_ours);

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
    /// The number of entries beyond which the device asks for a kick, at most those that it knows.
    DeviceArm(u64),
    DeviceDisarm,
    DriverWants(bool),
    /// A new device half replaces the old one: with its position, or after the old one was lost.
    Successor(bool),
}

/// A chain in the model: its head or id, its buffers, its descriptors, and the number of bytes
/// written into it.
#[derive(Debug)]
struct Chain {
    id: u16,
    buffers: Vec<(u64, u32)>,
    span: u16,
    written: u32,
}

/// The progress of each side, and its progress at the last notification decision.
#[derive(Default)]
struct Positions {
    published: u64,
    kicked: u64,
    given: u64,
    notified: Option<u64>,
}

/// Both halves and a model of them.
struct Pair<L: Layout> {
    guest: GuestRing,
    device: L::Device,
    driver: L::Driver,
    options: RingOptions,
    direction: Direction,
    /// A chain is in one of these queues, and goes through them in this order.
    added: VecDeque<Chain>,
    published: VecDeque<Chain>,
    taken: VecDeque<Chain>,
    used: VecDeque<Chain>,
    at: Positions,
    /// The device sleeps until more than this many entries are available.
    device_sleeps: Option<u64>,
    driver_sleeps: bool,
    addr: u64,
}

/// Returns the number of descriptors of some chains.
fn span<'c>(chains: impl IntoIterator<Item = &'c Chain>) -> u16 {
    chains.into_iter().map(|chain| chain.span).sum()
}

/// Returns the number of entries of some chains.
fn entries<'c, L: Layout>(chains: impl IntoIterator<Item = &'c Chain>) -> u64 {
    chains.into_iter().map(|chain| L::entries(chain.span)).sum()
}

impl<L: Layout> Pair<L> {
    fn new(size: u16, options: RingOptions, direction: Direction) -> Self {
        let guest = GuestRing::new(size);
        Pair {
            device: L::device(&guest, options),
            driver: L::driver(&guest, options),
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
                self.at.given += entries::<L>(self.taken.range(..usize::from(n)));
                self.used.extend(self.taken.drain(..usize::from(n)));
            }
            Op::Reap(n) => self.reap(*n),
            Op::MustKick => self.must_kick(),
            Op::MustNotify => self.must_notify(),
            Op::DeviceArm(beyond) => {
                let there = entries::<L>(&self.published);
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
                    self.device = L::successor(&self.guest, self.device.base(), self.options);
                    self.at.notified = None;
                }
            }
            Op::Successor(false) => {
                // A chain of the whole ring whose head is missing looks like an interrupted burst.
                if L::WHOLE_RING_IS_AMBIGUOUS && span(&self.added) == self.guest.size {
                    return;
                }
                self.device = L::recovered(&self.guest, self.options, self.direction);
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
        self.at.published += entries::<L>(&self.added);
        self.published.append(&mut self.added);
    }

    fn check(&mut self) {
        let size = self.guest.size;
        assert_eq!(usize::from(self.device.outstanding()), self.taken.len());
        assert_eq!(self.driver.free(), size - span(self.out()));
        let there = entries::<L>(&self.published);
        assert_eq!(self.device.base(), L::base(self.at.published - there, self.at.given, size));
        assert!(u64::from(self.device.known()) <= there);
        assert_eq!(self.device.is_all_taken(), entries::<L>(&self.taken) == u64::from(size));
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
        let taken = self.guest.span(lens.len(), self.options);
        let fits = !lens.is_empty() && taken <= self.guest.size - span(self.out());
        let id = self.driver.add(&given);
        assert_eq!(id.is_some(), fits);
        let fills = !self.added.is_empty() && span(&self.added) + taken == self.guest.size;
        if L::WHOLE_RING_IS_AMBIGUOUS && fits && fills {
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
            // 0 is included: then a used descriptor has no WRITE flag. With in-order use, 0 can also
            // mean a full chain. Some batches that are only read have no lengths, others do. Such a
            // length has no meaning.
            let n = u32::try_from(i).expect("small");
            let capacity = chain.buffers.iter().map(|b| b.1).sum();
            let is_written = self.direction == Direction::ToGuest;
            let least = u32::from(self.options.in_order);
            let bytes = if is_written { (100 * n + least).min(capacity) } else { n / 3 };
            chain.written = if is_written { bytes } else { 0 };
            self.device.written(bytes);
            self.taken.push_back(chain);
        }
        if !L::HAS_INDEXES {
            let left = self.published.range(..found - found.min(n));
            assert_eq!(u64::from(self.device.known()), entries::<L>(left), "what was looked at and not taken");
        }
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
            if reverse == Direction::ToGuest || !L::ignores_write(first) {
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
        let expected = L::is_kick_due(&self.guest, self.options.event_idx, self.at.kicked, new);
        let kick = self.driver.must_kick();
        assert_eq!(kick, expected);
        let there = entries::<L>(&self.published);
        let is_due = self.device_sleeps.is_some_and(|beyond| there > beyond);
        assert!(kick || !is_due, "the device sleeps, and is not woken");
        if kick {
            self.device_sleeps = None;
        }
        self.at.kicked = new;
    }

    fn must_notify(&mut self) {
        let new = self.at.given;
        let expected = L::is_call_due(&self.guest, self.options.event_idx, self.at.notified, new);
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

fn ops<L: Layout>() -> impl Strategy<Value = (u16, Vec<Op>)> {
    prop::sample::select(L::SIZES).prop_flat_map(|size| (Just(size), prop::collection::vec(op(size), 1..250)))
}

// Cites packed-2.8-3, packed-2.8-4, packed-2.8.3-1, packed-2.8.4-1, packed-2.8.6-1.
// Cites packed-2.8.6-2, packed-2.8.6-4, packed-2.8.6-5, packed-2.8.7-1, packed-2.8.7-3.
// Cites packed-2.8.10.1-2, packed-2.8.12-1, packed-2.8.12-2, packed-2.8.17-2, packed-2.8.17-4.
// Cites packed-2.8.18-1, packed-2.8.19-1, packed-2.8.19-3, packed-2.8.21.1-1, packed-6.2-1.
// Cites vhost-user-get-vring-base-2.
fn any_order_of_operations<L: Layout>() {
    proptest!(ProptestConfig::with_cases(200), |(
        (size, ops) in ops::<L>(), event_idx: bool, indirect: bool, in_order: bool, to_guest: bool,
    )| {
        let direction = if to_guest { Direction::ToGuest } else { Direction::FromGuest };
        let mut pair = Pair::<L>::new(size, RingOptions { event_idx, indirect, in_order }, direction);
        for op in &ops {
            pair.step(op);
        }
    });
}

/// Runs every operation at every distance from a wrap, until `is_enough`.
fn run_long<L: Layout>(pair: &mut Pair<L>, is_enough: impl Fn(&Positions) -> bool) {
    let mut random = 1_u64;
    while !is_enough(&pair.at) {
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

/// All 16-bit indexes of a split ring wrap.
#[test]
fn indexes_wrap() {
    for (event_idx, direction) in [(true, Direction::FromGuest), (false, Direction::ToGuest)] {
        let options = RingOptions { event_idx, indirect: event_idx, in_order: event_idx };
        let mut pair = Pair::<Split>::new(16, options, direction);
        run_long(&mut pair, |at| at.published >= 70_000);
    }
}

/// Both wrap counters of a packed ring change many times.
// Cites packed-2.8.1-1, packed-2.8.1-2, packed-2.8.1-3, packed-2.8.10.1-2.
#[test]
fn wrap_counters_change() {
    for (size, event_idx) in Packed::SIZES.iter().flat_map(|&size| [(size, false), (size, true)]) {
        let direction = if event_idx { Direction::FromGuest } else { Direction::ToGuest };
        let mut pair = Pair::<Packed>::new(size, events(event_idx), direction);
        run_long(&mut pair, |at| at.given >= 30 * u64::from(size).max(10));
    }
}

/// Bytes go both ways, and writes of the driver into its ring after a chain was found change
/// nothing.
fn taken_chains_are_ours<L: Layout>() {
    let mut guest = GuestRing::new(4);
    let (mut device, mut driver) = L::halves(&guest, true);
    guest.write(BUFFERS, b"from the guest");
    let id = driver.add(&[(BUFFERS, 14, false)]).expect("free descriptors");
    driver.publish();
    let mut first = [First::default()];
    assert_eq!(device.find(&mut first), Ok(1));
    // The guest changes its mind: the descriptors, and the entries of a split ring.
    for at in 0..4 {
        guest.descriptor(DESC, at, u64::MAX, u32::MAX, 0xffff, 0xffff);
        guest.write16(AVAIL + 4 + 2 * u64::from(at), 3);
    }
    device.take(&first[0]);
    guest.turn(|_, memory| {
        let segment = device.single(memory, &first[0], Direction::FromGuest).expect("as it was read");
        let mut bytes = [0; 14];
        segment.read(Level::Scalar, &mut bytes);
        assert_eq!(&bytes, b"from the guest");
    });
    device.give_back(1);
    assert_eq!(driver.used(), Some(Ok((id, 0))));
    assert_eq!((driver.used(), driver.free()), (None, 4));
}

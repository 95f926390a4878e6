//! Device and driver over the same memory, in any order of operations, compared with queues of
//! plain values.

use std::collections::VecDeque;

use proptest::prelude::*;
use straightline_packet::Level;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, END, GuestRing, USED, events};
use straightline_virtio::ring::{Device, Direction, First, RingOptions, SplitDevice, SplitDriver};

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Add(Vec<u32>),
    Publish,
    Take(usize),
    Untake(u16),
    GiveBack(u16),
    Reap(usize),
    MustKick,
    MustNotify,
    /// The number of chains beyond which the device asks for a kick, at most those that it knows.
    DeviceArm(usize),
    DeviceDisarm,
    DriverWants(bool),
}

/// A chain in the model: its head, its buffers, and the number of bytes written into it.
#[derive(Clone, Debug)]
struct Chain {
    head: u16,
    buffers: Vec<(u64, u32)>,
    span: usize,
    written: u32,
}

/// Both halves and a model of them. Indexes are counts since the beginning, so that nothing wraps.
pub(crate) struct Pair {
    guest: GuestRing,
    device: SplitDevice,
    driver: SplitDriver,
    options: RingOptions,
    direction: Direction,
    added: VecDeque<Chain>,
    published: VecDeque<Chain>,
    taken: VecDeque<Chain>,
    used: VecDeque<Chain>,
    out: usize,
    counts: Counts,
    /// A side that sleeps has seen that no entries, or at most this many, are available. Any later
    /// entry must wake it.
    device_sleeps: Option<usize>,
    driver_sleeps: bool,
    addr: u64,
}

/// The progress of each side, and its progress at the last notification decision.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) published: u64,
    kicked: u64,
    given: u64,
    notified: Option<u64>,
}

/// Returns whether entry `event` is among the new ones (another form of the rule in virtio 1.2,
/// 2.7.10). `event` is a 16-bit index, `old..new` are counts.
fn is_notified(event: u16, old: u64, new: u64) -> bool {
    (old..new).any(|i| i & 0xffff == u64::from(event))
}

impl Pair {
    pub(crate) fn new(size: u16, options: RingOptions, direction: Direction) -> Self {
        let guest = GuestRing::new(size);
        let device = guest.device(0, options);
        let driver = guest.driver(options);
        let queue = VecDeque::new;
        Pair {
            guest,
            device,
            driver,
            options,
            direction,
            added: queue(),
            published: queue(),
            taken: queue(),
            used: queue(),
            out: 0,
            counts: Counts::default(),
            device_sleeps: None,
            driver_sleeps: false,
            addr: BUFFERS,
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn step(&mut self, op: &Op) {
        match op {
            Op::Add(lens) => self.add(lens),
            Op::Publish => {
                self.driver.publish();
                self.counts.published += self.added.len() as u64;
                self.published.append(&mut self.added);
            }
            Op::Take(n) => self.take(*n),
            Op::Untake(n) => {
                for _ in 0..(*n).min(self.device.outstanding()) {
                    self.device_sleeps = None;
                    self.device.untake(1);
                    let mut chain = self.taken.pop_back().expect("as many as the device has");
                    chain.written = 0;
                    self.published.push_front(chain);
                }
            }
            Op::GiveBack(n) => {
                let n = (*n).min(self.device.outstanding());
                self.device.give_back(n);
                self.counts.given += u64::from(n);
                self.used.extend(self.taken.drain(..usize::from(n)));
            }
            Op::Reap(n) => self.reap(*n),
            Op::MustKick => self.must_kick(),
            Op::MustNotify => self.must_notify(),
            Op::DeviceArm(beyond) => {
                let beyond = *beyond.min(&self.published.len());
                let more = self.device.arm(u16::try_from(beyond).expect("a ring's")).expect("a well-behaved driver");
                assert_eq!(more, self.published.len() > beyond);
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
        }
        assert_eq!(usize::from(self.device.outstanding()), self.taken.len());
        assert_eq!(usize::from(self.driver.free()), usize::from(self.guest.size) - self.out);
        let base = self.counts.published - self.published.len() as u64;
        assert_eq!(u64::from(self.device.base()), base & 0xffff);
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
        let span = usize::from(self.guest.span(lens.len(), self.options));
        let fits = !lens.is_empty() && span <= usize::from(self.guest.size) - self.out;
        let head = self.driver.add(&given);
        assert_eq!(head.is_some(), fits);
        if let Some(head) = head {
            self.out += span;
            self.added.push_back(Chain { head, buffers, span, written: 0 });
        }
    }

    fn take(&mut self, n: usize) {
        let available = self.device.available(u16::try_from(n).expect("small")).expect("a well-behaved driver");
        let available = usize::from(available);
        assert!(available <= self.published.len());
        assert!(available == self.published.len() || available >= n, "known ones suffice, or the index is read");
        let n = n.min(available);
        let mut firsts = vec![First::default(); n];
        self.device.peek(&mut firsts).expect("a well-behaved driver");
        for (i, first) in firsts.iter().enumerate() {
            let mut chain = self.published.pop_front().expect("counted");
            assert_eq!(first.head, chain.head);
            self.device.take(first);
            // A side that takes is awake, no matter what woke it.
            self.device_sleeps = None;
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
                assert_eq!(single.is_some(), chain.buffers.len() == 1);
                if let (Some(single), [(_, len)]) = (single, &chain.buffers[..]) {
                    assert_eq!(single.len(), *len);
                }
                // With the wrong direction, the chain is refused.
                let reverse = if direction == Direction::ToGuest { Direction::FromGuest } else { Direction::ToGuest };
                assert!(device.chain(memory, turn, first, reverse).is_err());
                assert!(device.single(memory, first, reverse).is_none());
                assert_eq!(turn.mark(), mark + expected.len(), "a fault stages nothing");
            });
            // Some batches are only read, others are not. A length written into a chain that is
            // only read has no meaning.
            let bytes = u32::try_from(i).expect("small") * 100;
            let capacity = chain.buffers.iter().map(|b| b.1).sum();
            let bytes = if self.direction == Direction::ToGuest { (bytes + 1).min(capacity) } else { bytes / 300 };
            chain.written = if self.direction == Direction::ToGuest { bytes } else { 0 };
            self.device.written(bytes);
            self.taken.push_back(chain);
        }
    }

    fn reap(&mut self, n: usize) {
        for _ in 0..n {
            let Some(used) = self.driver.used() else {
                assert!(self.used.is_empty());
                return;
            };
            let chain = self.used.pop_front().expect("the model has as many");
            assert_eq!(used, Ok((chain.head, chain.written)));
            self.out -= chain.span;
            self.driver_sleeps = false;
        }
    }

    fn must_kick(&mut self) {
        let old = self.counts.kicked;
        let new = self.counts.published;
        let expected = if self.options.event_idx {
            is_notified(self.guest.avail_event(), old, new)
        } else {
            new > old && self.guest.read16(USED) & 1 == 0
        };
        let kick = self.driver.must_kick();
        assert_eq!(kick, expected);
        if self.device_sleeps.is_some_and(|beyond| self.published.len() > beyond) {
            assert!(kick, "the device sleeps, and is not woken");
        }
        if kick {
            self.device_sleeps = None;
        }
        self.counts.kicked = new;
    }

    fn must_notify(&mut self) {
        let new = self.counts.given;
        let expected = if !self.options.event_idx {
            self.counts.notified != Some(new) && self.guest.read16(AVAIL) & 1 == 0
        } else if let Some(old) = self.counts.notified {
            is_notified(self.guest.used_event(), old, new)
        } else {
            true
        };
        let notify = self.device.must_notify();
        assert_eq!(notify, expected);
        if self.driver_sleeps && !self.used.is_empty() {
            assert!(notify, "the driver sleeps, and is not woken");
        }
        if notify {
            self.driver_sleeps = false;
        }
        self.counts.notified = Some(new);
    }
}

fn op(size: u16) -> impl Strategy<Value = Op> {
    let len = prop_oneof![Just(0_u32), 1..2000_u32];
    let few = 0..=usize::from(size).min(40);
    prop_oneof![
        4 => prop::collection::vec(len, 0..=usize::from(size).min(5) + 1).prop_map(Op::Add),
        3 => Just(Op::Publish),
        3 => few.clone().prop_map(Op::Take),
        1 => (0..5_u16).prop_map(Op::Untake),
        3 => (0..20_u16).prop_map(Op::GiveBack),
        3 => few.prop_map(Op::Reap),
        2 => Just(Op::MustKick),
        2 => Just(Op::MustNotify),
        1 => prop_oneof![Just(0), 0..300_usize].prop_map(Op::DeviceArm),
        1 => Just(Op::DeviceDisarm),
        1 => any::<bool>().prop_map(Op::DriverWants),
    ]
}

fn ops() -> impl Strategy<Value = (u16, Vec<Op>)> {
    prop::sample::select(vec![1_u16, 2, 4, 8, 64, 1024])
        .prop_flat_map(|size| (Just(size), prop::collection::vec(op(size), 1..250)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

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

/// Runs long enough that all 16-bit indexes wrap, with every operation at every distance from the
/// wrap.
#[test]
fn indexes_wrap() {
    for (event_idx, direction) in [(true, Direction::FromGuest), (false, Direction::ToGuest)] {
        let mut pair = Pair::new(16, RingOptions { event_idx, indirect: event_idx, in_order: event_idx }, direction);
        let mut random = 1_u64;
        while pair.counts().published < 70_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let kind = random >> 33;
            let n = usize::try_from(random >> 60).expect("four bits");
            pair.step(&match kind % 23 {
                0..5 => Op::Add(vec![64; 1 + n % 2]),
                5..8 => Op::Publish,
                8..11 => Op::Take(n),
                11..14 => Op::GiveBack(16),
                14..17 => Op::Reap(16),
                17 => Op::Untake(1),
                18 => Op::MustKick,
                19 => Op::MustNotify,
                20 => Op::DeviceArm(n),
                21 => Op::DriverWants(n % 2 == 0),
                _ => Op::DeviceDisarm,
            });
        }
    }
}

/// Bytes go both ways, and writes of the driver into its ring after a chain was taken change
/// nothing.
#[test]
fn taken_chains_are_ours() {
    let mut guest = GuestRing::new(4);
    let mut device = guest.device(0, events(true));
    let mut driver = guest.driver(events(true));
    guest.write(BUFFERS, b"from the guest");
    let head = driver.add(&[(BUFFERS, 14, false)]).expect("free descriptors");
    driver.publish();
    assert_eq!(device.available(1), Ok(1));
    let mut first = [First::default()];
    device.peek(&mut first).expect("a good head");
    // The guest changes its mind: the descriptor, the entry, the table.
    guest.descriptor(0, head, u64::MAX, u32::MAX, 0xffff, 0xffff);
    guest.write16(AVAIL + 4, 3);
    device.take(&first[0]);
    guest.turn(|_, memory| {
        let segment = device.single(memory, &first[0], Direction::FromGuest).expect("as it was read");
        let mut bytes = [0; 14];
        segment.read(Level::Scalar, &mut bytes);
        assert_eq!(&bytes, b"from the guest");
    });
    device.give_back(1);
    assert_eq!(driver.used(), Some(Ok((head, 0))));
    assert_eq!(driver.used(), None);
}

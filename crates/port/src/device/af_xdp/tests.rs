//! A queue with a double of the kernel: it has the other sides of the rings, in the same memory.
//!
//! The double takes frames and gives them back in any order and number, as the kernel may. After
//! each step every frame is in exactly one place. A hostile double also writes invalid indexes and
//! descriptors.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_packet::{
    Arena, Batch, Checksum, Gso, GsoKind, Level, MAX_BATCH, Offload, Outer, OuterChecksum, PortIndex, Rcu, RcuCell,
    Reason, Settings,
};

use super::frames::{ALL_FRAMES, FRAMES, Frame, Umem, WRITTEN_ENTRIES, umem_len};
use super::queue::{Census, Queue, Rings};
use super::rings::{Consumer, Desc, Producer, Ring, RingLayout, RingMemory};
use super::{deliver, receive};
use crate::device::link::DevicePortData;

const FRAME_SIZE: u32 = 2048;
const LAYOUT: RingLayout = RingLayout { producer: 0, consumer: 64, flags: 128, entries: 192 };

fn ring<const W: usize>(entries: u32) -> Ring<W> {
    let memory = RingMemory::anonymous(LAYOUT.memory_len(entries, W));
    Ring::new(Arc::new(memory), LAYOUT, entries).expect("it fits")
}

/// The kernel's side of a queue.
struct Kernel {
    fill: Consumer<1>,
    rx: Producer<2>,
    tx: Consumer<2>,
    completion: Producer<1>,
    umem: Umem,
    /// Frames to receive into.
    empty: Vec<u64>,
    /// Frames that are being sent.
    sending: Vec<u64>,
    /// The bytes of packets that were sent, and of one whose end is still to come.
    sent: Vec<Vec<u8>>,
    unfinished: Vec<u8>,
    /// The rings, for invalid indexes.
    fill_ring: Ring<1>,
    rx_ring: Ring<2>,
    tx_ring: Ring<2>,
    completion_ring: Ring<1>,
}

impl Kernel {
    /// Returns a queue and its kernel.
    fn start() -> (Arc<Queue>, Kernel) {
        // No ring asks for a system call, so nothing is called on this descriptor.
        Self::start_with(eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor"))
    }

    fn start_with(socket: OwnedFd) -> (Arc<Queue>, Kernel) {
        let fill = ring::<1>(WRITTEN_ENTRIES);
        let completion = ring::<1>(FRAMES);
        let rx = ring::<2>(FRAMES);
        let tx = ring::<2>(WRITTEN_ENTRIES);
        let file = memfd_create("umem", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, umem_len(FRAME_SIZE)).expect("size");
        let map = || Umem::map(file.as_fd(), FRAME_SIZE).expect("mapped");
        let rings = Rings {
            rx: Consumer::new(rx.clone()),
            fill: Producer::new(fill.clone()),
            tx: Producer::new(tx.clone()),
            completion: Consumer::new(completion.clone()),
        };
        let queue = Queue::new(Arc::new(socket), map(), rings, PortIndex(0)).expect("valid indexes");
        let kernel = Kernel {
            fill: Consumer::new(fill.clone()),
            rx: Producer::new(rx.clone()),
            tx: Consumer::new(tx.clone()),
            completion: Producer::new(completion.clone()),
            umem: map(),
            empty: Vec::new(),
            sending: Vec::new(),
            sent: Vec::new(),
            unfinished: Vec::new(),
            fill_ring: fill,
            rx_ring: rx,
            tx_ring: tx,
            completion_ring: completion,
        };
        (Arc::new(queue), kernel)
    }

    /// Takes up to `n` frames out of the fill ring.
    fn take_empty(&mut self, n: u32) {
        let n = n.min(self.fill.available().expect("valid"));
        self.empty.extend((0..n).map(|nth| self.fill.peek(nth)[0]));
        self.fill.release(n);
    }

    /// Receives a packet, if the double has enough frames. Each frame takes `part` bytes.
    fn receive(&mut self, bytes: &[u8], part: usize) -> bool {
        let parts: Vec<_> = bytes.chunks(part).collect();
        if parts.len() > self.empty.len() {
            return false;
        }
        for (nth, bytes) in parts.iter().enumerate() {
            // Any frame: the kernel need not keep their order.
            let addr = self.empty.swap_remove(bytes.len() % self.empty.len()) + 256;
            let len = u32::try_from(bytes.len()).expect("short");
            let place = self.umem.segment(addr, len).expect("in the frame");
            place.write(Level::detect(), bytes);
            let desc = Desc { addr, len, continued: nth + 1 < parts.len() };
            self.rx.push(desc.to_words()).expect("an entry for each frame");
        }
        self.rx.submit();
        true
    }

    /// Takes up to `n` descriptors out of the tx ring.
    fn send(&mut self, n: u32) {
        let n = n.min(self.tx.available().expect("valid"));
        for nth in 0..n {
            let desc = Desc::of_words(self.tx.peek(nth));
            let from = self.umem.segment(desc.addr, desc.len).expect("a descriptor in a frame");
            let at = self.unfinished.len();
            self.unfinished.resize(at + desc.len as usize, 0);
            from.read(Level::detect(), &mut self.unfinished[at..]);
            if !desc.continued {
                self.sent.push(std::mem::take(&mut self.unfinished));
            }
            self.sending.push(desc.addr);
        }
        self.tx.release(n);
    }

    /// Returns up to `n` frames that were sent.
    fn complete(&mut self, n: usize) {
        for _ in 0..n.min(self.sending.len()) {
            let addr = self.sending.swap_remove(n % self.sending.len());
            self.completion.push([addr]).expect("an entry for each frame");
        }
        self.completion.submit();
    }

    /// Checks that each frame is in exactly one place.
    fn count(&mut self, queue: &Queue) {
        let Census { lent, rx_with_kernel, free, taken, tx_with_kernel, received, completed } = queue.census();
        assert_eq!(lent + rx_with_kernel, FRAMES, "frames that receive");
        assert_eq!(free + taken + tx_with_kernel, FRAMES, "frames that send");
        let filled = self.fill.available().expect("valid");
        let count = |frames: &[u64]| u32::try_from(frames.len()).expect("few");
        assert_eq!(filled + count(&self.empty) + received, rx_with_kernel, "frames that the kernel receives into");
        let queued = self.tx.available().expect("valid");
        assert_eq!(queued + count(&self.sending) + completed, tx_with_kernel, "frames that the kernel sends");
        // The rings name each frame once.
        let mut seen = vec![false; ALL_FRAMES as usize];
        let mut see = |addr: u64| {
            let (Frame(frame), _) = self.umem.frame_at(addr).expect("a frame");
            assert!(!std::mem::replace(&mut seen[frame as usize], true), "frame {frame} is in two places");
        };
        (0..filled).for_each(|nth| see(self.fill.peek(nth)[0]));
        self.empty.iter().chain(&self.sending).for_each(|&addr| see(addr));
        (0..queued).for_each(|nth| see(self.tx.peek(nth)[0]));
        queue.received().into_iter().chain(queue.completed()).for_each(see);
    }
}

/// A worker that returns all packets by the queue that they came from.
struct Worker {
    arena: Arena,
    queue: RcuCell<Arc<Queue>>,
    port: DevicePortData,
    /// Lengths of the received packets.
    received: Vec<usize>,
}

impl Worker {
    fn new(queue: &Arc<Queue>) -> Self {
        let rcu = Rcu::new();
        let port = DevicePortData::for_test(&rcu, 9000);
        let published = RcuCell::new(&rcu);
        published.swap(Some(Box::new(Arc::clone(queue))));
        Worker {
            queue: published,
            arena: Arena::new(rcu.reader(), Settings::default(), vec![Arc::clone(&port.drops)]),
            port,
            received: Vec::new(),
        }
    }

    /// Runs a turn. Checks the counts also while frames are lent.
    fn turn(&mut self, max: usize, check: &mut dyn FnMut()) {
        let Worker { arena, queue, port, received } = self;
        arena.turn(|turn| {
            let Some(queue) = queue.load(turn) else { return };
            let mut batch = Batch::new();
            receive::receive(queue, port, None, false, turn, &mut batch, max);
            assert!(batch.len() <= max);
            received.extend(batch.ids().iter().map(|&id| turn.len(id) as usize));
            check();
            if !batch.is_empty() {
                deliver::deliver(queue, port, None, true, turn, &batch);
            }
            check();
        });
        check();
    }

    fn drops(&self, reason: Reason) -> u64 {
        self.port.drops.count(reason)
    }
}

/// A socket that takes no more stands for an interface that takes no more.
#[test]
fn packets_that_the_interface_does_not_take_are_sent_at_a_later_look() {
    let (ours, theirs) = UnixDatagram::pair().expect("sockets");
    for socket in [&ours, &theirs] {
        socket.set_nonblocking(true).expect("nonblocking");
    }
    while ours.send(&[]).is_ok() {}
    let (queue, mut kernel) = Kernel::start_with(ours.into());
    let mut worker = Worker::new(&queue);
    kernel.tx_ring.flags().store(1, Ordering::Relaxed);
    kernel.take_empty(1);
    assert!(kernel.receive(&bytes(100, 0), 1500));
    assert!(!queue.send_unsent(), "nothing waits");
    worker.turn(MAX_BATCH, &mut || {});
    assert!(queue.send_unsent(), "a worker that only sends must not sleep");
    while theirs.recv(&mut [0; 1]).is_ok() {}
    worker.turn(MAX_BATCH, &mut || {});
    assert!(theirs.recv(&mut [0; 1]).is_ok(), "the worker has asked the kernel again");
    worker.turn(MAX_BATCH, &mut || {});
    assert!(theirs.recv(&mut [0; 1]).is_err(), "and no more than once");
    assert!(!queue.is_faulted());
}

/// A step of the kernel or of the worker.
#[derive(Clone, Debug)]
enum Step {
    TakeEmpty(u32),
    Receive { len: usize, part: usize },
    Send(u32),
    Complete(usize),
    Turn(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3000_u32).prop_map(Step::TakeEmpty),
        (14..5000_usize, 1000..1792_usize).prop_map(|(len, part)| Step::Receive { len, part }),
        (0..600_u32).prop_map(Step::Send),
        (0..600_usize).prop_map(Step::Complete),
        (0..MAX_BATCH).prop_map(Step::Turn),
    ]
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + at / 256 + seed) % 256).expect("a byte")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Packets come back as they came, and no frame is lost or doubled.
    #[test]
    fn each_frame_is_in_one_place(steps in proptest::collection::vec((step(), 1..40_usize), 1..60)) {
        let (queue, mut kernel) = Kernel::start();
        let mut worker = Worker::new(&queue);
        let mut expected = Vec::new();
        kernel.count(&queue);
        for (step, times) in steps {
            for time in 0..times {
                match step {
                    Step::TakeEmpty(n) => kernel.take_empty(n),
                    Step::Receive { len, part } => {
                        let packet = bytes(len, time);
                        if kernel.receive(&packet, part) {
                            expected.push(packet);
                        }
                    }
                    Step::Send(n) => kernel.send(n),
                    Step::Complete(n) => kernel.complete(n),
                    Step::Turn(max) => worker.turn(max, &mut || kernel.count(&queue)),
                }
            }
            kernel.count(&queue);
            prop_assert!(!queue.is_faulted());
        }
        // All that was received is returned, except for packets that found no free frame.
        for _ in 0..200 {
            worker.turn(MAX_BATCH, &mut || {});
            kernel.send(FRAMES);
            kernel.complete(FRAMES as usize);
        }
        kernel.count(&queue);
        let lost = usize::try_from(worker.drops(Reason::NoBuffer)).expect("few");
        prop_assert_eq!(worker.received.len(), expected.len());
        prop_assert_eq!(kernel.sent.len() + lost, expected.len());
        let mut rest = expected.iter();
        for sent in &kernel.sent {
            prop_assert!(rest.any(|expected| expected == sent), "unchanged and in order");
        }
        if lost == 0 {
            prop_assert_eq!(&kernel.sent, &expected);
        }
    }
}

/// A write of a hostile kernel.
#[derive(Clone, Debug)]
enum Attack {
    Index { ring: u8, consumer: bool, value: u32 },
    RxDesc { addr: u64, len: u32, continued: bool },
    Completion(u64),
    Turn,
}

fn attack() -> impl Strategy<Value = Attack> {
    let addr = prop_oneof![any::<u64>(), 0..umem_len(FRAME_SIZE), (0..64_u64).prop_map(|frame| frame * 2048 + 256)];
    let len = prop_oneof![any::<u32>(), 0..3000_u32];
    let value = prop_oneof![any::<u32>(), 0..5000_u32, (0..5000_u32).prop_map(u32::wrapping_neg)];
    prop_oneof![
        1 => (0..4_u8, any::<bool>(), value).prop_map(|(ring, consumer, value)| Attack::Index { ring, consumer, value }),
        6 => (addr.clone(), len, any::<bool>()).prop_map(|(addr, len, continued)| Attack::RxDesc { addr, len, continued }),
        2 => addr.prop_map(Attack::Completion),
        4 => Just(Attack::Turn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever the kernel writes, nothing panics, and our own counts stay right.
    #[test]
    fn a_hostile_kernel_breaks_its_queue_only(attacks in proptest::collection::vec(attack(), 1..80)) {
        let (queue, mut kernel) = Kernel::start();
        let mut worker = Worker::new(&queue);
        kernel.take_empty(200);
        let _ = kernel.receive(&bytes(600, 1), 600);
        for attack in attacks {
            match attack {
                Attack::Index { ring, consumer, value } => {
                    let word = match (ring, consumer) {
                        (0, true) => kernel.fill_ring.consumer(),
                        (0, false) => kernel.fill_ring.producer(),
                        (1, true) => kernel.rx_ring.consumer(),
                        (1, false) => kernel.rx_ring.producer(),
                        (2, true) => kernel.tx_ring.consumer(),
                        (2, false) => kernel.tx_ring.producer(),
                        (_, true) => kernel.completion_ring.consumer(),
                        (_, false) => kernel.completion_ring.producer(),
                    };
                    word.store(value, Ordering::Relaxed);
                }
                Attack::RxDesc { addr, len, continued } => {
                    if kernel.rx.push(Desc { addr, len, continued }.to_words()).is_ok() {
                        kernel.rx.submit();
                    }
                }
                Attack::Completion(addr) => {
                    if kernel.completion.push([addr]).is_ok() {
                        kernel.completion.submit();
                    }
                }
                Attack::Turn => worker.turn(MAX_BATCH, &mut || {
                    let census = queue.census();
                    assert_eq!(census.lent + census.rx_with_kernel, FRAMES);
                    assert_eq!(census.free + census.taken + census.tx_with_kernel, FRAMES);
                }),
            }
        }
    }
}

#[test]
fn a_frame_that_the_kernel_does_not_have_ends_the_queue() {
    // A frame that sends, and addresses beyond the UMEM.
    let fine = 256;
    for address in [umem_len(FRAME_SIZE) - 2048, umem_len(FRAME_SIZE), u64::MAX] {
        let (queue, mut kernel) = Kernel::start();
        let mut worker = Worker::new(&queue);
        kernel.take_empty(FRAMES);
        for (addr, ends) in [(fine, false), (address, true)] {
            kernel.rx.push(Desc { addr, len: 60, continued: false }.to_words()).expect("free");
            kernel.rx.submit();
            worker.turn(MAX_BATCH, &mut || {});
            assert_eq!(queue.is_faulted(), ends, "{addr:#x}");
        }
        assert_eq!(worker.received, [60]);
    }
    let (queue, mut kernel) = Kernel::start();
    let mut worker = Worker::new(&queue);
    kernel.take_empty(FRAMES);
    // The same frame twice, and then a completion of a frame that was not sent.
    for _ in 0..2 {
        kernel.rx.push(Desc { addr: fine, len: 60, continued: false }.to_words()).expect("free");
    }
    kernel.rx.submit();
    worker.turn(MAX_BATCH, &mut || {});
    assert!(queue.is_faulted());
    let (queue, mut kernel) = Kernel::start();
    let mut worker = Worker::new(&queue);
    kernel.take_empty(FRAMES);
    assert!(kernel.receive(&bytes(600, 1), 600));
    kernel.completion.push([umem_len(FRAME_SIZE) - 2048]).expect("free");
    kernel.completion.submit();
    worker.turn(MAX_BATCH, &mut || {});
    assert!(queue.is_faulted());
    assert_eq!(worker.drops(Reason::LinkDown), 1, "the packet that was to be sent");
}

#[test]
fn a_kernel_may_tell_late_what_it_has_read() {
    let (queue, mut kernel) = Kernel::start();
    let mut worker = Worker::new(&queue);
    // It has read the entries of all frames, and returns the frames before it tells that.
    assert_eq!(kernel.fill.available(), Ok(FRAMES));
    kernel.empty = (0..FRAMES).map(|nth| kernel.fill.peek(nth)[0]).collect();
    for _ in 0..FRAMES / 64 {
        for _ in 0..64 {
            assert!(kernel.receive(&bytes(60, 1), 60));
        }
        worker.turn(MAX_BATCH, &mut || {});
    }
    assert!(!queue.is_faulted());
    assert_eq!(worker.received.len(), FRAMES as usize);
    kernel.fill.release(FRAMES);
    assert_eq!(kernel.fill.available(), Ok(FRAMES), "all frames are there again");
}

#[test]
fn odd_descriptors_are_counted_drops() {
    let (queue, mut kernel) = Kernel::start();
    let mut worker = Worker::new(&queue);
    kernel.take_empty(64);
    let rows = [(0, Reason::Runt), (13, Reason::Runt), (1793, Reason::BadAddress), (u32::MAX, Reason::BadAddress)];
    for (len, reason) in rows {
        let addr = kernel.empty.pop().expect("a frame") + 256;
        kernel.rx.push(Desc { addr, len, continued: false }.to_words()).expect("free");
        kernel.rx.submit();
        let before = worker.drops(reason);
        worker.turn(MAX_BATCH, &mut || kernel.count(&queue));
        assert_eq!(worker.drops(reason), before + 1, "{len} bytes");
    }
    assert!(!queue.is_faulted() && worker.received.is_empty());
    // A packet that never ends is dropped once. The packet behind it arrives.
    for nth in 0..40 {
        let addr = kernel.empty.pop().expect("a frame") + 256;
        kernel.rx.push(Desc { addr, len: 100, continued: nth < 39 }.to_words()).expect("free");
    }
    kernel.rx.submit();
    assert!(kernel.receive(&bytes(600, 1), 600));
    for _ in 0..4 {
        worker.turn(MAX_BATCH, &mut || kernel.count(&queue));
    }
    assert_eq!((worker.drops(Reason::LongChain), &worker.received[..]), (1, &[600][..]));
}

#[test]
fn segments_beyond_the_free_frames_are_dropped_and_counted() {
    let (queue, mut kernel) = Kernel::start();
    let Worker { mut arena, queue: published, port, .. } = Worker::new(&queue);
    let mut head = [0; 54];
    (head[12], head[14], head[23], head[46]) = (8, 0x45, 6, 0x50);
    let payload = bytes(200, 3);
    let packet = [&head[..], &payload].concat();
    let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 1, l3: 14, l4: 34, header_len: 54, outer: None };
    let offload = Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: Some(gso) };
    arena.turn(|turn| {
        let Some(queue) = published.load(turn) else { return };
        for round in 0..16 {
            let id = turn.accept_owned(PortIndex(0), &packet).expect("a slot");
            turn.set_offload(id, offload);
            let mut batch = Batch::new();
            batch.push(id);
            deliver::deliver(queue, &port, None, false, turn, &batch);
            kernel.count(queue);
            // The kernel has sent nothing, so 2048 of 3200 segments have found a frame.
            let lost = u64::from(200 * (round + 1_u32)).saturating_sub(FRAMES.into());
            assert_eq!(port.drops.count(Reason::NoBuffer), lost);
        }
    });
    kernel.send(FRAMES);
    kernel.complete(FRAMES as usize);
    kernel.count(&queue);
    let got: Vec<u8> = kernel.sent.iter().map(|packet| packet[54]).collect();
    assert!(kernel.sent.iter().all(|packet| packet.len() == 55));
    assert_eq!(got.len(), FRAMES as usize);
    assert!(got.iter().zip(payload.iter().cycle()).all(|(got, expected)| got == expected));
}

#[test]
fn outer_headers_are_around_each_segment() {
    let (queue, mut kernel) = Kernel::start();
    let Worker { mut arena, queue: published, port, .. } = Worker::new(&queue);
    // TCP over IPv4, and IPv6 with a protocol without checksum around it.
    let mut head = [0; 54];
    (head[12], head[14], head[23], head[46]) = (8, 0x45, 6, 0x50);
    let mut front = [0; 54];
    (front[12], front[13], front[14], front[20]) = (0x86, 0xdd, 0x60, 115);
    let payload = bytes(200, 3);
    let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 80, l3: 14, l4: 34, header_len: 54, outer: None };
    let offload = Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: Some(gso) };
    arena.turn(|turn| {
        let Some(queue) = published.load(turn) else { return };
        let id = turn.accept_owned(PortIndex(0), &[&head[..], &payload].concat()).expect("a slot");
        turn.set_offload(id, offload);
        let outer = Outer { l3: 14, checksum: OuterChecksum::None, gtpu: None };
        turn.prepend_outer(id, &front, outer).expect("good headers");
        let mut batch = Batch::new();
        batch.push(id);
        deliver::deliver(queue, &port, None, false, turn, &batch);
    });
    kernel.send(FRAMES);
    kernel.complete(FRAMES as usize);
    kernel.count(&queue);
    assert_eq!(kernel.sent.len(), 3, "{:?}", port.drops);
    for (frame, payload) in kernel.sent.iter().zip(payload.chunks(80)) {
        let inner = u8::try_from(54 + payload.len()).expect("short");
        assert_eq!((frame[..18] == front[..18], frame[19], &frame[108..]), (true, inner, payload));
        assert!(frame[54 + 34 + 16..][..2] != [0; 2], "the inner checksum is finished");
    }
}

//! Ports of a graph that send the packets of a test, and keep what they get.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use straightline_graph::Port;
use straightline_packet::{AtTurnEnd, Batch, HEAD, Offload, PortIndex, Served, SourceQueueId, Turn};

use crate::memory::Memory;

/// A packet that a port receives or gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The port that it came from.
    pub port: u16,
    /// Its bytes. Those behind the head are 0 where it was got.
    pub bytes: Vec<u8>,
    /// The checksum and segments that are left to others.
    pub offload: Offload,
}

impl Carried {
    /// Returns a packet with nothing left to others.
    #[must_use]
    pub fn plain(port: u16, bytes: Vec<u8>) -> Self {
        Carried { port, bytes, offload: Offload::default() }
    }
}

/// A port that receives its packets in one batch. The rest of a packet behind the head becomes a body.
#[derive(Default)]
pub struct Source(Mutex<Sent>);

#[derive(Default)]
struct Sent {
    packets: Vec<Carried>,
    bodies: Vec<Memory>,
}

impl Source {
    /// Sets the packets of the next batch. Those before must have been received, in turns that are over.
    pub fn send(&self, packets: Vec<Carried>) {
        *self.0.lock().expect("no panic") = Sent { packets, bodies: Vec::new() };
    }

    /// Returns whether packets wait. An input that has had its share is left out for some turns.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.0.lock().expect("no panic").packets.is_empty()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
        let Sent { packets, bodies } = &mut *self.0.lock().expect("no panic");
        for packet in packets.drain(..) {
            let port = PortIndex(packet.port);
            let id = if packet.bytes.len() > HEAD {
                let memory = Memory::new(&packet.bytes);
                let id = turn.accept(port, SourceQueueId::NONE, memory.segment(0, packet.bytes.len()));
                bodies.push(memory);
                id
            } else {
                turn.accept_owned(port, &packet.bytes)
            };
            let id = id.expect("a free slot");
            turn.packets().set_offload(id, packet.offload);
            into.push(id);
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A port that keeps the packets that it gets.
#[derive(Debug, Default)]
pub struct Taken(Mutex<Vec<Carried>>);

impl Taken {
    /// Returns the packets since the last call.
    pub fn take(&self) -> Vec<Carried> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

impl Port for Taken {
    fn name(&self) -> &'static str {
        "taken"
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        for &id in batch.ids() {
            let mut bytes = turn.head(id).to_vec();
            // Bodies never change.
            bytes.resize(turn.len(id) as usize, 0);
            let packet = Carried { port: turn.port(id).0, bytes, offload: turn.offload(id) };
            self.0.lock().expect("no panic").push(packet);
        }
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A port with a ring: packets that an output leaves stay in it, and come again.
#[derive(Debug)]
pub struct RingSource(&'static Ring);

#[derive(Debug)]
struct Ring {
    port: PortIndex,
    waiting: Mutex<VecDeque<Vec<u8>>>,
    /// Packets that the turn has taken.
    taken: AtomicUsize,
}

impl RingSource {
    /// Creates the port. Its ring stays in memory until the test ends.
    #[must_use]
    pub fn new(port: PortIndex) -> Self {
        let ring = Ring { port, waiting: Mutex::default(), taken: AtomicUsize::new(0) };
        RingSource(Box::leak(Box::new(ring)))
    }

    /// Adds packets of at most [`HEAD`] bytes to the ring.
    pub fn send(&self, packets: impl IntoIterator<Item = Vec<u8>>) {
        self.waiting().extend(packets);
    }

    /// Returns the number of packets in the ring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting().len()
    }

    /// Returns whether the ring is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes the packets in the ring, as a guest may do while they wait.
    pub fn change(&self, change: impl FnMut(&mut Vec<u8>)) {
        self.waiting().iter_mut().for_each(change);
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.0.waiting.lock().expect("no panic")
    }
}

impl AtTurnEnd for Ring {
    fn give_back(&self, turn: &mut Turn<'_>, source: SourceQueueId) {
        let (returned, _) = turn.roll_back(source);
        let gone = self.taken.swap(0, Ordering::Relaxed) - returned;
        self.waiting.lock().expect("no panic").drain(..gone);
    }

    fn notify(&self) {}

    fn poisoned(&self) -> bool {
        false
    }

    fn can_keep(&self) -> bool {
        true
    }

    fn served(&self) -> Served {
        Served::Port(self.port)
    }
}

impl Port for RingSource {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let source = turn.borrow_from(self.0);
        for packet in self.waiting().iter().take(max) {
            let mark = turn.mark();
            let Some(id) = turn.accept_staged(self.0.port, source, mark, 0) else { break };
            turn.prepend(id, packet).expect("a short packet");
            into.push(id);
            self.0.taken.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn takes_back(&self) -> bool {
        true
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A port with space for some packets of a turn. It leaves the others in their ring.
#[derive(Debug, Default)]
pub struct Narrow {
    space: AtomicUsize,
    taken: Taken,
}

impl Narrow {
    /// Sets the number of packets that the port takes in each turn.
    pub fn set_space(&self, packets: usize) {
        self.space.store(packets, Ordering::Relaxed);
    }

    /// Returns the packets since the last call.
    pub fn take(&self) -> Vec<Carried> {
        self.taken.take()
    }
}

impl Port for Narrow {
    fn name(&self) -> &'static str {
        "narrow"
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool) {
        let space = self.space.load(Ordering::Relaxed).min(batch.len());
        let mut fits = Batch::new();
        fits.extend(&batch.ids()[..space]);
        self.taken.deliver(turn, &fits, wait);
        // Packets that another node has dropped at this port alone go back with them.
        if let Some(&first) = batch.ids().get(space) {
            let behind = turn.ids(first.index()..turn.accepted());
            let own = behind.take_while(|id| turn.source(*id) == turn.source(first)).count();
            turn.leave_tail(first.index()..first.index() + own);
        }
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

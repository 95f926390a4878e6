//! Ports of a graph that send the packets of a test, and keep what they get.

use std::fmt;
use std::sync::Mutex;

use straightline_graph::Port;
use straightline_packet::{Batch, HEAD, Offload, PortIndex, SourceQueueId, Turn};

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

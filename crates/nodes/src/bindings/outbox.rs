//! Packets of a bridge's own that wait for the next turn: answers, and questions to stations.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use straightline_packet::{Batch, IgnorePoison, PacketVlan, PortIndex, Turn};

/// Bytes of the longest packet: a neighbour advertisement.
const MOST_BYTES: usize = 128;

/// Packets that wait at most, in all and for one port.
const MOST: usize = 512;
const MOST_OF_PORT: u16 = 32;

/// The packets that wait.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Their number, to be read without the lock.
    len: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    packets: VecDeque<Own>,
    /// The number for each port, by its index.
    of_port: Vec<u16>,
}

#[derive(Debug)]
struct Own {
    port: PortIndex,
    vlan: Option<PacketVlan>,
    len: usize,
    bytes: [u8; MOST_BYTES],
}

impl Outbox {
    /// Creates an outbox for ports with indices below `ports`.
    pub(super) fn new(ports: usize) -> Self {
        let waiting = Waiting { packets: VecDeque::with_capacity(MOST), of_port: vec![0; ports] };
        Outbox { len: AtomicUsize::new(0), waiting: Mutex::new(waiting) }
    }

    /// Adds a packet for a port. Returns `false` if too many wait, or another thread has the outbox.
    pub(super) fn push(&self, port: PortIndex, vlan: Option<PacketVlan>, packet: &[u8]) -> bool {
        let Ok(mut waiting) = self.waiting.try_lock() else { return false };
        let Waiting { packets, of_port } = &mut *waiting;
        let Some(count) = of_port.get_mut(port.index()) else { return false };
        let mut bytes = [0; MOST_BYTES];
        let Some(copy) = bytes.get_mut(..packet.len()) else { return false };
        if packets.len() >= MOST || *count >= MOST_OF_PORT {
            return false;
        }
        copy.copy_from_slice(packet);
        *count += 1;
        packets.push_back(Own { port, vlan, len: packet.len(), bytes });
        self.len.store(packets.len(), Ordering::Release);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Takes at most `max` packets into the turn. Those for which it has no slot stay.
    pub(super) fn drain(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock().ignore_poison();
        let Waiting { packets, of_port } = &mut *waiting;
        for _ in 0..max {
            let Some(Own { port, vlan, len, bytes }) = packets.front() else { break };
            let Some(id) = turn.accept_owned(*port, &bytes[..*len]) else { break };
            turn.packets().set_vlan(id, *vlan);
            into.push(id);
            if let Some(count) = of_port.get_mut(port.index()) {
                *count -= 1;
            }
            packets.pop_front();
        }
        self.len.store(packets.len(), Ordering::Release);
    }
}

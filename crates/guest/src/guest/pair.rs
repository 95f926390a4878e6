//! A queue pair: a guest's ring for receiving and its ring for sending.

use std::collections::HashMap;
use std::sync::Arc;

use straightline_packet::Level;
use straightline_virtio::features as f;
use straightline_virtio::memory::GuestMemory;

use super::half::Half;
use super::options::{GuestOptions, RING_ROOM};
use super::receive::Inbox;

/// The two rings of a queue pair (virtio 1.2, 5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Ring {
    /// The ring for receiving.
    Receive = 0,
    /// The ring for sending.
    Transmit = 1,
}

/// A receive ring and a transmit ring, with their buffers. A guest can use a thread for each of its
/// pairs.
#[derive(Debug)]
pub struct Pair {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) level: Level,
    /// True if a received packet may be in several buffers.
    pub(super) mergeable: bool,
    pub(super) receive: Half,
    pub(super) inbox: Inbox,
    pub(super) transmit: Half,
    /// Transmit buffers that the device does not have.
    pub(super) spare: Vec<u16>,
    /// The further buffers of each sent chain, by the number of its first buffer.
    pub(super) chained: HashMap<u16, Vec<u16>>,
}

impl Pair {
    /// Makes pair `number` at `place`, in zeroed memory.
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        number: u16,
        place: u64,
        options: &GuestOptions,
        features: u64,
    ) -> anyhow::Result<Pair> {
        let &GuestOptions { ring_size, buffer_len, receive_split, withhold, .. } = options;
        let half = |ring: Ring| {
            let at = ring as u16;
            let buffers = 2 * RING_ROOM + u64::from(at) * u64::from(ring_size) * u64::from(buffer_len);
            let places = (place + u64::from(at) * RING_ROOM, place + buffers);
            Half::new(memory, 2 * number + at, places, (ring_size, buffer_len), features)
        };
        Ok(Pair {
            receive: half(Ring::Receive)?,
            transmit: half(Ring::Transmit)?,
            memory: Arc::clone(memory),
            level: Level::detect(),
            mergeable: features & f::VIRTIO_NET_F_MRG_RXBUF != 0,
            inbox: Inbox { kept: (0..ring_size).rev().collect(), withhold, cut: receive_split },
            spare: (0..ring_size).rev().collect(),
            chained: HashMap::new(),
        })
    }

    /// Returns the guest's memory.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Returns the instruction set with which the pair copies.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the number of entries of each ring, which is also the number of buffers of each.
    pub fn size(&self) -> u16 {
        self.receive.geometry.size
    }

    pub(super) fn half(&self, ring: Ring) -> &Half {
        match ring {
            Ring::Receive => &self.receive,
            Ring::Transmit => &self.transmit,
        }
    }
}

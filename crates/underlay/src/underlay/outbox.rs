//! Packets of the underlay's own, and those of its tunnels, that wait for the next turn of an
//! [`Agent`](crate::Agent).
//!
//! Each tunnel has places of its own, and so has the underlay: guests of one tunnel take no place
//! of another one, nor of the questions for next hops.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use straightline_packet::{Batch, IgnorePoison, PacketVlan, PortIndex, Turn};
use straightline_wire::messages;

/// Bytes of the longest packet of the underlay's own.
pub(crate) const MOST_OWN: usize = messages::MOST;

/// Packets of the underlay that wait at most.
const MOST_WAITING: usize = 64;

/// Packets of a tunnel that wait at most. A batch brings up to 256 questions, but no station asks
/// for so many addresses at once.
const PLACES: usize = 16;

/// Packets that wait. Any worker adds some, and the next turn sends them.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The underlay's packets and the tunnels with packets, to be read without the lock.
    len: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The underlay's packets.
    own: VecDeque<OwnPacket>,
    /// The places of tunnels in which packets wait. They are served in turn. With a tunnel, its
    /// packets are gone.
    tunnels: VecDeque<Weak<Places>>,
}

/// The packets of one tunnel that wait.
pub(crate) struct Places {
    /// The tunnel's port.
    port: PortIndex,
    packets: Mutex<VecDeque<OwnPacket>>,
}

struct OwnPacket {
    len: usize,
    bytes: [u8; MOST_OWN],
    /// The VLAN of the network that it enters, if its tunnel has several.
    vlan: Option<PacketVlan>,
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("len", &self.len).finish_non_exhaustive()
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Outbox {
    /// Adds a packet of the underlay, which goes out by its port. Returns `false` if its places are
    /// full, or the packet has more than 256 bytes.
    pub(crate) fn push(&self, packet: &[u8]) -> bool {
        let mut waiting = self.lock();
        let is_added = add(&mut waiting.own, MOST_WAITING, packet, None);
        self.update(&waiting);
        is_added
    }

    /// Adds a packet of a tunnel, which enters the tunnel's patch or bridge. `vlan` is that of its
    /// network. Returns `false` if the tunnel's places are full, or the packet has more than 256 bytes.
    pub(crate) fn push_for(&self, places: &Arc<Places>, packet: &[u8], vlan: Option<PacketVlan>) -> bool {
        let mut waiting = self.lock();
        let mut packets = places.lock();
        let is_first = packets.is_empty();
        let is_added = add(&mut packets, PLACES, packet, vlan);
        if is_first && is_added {
            waiting.tunnels.push_back(Arc::downgrade(places));
        }
        self.update(&waiting);
        is_added
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Takes at most `max` packets into the turn: those of the underlay on port `own`, then one of
    /// each tunnel in turn. Packets for which the turn has no slot stay.
    pub(crate) fn drain(&self, own: PortIndex, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.lock();
        for _ in 0..max {
            if !waiting.take(own, turn, into) {
                break;
            }
        }
        self.update(&waiting);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().ignore_poison()
    }

    fn update(&self, waiting: &Waiting) {
        self.len.store(waiting.own.len() + waiting.tunnels.len(), Ordering::Release);
    }
}

impl Waiting {
    /// Takes the next packet into the turn. Returns `false` if none waits or the turn has no slot.
    fn take(&mut self, own: PortIndex, turn: &mut Turn<'_>, into: &mut Batch) -> bool {
        if !self.own.is_empty() {
            return take(&mut self.own, own, turn, into);
        }
        while let Some(first) = self.tunnels.pop_front() {
            let Some(places) = first.upgrade() else { continue };
            let mut packets = places.lock();
            let is_taken = take(&mut packets, places.port, turn, into);
            if !is_taken {
                self.tunnels.push_front(first);
            } else if !packets.is_empty() {
                self.tunnels.push_back(first);
            }
            return is_taken;
        }
        false
    }
}

impl Places {
    /// Returns the places of the tunnel on this port.
    pub(crate) fn new(port: PortIndex) -> Self {
        Places { port, packets: Mutex::new(VecDeque::with_capacity(PLACES)) }
    }

    /// Removes what waits, as if it was sent.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<OwnPacket>> {
        self.packets.lock().ignore_poison()
    }
}

fn add(packets: &mut VecDeque<OwnPacket>, most: usize, packet: &[u8], vlan: Option<PacketVlan>) -> bool {
    let mut bytes = [0; MOST_OWN];
    let Some(copy) = bytes.get_mut(..packet.len()).filter(|_| packets.len() < most) else { return false };
    copy.copy_from_slice(packet);
    packets.push_back(OwnPacket { len: packet.len(), bytes, vlan });
    true
}

fn take(packets: &mut VecDeque<OwnPacket>, port: PortIndex, turn: &mut Turn<'_>, into: &mut Batch) -> bool {
    let Some(OwnPacket { len, bytes, vlan }) = packets.front() else { return false };
    let Some(id) = turn.accept_owned(port, &bytes[..*len]) else { return false };
    turn.packets().set_vlan(id, *vlan);
    into.push(id);
    packets.pop_front();
    true
}

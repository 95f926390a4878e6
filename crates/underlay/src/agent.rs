//! The port by which packets of the underlay's own enter the graph: requests for MAC addresses,
//! kept packets, ICMP errors. It also does what is due once a second.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, PacketId, Packets, PortIndex, Reason, Turn};
use straightline_port::Port;
use straightline_wire::MacAddr;

use crate::Underlay;

/// Bytes of the longest packet of the underlay's own.
pub(crate) const MOST_OWN: usize = 256;

/// Packets of the underlay's own that wait at most.
const MOST_WAITING: usize = 64;

/// Packets of tunnels that wait at most. So those of the underlay have half of the places: guests
/// cannot stop the questions for next hops.
const MOST_OF_TUNNELS: usize = MOST_WAITING / 2;

/// Packets that wait for the agent. Any worker adds some, and the next turn sends them.
pub(crate) struct Outbox {
    /// The underlay's port.
    own: PortIndex,
    /// The number of packets, to be read without the lock.
    len: AtomicUsize,
    packets: Mutex<VecDeque<OwnPacket>>,
}

/// A packet of the underlay's own, as if it came from `port`.
struct OwnPacket {
    port: PortIndex,
    len: usize,
    bytes: [u8; MOST_OWN],
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Outbox {
    /// Returns an empty outbox for the underlay on this port.
    pub(crate) fn new(own: PortIndex) -> Self {
        Outbox { own, len: AtomicUsize::new(0), packets: Mutex::new(VecDeque::with_capacity(MOST_WAITING)) }
    }

    fn packets(&self) -> MutexGuard<'_, VecDeque<OwnPacket>> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a packet of at most 256 bytes, as if it came from `port`: a tunnel's packet enters the
    /// tunnel's patch or bridge, and a packet of the underlay's port goes out by it. Returns
    /// `false` if the outbox is full or the packet too long. For packets of tunnels, it is full when
    /// half of it has such packets.
    pub(crate) fn push(&self, port: PortIndex, packet: &[u8]) -> bool {
        let mut packets = self.packets();
        if packets.len() >= MOST_WAITING || packet.len() > MOST_OWN {
            return false;
        }
        let is_of_tunnel = |port: PortIndex| port != self.own;
        if is_of_tunnel(port) && packets.iter().filter(|packet| is_of_tunnel(packet.port)).count() >= MOST_OF_TUNNELS {
            return false;
        }
        let mut bytes = [0; MOST_OWN];
        bytes[..packet.len()].copy_from_slice(packet);
        packets.push_back(OwnPacket { port, len: packet.len(), bytes });
        self.len.store(packets.len(), Ordering::Release);
        true
    }

    /// Returns whether no packet waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Takes at most `max` packets into the turn. Packets for which the turn has no slot stay.
    fn drain(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        if self.is_empty() {
            return;
        }
        let mut packets = self.packets();
        for _ in 0..max {
            let accepted = packets.front().and_then(|packet| {
                let bytes = &packet.bytes[..packet.len];
                turn.accept_owned(packet.port, bytes)
            });
            let Some(id) = accepted else { break };
            into.push(id);
            packets.pop_front();
        }
        self.len.store(packets.len(), Ordering::Release);
    }
}

/// The input for packets of the underlay's own. Each worker that serves the underlay has one.
#[derive(Debug)]
pub struct Agent {
    underlay: Arc<Underlay>,
    /// The underlay's port, which knows the MAC address of its interface.
    port: Arc<dyn Port>,
    name: String,
}

impl Agent {
    pub(crate) fn new(underlay: Arc<Underlay>, port: Arc<dyn Port>) -> Self {
        let name = format!("{}-agent", underlay.config().name);
        Agent { underlay, port, name }
    }

    /// Does the work of a second.
    #[cold]
    fn tick(&self, turn: &mut Turn<'_>) {
        if let Some(mac) = self.port.mac(turn) {
            self.underlay.set_mac(MacAddr(mac));
        }
        self.underlay.set_interface_mtu(self.port.mtu(turn));
        self.underlay.set_leaves_unfinished(self.port.leaves_unfinished(turn));
        let given_up = self.underlay.tick(turn.now());
        turn.packets().count_drops(self.underlay.port, Reason::NoNeighbour, u64::try_from(given_up).unwrap_or(0));
    }
}

impl Port for Agent {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let (outbox, before) = (&self.underlay.outbox, into.len());
        if self.underlay.begins_second(turn.now()) {
            // Packets that wait leave their places to the questions of the second.
            outbox.drain(turn, into, max);
            self.tick(turn);
        }
        outbox.drain(turn, into, max - (into.len() - before));
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, for_buffers: bool) -> bool {
        !for_buffers && !self.underlay.outbox.is_empty()
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Leads the agent's packets on: edge 0 to the underlay, and one edge for each tunnel, to the
/// tunnel's patch or bridge.
#[derive(Debug)]
pub struct OwnPackets {
    underlay: PortIndex,
    tunnels: Vec<PortIndex>,
}

impl OwnPackets {
    /// Returns the node for the port of an underlay and for these tunnels, whose edges follow edge
    /// 0 in this order.
    #[must_use]
    pub fn new(underlay: PortIndex, tunnels: Vec<PortIndex>) -> Self {
        OwnPackets { underlay, tunnels }
    }

    fn edge(&self, packets: &Packets<'_>, id: PacketId) -> Option<usize> {
        let port = packets.port(id);
        if port == self.underlay {
            return Some(0);
        }
        self.tunnels.iter().position(|&tunnel| tunnel == port).map(|at| at + 1)
    }
}

impl Node for OwnPackets {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            match self.edge(packets, id) {
                Some(edge) => next.push(edge, id),
                // A reload has removed the tunnel. Its packet must not go anywhere else.
                None => packets.discard(id, Reason::NotConnected),
            }
        }
    }
}

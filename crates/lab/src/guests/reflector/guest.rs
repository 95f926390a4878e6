//! The guest: its rings, and a turn of each load.

use std::sync::atomic::{Ordering, fence};

use anyhow::bail;
use az::SaturatingAs;
use straightline_guest::endpoints::{Connection, Endpoint, Memory, broken};
use straightline_packet::Level;
use straightline_virtio::ring::{Bursts, DeviceFault, Moved};

use super::options::{Load, ReflectorOptions};
use super::report::Count;
use crate::guests::touch::{Touch, Toucher};

/// The most packets that are taken from a ring at once.
const BURST: usize = 64;

/// The guest's accesses to the packets that it moves. They are known at compile time, so that
/// [`Touch::None`] has no cost.
pub(super) trait Accesses: Send {
    /// True if packets are touched.
    const TOUCHES: bool;

    /// Touches a packet of `len` bytes, header included.
    fn touch(&mut self, addr: u64, len: u32);
}

/// Implements [`Touch::None`].
pub(super) struct Untouched;

impl Accesses for Untouched {
    const TOUCHES: bool = false;

    #[inline(always)]
    fn touch(&mut self, _addr: u64, _len: u32) {}
}

/// Implements all other policies.
pub(super) struct Touching<'a> {
    toucher: Toucher,
    memory: &'a Memory,
    level: Level,
}

impl<'a> Touching<'a> {
    pub(super) fn new(touch: Touch, memory: &'a Memory) -> Touching<'a> {
        Touching { toucher: Toucher::new(touch), memory, level: Level::detect() }
    }
}

impl Accesses for Touching<'_> {
    const TOUCHES: bool = true;

    #[inline]
    fn touch(&mut self, addr: u64, len: u32) {
        // All buffers are in guest memory.
        let Some(packet) = self.memory.buffer(addr, len) else { return };
        self.toucher.keep(packet, self.level);
    }
}

/// The guest. With `FLOOD` it sends without pause and drops received packets. Otherwise it sends
/// packets that come on one port through the other port.
pub(super) struct ReflectorGuest<R, A, const FLOOD: bool> {
    accesses: A,
    pub(super) receive: [R; 2],
    pub(super) transmit: [R; 2],
    /// Buffers that are in no ring.
    pub(super) spare: Vec<u64>,
    pub(super) ports: [Connection; 2],
    pub(super) received: [Count; 2],
    pub(super) sent: [u64; 2],
    pub(super) kicks: u64,
}

impl<R: Bursts, A: Accesses, const FLOOD: bool> ReflectorGuest<R, A, FLOOD> {
    /// Makes the guest. Its rings are empty, and all buffers are spare.
    pub(super) fn new(
        options: &ReflectorOptions,
        memory: &Memory,
        ports: [Connection; 2],
        accesses: A,
    ) -> anyhow::Result<ReflectorGuest<R, A, FLOOD>> {
        let [receive0, transmit0] = ports[0].rings(memory, &options.port())?;
        let [receive1, transmit1] = ports[1].rings(memory, &options.port())?;
        Ok(ReflectorGuest {
            accesses,
            receive: [receive0, receive1],
            transmit: [transmit0, transmit1],
            spare: memory.buffers(),
            ports,
            received: [Count::default(); 2],
            sent: [0; 2],
            kicks: 0,
        })
    }

    /// Returns the ports on which packets should have arrived.
    pub(super) fn silent_ports(&self, load: Load) -> impl Iterator<Item = usize> + use<R, A, FLOOD> {
        let received = self.received;
        (0..2).filter(move |&at| load.comes_by(at) && received[at].packets == 0)
    }

    /// Sends packets that come on one port through the other port. Returns the number of received
    /// packets.
    #[inline]
    fn bounce(&mut self) -> anyhow::Result<usize> {
        let mut packets = 0;
        for (from, to) in [(0, 1), (1, 0)] {
            let receive = &mut self.receive[from];
            let transmit = &mut self.transmit[to];
            let accesses = &mut self.accesses;
            let back = transmit.reclaim(&mut self.spare);
            back.map_err(|fault| broken(&self.ports[to], fault))?;
            let moved =
                R::forward_each(receive, transmit, &mut self.spare, BURST, |addr, len| accesses.touch(addr, len));
            let moved = moved.map_err(|fault| broken(&self.ports[from], fault))?;
            packets += moved.packets;
            self.received[from].add(&moved);
            self.sent[to] += wide(moved.packets);
            if moved.packets > 0 && transmit.kick_due() {
                self.ports[to].kick(1);
                self.kicks += 1;
            }
        }
        Ok(packets)
    }

    /// Sends as many packets as the ports accept, and drops received packets. Returns the number of
    /// received packets.
    #[inline]
    fn flood(&mut self) -> anyhow::Result<usize> {
        let mut packets = 0;
        for at in 0..2 {
            let receive = &mut self.receive[at];
            let transmit = &mut self.transmit[at];
            let accesses = &mut self.accesses;
            let sent = recycle(transmit, accesses).map_err(|fault| broken(&self.ports[at], fault))?;
            let moved = recycle(receive, accesses).map_err(|fault| broken(&self.ports[at], fault))?;
            packets += moved.packets;
            self.received[at].add(&moved);
            self.sent[at] += wide(sent.packets);
            if sent.packets > 0 && transmit.kick_due() {
                self.ports[at].kick(1);
                self.kicks += 1;
            }
        }
        Ok(packets)
    }

    /// Takes received packets out of the rings for good, and calls `each` with their addresses and
    /// lengths. Also takes back sent buffers.
    pub(super) fn collect(&mut self, mut each: impl FnMut(u64, u32)) -> anyhow::Result<()> {
        for at in 0..2 {
            let back = self.transmit[at].reclaim(&mut self.spare);
            back.map_err(|fault| broken(&self.ports[at], fault))?;
            let received = &mut self.received[at];
            let collected = self.receive[at].collect(usize::MAX, |addr, len| {
                received.add(&Moved { packets: 1, bytes: len.into(), longest: len });
                each(addr, len);
            });
            collected.map_err(|fault| broken(&self.ports[at], fault))?;
        }
        Ok(())
    }
}

impl<R: Bursts + Send, A: Accesses, const FLOOD: bool> Endpoint for ReflectorGuest<R, A, FLOOD> {
    #[inline]
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        if FLOOD { self.flood() } else { self.bounce() }
    }

    #[cold]
    fn wake(&mut self) {
        // The fence orders the index that was published before the notification word that is read
        // now. Either the backend saw the index before it slept, or this thread sees the backend's
        // request for a kick (`ring/notify.rs`). Sending a burst has no fence, so this thread may
        // have missed a request until now.
        // Cites packed-2.8.21.3.1-1.
        fence(Ordering::SeqCst);
        for at in 0..2 {
            for (number, ring) in [&mut self.receive[at], &mut self.transmit[at]].into_iter().enumerate() {
                if ring.kick_due() {
                    self.ports[at].kick(number);
                    self.kicks += 1;
                }
            }
        }
    }

    fn check(&mut self) -> anyhow::Result<()> {
        if let Some(port) = self.ports.iter().find(|port| port.has_gone()) {
            bail!("{}: the backend has closed the connection", port.socket.display());
        }
        Ok(())
    }
}

#[inline]
fn recycle<R: Bursts, A: Accesses>(ring: &mut R, accesses: &mut A) -> Result<Moved, DeviceFault> {
    if A::TOUCHES { ring.recycle_each(BURST, |addr, len| accesses.touch(addr, len)) } else { ring.recycle(BURST) }
}

impl Count {
    #[inline]
    fn add(&mut self, moved: &Moved) {
        self.packets += wide(moved.packets);
        self.bytes += moved.bytes;
        self.longest = self.longest.max(moved.longest);
    }
}

#[inline]
pub(super) fn wide(n: usize) -> u64 {
    n.saturating_as::<u64>()
}

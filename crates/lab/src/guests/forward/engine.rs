//! The guest that forwards packets in any mode.

use straightline_guest::HEADER_LEN;
use straightline_guest::endpoints::{Endpoint, Look, Packet, TestPort, VhostPort, relay, relay_back};
use straightline_packet::MemorySegment;

use super::{BURST, Forwarder, Touch};
use crate::guests::touch::Toucher;

/// A forward mode: the treatment of a packet that is forwarded.
pub(super) trait Mode: Send {
    /// True if packets leave through the port on which they came.
    const BACK: bool = false;

    /// True if the mode does not examine packets. Then packets are relayed as they are, unless the
    /// guest touches them.
    const IDLE: bool = false;

    /// True if the mode writes into headers.
    const WRITES: bool = true;

    /// Applies the mode to a packet. Returns whether the packet is forwarded. It leaves through
    /// port `to`.
    fn packet(&mut self, packet: &Packet<'_>, to: usize) -> bool;

    /// Implements [`Forwarder::notes`].
    fn notes(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A guest with one port or two.
pub(super) struct Relay<M> {
    ports: Vec<VhostPort>,
    toucher: Toucher,
    mode: M,
}

impl<M: Mode> Relay<M> {
    pub(super) fn new(ports: Vec<VhostPort>, touch: Touch, mode: M) -> Self {
        Relay { ports, toucher: Toucher::new(touch), mode }
    }
}

impl<M: Mode> Endpoint for Relay<M> {
    #[inline]
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let Relay { ports, toucher, mode } = self;
        if M::IDLE && toucher.touch == Touch::None {
            return turn(ports, |_| {}, &mut Idle);
        }
        let mut looks = Looks { toucher, mode, to: 0 };
        if M::BACK {
            let mut packets = 0;
            for (to, port) in ports.iter_mut().enumerate() {
                looks.to = to;
                packets += relay_back(port, BURST, &mut looks)?;
            }
            return Ok(packets);
        }
        turn(ports, |looks| looks.to = 1 - looks.to, &mut looks)
    }

    fn wake(&mut self) {
        self.ports.iter_mut().for_each(TestPort::wake);
    }

    fn is_sending(&mut self) -> anyhow::Result<bool> {
        self.ports.iter_mut().try_fold(false, |some, port| Ok(port.is_sending()? || some))
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.ports.iter_mut().try_for_each(TestPort::check)
    }
}

impl<M: Mode> Forwarder for Relay<M> {
    fn ports(&self) -> Vec<&VhostPort> {
        self.ports.iter().collect()
    }

    fn notes(&self) -> Vec<(&'static str, u64)> {
        self.mode.notes()
    }
}

/// Takes one turn. Packets that come on one port leave through the other one; a guest with one port
/// returns them.
#[inline]
fn turn<L: Look>(ports: &mut [VhostPort], other_way: impl Fn(&mut L), look: &mut L) -> anyhow::Result<usize> {
    match ports {
        [one] => relay_back(one, BURST, look),
        [one, other] => {
            let back = relay(other, one, BURST, look)?;
            other_way(look);
            Ok(back + relay(one, other, BURST, look)?)
        }
        _ => Ok(0),
    }
}

/// Examines nothing.
pub(super) struct Idle;

impl Look for Idle {
    const LOOKS: bool = false;

    #[inline]
    fn prefetch(&self, _first: MemorySegment<'_>) {}

    #[inline]
    fn look(&mut self, _packet: &Packet<'_>) -> bool {
        true
    }
}

/// Touches packets, then applies the mode.
struct Looks<'a, M> {
    toucher: &'a mut Toucher,
    mode: &'a mut M,
    to: usize,
}

impl<M: Mode> Look for Looks<'_, M> {
    #[inline]
    fn prefetch(&self, first: MemorySegment<'_>) {
        match self.toucher.touch {
            Touch::None if !M::WRITES => {}
            Touch::Header | Touch::Read if !M::WRITES => {
                first.prefetch();
                first.prefetch_at(HEADER_LEN);
            }
            _ => first.prefetch_for_store::<HEADER_LEN>(),
        }
    }

    #[inline]
    fn look(&mut self, packet: &Packet<'_>) -> bool {
        self.toucher.apply(packet);
        self.mode.packet(packet, self.to)
    }
}

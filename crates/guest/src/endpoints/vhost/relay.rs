//! Relays packets from one port to another in their buffers, without a copy.

use az::SaturatingAs;
use straightline_packet::{Level, MemorySegment};

use super::connection::{Connection, broken};
use super::memory::Memory;
use super::outbox::Outbox;
use super::packet::Packet;
use super::port::{Inbox, PortCounters, VhostPort};
use crate::endpoints::Received;
use crate::guest::HEADER_LEN;

/// Examines packets that are relayed from one port to another.
pub trait Look {
    /// True if this type examines packets. If false, all packets are relayed unchanged.
    const LOOKS: bool = true;

    /// Prefetches the cache lines of a packet that [`Self::look`] will need. `first` is the
    /// packet's first buffer.
    fn prefetch(&self, first: MemorySegment<'_>);

    /// Examines the packet, and may change it. Returns whether the packet is relayed.
    fn look(&mut self, packet: &Packet<'_>) -> bool;
}

/// Sends about `most` received buffers of port `from` through port `to`, which uses the same
/// memory. Packets for which `to` has no free buffers stay in the ring. Returns the number of
/// received packets.
///
/// # Errors
/// A backend broke the protocol.
pub fn relay<L: Look>(from: &mut VhostPort, to: &mut VhostPort, most: usize, look: &mut L) -> anyhow::Result<usize> {
    let free = to.free_to_relay()?;
    let VhostPort { connection, memory, level, inbox, counters, .. } = from;
    let packets =
        Source { connection, memory, level: *level, inbox, counters }.pass(&mut to.outbox, free, most, look)?;
    to.publish();
    Ok(packets)
}

/// Relays packets back through the port on which they came.
///
/// # Errors
/// The backend broke the protocol.
pub fn relay_back<L: Look>(port: &mut VhostPort, most: usize, look: &mut L) -> anyhow::Result<usize> {
    let free = port.free_to_relay()?;
    let VhostPort { connection, memory, level, inbox, outbox, counters } = port;
    let packets = Source { connection, memory, level: *level, inbox, counters }.pass(outbox, free, most, look)?;
    port.publish();
    Ok(packets)
}

/// The parts of a port that receive.
struct Source<'a> {
    connection: &'a Connection,
    memory: &'a Memory,
    level: Level,
    inbox: &'a mut Inbox,
    counters: &'a mut PortCounters,
}

impl Source<'_> {
    /// Takes about `most` buffers, and at most `free`, from the receive ring. Puts the buffers of
    /// relayed packets into `to`, and as many spare buffers of `to` into the receive ring.
    #[inline]
    fn pass<L: Look>(self, to: &mut Outbox, free: usize, most: usize, look: &mut L) -> anyhow::Result<usize> {
        let Source { connection, memory, level, inbox, counters } = self;
        // The burst may still hold the first buffers of a packet, because its other buffers had not
        // come. Their number is subtracted. So the burst never has more buffers than `to` can take,
        // whatever the backend claims about buffers per packet. An earlier call has found free
        // entries for these first buffers, and only this function uses up free entries.
        let most = free.saturating_sub(inbox.burst.len()).min(most);
        inbox.ring.take(most, &mut inbox.burst).map_err(|fault| broken(connection, fault))?;
        if inbox.burst.is_empty() {
            return Ok(0);
        }
        let mut at = 0;
        let mut packets = 0;
        let before = to.bytes;
        // A buffer that is not full holds an entire packet. If no buffer is full, no header has to
        // be read.
        let longest = inbox.burst.iter().map(|part| part.1).max().unwrap_or(0);
        if !L::LOOKS && longest < inbox.buffer_len {
            at = inbox.burst.len();
            packets = at;
            to.bytes += inbox.burst.iter().map(|part| u64::from(part.1.saturating_sub(HEADER_LEN))).sum::<u64>();
            to.packets += wide(packets);
            to.pending.extend_from_slice(&inbox.burst);
            if to.ring.chains() {
                to.spans.extend(std::iter::repeat_n(1, at));
            }
            counters.rx_bytes += to.bytes - before;
        } else {
            // These lines are in the cache of the CPU that wrote them. They arrive here while the
            // first packets are examined.
            let first = inbox.burst.iter().filter_map(|&(addr, len)| memory.buffer(addr, len));
            first.for_each(|buffer| look.prefetch(buffer));
            while let Some(span) = inbox.span(at, memory)? {
                let buffers = &inbox.burst[at..at + span];
                let packet = Packet::new(memory, level, buffers);
                let len = packet.map_or(0, |packet| wide(packet.len()));
                let fits = span <= to.ring.longest();
                if fits && packet.is_some_and(|packet| look.look(&packet)) {
                    to.pending.extend_from_slice(buffers);
                    if to.ring.chains() {
                        to.spans.push(span.saturating_as::<u16>());
                    }
                    to.packets += 1;
                    to.bytes += len;
                } else {
                    to.spare.extend(buffers.iter().map(|part| part.0));
                    *if fits { &mut counters.dropped } else { &mut counters.too_long } += 1;
                }
                counters.rx_bytes += len;
                at += span;
                packets += 1;
            }
        }
        counters.rx_packets += wide(packets);
        let rest = to.spare.len() - at;
        inbox.ring.give(to.spare.drain(rest..));
        inbox.burst.drain(..at);
        Ok(packets)
    }
}

impl VhostPort {
    #[inline]
    fn free_to_relay(&mut self) -> anyhow::Result<usize> {
        self.outbox.relays(&self.memory);
        self.outbox.free_buffers().map_err(|fault| broken(&self.connection, fault))
    }
}

#[inline]
fn wide(n: usize) -> u64 {
    n.saturating_as::<u64>()
}

//! Packets from one port to another in their buffers: none is copied.

use straightline_packet::{Level, MemorySegment};

use super::connection::{Connection, broken};
use super::memory::Memory;
use super::packet::Packet;
use super::port::{Inbox, Outbox, PortCounters, VhostPort};
use crate::endpoints::Received;
use crate::guest::HEADER_LEN;

/// Whoever looks at packets that go from one port to another.
pub(crate) trait Look {
    /// Whether it looks at all: else all packets go on as they are.
    const LOOKS: bool = true;

    /// Asks early for the lines of a packet that it will need, given its first buffer.
    fn prefetch(&self, first: MemorySegment<'_>);

    /// May change the packet. Returns whether it goes on.
    fn look(&mut self, packet: &Packet<'_>) -> bool;
}

/// Sends what has come by `from`, some `most` buffers, by `to`, which has the same memory. What `to` has no room for stays
/// in the ring. Returns how many packets came.
///
/// # Errors
/// What a backend did wrong.
pub(crate) fn relay<L: Look>(
    from: &mut VhostPort,
    to: &mut VhostPort,
    most: usize,
    look: &mut L,
) -> anyhow::Result<usize> {
    let free = to.free_to_relay()?;
    let VhostPort { connection, memory, level, inbox, counters, .. } = from;
    let packets =
        Source { connection, memory, level: *level, inbox, counters }.pass(&mut to.outbox, free, most, look)?;
    to.show();
    Ok(packets)
}

/// The same by one port: what has come goes back.
///
/// # Errors
/// What the backend did wrong.
pub(crate) fn relay_back<L: Look>(port: &mut VhostPort, most: usize, look: &mut L) -> anyhow::Result<usize> {
    let free = port.free_to_relay()?;
    let VhostPort { connection, memory, level, inbox, outbox, counters } = port;
    let packets = Source { connection, memory, level: *level, inbox, counters }.pass(outbox, free, most, look)?;
    port.show();
    Ok(packets)
}

/// Of a port, what packets come by.
struct Source<'a> {
    connection: &'a Connection,
    memory: &'a Memory,
    level: Level,
    inbox: &'a mut Inbox,
    counters: &'a mut PortCounters,
}

impl Source<'_> {
    /// Takes some `most` buffers, `room` at the most, and puts those of packets that go on into `to`; the ring gets as many
    /// of `to`'s spare ones.
    #[inline]
    fn pass<L: Look>(self, to: &mut Outbox, free: usize, most: usize, look: &mut L) -> anyhow::Result<usize> {
        let Source { connection, memory, level, inbox, counters } = self;
        // With what is left of a packet whose other buffers had not come. So there are never more in the burst than there is
        // room for, whatever the backend now says of how many are one packet: what was left had room, which only we use up.
        let most = free.saturating_sub(inbox.burst.len()).min(most);
        inbox.ring.take(most, &mut inbox.burst).map_err(|fault| broken(connection, fault))?;
        if inbox.burst.is_empty() {
            return Ok(0);
        }
        let (mut at, mut packets, before) = (0, 0, to.bytes);
        // What does not fill its buffer is alone in it: then there is nothing to be looked at.
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
            // They are in the cache of whoever has written them, and come while the first are looked at.
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
                        to.spans.push(u16::try_from(span).unwrap_or(u16::MAX));
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
        // The buffers have changed hands: nobody knows what is in them.
        to.holds.clear();
        Ok(packets)
    }
}

impl VhostPort {
    #[inline]
    fn free_to_relay(&mut self) -> anyhow::Result<usize> {
        self.outbox.free_buffers().map_err(|fault| broken(&self.connection, fault))
    }

    /// Shows the backend what is to be sent.
    #[inline]
    fn show(&mut self) {
        if self.outbox.publish(&mut self.counters) {
            self.kick();
        }
    }
}

#[inline]
fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

//! The port: sends and receives frames.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use anyhow::{Context, bail, ensure};
use az::SaturatingAs;
use straightline_packet::{Level, MemorySegment};
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};

use super::connection::{Connection, broken};
use super::memory::Memory;
use super::options::PortOptions;
use super::outbox::{Outbox, narrow, prefetch};
use super::packet::Packet;
use super::rings::{Receive, Transmit};
use super::shelves::part_of;
use crate::endpoints::port::{Received, Receiver, TestPort};
use crate::guest::HEADER_LEN;

/// Counters of a port. Bytes are counted without virtio-net headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Received packets.
    pub rx_packets: u64,
    /// Received bytes.
    pub rx_bytes: u64,
    /// Sent packets.
    pub tx_packets: u64,
    /// Sent bytes.
    pub tx_bytes: u64,
    /// Received packets that the forwarding mode did not send on.
    pub dropped: u64,
    /// Received packets that were not sent on because they are in several buffers. The ports'
    /// options do not allow for that.
    pub too_long: u64,
    /// Kicks that the backend asked for.
    pub kicks: u64,
}

/// A queue pair of any vhost-user backend.
#[derive(Debug)]
pub struct VhostPort {
    pub(super) connection: Connection,
    pub(super) memory: Arc<Memory>,
    pub(super) level: Level,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    pub(super) counters: PortCounters,
}

/// The receive ring.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) ring: Receive,
    /// True if a received packet may be in several buffers.
    mergeable: bool,
    /// Bytes of each buffer.
    pub(super) buffer_len: u32,
    size: usize,
    /// Buffers taken from the ring and not given back: address and length.
    pub(super) burst: Vec<(u64, u32)>,
    /// Offsets in a buffer of the first and the last byte that the caller will read.
    reads: [u32; 2],
}

impl VhostPort {
    /// Connects a port, with memory of its own, to the backend that listens at `socket`.
    ///
    /// # Errors
    /// Memory is not available, or the backend refused something.
    pub fn connect(socket: &Path, options: &PortOptions) -> anyhow::Result<VhostPort> {
        let mut ports = VhostPort::connect_all(&[socket.to_owned()], options)?;
        ports.pop().context("no port")
    }

    /// Connects a port to each of these backends. All backends get the same memory, so a packet can
    /// move from one port to another in its buffer.
    ///
    /// # Errors
    /// Memory is not available, or a backend refused something.
    pub fn connect_all(sockets: &[PathBuf], options: &PortOptions) -> anyhow::Result<Vec<VhostPort>> {
        options.check()?;
        let memory = Arc::new(Memory::new(options, u16::try_from(sockets.len())?)?);
        let mut buffers = memory.buffers();
        let mut ports = Vec::with_capacity(sockets.len());
        for (number, socket) in sockets.iter().enumerate() {
            let connection = Connection::connect(socket, &memory, number, options)?;
            ports.push(VhostPort::new(connection, Arc::clone(&memory), &mut buffers, options)?);
        }
        for port in &mut ports {
            port.connection.start(&memory)?;
        }
        Ok(ports)
    }

    /// Makes a port. It takes its share of `buffers`.
    fn new(
        connection: Connection,
        memory: Arc<Memory>,
        buffers: &mut Vec<u64>,
        options: &PortOptions,
    ) -> anyhow::Result<VhostPort> {
        let size = usize::from(options.queue_size);
        let mut share = || buffers.split_off(buffers.len().saturating_sub(size));
        let received = share();
        let spare = share();
        let mut ring = Receive::new(&connection, &memory, options)?;
        ensure!(ring.give(received.into_iter()) == size, "a ring of {size} entries does not take {size} buffers");
        Ok(VhostPort {
            inbox: Inbox {
                ring,
                mergeable: options.mergeable,
                buffer_len: options.buffer_len,
                size,
                burst: Vec::with_capacity(size),
                reads: [0; 2],
            },
            outbox: Outbox::new(Transmit::new(&connection, &memory, options)?, options, spare, memory.buffers().len()),
            connection,
            memory,
            level: Level::detect(),
            counters: PortCounters::default(),
        })
    }

    /// Returns the socket of the port's backend.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.connection.socket
    }

    /// Returns the negotiated features.
    #[must_use]
    pub fn features(&self) -> u64 {
        self.connection.features
    }

    /// Returns its counters.
    #[must_use]
    pub fn counters(&self) -> PortCounters {
        self.counters
    }

    /// Stops both rings. A backend that is gone need not be told.
    pub fn stop(self) {
        self.connection.stop();
    }

    /// Receives packets as [`TestPort::receive`] does, for callers that also write to these
    /// packets.
    pub fn take(&mut self, most: usize, mut each: impl FnMut(&Packet<'_>)) -> anyhow::Result<usize> {
        let VhostPort { connection, memory, level, inbox, counters, .. } = self;
        inbox.ring.take(most, &mut inbox.burst).map_err(|fault| broken(connection, fault))?;
        // These lines are in the cache of the CPU that wrote them. They arrive here while the first
        // packets are examined.
        for &(addr, _) in &inbox.burst {
            prefetch(memory, addr, inbox.reads, MemorySegment::prefetch_at);
        }
        let mut at = 0;
        let mut packets = 0;
        while let Some(span) = inbox.span(at, memory)? {
            if packets == most {
                break;
            }
            if let Some(packet) = Packet::new(memory, *level, &inbox.burst[at..at + span]) {
                counters.rx_bytes += packet.len().saturating_as::<u64>();
                each(&packet);
            }
            at += span;
            packets += 1;
        }
        counters.rx_packets += u64::try_from(packets).unwrap_or(0);
        inbox.ring.give(inbox.burst.drain(..at).map(|(addr, _)| addr));
        Ok(packets)
    }

    /// Publishes the frames that were sent, and kicks the backend if it wants a kick for them.
    #[inline]
    pub(super) fn publish(&mut self) {
        let [packets, bytes] = self.outbox.publish();
        self.counters.tx_packets += packets;
        self.counters.tx_bytes += bytes;
        if packets > 0 && self.outbox.ring.kick_due() {
            self.connection.kick(1);
            self.counters.kicks += 1;
        }
    }
}

impl Inbox {
    /// Returns the number of buffers of a packet. Its first buffer is at `at` in the burst. `None`
    /// if some buffers of the packet have not come yet.
    #[inline]
    pub(super) fn span(&self, at: usize, memory: &Memory) -> anyhow::Result<Option<usize>> {
        let Some(&(addr, len)) = self.burst.get(at) else { return Ok(None) };
        // All buffers of a packet except the last one are full (virtio 1.2, 5.1.6.4.1).
        if !self.mergeable || len < self.buffer_len { Ok(Some(1)) } else { self.merged(at, addr, memory) }
    }

    #[cold]
    fn merged(&self, at: usize, addr: u64, memory: &Memory) -> anyhow::Result<Option<usize>> {
        let header = memory.buffer(addr, HEADER_LEN).and_then(|buffer| buffer.read12()).unwrap_or([0; HEADER]);
        let span = usize::from(NetHeader::parse(&header).num_buffers).max(1);
        ensure!(span <= self.size, "a packet claims {span} buffers, but the ring has only {}", self.size);
        Ok((at + span <= self.burst.len()).then_some(span))
    }
}

impl TestPort for VhostPort {
    fn backend(&self) -> Option<u32> {
        self.connection.backend()
    }

    fn free_buffers(&mut self) -> usize {
        match self.outbox.free_buffers() {
            Ok(buffers) => buffers / self.outbox.ring.longest(),
            Err(fault) => {
                self.outbox.fault = Some(fault);
                0
            }
        }
    }

    #[inline]
    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
        let VhostPort { outbox, memory, level, .. } = self;
        let total = HEADER + frame.len();
        if total > outbox.buffer_len as usize || frame.len() > outbox.longest {
            return outbox.send_long(memory, *level, template, (header, frame), patches);
        }
        if !outbox.has_free(1) {
            return false;
        }
        let Some((addr, is_held)) = outbox.take(memory, part_of(template, 0)) else { return false };
        let Some(buffer) = memory.buffer(addr, narrow(total)) else { return false };
        let body = buffer.split_at(HEADER_LEN).1;
        if !is_held {
            buffer.write(*level, &header.to_bytes());
            body.write(*level, frame);
        }
        for &(at, bytes) in patches {
            body.split_at(narrow(at)).1.write_words(*level, bytes);
            outbox.patched = [narrow(HEADER + at), narrow((HEADER + at + bytes.len()).saturating_sub(1))];
        }
        outbox.push((addr, narrow(total)), frame.len());
        true
    }

    #[inline]
    fn will_read(&mut self, bytes: Range<usize>) {
        self.inbox.reads = [narrow(HEADER + bytes.start), narrow((HEADER + bytes.end).saturating_sub(1))];
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if let Some(fault) = self.outbox.fault {
            return Err(broken(&self.connection, fault));
        }
        if let Some(len) = self.outbox.too_long {
            bail!(
                "a frame of {len} bytes cannot be sent: the port was made for frames of at most {} bytes",
                self.outbox.longest
            );
        }
        self.publish();
        Ok(())
    }

    #[inline]
    fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
        self.take(most, |packet| each.frame(packet))
    }

    fn is_sending(&mut self) -> anyhow::Result<bool> {
        let VhostPort { outbox, connection, .. } = self;
        outbox.is_sending().map_err(|fault| broken(connection, fault))
    }

    #[cold]
    fn wake(&mut self) {
        // The fence orders the index that was published before the notification word that is read
        // now. Either the backend saw the index before it slept, or this thread sees the backend's
        // request for a kick. Sending a burst has no fence, so this thread may have missed a
        // request until now.
        // Cites packed-2.8.21.3.1-1.
        fence(Ordering::SeqCst);
        let due = [self.inbox.ring.kick_due(), self.outbox.ring.kick_due()];
        for ring in (0..2).filter(|&ring| due[ring]) {
            self.connection.kick(ring);
            self.counters.kicks += 1;
        }
    }

    fn check(&mut self) -> anyhow::Result<()> {
        ensure!(!self.connection.has_gone(), "{}: the backend has closed the connection", self.socket().display());
        Ok(())
    }
}

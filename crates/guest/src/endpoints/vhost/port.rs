//! The port: sends and receives frames.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use anyhow::{Context, bail, ensure};
use straightline_packet::Level;
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};
use straightline_virtio::ring::DeviceFault;

use super::connection::{Connection, broken};
use super::memory::Memory;
use super::options::PortOptions;
use super::packet::Packet;
use super::rings::{Receive, Transmit};
use crate::endpoints::port::{Received, TestPort};
use crate::guest::HEADER_LEN;

/// Marks a transmit buffer that holds no part of a template.
const NOTHING: u64 = u64::MAX;

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
}

/// The transmit ring.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) ring: Transmit,
    size: usize,
    buffer_len: u32,
    longest: usize,
    /// Buffers that are free.
    pub(super) spare: Vec<u64>,
    /// Buffers that are not published yet: address and length. `spans` has the number of buffers of
    /// each packet.
    pub(super) pending: Vec<(u64, u32)>,
    pub(super) spans: Vec<u16>,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    /// For each buffer, the template and the part of the template that the buffer holds;
    /// [`NOTHING`] if unknown.
    pub(super) holds: Vec<u64>,
    /// A fault, which the next call reports.
    fault: Option<DeviceFault>,
    too_long: Option<usize>,
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
        let (received, spare) = (share(), share());
        let mut ring = Receive::new(&connection, &memory, options)?;
        ensure!(ring.give(received.into_iter()) == size, "a ring of {size} entries does not take {size} buffers");
        Ok(VhostPort {
            inbox: Inbox {
                ring,
                mergeable: options.mergeable,
                buffer_len: options.buffer_len,
                size,
                burst: Vec::with_capacity(size),
            },
            outbox: Outbox {
                ring: Transmit::new(&connection, &memory, options)?,
                size,
                buffer_len: options.buffer_len,
                longest: options.longest as usize,
                spare,
                pending: Vec::with_capacity(size),
                spans: Vec::with_capacity(size),
                bytes: 0,
                packets: 0,
                holds: vec![NOTHING; memory.buffers().len()],
                fault: None,
                too_long: None,
            },
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
        let (mut at, mut packets) = (0, 0);
        while let Some(span) = inbox.span(at, memory)? {
            if packets == most {
                break;
            }
            if let Some(packet) = Packet::new(memory, *level, &inbox.burst[at..at + span]) {
                counters.rx_bytes += u64::try_from(packet.len()).unwrap_or(0);
                each(&packet);
            }
            at += span;
            packets += 1;
        }
        counters.rx_packets += u64::try_from(packets).unwrap_or(0);
        inbox.ring.give(inbox.burst.drain(..at).map(|(addr, _)| addr));
        Ok(packets)
    }

    /// Kicks the transmit ring if the backend wants a kick for the frames just published.
    #[inline]
    pub(super) fn kick(&mut self) {
        if self.outbox.ring.kick_due() {
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

impl Outbox {
    /// Takes back the buffers that the backend has used, and returns the number of free buffers.
    #[inline]
    pub(super) fn free_buffers(&mut self) -> Result<usize, DeviceFault> {
        self.ring.reclaim(&mut self.spare)?;
        Ok(self.free())
    }

    #[inline]
    fn free(&self) -> usize {
        (self.ring.free(self.size) - self.pending.len()).min(self.spare.len())
    }

    /// Returns whether a buffer already holds this part of a template. Notes that the buffer holds
    /// this part from now on.
    #[inline]
    fn remembers(&mut self, buffer: u64, chunk: u64) -> bool {
        let holds = usize::try_from(buffer).ok().and_then(|buffer| self.holds.get_mut(buffer));
        holds.is_some_and(|holds| std::mem::replace(holds, chunk) == chunk)
    }

    /// Publishes the pending buffers. Returns whether there were any.
    #[inline]
    pub(super) fn publish(&mut self, counters: &mut PortCounters) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        self.ring.send(&self.pending, &self.spans);
        self.pending.clear();
        self.spans.clear();
        counters.tx_packets += std::mem::take(&mut self.packets);
        counters.tx_bytes += std::mem::take(&mut self.bytes);
        true
    }
}

impl TestPort for VhostPort {
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
        if frame.len() > outbox.longest {
            outbox.too_long = Some(frame.len());
            return false;
        }
        let span = if total <= outbox.buffer_len as usize { 1 } else { total.div_ceil(outbox.buffer_len as usize) };
        if outbox.free() < span {
            outbox.fault = outbox.fault.or(outbox.ring.reclaim(&mut outbox.spare).err());
            if outbox.free() < span {
                return false;
            }
        }
        for chunk in 0..span {
            let Some(addr) = outbox.spare.pop() else { return false };
            let from = chunk * outbox.buffer_len as usize;
            let len = (total - from).min(outbox.buffer_len as usize);
            let Some(buffer) = memory.buffer(addr, outbox.buffer_len) else { return false };
            // The part of the frame in this buffer: its start in the frame, and its start in the
            // buffer.
            let (start, behind) = if chunk == 0 { (0, HEADER) } else { (from - HEADER, 0) };
            let body = buffer.split_at(narrow(behind)).1;
            let part = &frame[start..start + len - behind];
            let held = u64::try_from(template).unwrap_or(u64::MAX) << 16 | u64::try_from(chunk).unwrap_or(0);
            if !outbox.remembers(memory.number(addr), held) {
                if chunk == 0 {
                    buffer.write(*level, &header.to_bytes());
                }
                body.write(*level, part);
            }
            for &(at, bytes) in patches {
                // Only those bytes of the patch are written that are in this part.
                let skip = start.saturating_sub(at).min(bytes.len());
                let at = (at + skip).saturating_sub(start);
                if at < part.len() {
                    body.split_at(narrow(at)).1.split_at(narrow(part.len() - at)).0.write(*level, &bytes[skip..]);
                }
            }
            outbox.pending.push((addr, narrow(len)));
        }
        if outbox.ring.chains() {
            outbox.spans.push(u16::try_from(span).unwrap_or(u16::MAX));
        }
        outbox.packets += 1;
        outbox.bytes += u64::try_from(frame.len()).unwrap_or(0);
        true
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
        if self.outbox.publish(&mut self.counters) {
            self.kick();
        }
        Ok(())
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&dyn Received)) -> anyhow::Result<usize> {
        self.take(most, |packet| each(packet))
    }

    fn is_sending(&mut self) -> anyhow::Result<bool> {
        let VhostPort { outbox, connection, .. } = self;
        outbox.ring.reclaim(&mut outbox.spare).map_err(|fault| broken(connection, fault))?;
        Ok(outbox.ring.free(outbox.size) < outbox.size)
    }

    #[cold]
    fn wake(&mut self) {
        // The fence orders the index that was published before the notification word that is read
        // now. Either the backend saw the index before it slept, or this thread sees the backend's
        // request for a kick. Sending a burst has no fence, so this thread may have missed a
        // request until now.
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

#[inline]
fn narrow(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

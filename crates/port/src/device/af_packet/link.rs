//! Packets from and to open packet sockets, up to 64 a system call.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use straightline_packet::{AtTurnEnd, Batch, HEAD, MemorySegment, PacketId, Reason, SourceQueueId, Turn};

use super::socket;
use crate::device::backoff::{Backoff, is_ready};
use crate::device::link::{DeviceLink, DevicePortData};
use crate::device::pool::Pool;
use crate::device::vectored::{self, MESSAGES, Message};
use crate::device::vnet::{self, Origin, Refused, Tally, Transmitter, Way};
use crate::device::{OpenCause, OpenError, OpenedDevice};

/// Bytes of the virtio-net header of packet sockets: without the number of buffers.
const HEADER: usize = 10;
const HEADER_U32: u32 = 10;

/// Bytes for the front of each packet. Fronts lie close together, and hold most packets entirely.
const FRONT: usize = 2048;
/// Place of a packet in its front: the frame begins a cache line.
const LEAD: usize = 64 - HEADER;
/// Bytes for the rest of a large packet.
const REST: u32 = 1 << 16;

/// Bytes of an Ethernet frame before its type or VLAN tag.
const ADDRESSES: usize = 12;
const TAG_LEN: u32 = 4;

/// Open packet sockets of one interface.
#[derive(Debug)]
pub(crate) struct AfPacketLink {
    queues: Box<[Queue]>,
    /// The offloads of both directions, as virtio features.
    features: u64,
}

/// A socket.
#[derive(Debug)]
struct Queue {
    fd: Arc<OwnedFd>,
    pool: Pool,
    idle: Backoff,
    transmit: Transmitter<HEADER>,
    /// Packets that the socket has lost.
    lost: AtomicU64,
}

impl AfPacketLink {
    /// Returns the link of open sockets.
    pub(crate) fn new(opened: OpenedDevice) -> Result<Self, OpenError> {
        let OpenedDevice { facts, fds } = opened;
        let failed = |error| OpenError::new(OpenCause::Failed, format!("{}: memory: {error}", facts.interface));
        let queue = |fd| {
            let pool = Pool::new(MESSAGES * (FRONT + REST as usize))?;
            let transmit = Transmitter::new(facts.features)?;
            Ok(Queue { fd: Arc::new(fd), pool, idle: Backoff::default(), transmit, lost: AtomicU64::new(0) })
        };
        let queues = fds.into_iter().map(queue).collect::<std::io::Result<_>>().map_err(failed)?;
        Ok(AfPacketLink { queues, features: facts.features })
    }
}

impl DeviceLink for AfPacketLink {
    fn receive<'t>(&'t self, port: &DevicePortData, queue: usize, turn: &mut Turn<'t>, into: &mut Batch, max: usize) {
        let (Some(queue), counters) = (self.queues.get(queue), port.counters.get(queue)) else { return };
        if queue.idle.skips() {
            return;
        }
        let mut lending = queue.pool.lend();
        if !lending.is_free() {
            // A turn of the queue's former worker has not ended yet.
            return;
        }
        let mut messages = [Message::default(); MESSAGES];
        let max = max.min(turn.free_slots());
        let received = match vectored::receive(queue.fd.as_fd(), max, |n| queue.space(n), &mut messages) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => {
                lost(port, error);
                0
            }
        };
        queue.idle.note(received > 0);
        let mut packets = 0;
        let mut bytes = 0;
        let mut source = None;
        for (n, message) in messages[..received].iter().enumerate() {
            let Some([front, rest]) = queue.space(n) else { break };
            let first = front.split_at(message.len).0;
            let more = message.len.saturating_sub(front.len());
            let (Some(header), false) = (first.read12(), message.truncated) else {
                port.drops.add(if message.truncated { Reason::TooBig } else { Reason::Runt }, 1);
                continue;
            };
            // All bytes of a short packet are in its slot, so it borrows nothing.
            let has_body = message.len as usize > HEADER + HEAD;
            if has_body && lending.begin() {
                source = Some(turn.borrow_from(queue));
            }
            let source = source.filter(|_| has_body).unwrap_or(SourceQueueId::NONE);
            let max_len = port.max_len();
            let origin = Origin { port: port.index, source, features: self.features, max_len };
            let rest = (more > 0).then(|| rest.split_at(more).0);
            match vnet::accept(turn, origin, &header, first.split_at(HEADER_U32).1, rest) {
                Some(id) if message.tag.is_some_and(|tag| !put_back(turn, id, tag)) => {
                    turn.discard(id, Reason::DeviceRefused);
                }
                // Only with its tag back is it known how long the packet is.
                Some(id) if !turn.is_gso(id) && !turn.fits(id, turn.len(id), max_len) => {
                    turn.discard(id, Reason::TooBig);
                }
                Some(id) => {
                    packets += 1;
                    bytes += u64::from(turn.len(id));
                    into.push(id);
                }
                None => {}
            }
        }
        if let Some(counters) = counters {
            counters.rx.packets.add(packets);
            counters.rx.bytes.add(bytes);
        }
    }

    fn deliver<'t>(&'t self, port: &DevicePortData, queue: usize, turn: &mut Turn<'t>, batch: &Batch) {
        let (Some(queue), counters) = (self.queues.get(queue), port.counters.get(queue)) else { return };
        let mut tally = Tally::default();
        let vanished = vnet::may_have_vanished(turn);
        let max_len = port.max_len();
        let mut direct = Batch::new();
        let mut rest = batch.ids();
        while let Some((&id, later)) = rest.split_first() {
            let way = if vanished && turn.poisoned(id) {
                Err(Refused::Vanished)
            } else {
                queue.transmit.way(turn, id, max_len).map_err(Refused::Dropped)
            };
            let sent = match way {
                Ok(Way::Direct) => {
                    Transmitter::<HEADER>::put_header(turn, id);
                    direct.push(id);
                    Ok(())
                }
                Ok(other) => {
                    // Packets stay in their order.
                    if queue.send(port, turn, &mut direct, &mut tally) {
                        Err(Refused::Gone)
                    } else {
                        queue.send_copied(port, turn, id, other, &mut tally)
                    }
                }
                Err(refused) => Err(refused),
            };
            if let Err(refused) = sent
                && vnet::refuse(port, turn, rest, refused)
            {
                break;
            }
            rest = later;
        }
        queue.send(port, turn, &mut direct, &mut tally);
        queue.transmit.count(turn, counters, &tally);
    }

    fn sends(&self, turn: &Turn<'_>, id: PacketId, queue: usize) -> u32 {
        self.queues.get(queue).map_or(1, |queue| queue.transmit.sends(turn, id))
    }

    fn arm(&self, port: &DevicePortData, queue: usize) -> bool {
        let Some(queue) = self.queues.get(queue) else { return false };
        queue.idle.note(true);
        is_ready(port, &queue.fd)
    }

    fn disarm(&self, _queue: usize) {}

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn wake_fd(&self, queue: usize) -> &Arc<OwnedFd> {
        &self.queues[queue].fd
    }

    fn kernel_drops(&self) -> Vec<(&'static str, u64)> {
        let lost = self.queues.iter().map(|queue| {
            // The kernel counts from 0 again after each call.
            let new = u64::from(socket::take_lost(queue.fd.as_fd()).unwrap_or(0));
            queue.lost.fetch_add(new, Ordering::Relaxed) + new
        });
        vec![("tp_drops", lost.sum())]
    }
}

impl Queue {
    /// Returns the memory for packet `n` of a burst.
    #[inline]
    fn space(&self, n: usize) -> Option<[MemorySegment<'_>; 2]> {
        const FRONT_LEN: u32 = 2048 - 54;
        const { assert!(FRONT_LEN as usize == FRONT - LEAD) };
        let front = self.pool.segment(n * FRONT + LEAD, FRONT_LEN)?;
        let rest = self.pool.segment(MESSAGES * FRONT + n * REST as usize, REST)?;
        Some([front, rest])
    }

    /// Sends packets that go as they are, and empties the batch. Returns whether the interface has
    /// gone.
    fn send<'t>(&'t self, port: &DevicePortData, turn: &mut Turn<'t>, direct: &mut Batch, tally: &mut Tally) -> bool {
        let batch = std::mem::take(direct);
        let mut rest = batch.ids();
        while let Some(&id) = rest.first() {
            let sent = match vectored::send::<HEADER>(self.fd.as_fd(), turn, rest) {
                Ok(sent) => {
                    for &id in &rest[..sent] {
                        let body = turn.body_len(id);
                        turn.count_copied(body);
                        tally.count(turn.len(id), body);
                    }
                    rest = &rest[sent..];
                    continue;
                }
                // The copy finds out which memory has vanished, and its port stops.
                Err(Errno::FAULT) => self.transmit.send_copied(self.fd.as_fd(), turn, id, false, tally),
                Err(error) => Err(error.into()),
            };
            if let Err(refused) = sent
                && vnet::refuse(port, turn, rest, refused)
            {
                return true;
            }
            rest = &rest[1..];
        }
        false
    }

    /// Sends a packet that is copied first.
    #[cold]
    fn send_copied<'t>(
        &'t self,
        port: &DevicePortData,
        turn: &mut Turn<'t>,
        id: PacketId,
        way: Way,
        tally: &mut Tally,
    ) -> Result<(), Refused> {
        let fd = self.fd.as_fd();
        match way {
            Way::Segmented(plan) => self.transmit.send_segmented(fd, (port, turn), id, plan, tally),
            Way::Copied { finish } => self.transmit.send_copied(fd, turn, id, finish, tally),
            Way::Direct => self.transmit.send_copied(fd, turn, id, false, tally),
        }
    }
}

impl AtTurnEnd for Queue {
    fn give_back(&self, _turn: &mut Turn<'_>, _source: SourceQueueId) {
        self.pool.give_back();
    }

    fn notify(&self) {}

    /// Returns `false`: the memory is the switch's own.
    fn poisoned(&self) -> bool {
        false
    }
}

/// Counts a packet that the kernel could not pass, or reports that the interface has gone.
#[cold]
fn lost(port: &DevicePortData, error: Errno) {
    match error {
        // The kernel has no virtio-net header for such a packet, and has thrown it away.
        Errno::INVAL => port.drops.add(Reason::DeviceRefused, 1),
        Errno::NOBUFS | Errno::NOMEM => {}
        _ => port.report_fault(),
    }
}

/// Puts a VLAN tag back behind the addresses, from where the kernel has taken it. Returns `false`
/// if the packet has no space for it.
#[cold]
fn put_back(turn: &mut Turn<'_>, id: PacketId, tag: [u8; 4]) -> bool {
    let mut front = [0; ADDRESSES + TAG_LEN as usize];
    let Some(addresses) = turn.head(id).get(..ADDRESSES) else { return false };
    front[..ADDRESSES].copy_from_slice(addresses);
    front[ADDRESSES..].copy_from_slice(&tag);
    turn.strip(id, ADDRESSES).is_ok() && turn.prepend(id, &front).is_ok()
}

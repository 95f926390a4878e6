//! Packets from and to an open tap, one system call for each.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use straightline_packet::{AtTurnEnd, Batch, HEAD, MAX_FRAME, MemorySegment, PacketId, Reason, SourceQueueId, Turn};
use straightline_virtio::net_header::LEN;

use crate::device::backoff::{Backoff, is_ready};
use crate::device::link::{DeviceLink, DevicePortData};
use crate::device::pool::Pool;
use crate::device::vectored;
use crate::device::vnet::{self, Origin, Refused, Tally, Transmitter, Way};
use crate::device::{OpenCause, OpenError, OpenedDevice};

/// Bytes that are read at most: a packet that fills all of them was truncated.
const SPACE: u32 = MAX_FRAME + LEN_U32 + 1;
const LEN_U32: u32 = 12;
const _: () = assert!(LEN_U32 as usize == LEN);

/// Bytes of a queue's pool: the bytes of bodies that a turn takes, and two packets beyond.
const POOL: usize = (1 << 20) + 2 * (1 << 17);

/// Bytes of a body that are prefetched at most: those of a packet that is no GSO packet.
const PREFETCHED: u32 = 1536;

/// An open tap.
#[derive(Debug)]
pub(crate) struct TapLink {
    queues: Box<[Queue]>,
    /// The offloads of both directions, as virtio features.
    features: u64,
}

/// A queue of the tap.
#[derive(Debug)]
struct Queue {
    fd: Arc<OwnedFd>,
    pool: Pool,
    idle: Backoff,
    transmit: Transmitter<LEN>,
}

impl TapLink {
    /// Returns the link of an open tap.
    pub(crate) fn new(opened: OpenedDevice) -> Result<Self, OpenError> {
        let OpenedDevice { facts, fds } = opened;
        let failed = |error| OpenError::new(OpenCause::Failed, format!("tap {}: memory: {error}", facts.interface));
        let queue = |fd| {
            let pool = Pool::new(POOL)?;
            let transmit = Transmitter::new(facts.features)?;
            Ok(Queue { fd: Arc::new(fd), pool, idle: Backoff::default(), transmit })
        };
        let queues = fds.into_iter().map(queue).collect::<std::io::Result<_>>().map_err(failed)?;
        Ok(TapLink { queues, features: facts.features })
    }
}

impl DeviceLink for TapLink {
    fn receive<'t>(&'t self, port: &DevicePortData, queue: usize, turn: &mut Turn<'t>, into: &mut Batch, max: usize) {
        let (Some(queue), counters) = (self.queues.get(queue), port.counters.get(queue)) else { return };
        if queue.idle.skips() {
            return;
        }
        let fd = queue.fd.as_fd();
        let mut lending = queue.pool.lend();
        let mut source = None;
        let mut found = false;
        let mut packets = 0;
        let mut bytes = 0;
        for _ in 0..max.min(turn.free_slots()) {
            // A turn's bodies have a limit, so packets wait in the kernel at times.
            let Some(space) = lending.space(SPACE, LEN).filter(|_| turn.free_slots() > 0) else { break };
            let len = match vectored::read(fd, space) {
                Ok(len) => len,
                Err(Errno::AGAIN | Errno::INTR) => break,
                // The packet needs an offload that the header cannot name.
                Err(Errno::INVAL) => {
                    port.drops.add(Reason::DeviceRefused, 1);
                    continue;
                }
                Err(_) => {
                    port.report_fault();
                    break;
                }
            };
            found = true;
            let (Some(header), true) = (space.split_at(len).0.read12(), len < SPACE) else {
                port.drops.add(if len < SPACE { Reason::Runt } else { Reason::TooBig }, 1);
                continue;
            };
            // All bytes of a short packet are in its slot, so it borrows nothing.
            let has_body = len as usize > LEN + HEAD;
            if has_body && lending.begin() {
                source = Some(turn.borrow_from(queue));
            }
            let source = source.filter(|_| has_body).unwrap_or(SourceQueueId::NONE);
            let origin = Origin { port: port.index, source, features: self.features, max_len: port.max_len() };
            let frame = space.split_at(len).0.split_at(LEN_U32).1;
            let Some(id) = vnet::accept(turn, origin, &header, frame, None) else { continue };
            packets += 1;
            bytes += u64::from(turn.len(id));
            into.push(id);
            if has_body {
                lending.keep(len, LEN);
            }
        }
        queue.idle.note(found);
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
        let mut rest = batch.ids();
        // The kernel's copy waits for each line that the guest's CPU has written. So the lines of the
        // next packet are fetched during the system call for this one.
        let prefetches = turn.prefetches();
        while let Some((&id, later)) = rest.split_first() {
            if let Some(&next) = later.first().filter(|_| prefetches) {
                prefetch(turn.body(next));
            }
            let sent = if vanished && turn.poisoned(id) {
                Err(Refused::Vanished)
            } else {
                queue.send(port, turn, id, max_len, &mut tally)
            };
            if let Err(refused) = sent
                && vnet::refuse(port, turn, rest, refused)
            {
                break;
            }
            rest = later;
        }
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

    /// Returns nothing: a tap's descriptor does not tell the packets that found its queue full.
    fn kernel_drops(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Prefetches the first bytes of a packet's body.
#[inline]
fn prefetch(body: &[MemorySegment<'_>]) {
    let Some(first) = body.first() else { return };
    (0..first.len().min(PREFETCHED)).step_by(64).for_each(|offset| first.prefetch_at(offset));
}

impl Queue {
    /// Sends one packet.
    #[inline]
    fn send<'t>(
        &'t self,
        port: &DevicePortData,
        turn: &mut Turn<'t>,
        id: PacketId,
        max_len: u32,
        tally: &mut Tally,
    ) -> Result<(), Refused> {
        let fd = self.fd.as_fd();
        match self.transmit.way(turn, id, max_len).map_err(Refused::Dropped)? {
            Way::Direct => {
                Transmitter::<LEN>::put_header(turn, id);
                match vectored::write(fd, turn.front_and_head::<LEN>(id), turn.body(id)) {
                    Ok(_) => {
                        let body = turn.body_len(id);
                        turn.count_copied(body);
                        tally.count(turn.len(id), body);
                        Ok(())
                    }
                    // The copy finds out which memory has vanished, and its port stops.
                    Err(Errno::FAULT) => self.transmit.send_copied(fd, turn, id, false, tally),
                    Err(error) => Err(error.into()),
                }
            }
            Way::Copied { finish } => self.transmit.send_copied(fd, turn, id, finish, tally),
            Way::Segmented(plan) => self.transmit.send_segmented(fd, (port, turn), id, plan, tally),
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

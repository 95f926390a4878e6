//! A device port as one of its workers serves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use straightline_graph::{Port, QueueAssignment};
use straightline_packet::{Batch, PacketId, PortIndex, Reason, Turn};
use straightline_wire::{EtherType, vlan};

use super::link::{DeviceLink, DevicePortData};

/// The most tags behind which control of a link is looked for. Switches on the way take off a few.
const MOST_TAGS: usize = 8;

/// A device port as one of its workers serves it. It is the worker's [`Port`].
///
/// A worker receives from the queues that the assignment gives it. It delivers to the first queue
/// of its own, or to queue 0 if it has none. So a flow stays in order: all its packets come to one
/// worker, and the kernel keeps the order within a queue.
#[derive(Debug)]
pub(super) struct WorkerPort {
    data: Arc<DevicePortData>,
    /// The queues that the worker receives from.
    rx_queues: Box<[usize]>,
    /// The queue that the worker delivers to.
    tx_queue: usize,
    /// The position in `rx_queues` that comes first in the next turn, so that no queue is always
    /// last when slots are few.
    first: AtomicUsize,
}

impl WorkerPort {
    pub(super) fn new(data: Arc<DevicePortData>, assignment: &QueueAssignment, worker: usize) -> Self {
        let queues_of = |workers: &[usize]| -> Box<[usize]> {
            (0..workers.len()).filter(|&queue| workers[queue] == worker).collect()
        };
        let tx_queue = queues_of(&assignment.tx_workers).first().copied().unwrap_or(0);
        WorkerPort { data, rx_queues: queues_of(&assignment.rx_workers), tx_queue, first: AtomicUsize::new(0) }
    }

    fn link<'t>(&self, turn: &Turn<'t>) -> Option<&'t dyn DeviceLink> {
        self.data.link.load(turn).map(|link| &**link)
    }

    /// Returns the worker's queues that the device has.
    fn rx_queues(&self, link: &dyn DeviceLink) -> &[usize] {
        &self.rx_queues[..self.rx_queues.partition_point(|&queue| queue < link.queues())]
    }

    /// Returns the queue that the worker delivers to, or the first one if the device has fewer.
    fn tx_queue(&self, link: &dyn DeviceLink) -> usize {
        if self.tx_queue < link.queues() { self.tx_queue } else { 0 }
    }

    fn receive_from<'t>(&self, link: &'t dyn DeviceLink, turn: &mut Turn<'t>, into: &mut Batch, max: usize) {
        let queues = self.rx_queues(link);
        let before = into.len();
        let first = self.first.load(Ordering::Relaxed);
        for step in 0..queues.len() {
            let at = (first + step) % queues.len();
            let left = max.saturating_sub(into.len() - before);
            if left == 0 || turn.free_slots() == 0 {
                break;
            }
            let had = into.len();
            link.receive(&self.data, queues[at], turn, into, left);
            if into.len() > had {
                self.first.store((at + 1) % queues.len(), Ordering::Relaxed);
            }
        }
    }
}

impl Port for WorkerPort {
    fn name(&self) -> &str {
        &self.data.name
    }

    fn index(&self) -> Option<PortIndex> {
        Some(self.data.index)
    }

    fn mac(&self, turn: &Turn<'_>) -> Option<[u8; 6]> {
        self.link(turn).and_then(|_| self.data.mac())
    }

    fn mtu(&self, turn: &Turn<'_>) -> Option<u16> {
        self.link(turn).map(|_| self.data.mtu())
    }

    fn leaves_unfinished(&self, turn: &Turn<'_>) -> bool {
        self.link(turn).is_some_and(DeviceLink::leaves_unfinished)
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let Some(link) = self.link(turn) else { return };
        if self.data.is_set_down() {
            let mut refused = Batch::new();
            self.receive_from(link, turn, &mut refused, max);
            refused.ids().iter().for_each(|&id| turn.discard(id, Reason::SetDown));
            return;
        }
        self.receive_from(link, turn, into, max);
    }

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        let reason = match self.link(turn) {
            _ if self.data.is_set_down() => Reason::SetDown,
            Some(link) if batch.ids().iter().any(|&id| is_control(turn.head(id))) => {
                let batch = without_control(turn, batch);
                return link.deliver(&self.data, self.tx_queue(link), turn, &batch);
            }
            Some(link) => return link.deliver(&self.data, self.tx_queue(link), turn, batch),
            None => Reason::LinkDown,
        };
        turn.drop_at(self.data.index, batch.ids(), reason);
    }

    fn makes_calls(&self) -> bool {
        true
    }

    fn sends(&self, turn: &Turn<'_>, id: PacketId) -> u32 {
        let sends = self.link(turn).filter(|_| turn.is_gso(id)).map(|link| link.sends(turn, id, self.tx_queue(link)));
        sends.unwrap_or(1)
    }

    fn send_waiting(&self, turn: &Turn<'_>) -> bool {
        self.link(turn).is_some_and(|link| link.send_waiting(self.tx_queue(link)))
    }

    fn arm(&self, turn: &Turn<'_>, for_buffers: bool) -> bool {
        let Some(link) = self.link(turn).filter(|_| !for_buffers) else { return false };
        // All queues are armed, even after one that has packets already.
        self.rx_queues(link).iter().fold(false, |any, &queue| link.arm(&self.data, queue) | any)
    }

    fn disarm(&self, turn: &Turn<'_>, for_buffers: bool) {
        if let Some(link) = self.link(turn).filter(|_| !for_buffers) {
            self.rx_queues(link).iter().for_each(|&queue| link.disarm(queue));
        }
    }
}

/// Returns whether a frame controls the link on which it is sent, such as PAUSE (IEEE 802.3, 31B). It
/// would stop the next switch from sending to this machine. A tag may go on the way there.
#[inline]
fn is_control(head: &[u8]) -> bool {
    let type_at = |at: usize| {
        let bytes = head.get(at..at + 2).and_then(|bytes| bytes.first_chunk());
        EtherType(bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes)))
    };
    let mut types = (0..=MOST_TAGS).map(|tags| type_at(vlan::OFFSET + tags * vlan::LEN));
    types.find(|ether_type| !ether_type.may_be_vlan()) == Some(EtherType::MAC_CONTROL)
}

/// Drops the frames that control a link, and returns the others.
#[cold]
fn without_control(turn: &mut Turn<'_>, batch: &Batch) -> Batch {
    let mut others = Batch::new();
    for &id in batch.ids() {
        if is_control(turn.head(id)) {
            let from = turn.port(id);
            turn.drop_at(from, &[id], Reason::MacControl);
        } else {
            others.push(id);
        }
    }
    others
}

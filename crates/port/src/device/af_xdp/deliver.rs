//! Packets to the interface: into frames of the UMEM, and by the tx ring to the kernel.
//!
//! ```text
//! lock the sending half; collect the frames that were sent
//! loop:
//!     fill frames with packets                            (`frames`)
//!     if memory of a source has vanished since the last look:
//!         put the frames back, and fill them again without its packets
//!     show the kernel the descriptors
//!     if packets are left: flush, collect                 (there were too few free frames)
//! flush                                                   (one `sendto` for the batch, in the best case)
//! ```
//!
//! The kernel sends during the delivery and not at the end of the turn, so that the delivery's time
//! is its cost. The graph charges that to the packets' inputs.

use straightline_graph::Counter;
use straightline_packet::{Batch, MemorySegment, PacketId, Reason, Turn};
use straightline_virtio::memory::fault;

use super::frames::Umem;
use super::queue::{Queue, QueueFault, TxFrames, TxHalf};
use crate::device::frames::{FrameSink, Limits, Tally, fill};
use crate::device::link::DevicePortData;

/// Frames that one packet may take: a packet of 9216 bytes takes 3 of 4 KiB. The kernel allows 17
/// (`MAX_SKB_FRAGS`).
const MOST_FRAMES: usize = 16;

/// The sending half as a destination of packets.
struct Sink<'a, 't> {
    tx: &'a mut TxFrames,
    umem: &'t Umem,
    most_frames: usize,
    fault: Option<QueueFault>,
}

impl<'t> FrameSink<'t> for Sink<'_, 't> {
    #[inline]
    fn frame_size(&self) -> u32 {
        self.umem.frame_size()
    }

    #[inline]
    fn most_frames(&self) -> usize {
        self.most_frames
    }

    #[inline]
    fn free(&self) -> usize {
        self.tx.free()
    }

    #[inline]
    fn has_pushed(&self) -> bool {
        self.tx.pushed() > 0
    }

    #[inline]
    fn take(&mut self) -> Option<MemorySegment<'t>> {
        self.tx.take(self.umem)
    }

    #[inline]
    fn push(&mut self, frames: usize, len: u32) -> bool {
        match self.tx.push(self.umem, frames, len) {
            Ok(()) => true,
            Err(fault) => {
                self.fault = Some(fault);
                false
            }
        }
    }

    fn put_back(&mut self) {
        self.tx.put_back();
    }
}

/// Delivers a batch by a queue. With `several`, a packet may take several frames.
pub(super) fn deliver<'t>(
    queue: &'t Queue,
    port: &DevicePortData,
    counters: Option<&straightline_graph::RingCounters>,
    several: bool,
    turn: &mut Turn<'t>,
    batch: &Batch,
) {
    let most_frames = if several { MOST_FRAMES } else { 1 };
    let mut tx = queue.lock_tx();
    let mut ids = batch.ids();
    if let Err(fault) = tx.frames.collect(&queue.umem) {
        queue.fail(fault);
    }
    while !ids.is_empty() && !queue.is_faulted() {
        let result = publish(&mut tx, queue, port, most_frames, turn, ids);
        match result {
            Ok(tally) => {
                count(port, counters, turn, &tally);
                ids = &ids[tally.done..];
            }
            Err(fault) => queue.fail(fault),
        }
        if !ids.is_empty() && !queue.is_faulted() {
            let sent = queue.flush(&mut tx.frames).and_then(|_| tx.frames.collect(&queue.umem));
            if let Err(fault) = sent {
                queue.fail(fault);
            }
        }
    }
    if !queue.is_faulted() {
        queue.flush_all(&mut tx.frames);
    }
    drop(tx);
    if queue.is_faulted() {
        turn.drop_at(port.index, ids, Reason::LinkDown);
        port.report_fault();
    }
}

/// Fills frames with the first of these packets, and shows them to the kernel.
fn publish<'t>(
    tx: &mut TxHalf,
    queue: &'t Queue,
    port: &DevicePortData,
    most_frames: usize,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
) -> Result<Tally, QueueFault> {
    let TxHalf { frames, clean_epoch, segment } = tx;
    let max_len = port.max_len();
    // The fault epoch for which the packets were filled again.
    let mut redone = None;
    let notes = turn.note_mark();
    let tally = loop {
        let mut sink = Sink { tx: &mut *frames, umem: &queue.umem, most_frames, fault: None };
        let limits = Limits { port: port.index, max_len, without_vanished: redone.is_some() };
        let tally = fill(&mut sink, turn, ids, limits, segment);
        if let Some(fault) = sink.fault {
            turn.forget_notes(notes);
            return Err(fault);
        }
        let epoch = fault::epoch();
        if epoch == *clean_epoch {
            break tally;
        }
        // Some memory has vanished since the last look. Packets from there may hold zeros now. Each
        // repetition copies from fewer sources, so the loop ends.
        if redone == Some(epoch) || !ids.iter().any(|&id| turn.poisoned(id)) {
            // Later batches of this turn may have packets of a source that has vanished.
            if !turn.any_poisoned() {
                *clean_epoch = epoch;
            }
            break tally;
        }
        frames.put_all_back();
        turn.forget_notes(notes);
        redone = Some(epoch);
    };
    frames.submit();
    Ok(tally)
}

/// Adds the counts of packets that the kernel can see.
fn count(
    port: &DevicePortData,
    counters: Option<&straightline_graph::RingCounters>,
    turn: &mut Turn<'_>,
    tally: &Tally,
) {
    turn.count_delivered(tally.body);
    if let Some(counters) = counters {
        let add = |counter: &Counter, n| counter.add(n);
        add(&counters.packets, tally.packets);
        add(&counters.bytes, tally.bytes);
    }
    tally.drops.count(turn, port.index);
}

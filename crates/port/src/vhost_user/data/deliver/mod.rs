//! To the guest: packets into the buffers of one of its receive rings.
//!
//! First buffers are reserved, then bytes are copied, then the driver sees all of it at once: lines of buffers are on
//! their way while the rest of the burst is reserved, and a packet in several buffers is visible whole. Common packets are
//! done in bursts (`plain`), the others of a frame together.

mod buffers;
mod cut;
mod looks;
mod plain;
mod runs;

use std::ops::Range;
use std::sync::atomic::Ordering;

use straightline_packet::{Checksum, GsoSegment, MemorySegment, PacketId, Reason, Segmenter, SourceQueueId, Turn};
use straightline_virtio::memory::{GuestMemory, Marks, fault};
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::{Device, Direction, Fault, First, Ring};

use super::HEADER;
use super::link::Link;
use super::queue::{Inner, Queue};
use super::worker_port::WorkerPort;
use buffers::Buffers;
pub(crate) use looks::Looks;
use looks::MOST_BUFFERS;
pub(crate) use runs::PlannedRun;

/// A packet and the buffers that wait for it.
#[derive(Debug)]
pub(crate) struct Planned {
    id: PacketId,
    to: Range<usize>,
    chains: u16,
    /// It is the first of a run, whose other packets go into the same buffers.
    is_run: bool,
}

/// Why a packet is not delivered.
enum Refused {
    Dropped(Reason),
    /// The ring cannot be gone on with; the message says why.
    Broken(String),
}

/// What a frame came to. Counted only once it is visible: a frame may have to be done again.
struct Sum {
    packets: u64,
    bytes: u64,
    body: u64,
    drops: [u32; Reason::ALL.len()],
    /// From this packet of the frame on, all stay in their source's ring.
    left_from: Option<usize>,
    /// What the ring had when that packet found too little.
    short: u16,
    broken: Option<String>,
}

/// What became of the ring.
pub(crate) struct Delivered {
    /// The guest has something to be told of.
    pub(crate) any: bool,
    /// Some packets are left in their sources' rings, for want of room.
    pub(crate) left: bool,
}

/// Delivers a frame, or a part of one. Where the guest has something to be told of, the caller lends the queue to the
/// turn, once. `looks` counts for all of a port's rings in this turn.
pub(crate) fn deliver<'t>(
    queue: &'t Queue,
    link: &'t Link,
    seat: &WorkerPort,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
    wait: bool,
    looks: &mut Looks,
) -> Delivered {
    let mut inner = queue.lock();
    // The epoch for which the frame was done again.
    let mut redone = None;
    let sum = loop {
        let sum = fill(&mut inner, link, turn, ids, wait, looks, redone.is_some());
        let epoch = fault::epoch();
        // The queue's is that of the destination's memory, the seat's that of this worker's sources.
        if epoch == queue.clean.load(Ordering::Relaxed) && epoch == seat.clean.load(Ordering::Relaxed) {
            break sum;
        }
        // Somebody's memory has vanished since we last looked. Ours: nothing is published any more. A source's: its
        // packets hold zeros now, so all is taken back, and the frame is done again without them.
        if inner.ring.poisoned() || link.memory.poisoned() {
            link.drops.add(Reason::MemoryFault, ids.len().try_into().unwrap_or(u64::MAX));
            // What was reserved is not published: a successor finds the ring as if it had not been taken.
            let taken = inner.ring.outstanding();
            inner.ring.untake(taken);
            link.vanished();
            return Delivered { any: false, left: false };
        }
        queue.clean.store(epoch, Ordering::Relaxed);
        // Another source's may have vanished while it was done again: each time one source less is copied from.
        if redone == Some(epoch) || !ids.iter().any(|&id| turn.poisoned(id)) {
            // Frames that are still to come may have packets of others that were taken in this turn.
            if !turn.any_poisoned() {
                seat.clean.store(epoch, Ordering::Relaxed);
            }
            break sum;
        }
        let taken = inner.ring.outstanding();
        inner.ring.untake(taken);
        redone = Some(epoch);
    };
    let taken = inner.ring.outstanding();
    inner.ring.give_back(taken);
    inner.room.wants(seat.worker, sum.left_from.map(|_| sum.short));
    queue.counters.tx.packets.add(sum.packets);
    queue.counters.tx.bytes.add(sum.bytes);
    drop(inner);
    // That it is not, the port has said; what was delivered is delivered.
    let _ = link.is_logged();
    count(link, turn, ids, &sum);
    if let Some(message) = &sum.broken {
        link.fail(queue.name(), message);
    }
    Delivered { any: taken > 0, left: sum.left_from.is_some() }
}

fn count(link: &Link, turn: &mut Turn<'_>, ids: &[PacketId], sum: &Sum) {
    turn.count_delivered(sum.body);
    for (&reason, &n) in Reason::ALL.iter().zip(&sum.drops) {
        if n > 0 {
            link.drops.add(reason, n.into());
        }
    }
    for &id in sum.left_from.and_then(|from| ids.get(from..)).unwrap_or_default() {
        leave(link, turn, id);
    }
}

/// Leaves a packet in its source's ring. One of ours has none: it is dropped.
pub(crate) fn leave(link: &Link, turn: &mut Turn<'_>, id: PacketId) {
    if turn.source(id) == SourceQueueId::NONE {
        link.drops.add(Reason::NoBuffer, 1);
    } else {
        turn.leave(id);
    }
}

/// Reserves and copies the whole frame; nothing is visible yet.
fn fill<'t>(
    inner: &mut Inner,
    link: &'t Link,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
    wait: bool,
    looks: &mut Looks,
    without_vanished: bool,
) -> Sum {
    let Inner { ring, firsts, plan, runs, piece, .. } = inner;
    plan.clear();
    runs.clear();
    match ring {
        Ring::Split(ring) => {
            let buffers = Buffers::new(ring, firsts, ids.len(), looks);
            fill_into(Filling { link, turn, ids, buffers, plan, runs, piece, wait }, without_vanished)
        }
        Ring::Packed(ring) => {
            let buffers = Buffers::new(ring, firsts, ids.len(), looks);
            fill_into(Filling { link, turn, ids, buffers, plan, runs, piece, wait }, without_vanished)
        }
    }
}

fn fill_into(mut filling: Filling<'_, '_, impl Device>, without_vanished: bool) -> Sum {
    let (ids, wait, mark) = (filling.ids, filling.wait, filling.turn.mark());
    let mut sum =
        Sum { packets: 0, bytes: 0, body: 0, drops: [0; Reason::ALL.len()], left_from: None, short: 0, broken: None };
    // Where memory has vanished, each packet is looked at.
    let coalesces = filling.link.receiver.takes_tcp() && !without_vanished;
    let (mut at, mut looked) = (0, 0);
    loop {
        if filling.buffers.looks.are_spent() {
            filling.drop_rest(at, Reason::ManyDescriptors, without_vanished, &mut sum);
            break;
        }
        if !without_vanished {
            at += plain::deliver(&mut filling, at, looked, &mut sum);
        }
        let Some(&id) = ids.get(at) else { break };
        if coalesces && at >= looked {
            let (count, planned) = filling.merge(at, &mut sum);
            looked = at + count;
            if planned {
                at = looked;
            }
            // What stays single may be common.
            continue;
        }
        match filling.add(id, without_vanished, &mut sum) {
            Ok(()) => {}
            Err(Refused::Dropped(Reason::NoBuffer)) if wait && !filling.buffers.never_suffice(0) => {
                sum.left_from = Some(at);
                // With what a packet that was cut had taken and gave back.
                sum.short = filling.buffers.ring.known();
                break;
            }
            Err(Refused::Dropped(reason)) => sum.drops[reason as usize] += 1,
            Err(Refused::Broken(message)) => {
                let rest = ids.len() - at;
                sum.drops[Reason::LinkDown as usize] += u32::try_from(rest).unwrap_or(u32::MAX);
                sum.broken = Some(message);
                break;
            }
        }
        at += 1;
        if filling.buffers.dry && !wait {
            // For each packet that follows, the driver's line would be taken away from it again while it gives buffers.
            filling.drop_rest(at, Reason::NoBuffer, without_vanished, &mut sum);
            break;
        }
    }
    filling.copy();
    filling.turn.unstage(mark);
    sum
}

/// A frame on its way into a ring's buffers.
struct Filling<'a, 't, R> {
    link: &'t Link,
    turn: &'a mut Turn<'t>,
    ids: &'a [PacketId],
    buffers: Buffers<'a, R>,
    plan: &'a mut Vec<Planned>,
    runs: &'a mut Vec<PlannedRun>,
    piece: &'a mut GsoSegment,
    wait: bool,
}

impl<R: Device> Filling<'_, '_, R> {
    /// Reserves buffers for a packet, to be copied later; or cuts it, and copies the pieces now.
    #[inline(never)]
    fn add(&mut self, id: PacketId, without_vanished: bool, sum: &mut Sum) -> Result<(), Refused> {
        if let Some(plan) = self.pieces(id, without_vanished).map_err(Refused::Dropped)? {
            return self.cut(id, plan, sum);
        }
        let len = self.turn.len(id);
        let (to, chains) = self.reserve(len)?;
        self.plan.push(Planned { id, to, chains, is_run: false });
        sum.packets += 1;
        sum.bytes += u64::from(len);
        sum.body += u64::from(self.turn.body_len(id));
        Ok(())
    }

    /// How a packet is cut that this guest does not take whole. An error where it is not for this guest at all.
    fn pieces(&self, id: PacketId, without_vanished: bool) -> Result<Option<Segmenter>, Reason> {
        if without_vanished && self.turn.poisoned(id) {
            return Err(Reason::MemoryFault);
        }
        let len = self.turn.len(id);
        match self.turn.offload(id).gso {
            None if len > self.link.max_len => Err(Reason::TooBig),
            Some(gso) if u32::from(gso.header_len) + u32::from(gso.size) > self.link.max_len => Err(Reason::TooBig),
            Some(gso) if !self.link.receiver.takes(gso) => {
                Segmenter::new(gso, len).map(Some).ok_or(Reason::SegmentHeaders)
            }
            _ => Ok(None),
        }
    }

    /// Drops the packets of the frame from place `at` on for `reason`, each as many times as it is for this guest; those that
    /// are not for it at all, for a reason of their own.
    #[cold]
    fn drop_rest(&self, at: usize, reason: Reason, without_vanished: bool, sum: &mut Sum) {
        for &id in self.ids.get(at..).unwrap_or_default() {
            let (reason, n) = match self.pieces(id, without_vanished) {
                Ok(plan) => (reason, plan.map_or(1, |plan| plan.left())),
                Err(reason) => (reason, 1),
            };
            sum.drops[reason as usize] += n;
        }
    }

    /// Takes buffers for a frame of `len` bytes and stages them. On refusal everything is as before.
    #[inline(always)]
    fn reserve(&mut self, len: u32) -> Result<(Range<usize>, u16), Refused> {
        let need = len + HEADER;
        if let Some(reason) = self.buffers.refuses(need) {
            return Err(Refused::Dropped(reason));
        }
        let (mark, limit) = (self.turn.mark(), self.buffers.looks.limit());
        let (mut got, mut chains) = (0, 0);
        let taken = self.take(need, &mut got, &mut chains);
        self.buffers.looks.spend(chains.into());
        match taken {
            Ok(()) => Ok((mark..self.turn.mark(), chains)),
            Err(refused) => {
                // They may be looked at again, for every packet that finds too few.
                self.buffers.looks.set_limit(limit);
                match refused {
                    Refused::Dropped(reason) => self.buffers.refuse(reason, got, chains),
                    Refused::Broken(_) => self.buffers.untake(chains),
                }
                self.turn.unstage(mark);
                Err(refused)
            }
        }
    }

    /// Takes buffers for `need` bytes, header included; they have room for `got` bytes and are `chains`, also where they do
    /// not suffice.
    #[inline]
    fn take(&mut self, need: u32, got: &mut u32, chains: &mut u16) -> Result<(), Refused> {
        if self.link.mergeable {
            (*got, *chains) = self.buffers.take_singles(&self.link.memory, self.turn, need);
        }
        while *got < need {
            if *chains == MOST_BUFFERS {
                return Err(Refused::Dropped(Reason::ManyDescriptors));
            }
            let next = self.buffers.next().map_err(|fault| Refused::Broken(fault.to_string()))?;
            let first = next.ok_or(Refused::Dropped(Reason::NoBuffer))?;
            *chains += 1;
            let room = match self.buffers.ring.single(&self.link.memory, &first, Direction::ToGuest) {
                Some(segment) => {
                    if self.turn.prefetches() {
                        segment.prefetch_for_store::<HEADER>();
                    }
                    self.turn.stage(segment);
                    segment.len()
                }
                None => self.chain(&first)?,
            };
            if room < HEADER && *got == 0 {
                return Err(Refused::Broken(format!("a buffer of {room} bytes has no room for the header's 12")));
            }
            if room == 0 {
                // Nothing would be written into it, and a ring full of such would be followed to its end for nothing.
                return Err(Refused::Broken("a buffer of no bytes".to_owned()));
            }
            self.buffers.ring.written(room.min(need - *got));
            *got = got.saturating_add(room);
            if *got < need && !self.link.mergeable {
                return Err(Refused::Dropped(Reason::BufferTooSmall));
            }
        }
        Ok(())
    }

    /// Stages a buffer of several descriptors. A driver whose receive buffers are wrong cannot be served at all: used
    /// in the middle of a packet, they would make it unreadable.
    #[cold]
    fn chain(&mut self, first: &First) -> Result<u32, Refused> {
        // The guest decides how many descriptors a buffer has, and its time is everybody's. Not worth waiting for: they will
        // not be fewer in the next turn.
        if self.buffers.looks.are_spent() {
            return Err(Refused::Dropped(Reason::ManyDescriptors));
        }
        self.buffers.looks.allow_one();
        let walked = self.turn.walked();
        let chain = self.buffers.ring.chain(&self.link.memory, self.turn, first, Direction::ToGuest);
        self.buffers.looks.spend(self.turn.walked().saturating_sub(walked));
        match chain {
            Ok(chain) => Ok(chain.len),
            Err(Fault::Chain(fault)) => {
                Err(Refused::Broken(format!("the buffer at descriptor {}: {}", first.head, fault.reason().meaning())))
            }
            Err(Fault::Ring(fault)) => Err(Refused::Broken(fault.to_string())),
        }
    }

    /// Copies all packets that were planned.
    fn copy(&mut self) {
        let partial = self.link.receiver.takes_partial();
        let mut runs = self.runs.iter();
        for &Planned { id, ref to, chains, is_run } in self.plan.iter() {
            if is_run {
                if let Some(PlannedRun { run, places }) = runs.next() {
                    let ids = &self.ids[places.clone()];
                    runs::copy(self.turn, run, ids, self.piece, to.clone(), chains);
                }
                continue;
            }
            let mut offload = self.turn.offload(id);
            let finish = !partial && offload.checksum != Checksum::Complete;
            if finish {
                offload.checksum = Checksum::Complete;
            }
            *self.turn.front_mut::<LEN>(id) = NetHeader::for_receiver(offload, chains).to_bytes();
            self.turn.store::<LEN>(id, to.clone(), finish);
        }
        if let Some(log) = &self.link.log {
            let marks = log.after_writes();
            let mut runs = self.runs.iter();
            for Planned { id, to, is_run, .. } in self.plan.iter() {
                let run = if *is_run { runs.next() } else { None };
                let len = run.map_or_else(|| self.turn.len(*id), |planned| planned.run.len()) + HEADER;
                mark(&marks, &self.link.memory, self.turn.staged_at(to.clone()), len);
            }
        }
        self.plan.clear();
    }
}

/// Marks the first `len` bytes of buffers, which were written.
fn mark(marks: &Marks<'_>, memory: &GuestMemory, buffers: &[MemorySegment<'_>], mut len: u32) {
    for &buffer in buffers {
        let written = buffer.split_at(len).0;
        len -= written.len();
        match memory.guest_addr(written) {
            Some(addr) => marks.mark(addr, written.len().into()),
            None => marks.missed(),
        }
    }
}

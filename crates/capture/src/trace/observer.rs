//! The observer that follows packets through one worker's graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use az::SaturatingAs;
use straightline_graph::clock::cycles;
use straightline_packet::{Decision, MAX_BATCH, Observer, PacketId, PortIndex, Reason, Step, Turn};

use super::pool::{TracePool, TraceReader, pool};
use super::{Happened, MAX_TRACES, Trace, head_of};
use crate::{Filter, PortTable};

/// The number of packets that are still to be followed, for all workers together.
#[derive(Debug)]
pub struct Wanted(AtomicU32);

impl Wanted {
    /// Creates the number of packets that a trace is for.
    #[must_use]
    pub fn new(packets: u32) -> Self {
        Wanted(AtomicU32::new(packets))
    }

    fn is_none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn give_back(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The state of a packet of the present turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// No port of the trace has received it.
    No,
    /// It is not followed.
    Refused,
    /// It is followed, in the trace of this index.
    At(u8),
}

const _: () = assert!(MAX_TRACES <= 256);

/// Whether packets of an interface wait in their ring. Such a packet comes again in each turn, and
/// is reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    No,
    /// In the present turn, a followed packet has left the ring.
    Moves,
    /// A packet that waits was reported, and none has left the ring since.
    Reported,
}

/// Follows packets of one worker, from the ports of a trace to their end.
pub struct TraceObserver {
    filter: Option<Filter>,
    ports: Arc<PortTable>,
    wanted: Arc<Wanted>,
    pool: TracePool,
    /// The packets of this turn, by their index.
    known: [Known; MAX_BATCH],
    is_known: bool,
    /// The followed packets of this turn with their traces.
    followed: Vec<(PacketId, Trace)>,
    /// For each interface, whether its packets wait.
    waits: Vec<Waits>,
}

impl std::fmt::Debug for TraceObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceObserver").field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl TraceObserver {
    /// Creates the observer of one worker for so many interfaces, with memory for `traces` packets at
    /// a time. Returns the reader of its traces as well.
    pub fn new(
        filter: Option<Filter>,
        ports: Arc<PortTable>,
        wanted: Arc<Wanted>,
        interfaces: usize,
        traces: usize,
    ) -> (Self, TraceReader) {
        let (pool, reader) = pool(traces);
        let observer = TraceObserver {
            filter,
            ports,
            wanted,
            pool,
            known: [Known::No; MAX_BATCH],
            is_known: false,
            followed: Vec::with_capacity(MAX_TRACES),
            waits: vec![Waits::No; interfaces],
        };
        (observer, reader)
    }

    /// Begins to follow a packet that a port of the trace has received, if it is to be followed.
    fn begin(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, time: u64) {
        let Some(interface) = self.ports.get(port) else { return };
        self.is_known = true;
        self.known[id.index()] = Known::Refused;
        if self.wanted.is_none() {
            return;
        }
        let len = turn.len(id);
        let is_selected = self.filter.as_ref().is_none_or(|filter| filter.selects(turn.head(id), len));
        if !is_selected || !self.wanted.take() {
            return;
        }
        let Some((mut trace, skipped)) = self.pool.take() else { return self.wanted.give_back() };
        trace.begin(interface, time, head_of(turn, id), turn.offload(id).gso.map(|gso| gso.size));
        trace.skipped = skipped;
        self.known[id.index()] = Known::At(self.followed.len().saturating_as::<u8>());
        self.followed.push((id, trace));
    }

    fn add(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, what: Happened) {
        if let Known::At(at) = self.known[id.index()]
            && let Some((_, trace)) = self.followed.get_mut(usize::from(at))
        {
            trace.add_event(port, what, head_of(turn, id));
        }
    }
}

impl Observer for TraceObserver {
    fn received(&mut self, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]) {
        let time = cycles();
        for &id in ids {
            // A filter that refuses an outer packet may select the packet inside.
            if !matches!(self.known[id.index()], Known::At(_)) {
                self.begin(turn, port, id, time);
            }
            self.add(turn, port, id, Happened::Received);
        }
    }

    fn delivered(&mut self, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]) {
        if !self.followed.is_empty() {
            ids.iter().for_each(|&id| self.add(turn, port, id, Happened::Delivered));
        }
    }

    fn dropped(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, reason: Reason) {
        // A packet that its port refuses was not received.
        if self.known[id.index()] == Known::No && turn.port(id) == port {
            self.begin(turn, port, id, cycles());
        }
        self.add(turn, port, id, Happened::Dropped(reason));
    }

    fn segmented(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, segments: u32) {
        self.add(turn, port, id, Happened::Segmented(segments));
    }

    fn decided(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, decision: Decision) {
        self.add(turn, port, id, Happened::Decided(decision));
    }

    fn passed(&mut self, turn: &Turn<'_>, step: &Step<'_>, ids: &[PacketId]) {
        if self.followed.is_empty() {
            return;
        }
        let mut has_passed = [false; MAX_BATCH];
        ids.iter().for_each(|id| has_passed[id.index()] = true);
        for (id, trace) in &mut self.followed {
            let has_passed = has_passed[id.index()];
            if has_passed || trace.is_in_step() {
                let ways = if has_passed { (step.ways)(*id) } else { 0 };
                trace.add_step(step, ways, head_of(turn, *id));
            }
        }
    }

    fn turn_ended(&mut self, turn: &Turn<'_>) {
        if !self.is_known {
            return;
        }
        self.is_known = false;
        self.known.fill(Known::No);
        let departs = turn.departs();
        let departs = |id: PacketId| departs.as_ref().is_none_or(|departs| departs[id.index()]);
        for (id, trace) in &self.followed {
            if departs(*id)
                && let Some(state) = self.waits.get_mut(usize::from(trace.interface))
            {
                *state = Waits::Moves;
            }
        }
        for (id, mut trace) in self.followed.drain(..) {
            let Some(state) = self.waits.get_mut(usize::from(trace.interface)) else { continue };
            trace.waits = !departs(id);
            if trace.waits && *state != Waits::No {
                self.wanted.give_back();
                self.pool.put_back(trace);
                continue;
            }
            if trace.waits {
                *state = Waits::Reported;
            }
            self.pool.hand_over(trace);
        }
        self.waits.iter_mut().filter(|state| **state == Waits::Moves).for_each(|state| *state = Waits::No);
    }
}

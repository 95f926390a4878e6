//! Traces: the way of single packets through the graph of a worker.
//!
//! A trace is filled while its packet is in a turn, and handed over when the turn has ended. All
//! memory exists from the beginning, so a worker allocates nothing.

mod change;
mod observer;
mod pool;
#[cfg(test)]
mod tests;

use std::fmt;

use az::SaturatingAs;

use straightline_packet::{Decision, PortIndex, Reason, StepKind, Turn};

pub use change::{Change, change};
pub use observer::{TraceObserver, Wanted};
pub use pool::TraceReader;

/// The most traces that a worker has at a time: filled ones, and those that the reader has not taken.
pub const MAX_TRACES: usize = 128;

/// Steps that a trace keeps. Further ones are counted.
const MAX_STEPS: usize = 128;

/// Events that a trace keeps. Each step has at most a few, and further ones are not kept.
const MAX_EVENTS: usize = 2 * MAX_STEPS;

/// Different heads that a trace keeps.
const MAX_HEADS: usize = 16;

/// The way of one packet.
#[derive(Debug)]
pub struct Trace {
    /// The interface of the port that received the packet: an index into the trace's ports.
    pub interface: u16,
    /// The time when the packet came, as a reading of the workers' clock.
    pub time: u64,
    /// The packet goes back to its source's ring, and comes again in a later turn. Nothing has
    /// happened to it.
    pub waits: bool,
    /// The packets before this one that were to be followed, but found all traces in use.
    pub skipped: u64,
    /// The length of a segment's payload, if the packet is still to be segmented.
    pub gso_size: Option<u16>,
    /// The steps, in their order.
    pub steps: Vec<PassedStep>,
    /// The steps that were not kept.
    pub more_steps: u32,
    /// The events, in their order.
    pub events: Vec<TraceEvent>,
    /// The different beginnings of the packet. The first is that of the packet as it came.
    pub heads: Vec<PacketHead>,
    /// Index of the head that the last step has left.
    last_head: u8,
}

/// A step that a packet has passed.
#[derive(Clone, Copy, Debug)]
pub struct PassedStep {
    name: [u8; PassedStep::MAX_NAME],
    name_len: u8,
    /// The kind of the step.
    pub kind: StepKind,
    /// Cycles of the step for all its packets.
    pub cycles: u64,
    /// The packets that the step had together.
    pub packets: u16,
    /// Further steps to which this one has sent the packet.
    pub ways: u16,
    /// Index of the packet's head after the step.
    pub head: u8,
}

/// An event on a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Index of the step in which it happened.
    pub step: u16,
    /// The port that it happened at.
    pub port: PortIndex,
    /// The kind of the event.
    pub what: Happened,
    /// Index of the packet's head at that time.
    pub head: u8,
}

/// An event of a packet at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The port has received it.
    Received,
    /// The port has delivered it.
    Delivered,
    /// It was dropped, and the port counts it.
    Dropped(Reason),
    /// The port has delivered it as so many segments.
    Segmented(u32),
    /// A rule of the port has decided about it.
    Decided(Decision),
}

/// The first bytes of a packet at some point of its way, and its length there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PacketHead {
    bytes: [u8; PacketHead::MAX],
    kept: u8,
    /// The length of the packet.
    pub len: u32,
}

impl fmt::Debug for PacketHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {:02x?}", self.len, self.bytes())
    }
}

impl PassedStep {
    /// Bytes of the longest name. A port's or node's name has at most 32.
    const MAX_NAME: usize = 48;

    /// Returns the name of the step.
    #[must_use]
    pub fn name(&self) -> &str {
        let bytes = self.name.get(..usize::from(self.name_len)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or("?")
    }
}

impl PacketHead {
    /// Bytes that are kept: those of the headers.
    const MAX: usize = 128;

    /// Returns the head of `bytes`, which are the first bytes of a packet of `len` bytes.
    #[must_use]
    pub fn new(bytes: &[u8], len: u32) -> Self {
        let kept = bytes.len().min(Self::MAX);
        let mut head = PacketHead { bytes: [0; Self::MAX], kept: u8::try_from(kept).unwrap_or(0), len };
        head.bytes[..kept].copy_from_slice(&bytes[..kept]);
        head
    }

    /// Returns the first bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.kept)).unwrap_or_default()
    }
}

impl Trace {
    fn new() -> Self {
        Trace {
            interface: 0,
            time: 0,
            waits: false,
            skipped: 0,
            gso_size: None,
            steps: Vec::with_capacity(MAX_STEPS),
            more_steps: 0,
            events: Vec::with_capacity(MAX_EVENTS),
            heads: Vec::with_capacity(MAX_HEADS),
            last_head: 0,
        }
    }

    /// Returns the head that the packet has after this step; the first head before all steps.
    #[must_use]
    pub fn head_after(&self, step: Option<usize>) -> Option<&PacketHead> {
        let at = step.map_or(Some(0), |step| self.steps.get(step).map(|step| step.head));
        self.heads.get(usize::from(at?))
    }

    /// Begins the trace of another packet. Its memory is kept.
    fn begin(&mut self, interface: u16, time: u64, head: PacketHead, gso_size: Option<u16>) {
        self.steps.clear();
        self.events.clear();
        self.heads.clear();
        self.heads.push(head);
        (self.interface, self.time, self.gso_size) = (interface, time, gso_size);
        (self.waits, self.skipped, self.more_steps, self.last_head) = (false, 0, 0, 0);
    }

    /// Returns the index of a head. If the trace has no space for it, that of the last one.
    fn head(&mut self, head: PacketHead) -> u8 {
        let last = usize::from(self.last_head);
        if self.heads.get(last) == Some(&head) {
            return self.last_head;
        }
        if self.heads.len() < MAX_HEADS {
            self.heads.push(head);
            return u8::try_from(self.heads.len() - 1).unwrap_or(0);
        }
        self.last_head
    }

    fn add_event(&mut self, port: PortIndex, what: Happened, head: PacketHead) {
        if self.events.len() < MAX_EVENTS && self.steps.len() < MAX_STEPS {
            let step = self.steps.len().saturating_as::<u16>();
            let head = self.head(head);
            self.events.push(TraceEvent { step, port, what, head });
        }
    }

    /// Returns whether an event has happened in a step that has not ended.
    fn is_in_step(&self) -> bool {
        self.events.last().is_some_and(|event| usize::from(event.step) == self.steps.len())
    }

    fn add_step(&mut self, step: &straightline_packet::Step<'_>, ways: usize, head: PacketHead) {
        if self.steps.len() == MAX_STEPS {
            self.more_steps = self.more_steps.saturating_add(1);
            return;
        }
        self.last_head = self.head(head);
        let mut name = [0; PassedStep::MAX_NAME];
        let name_len = step.name.floor_char_boundary(PassedStep::MAX_NAME);
        name[..name_len].copy_from_slice(&step.name.as_bytes()[..name_len]);
        let narrow = |n: usize| n.saturating_as::<u16>();
        self.steps.push(PassedStep {
            name,
            name_len: u8::try_from(name_len).unwrap_or(0),
            kind: step.kind,
            cycles: step.cycles,
            packets: narrow(step.packets),
            ways: narrow(ways),
            head: self.last_head,
        });
    }
}

/// Returns the head of a packet in a turn.
fn head_of(turn: &Turn<'_>, id: straightline_packet::PacketId) -> PacketHead {
    PacketHead::new(turn.head(id), turn.len(id))
}

//! The arena of a worker: slots and lists that are kept from turn to turn, so that no turn
//! allocates.

use std::fmt;
use std::sync::Arc;

use straightline_simd::Level;

use super::annotation::Annotations;
use super::observe::{self, Observer, ObserverId, Observers};
use super::{AtTurnEnd, InputRules, Packets, RcuReader, ServedCell, Turn, TurnWatch};
use crate::slot::Slot;
use crate::{Drops, MAX_BATCH, MemorySegment};

/// Settings of a worker's turns.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The instruction set of copies.
    pub level: Level,
    /// True if bodies are copied twice, through a bounce buffer, so that the source gets its
    /// buffers back early. It exists for comparison with the one-copy path.
    pub two_copies: bool,
    /// Limit of body bytes: once a turn has accepted as many, it accepts no more packets. One
    /// packet may exceed the limit.
    pub body_limit: u32,
    /// True if cache lines of buffers are prefetched. Measurements turn it off to show the gain
    /// from prefetching.
    pub prefetch: bool,
    /// The most packets of a turn, at most [`MAX_BATCH`]. Measurements take less, to show what the
    /// number of packets under way costs or gains.
    pub max_packets: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            level: Level::detect(),
            two_copies: false,
            body_limit: 1 << 20,
            prefetch: true,
            max_packets: MAX_BATCH,
        }
    }
}

/// Body bytes that moved: they prove that bodies are copied once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyCount {
    /// Body bytes copied, from anywhere to anywhere.
    pub copied: u64,
    /// Body bytes of packets that were delivered to a destination.
    pub delivered: u64,
}

/// Capacity for the memory segments of a turn. It counts the turn's limit of descriptors and one
/// chain that may exceed the limit, both twice ([`KeptPackets`](crate::KeptPackets)), and the
/// buffers that packets are delivered to.
const MAX_SEGMENTS: usize = 5 * 32768;

/// The memory of one worker's turns: its pool of slots and its lists. It is kept from turn to turn,
/// so no turn allocates.
pub struct Arena {
    reader: RcuReader,
    served: ServedCell,
    settings: Settings,
    slots: Box<[Slot; MAX_BATCH]>,
    annotations: Box<Annotations>,
    bounce_buffer: Box<[u8]>,
    /// Ports that a packet may be copied to.
    fan_out: u32,
    drops: Vec<Arc<Drops>>,
    segments: Vec<MemorySegment<'static>>,
    sources: Vec<&'static dyn AtTurnEnd>,
    bodies: BodyCount,
    now: u32,
    round: u64,
    /// Captures and traces. There is a list only while there are some.
    observers: Option<Box<Observers>>,
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("settings", &self.settings).field("bodies", &self.bodies).finish_non_exhaustive()
    }
}

/// Makes an empty vector for another lifetime, in the memory of the old one. The standard library
/// collects in place; the allocation test of the worker would fail if it ever did not.
macro_rules! recycle {
    ($vec:expr) => {{
        let mut vec = $vec;
        vec.clear();
        vec.into_iter().map(|_| unreachable!("the vector is empty")).collect()
    }};
}

impl Arena {
    /// Creates the arena of one worker. `drops` has the drop counters of every port, by its index.
    pub fn new(reader: RcuReader, settings: Settings, drops: Vec<Arc<Drops>>) -> Self {
        // Sized for the turn's limit of bytes and for the one packet that may exceed it.
        let bounce_buffer =
            if settings.two_copies { settings.body_limit as usize + 2 * crate::MAX_FRAME as usize } else { 0 };
        Arena {
            reader,
            served: ServedCell::default(),
            settings,
            slots: empty_slots(),
            annotations: Box::default(),
            bounce_buffer: vec![0; bounce_buffer].into_boxed_slice(),
            fan_out: 1,
            drops,
            segments: Vec::with_capacity(MAX_SEGMENTS),
            sources: Vec::with_capacity(1024),
            bodies: BodyCount::default(),
            now: 0,
            round: 0,
            observers: None,
        }
    }

    /// Takes the memory of slots and annotations anew, on the calling thread's NUMA node: the kernel
    /// places a page on the node of the CPU that first writes to it. A worker calls this once, when
    /// it runs on its CPU. The other lists are first written by turns.
    pub fn settle(&mut self) {
        self.slots = empty_slots();
        // Not the old memory with new content.
        let annotations = Box::default();
        self.annotations = annotations;
    }

    /// Runs one turn. All borrowed memory is given back before the turn ends, unless `f` panics.
    /// After a panic the turn is over for the [`Rcu`](crate::Rcu), and nothing is given back.
    pub fn turn<R>(&mut self, f: impl for<'t> FnOnce(&mut Turn<'t>) -> R) -> R {
        let guard = self.reader.enter();
        let mut turn = Turn {
            packets: Packets {
                slots: &mut self.slots,
                annotations: &mut self.annotations,
                segments: std::mem::take(&mut self.segments),
                drops: &self.drops,
                settings: self.settings,
                now: self.now,
                observers: self.observers.take(),
                rcu: self.reader.rcu(),
            },
            used: 0,
            bounce_buffer: &mut self.bounce_buffer,
            sources: std::mem::take(&mut self.sources),
            served: &self.served,
            body_limit: self.settings.body_limit,
            fan_out: self.fan_out,
            input: InputRules::RETURNING,
            input_limit: self.settings.body_limit,
            borrowed: 0,
            bounced: 0,
            descriptors: 0,
            gso_copies: 0,
            gso_segments: 0,
            left: 0,
            returned: 0,
            bodies: self.bodies,
            round: self.round,
        };
        let result = f(&mut turn);
        turn.end();
        if turn.is_observed() {
            turn.observe_end();
        }
        self.observers = turn.packets.observers.take();
        self.bodies = turn.bodies;
        self.segments = recycle!(turn.packets.segments);
        self.sources = recycle!(turn.sources);
        drop(guard);
        result
    }

    /// Changes the ports from the next turn on. Sets their drop counters, and the fan-out: the
    /// number of ports that a packet may be copied to. The fan-out divides the number of bytes that
    /// a turn accepts from an input that takes no packets back ([`InputRules`]). Returns the former
    /// values.
    pub fn change(&mut self, drops: Vec<Arc<Drops>>, fan_out: u32) -> (Vec<Arc<Drops>>, u32) {
        (std::mem::replace(&mut self.drops, drops), std::mem::replace(&mut self.fan_out, fan_out.max(1)))
    }

    /// Changes how bytes are copied from the next turn on. Returns the former level.
    pub fn change_level(&mut self, level: Level) -> Level {
        std::mem::replace(&mut self.settings.level, level)
    }

    /// Adds an observer of the packets of all following turns.
    pub fn add_observer(&mut self, id: ObserverId, observer: Box<dyn Observer>) {
        observe::add(&mut self.observers, id, observer);
    }

    /// Removes an observer and returns it, if there is one of this identity.
    pub fn remove_observer(&mut self, id: ObserverId) -> Option<Box<dyn Observer>> {
        observe::remove(&mut self.observers, id)
    }

    /// Sets the time of the following turns, in seconds of the caller's clock.
    pub fn set_now(&mut self, seconds: u32) {
        self.now = seconds;
    }

    /// Begins a new round: from the next turn on, packets that found no free buffer may be tried
    /// again. See [`Turn::round`].
    #[inline]
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Returns the body bytes that all turns have moved so far.
    pub fn bodies(&self) -> BodyCount {
        self.bodies
    }

    /// Returns a view for another thread: the turn that is under way, and the port or node that it
    /// serves.
    pub fn watch(&self) -> TurnWatch {
        TurnWatch { state: self.reader.state(), served: self.served.clone() }
    }

    /// Returns the settings of the turns.
    pub fn settings(&self) -> Settings {
        self.settings
    }
}

fn empty_slots() -> Box<[Slot; MAX_BATCH]> {
    vec![Slot::EMPTY; MAX_BATCH].into_boxed_slice().try_into().expect("as many as asked for")
}

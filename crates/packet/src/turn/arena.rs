//! What a worker keeps from turn to turn: its pool of slots and its lists, so that no turn allocates.

use std::fmt;
use std::sync::Arc;

use straightline_simd::Level;

use super::{AtTurnEnd, Packets, RcuReader, ServedCell, Turn, TurnWatch};
use crate::slot::Slot;
use crate::{Drops, MAX_BATCH, MemorySegment};

/// How a worker's turns are run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The instruction set of its copies.
    pub level: Level,
    /// Whether bodies are copied twice, through memory of ours, and their buffers given back early: the A/B of
    /// the one-copy path.
    pub two_copies: bool,
    /// Bytes of bodies that a turn copies before it stops taking; one packet may exceed it.
    pub body_limit: u32,
    /// Whether lines of buffers are asked for before they are needed; not, to see what that is worth.
    pub prefetch: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { level: Level::detect(), two_copies: false, body_limit: 1 << 20, prefetch: true }
    }
}

/// Bytes that moved, for the proof that bodies are copied once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyCount {
    /// Bytes of bodies copied, wherever from and to.
    pub copied: u64,
    /// Bytes of bodies delivered: in packets that a destination was given.
    pub delivered: u64,
}

/// Room for the segments of a turn: its limit, the one chain that may exceed it, and the buffers they go to.
const MAX_SEGMENTS: usize = 3 * 32768;

/// What a worker keeps from turn to turn so that no turn allocates: its pool and its lists.
pub struct Arena {
    reader: RcuReader,
    served: ServedCell,
    settings: Settings,
    slots: Box<[Slot; MAX_BATCH]>,
    bounce_buffer: Box<[u8]>,
    /// Ports that a packet may be copied to.
    fan_out: u32,
    drops: Vec<Arc<Drops>>,
    segments: Vec<MemorySegment<'static>>,
    sources: Vec<&'static dyn AtTurnEnd>,
    bodies: BodyCount,
    now: u32,
    round: u64,
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("settings", &self.settings).field("bodies", &self.bodies).finish_non_exhaustive()
    }
}

/// An empty vector for another lifetime, in the memory of the old one (the standard library collects in place;
/// the allocation test of the worker would show it if it ever did not).
macro_rules! recycle {
    ($vec:expr) => {{
        let mut vec = $vec;
        vec.clear();
        vec.into_iter().map(|_| unreachable!("the vector is empty")).collect()
    }};
}

impl Arena {
    /// The pool of one worker. `drops` has the counters of every port, by its index.
    pub fn new(reader: RcuReader, settings: Settings, drops: Vec<Arc<Drops>>) -> Self {
        let bounce_buffer =
            if settings.two_copies { settings.body_limit as usize + 2 * crate::MAX_FRAME as usize } else { 0 };
        Arena {
            reader,
            served: ServedCell::default(),
            settings,
            slots: vec![Slot::EMPTY; MAX_BATCH].into_boxed_slice().try_into().expect("as many as asked for"),
            bounce_buffer: vec![0; bounce_buffer].into_boxed_slice(),
            fan_out: 1,
            drops,
            segments: Vec::with_capacity(MAX_SEGMENTS),
            sources: Vec::with_capacity(1024),
            bodies: BodyCount::default(),
            now: 0,
            round: 0,
        }
    }

    /// Runs one turn. What was borrowed in it is given back before it ends, whatever `f` does, short of a panic: then
    /// the turn is over for the [`Rcu`](crate::Rcu), and nothing is given back.
    pub fn turn<R>(&mut self, f: impl for<'t> FnOnce(&mut Turn<'t>) -> R) -> R {
        let guard = self.reader.enter();
        let mut turn = Turn {
            packets: Packets {
                slots: &mut self.slots,
                segments: std::mem::take(&mut self.segments),
                drops: &self.drops,
                settings: self.settings,
                now: self.now,
            },
            used: 0,
            bounce_buffer: &mut self.bounce_buffer,
            sources: std::mem::take(&mut self.sources),
            rcu: self.reader.rcu(),
            served: &self.served,
            body_limit: (self.settings.body_limit / self.fan_out).max(1),
            fan_out: self.fan_out,
            borrowed: 0,
            bounced: 0,
            descriptors: 0,
            left: 0,
            returned: 0,
            bodies: self.bodies,
            round: self.round,
        };
        let result = f(&mut turn);
        turn.end();
        self.bodies = turn.bodies;
        self.segments = recycle!(turn.packets.segments);
        self.sources = recycle!(turn.sources);
        drop(guard);
        result
    }

    /// Other ports from the next turn on: their counters, and how many of them a packet may be copied to. A turn takes
    /// that many times less. Returns what was before.
    pub fn change(&mut self, drops: Vec<Arc<Drops>>, fan_out: u32) -> (Vec<Arc<Drops>>, u32) {
        (std::mem::replace(&mut self.drops, drops), std::mem::replace(&mut self.fan_out, fan_out.max(1)))
    }

    /// Sets the time of the turns to come, in seconds of whatever clock their owner has.
    pub fn set_now(&mut self, seconds: u32) {
        self.now = seconds;
    }

    /// From the next turn on it may be worth while to try again what found no room: see [`Turn::round`].
    #[inline]
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Bytes of bodies moved by all turns so far.
    pub fn bodies(&self) -> BodyCount {
        self.bodies
    }

    /// Shows another thread which turn is under way, and whom it serves.
    pub fn watch(&self) -> TurnWatch {
        TurnWatch { state: self.reader.state(), served: self.served.clone() }
    }

    /// How its turns are run.
    pub fn settings(&self) -> Settings {
        self.settings
    }
}

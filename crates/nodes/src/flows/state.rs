//! The state of a packet on its way through the tables.

use straightline_packet::Reason;

use super::fields::Facts;

/// Lists of actions that may wait for one that they have called. A list that calls as its last action
/// does not wait.
pub(super) const MOST_DEPTH: u8 = 64;

/// Most calls of one packet.
pub(super) const MOST_CALLS: u16 = 4096;

/// Most rounds of a turn.
pub(super) const MOST_ROUNDS: u32 = 64;

/// No list of actions.
pub(super) const NO_FRAME: u32 = u32::MAX;

/// A packet on its way through the tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) facts: Facts,
    /// Number of the port that the next search has in place of the packet's own.
    pub(super) lookup_port: u16,
    /// Conjunction that a search has found, for the next search in the same table; 0 for none.
    pub(super) conjunction: u32,
    /// The table of the next search.
    pub(super) table: u8,
    /// The list of actions that waits, as an index of [`Frames`].
    pub(super) frame: u32,
    /// Calls so far.
    pub(super) calls: u16,
    /// Calls of the list that the next search begins, that lead to it and have not ended.
    pub(super) depth: u8,
    /// Bytes of the packet as it came to the tables.
    pub(super) len: u32,
    pub(super) has_headers: bool,
    /// A connection was found for it ([`Tracked`](super::ct::Tracked)).
    pub(super) is_tracked: bool,
    /// The packet was sent in some round.
    pub(super) is_sent: bool,
    /// The edges along which it was sent in this round: a bit for each 64th edge.
    pub(super) used: u64,
    /// The reason why the last output did not send it.
    pub(super) unsent: Reason,
}

impl State {
    pub(super) const NEW: State = State {
        facts: Facts { in_port: 0, registers: [0; 8], connection: 0, zone: 0 },
        lookup_port: 0,
        conjunction: 0,
        table: 0,
        frame: NO_FRAME,
        calls: 0,
        depth: 0,
        len: 0,
        has_headers: false,
        is_tracked: false,
        is_sent: false,
        used: 0,
        unsent: Reason::FlowDrop,
    };
}

/// A list of actions that runs, or that waits for another one to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) flow: u32,
    /// Place of the next action.
    pub(super) next: u32,
    /// Calls that lead to this list and have not ended, as far as they are limited.
    pub(super) depth: u8,
    pub(super) table: u8,
    /// The list that waits for this one.
    pub(super) parent: u32,
    /// The packet has no connection when the list goes on: only a called table sees the one that was found.
    pub(super) is_untracked: bool,
}

/// The lists of all packets of a turn. Each packet has few, so they share one memory.
#[derive(Debug, Default)]
pub(super) struct Frames {
    frames: Vec<Frame>,
    free: Vec<u32>,
}

impl Frames {
    pub(super) fn push(&mut self, frame: Frame) -> u32 {
        if let Some(at) = self.free.pop() {
            self.frames[at as usize] = frame;
            return at;
        }
        self.frames.push(frame);
        // A packet has at most MOST_DEPTH lists that wait.
        u32::try_from(self.frames.len() - 1).unwrap_or(NO_FRAME)
    }

    /// Has a list that waits go on without a connection.
    pub(super) fn untrack(&mut self, at: u32) {
        if let Some(frame) = self.frames.get_mut(at as usize).filter(|_| at != NO_FRAME) {
            frame.is_untracked = true;
        }
    }

    /// Removes a list, and returns it.
    pub(super) fn pop(&mut self, at: u32) -> Frame {
        self.free.push(at);
        self.frames[at as usize]
    }

    /// Removes all lists, once no packet has one.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.free.clear();
    }
}

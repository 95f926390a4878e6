//! The view that other threads have of a turn: its number, the port or node that it serves, and the
//! source of its costly packets.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crossbeam_utils::CachePadded;

use super::rcu::ReaderState;
use crate::PortIndex;

/// The port or node that a worker serves at a moment of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// No port and no node.
    Nobody,
    /// A port.
    Port(PortIndex),
    /// A node, by its number in the graph.
    Node(u16),
}

/// The upper halves of the words that encode [`Served`].
const PORT: u32 = 1 << 16;
const NODE: u32 = 2 << 16;

/// The words in which a worker records the port or node that it serves, and the port whose packets
/// cost most. They have cache lines of their own, because the worker writes the first several times
/// a turn.
#[derive(Clone, Default)]
pub(super) struct ServedCell(Arc<CachePadded<Words>>);

#[derive(Default)]
struct Words {
    served: AtomicU32,
    source: AtomicU32,
}

impl ServedCell {
    #[inline]
    pub(super) fn set(&self, served: Served) {
        self.0.served.store(encode(served), Ordering::Relaxed);
    }

    pub(super) fn set_source(&self, source: Served) {
        self.0.source.store(encode(source), Ordering::Relaxed);
    }
}

#[inline]
fn encode(served: Served) -> u32 {
    match served {
        Served::Nobody => 0,
        Served::Port(port) => PORT | u32::from(port.0),
        Served::Node(node) => NODE | u32::from(node),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn decode(word: u32) -> Served {
    match word & !0xffff {
        PORT => Served::Port(PortIndex(word as u16)),
        NODE => Served::Node(word as u16),
        _ => Served::Nobody,
    }
}

/// A worker's turns, as another thread sees them. The worker pays one store for each port and node
/// that it serves.
pub struct TurnWatch {
    pub(super) state: ReaderState,
    pub(super) served: ServedCell,
}

impl TurnWatch {
    /// Returns the number of the turn that is under way, the port or node that it serves, and the
    /// port whose packets cost most. `None` between turns.
    pub fn look(&self) -> Option<(u64, Served, Served)> {
        let turn = self.state.turn()?;
        let words = &self.served.0;
        let served = words.served.load(Ordering::Relaxed);
        let source = words.source.load(Ordering::Relaxed);
        // The words above must be read before the turn's number is read again.
        fence(Ordering::Acquire);
        // If the number differs, the turn has ended in between: it has not stalled, and the words
        // may belong to the next turn.
        (self.state.turn() == Some(turn)).then(|| (turn, decode(served), decode(source)))
    }
}

impl fmt::Debug for TurnWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TurnWatch").field(&self.look()).finish()
    }
}

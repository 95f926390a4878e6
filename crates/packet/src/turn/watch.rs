//! The view that other threads have of a turn: its number, and the port or node that it serves.

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

/// The word in which a worker records the port or node that it serves. It has cache lines of its
/// own, because the worker writes it several times a turn.
#[derive(Clone, Default)]
pub(super) struct ServedCell(Arc<CachePadded<AtomicU32>>);

impl ServedCell {
    #[inline]
    pub(super) fn set(&self, served: Served) {
        let word = match served {
            Served::Nobody => 0,
            Served::Port(port) => PORT | u32::from(port.0),
            Served::Node(node) => NODE | u32::from(node),
        };
        self.0.store(word, Ordering::Relaxed);
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    fn get(&self) -> Served {
        let word = self.0.load(Ordering::Relaxed);
        match word & !0xffff {
            PORT => Served::Port(PortIndex(word as u16)),
            NODE => Served::Node(word as u16),
            _ => Served::Nobody,
        }
    }
}

/// A worker's turns, as another thread sees them. The worker pays one store for each port and node
/// that it serves.
pub struct TurnWatch {
    pub(super) state: ReaderState,
    pub(super) served: ServedCell,
}

impl TurnWatch {
    /// Returns the number of the turn that is under way, and the port or node that it serves.
    /// `None` between turns.
    pub fn look(&self) -> Option<(u64, Served)> {
        let turn = self.state.turn()?;
        let served = self.served.get();
        // The word above must be read before the turn's number is read again.
        fence(Ordering::Acquire);
        // If the number differs, the turn has ended in between: it has not stalled, and the word
        // may belong to the next turn.
        (self.state.turn() == Some(turn)).then_some((turn, served))
    }
}

impl fmt::Debug for TurnWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TurnWatch").field(&self.look()).finish()
    }
}

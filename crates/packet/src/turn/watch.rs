//! The view that others have of a turn under way: its number, and the port or node that it serves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crossbeam_utils::CachePadded;

use super::rcu::ReaderState;
use crate::PortIndex;

/// Whom a worker serves at a moment of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// No port and no node.
    Nobody,
    /// A port.
    Port(PortIndex),
    /// A node, by a number of the graph's.
    Node(u16),
}

/// The words of [`Served`], by their upper half.
const PORT: u32 = 1 << 16;
const NODE: u32 = 2 << 16;

/// Where a worker notes whom it serves. On lines of its own: the worker writes it several times a turn.
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

/// A worker's turns as another thread sees them. It costs the worker a store for each port and node that it serves.
pub struct TurnWatch {
    pub(super) state: ReaderState,
    pub(super) served: ServedCell,
}

impl TurnWatch {
    /// The number of the turn that is under way, and whom it serves. `None` between turns.
    pub fn look(&self) -> Option<(u64, Served)> {
        let turn = self.state.turn()?;
        let served = self.served.get();
        // The second look at the turn comes after the look at whom it serves.
        fence(Ordering::Acquire);
        // It may have ended meanwhile, and then another has begun or not: either way it has not stalled.
        (self.state.turn() == Some(turn)).then_some((turn, served))
    }
}

impl fmt::Debug for TurnWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TurnWatch").field(&self.look()).finish()
    }
}

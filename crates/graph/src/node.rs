//! What a node is, and how it hands packets on.

use straightline_packet::{Batch, PacketId, Packets};

use crate::graph::Entry;

/// A step on a packet's way. It sees heads only, keeps no packet beyond its call, and asks no clock: the time is
/// [`Packets::now`].
///
/// A node gets the turn's [`Packets`], and not the turn: what belongs to ports and to the worker is out of its reach. This
/// does not compile:
///
/// ```compile_fail,E0599
/// use straightline_graph::{Next, Node};
/// use straightline_packet::{Batch, Packets};
///
/// struct Hasty;
/// impl Node for Hasty {
///     fn process(&mut self, packets: &mut Packets<'_>, _batch: &Batch, _next: &mut Next<'_>) {
///         packets.end();
///     }
/// }
/// ```
pub trait Node: Send {
    /// Sends every packet of the batch along an edge, or drops it with [`Packets::discard`]. A packet may go along several
    /// edges, but along each only once.
    ///
    /// On the way to an end that waits (`full = "wait"`) packets that stay in their ring pass again in a later turn, and so do
    /// all that came behind them, those too that were dropped here; they are counted once. There a node keeps their order:
    /// a packet that was overtaken and finds no room cannot stay, and is dropped as `node`.
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>);
}

/// A node's successors.
pub struct Next<'a> {
    pub(crate) edges: &'a [usize],
    /// All nodes that run after this one.
    pub(crate) later: &'a mut [Entry],
}

impl Next<'_> {
    /// Sends a packet along an edge, in the order in which edges were given when the node was made.
    #[inline]
    pub fn push(&mut self, edge: usize, id: PacketId) {
        self.later[self.edges[edge]].pending.push(id);
    }

    /// Sends packets along an edge.
    #[inline]
    pub fn extend(&mut self, edge: usize, ids: &[PacketId]) {
        self.later[self.edges[edge]].pending.extend(ids);
    }

    /// How many edges there are.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }
}

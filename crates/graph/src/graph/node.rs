//! The node trait, and the edges along which a node sends packets.

use std::sync::Arc;

use straightline_packet::{Batch, MAX_BATCH, PacketId, Packets};

use super::{Entry, Ready};
use crate::NodeControl;

/// A step of the graph: it looks at packets, may change their heads, and sends them on.
///
/// A node sees heads only, and keeps no packet beyond a call. It reads no clock: the time is
/// [`Packets::now`].
///
/// A node gets the turn's [`Packets`] and not the turn, so it cannot reach the operations of ports
/// and of the worker. This does not compile:
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
    /// Sends every packet of the batch along an edge, or drops it with [`Packets::discard`]. A
    /// packet may go along several edges, but along each edge only once.
    ///
    /// If the output waits for free buffers (`full = "wait"`), packets may stay in their ring.
    /// These packets pass the node again in a later turn. So do all packets behind them, including
    /// packets that the node dropped. Each drop is counted once. A node in front of such an output
    /// must keep the order of packets. A packet that was overtaken cannot stay in its ring; it is
    /// dropped as `node`.
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>);

    /// Returns whether the graph calls [`Self::next_round`] in each turn.
    fn has_rounds(&self) -> bool {
        false
    }

    /// Sends packets once more, after the outputs of the packets that were sent before have run. So a
    /// node can change a packet between two of its outputs: each round delivers packets as they are
    /// in that round. Returns whether it has sent a packet; then there is another round.
    ///
    /// `departs` says of each packet, by its index, whether it leaves its source's ring in this turn;
    /// `None`: all do. The node must not send the others: nobody has delivered them, and they come
    /// again.
    fn next_round(&mut self, packets: &mut Packets<'_>, departs: Option<&Departs>, next: &mut Next<'_>) -> bool {
        let _ = (packets, departs, next);
        false
    }

    /// Returns whether the graph calls [`Self::note_returned`].
    fn has_state(&self) -> bool {
        false
    }

    /// Learns which packets of its batch go back to their ring and come again, once all outputs have run.
    /// `departs` says of each packet, by its index, whether it leaves its ring. The graph calls it in
    /// turns in which some packets go back, and before further rounds.
    ///
    /// A node whose state changes with each packet must know them: nobody has got them yet.
    fn note_returned(&mut self, packets: &Packets<'_>, departs: &Departs) {
        let _ = (packets, departs);
    }

    /// Returns whether the node may change or drop packets. In front of one output of a flood, such a
    /// node is enclosed ([`Graph::enclose`](crate::Graph::enclose)), which takes some time for each
    /// packet.
    fn changes_packets(&self) -> bool {
        true
    }

    /// Returns the control half of the node, if it keeps something that operators see or that a reload
    /// hands on. All clones of a node return the same one.
    fn control(&self) -> Option<Arc<dyn NodeControl>> {
        None
    }
}

/// Whether each packet of a turn, by its index, leaves its source's ring.
pub type Departs = [bool; MAX_BATCH];

/// The edges of a node, which lead to other nodes and to outputs.
pub struct Next<'a> {
    pub(crate) edges: &'a [usize],
    /// All entries of the graph that run after this node.
    pub(crate) later: &'a mut [Entry],
    /// The entries for which packets wait.
    pub(crate) ready: &'a mut Ready,
}

impl Next<'_> {
    /// Sends a packet along an edge. Edges count from 0, in the order given when the node was added
    /// to the graph.
    #[inline]
    pub fn push(&mut self, edge: usize, id: PacketId) {
        self.pending(edge).push(id);
    }

    /// Sends packets along an edge.
    #[inline]
    pub fn extend(&mut self, edge: usize, ids: &[PacketId]) {
        if !ids.is_empty() {
            self.pending(edge).extend(ids);
        }
    }

    /// Returns the packets that wait at the end of an edge. The caller adds some.
    #[inline]
    fn pending(&mut self, edge: usize) -> &mut Batch {
        let to = self.edges[edge];
        let pending = &mut self.later[to].pending;
        if pending.is_empty() {
            self.ready.add(to);
        }
        pending
    }

    /// Returns the number of edges.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }
}

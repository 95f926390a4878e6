//! Flow tables in front of a bridge: OpenFlow's tables in the words of `ovs-ofctl`, on batches.
//!
//! ```text
//! batch ─▶ search in table 0 ─▶ actions of each packet ─┬─▶ outputs of the bridge's ports
//!               ▲                                       ├─▶ the bridge (`normal`)
//!               └──── packets that go to a table ◀──────┘
//! ```
//!
//! - **Search.** The packets that wait for the same table are searched together. Only the columns
//!   that its flows test are filled ([`keys`]).
//! - **Actions** run for one packet until it goes to another table, ends, or must wait for outputs. A
//!   packet that resubmits has a list of actions that waits; a list whose last action is a call does
//!   not wait.
//! - **Rounds.** An output delivers the packet as it is when all nodes have run. So a packet that was
//!   sent, and is to be changed or sent along the same edge again, waits until these outputs have run
//!   ([`Node::next_round`]).
//! - **Counters** are added to once the packets have left: a packet that goes back to its ring does
//!   not count, because it comes again.
//! - **Connections** of packets are found by `ct` ([`ct`]), one after the other. A packet that comes
//!   again counts once (`tickets.rs`).
//! - **Receivers.** An output looks at the isolation and the VLANs of its port as the bridge does.
//!
//! A packet that no output gets is dropped, and counted with its reason. If it was sent before, a
//! failure is counted too, and its further actions do not run.

mod compiler;
mod control;
mod ct;
mod fields;
mod keys;
mod meters;
mod program;
mod run;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use compiler::FlowCompiler;
pub use control::{FlowConnections, FlowControl, FlowSettings};
use ct::{Searches, Tracked};
pub use meters::{FlowCounters, FlowMeters};
use program::{CompiledTable, Matcher, Step};
pub use program::{FlowPorts, FlowProgram};
use run::Run;
use state::{Frames, State};
use straightline_classify::{Keys, MAX_KEYS, NONE};
use straightline_graph::{Departs, Next, Node};
use straightline_packet::{Batch, MAX_BATCH, Outside, PacketId, PacketVlan, Packets, PortIndex, Rcu, RcuCell, Reason};

use crate::bridge::{BridgeTable, Rules};
use crate::headers::Headers;

const _: () = assert!(MAX_KEYS == MAX_BATCH);

/// No edge.
const NONE_EDGE: usize = usize::MAX;

/// The flow tables of a bridge as workers see them. Control publishes a new program, and workers never
/// wait.
pub struct FlowTable {
    program: RcuCell<Arc<FlowProgram>>,
}

impl fmt::Debug for FlowTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowTable").field("program", &self.program).finish()
    }
}

impl FlowTable {
    /// Creates tables without flows, which drop every packet.
    #[must_use]
    pub fn new(rcu: &Rcu) -> Self {
        FlowTable { program: RcuCell::new(rcu) }
    }

    /// Publishes a program, and waits until no worker uses the one before. It must not be called within
    /// a turn. The counters of flows that are gone are final then.
    pub fn publish(&self, program: FlowProgram) {
        self.program.swap(Some(Box::new(Arc::new(program))));
    }
}

/// The node of one worker for the flow tables of a bridge. It has one edge for each port of the bridge,
/// in their order, and then one to the bridge.
pub struct Flows {
    tables: Arc<FlowTable>,
    /// The program of this turn.
    program: Option<Arc<FlowProgram>>,
    ways: Ways,
    work: Box<Work>,
}

impl fmt::Debug for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flows").field("tables", &self.tables).field("ways", &self.ways).finish_non_exhaustive()
    }
}

/// The ways out of the node.
#[derive(Debug)]
struct Ways {
    ports: Vec<PortIndex>,
    /// Edge of each port, by the port's index.
    edges: Vec<usize>,
    /// Edge to the bridge.
    normal: usize,
    /// `None`: no port has rules.
    rules: Option<Arc<Rules>>,
    has_vlans: bool,
}

/// The packets of a turn on their way.
struct Work {
    keys: Keys,
    best: [u32; MAX_BATCH],
    headers: [Headers; MAX_BATCH],
    states: [State; MAX_BATCH],
    /// Connections of packets whose state says so.
    tracked: [Tracked; MAX_BATCH],
    searches: Searches,
    frames: Frames,
    /// Packets that wait for a search.
    waiting: Batch,
    /// Packets that wait for the next round, with what they were before their outputs ran.
    later: Batch,
    saved: [Saved; MAX_BATCH],
    hits: Vec<Hit>,
    /// Batches whose packets all have the same flow: one in most turns.
    common: Vec<Common>,
    rounds: u32,
}

/// A packet that waits for the next round.
#[derive(Clone, Copy, Debug, Default)]
struct Saved {
    outside: Outside,
    vlan: Option<PacketVlan>,
    mark: u32,
}

/// A packet that a flow counts.
#[derive(Clone, Copy, Debug)]
struct Hit {
    flow: u32,
    id: PacketId,
}

/// A batch whose packets all have the same flow.
struct Common {
    flow: u32,
    batch: Batch,
    bytes: u64,
}

impl Flows {
    /// Creates the node of a worker in front of a bridge. In a bridge with VLANs, it stands behind a
    /// [`VlanIn`](crate::VlanIn).
    #[must_use]
    pub fn new(bridge: &BridgeTable, tables: &Arc<FlowTable>) -> Self {
        Self::with(bridge.ports().collect(), bridge.rules(), tables)
    }

    fn with(ports: Vec<PortIndex>, rules: Option<Arc<Rules>>, tables: &Arc<FlowTable>) -> Self {
        let size = ports.iter().map(|port| port.index() + 1).max().unwrap_or(0);
        let mut edges = vec![NONE_EDGE; size];
        for (edge, port) in ports.iter().enumerate() {
            edges[port.index()] = edge;
        }
        let has_vlans = rules.as_ref().is_some_and(|rules| rules.have_vlans());
        let normal = ports.len();
        let work = Work {
            keys: Keys::new(),
            best: [NONE; MAX_BATCH],
            headers: [Headers::default(); MAX_BATCH],
            states: [State::NEW; MAX_BATCH],
            tracked: [Tracked::NONE; MAX_BATCH],
            searches: Searches::new(),
            frames: Frames::default(),
            waiting: Batch::new(),
            later: Batch::new(),
            saved: [Saved::default(); MAX_BATCH],
            hits: Vec::with_capacity(4 * MAX_BATCH),
            common: Vec::with_capacity(1),
            rounds: 0,
        };
        let ways = Ways { ports, edges, normal, rules, has_vlans };
        Flows { tables: Arc::clone(tables), program: None, ways, work: Box::new(work) }
    }
}

impl Node for Flows {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        self.work.searches.clear();
        let Some(program) = self.tables.program.load(packets).map(Arc::clone) else {
            batch.ids().iter().for_each(|&id| packets.discard(id, Reason::NoFlow));
            return;
        };
        let work = &mut *self.work;
        if let Some(flow) = program.only_normal() {
            let bytes = batch.ids().iter().map(|&id| u64::from(packets.len(id))).sum();
            next.extend(self.ways.normal, batch.ids());
            work.common.push(Common { flow, batch: batch.clone(), bytes });
        } else {
            work.begin(packets, batch, &program.ports);
            let mut run = Run { work, program: &program, ways: &self.ways, next, sent: false };
            run.search(packets);
        }
        self.program = Some(program);
    }

    fn has_rounds(&self) -> bool {
        true
    }

    fn has_state(&self) -> bool {
        true
    }

    fn note_returned(&mut self, packets: &Packets<'_>, departs: &Departs) {
        self.work.searches.issue_tickets(packets, departs);
    }

    fn next_round(&mut self, packets: &mut Packets<'_>, departs: Option<&Departs>, next: &mut Next<'_>) -> bool {
        let Some(program) = self.program.clone() else { return false };
        let now = packets.now();
        let work = &mut *self.work;
        work.count(&program, packets, departs, now);
        let mut run = Run { work, program: &program, ways: &self.ways, next, sent: false };
        run.go_on(packets, departs);
        let sent = run.sent;
        work.count(&program, packets, None, now);
        if work.later.is_empty() {
            work.rounds = 0;
            work.frames.clear();
            // Control frees the program, not the worker: it waits for the end of this turn.
            self.program = None;
        }
        sent
    }
}

impl Work {
    /// Sends all packets to table 0.
    fn begin(&mut self, packets: &Packets<'_>, batch: &Batch, ports: &FlowPorts) {
        for &id in batch.ids() {
            let number = ports.number(packets.port(id));
            let state = &mut self.states[id.index()];
            *state = State { lookup_port: number, len: packets.len(id), ..State::NEW };
            state.facts.in_port = number;
        }
        self.waiting.extend(batch.ids());
    }

    /// Adds to the counters of the flows that packets had, as far as they leave their ring.
    fn count(&mut self, program: &FlowProgram, packets: &Packets<'_>, departs: Option<&Departs>, now: u32) {
        let leaves = |id: PacketId| departs.is_none_or(|departs| departs[id.index()]);
        for Common { flow, mut batch, mut bytes } in self.common.drain(..) {
            batch.retain(|id| {
                let leaves = leaves(id);
                bytes -= if leaves { 0 } else { bytes.min(packets.len(id).into()) };
                leaves
            });
            if let Some(flow) = program.flow(flow).filter(|_| !batch.is_empty()) {
                flow.counters.add(batch.len() as u64, bytes, now);
            }
        }
        // Packets of one flow are often consecutive.
        for hits in self.hits.chunk_by(|one, other| one.flow == other.flow) {
            let mut count = 0;
            let mut bytes = 0;
            for hit in hits.iter().filter(|hit| leaves(hit.id)) {
                count += 1;
                bytes += u64::from(self.states[hit.id.index()].len);
            }
            if count > 0
                && let Some(flow) = program.flow(hits[0].flow)
            {
                flow.counters.add(count, bytes, now);
            }
        }
        self.hits.clear();
    }
}

impl Ways {
    /// Returns whether a packet may leave by a port.
    #[inline]
    fn may_leave(&self, packets: &Packets<'_>, id: PacketId, port: PortIndex) -> Result<(), Reason> {
        let Some(rules) = &self.rules else { return Ok(()) };
        let vlan = packets.vlan(id);
        rules.may_leave(packets.port(id), port, vlan.map(|vlan| vlan.id))?;
        rules.may_begin(port, vlan, packets.head(id))
    }
}

impl FlowProgram {
    /// Returns the flow that gives every packet to the bridge, if there is nothing else to do.
    #[inline]
    fn only_normal(&self) -> Option<u32> {
        let Some(CompiledTable { matcher: Matcher::Always(flow), .. }) = self.table(0) else { return None };
        let steps = &self.flow(*flow)?.steps;
        matches!(**steps, [Step::Normal]).then_some(*flow)
    }
}

//! Flow tables, compiled for workers.

use std::sync::Arc;

use straightline_classify::{Column, Snapshot, Table};
use straightline_conntrack as conntrack;
use straightline_flow::{Action, Ct, CtZone, Field, PortNumber, Subfield};
use straightline_graph::Policer;
use straightline_packet::PortIndex;

use super::keys::needs_headers;
use super::meters::{FlowCounters, FlowMeters};

/// The ports of a bridge, with their numbers in flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowPorts {
    /// Ports by number.
    ports: Vec<Option<PortIndex>>,
    /// Numbers by the port's index; 0 for ports of others.
    numbers: Vec<u16>,
}

impl FlowPorts {
    /// Returns the port of a number.
    #[inline]
    #[must_use]
    pub fn port(&self, number: PortNumber) -> Option<PortIndex> {
        self.ports.get(usize::from(number.0)).copied().flatten()
    }

    /// Returns the number of a port; 0 if it is not of the bridge.
    #[inline]
    #[must_use]
    pub fn number(&self, port: PortIndex) -> u16 {
        self.numbers.get(port.index()).copied().unwrap_or(0)
    }
}

impl FromIterator<(PortNumber, PortIndex)> for FlowPorts {
    fn from_iter<I: IntoIterator<Item = (PortNumber, PortIndex)>>(all: I) -> Self {
        let mut ports = FlowPorts::default();
        for (number, port) in all {
            let at = usize::from(number.0);
            ports.ports.resize(ports.ports.len().max(at + 1), None);
            ports.ports[at] = Some(port);
            ports.numbers.resize(ports.numbers.len().max(port.index() + 1), 0);
            ports.numbers[port.index()] = number.0;
        }
        ports
    }
}

/// A step of a flow's work on a packet.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Output(PortNumber),
    OutputField(Subfield),
    InPort,
    Normal,
    Flood,
    Set {
        field: Field,
        value: u128,
        mask: u128,
    },
    Move {
        from: Subfield,
        to: Subfield,
    },
    DecTtl,
    PushVlan(u16),
    StripVlan,
    /// Searches in the same table again, as a packet of this conjunction.
    Join(u32),
    Goto(u8),
    Meter(Arc<Policer>),
    Ct(Ct),
    CtClear,
    Resubmit {
        port: Option<PortNumber>,
        table: u8,
    },
}

impl Step {
    /// Returns the step of an action, in a flow of this table. `None`: it does nothing.
    pub(super) fn of(action: Action, table: u8, meters: &FlowMeters) -> Option<Self> {
        Some(match action {
            Action::Output(PortNumber::IN_PORT) | Action::InPort => Step::InPort,
            Action::Output(port) => Step::Output(port),
            Action::OutputField(field) => Step::OutputField(field.whole()),
            Action::Normal => Step::Normal,
            Action::Flood | Action::All => Step::Flood,
            Action::SetField { field, value, mask, .. } => {
                let (_, shift) = field.whole();
                let field = field.whole().0;
                Step::Set { field, value: value << shift, mask: mask << shift }
            }
            Action::Move { from, to } => Step::Move { from: from.whole(), to: to.whole() },
            Action::DecTtl => Step::DecTtl,
            Action::PushVlan(tpid) => Step::PushVlan(tpid),
            Action::StripVlan => Step::StripVlan,
            Action::GotoTable(table) => Step::Goto(table),
            Action::Resubmit { port, table: to } => Step::Resubmit { port, table: to.unwrap_or(table) },
            Action::Meter(number) => Step::Meter(meters.policer(number)?),
            Action::Ct(Ct { commit, table, zone: CtZone::Field(from) }) => {
                Step::Ct(Ct { commit, table, zone: CtZone::Field(from.whole()) })
            }
            Action::Ct(ct) => Step::Ct(ct),
            Action::CtClear => Step::CtClear,
            // Packets match its combinations in its place.
            Action::Conjunction { .. } => return None,
        })
    }

    /// Returns whether the step changes the bytes or the VLAN of a packet, so that outputs before it
    /// must have run.
    pub(super) fn changes_packet(&self) -> bool {
        match self {
            Step::Set { field, .. } | Step::Move { to: Subfield { field, .. }, .. } => {
                !Field::REGISTERS.contains(field) && *field != Field::InPort
            }
            Step::DecTtl | Step::PushVlan(_) | Step::StripVlan => true,
            Step::Output(_)
            | Step::OutputField(_)
            | Step::InPort
            | Step::Normal
            | Step::Flood
            | Step::Join(_)
            | Step::Goto(_)
            | Step::Meter(_)
            | Step::Ct(_)
            | Step::CtClear
            | Step::Resubmit { .. } => false,
        }
    }
}

/// A flow for workers.
#[derive(Debug)]
pub(super) struct CompiledFlow {
    pub(super) steps: Box<[Step]>,
    /// The port of a flow that does nothing but send its packets there.
    pub(super) only_output: Option<PortNumber>,
    pub(super) counters: FlowCounters,
}

impl CompiledFlow {
    pub(super) fn new(steps: Box<[Step]>, counters: FlowCounters) -> Self {
        let only_output = match *steps {
            [Step::Output(port)] => Some(port),
            _ => None,
        };
        CompiledFlow { steps, only_output, counters }
    }
}

/// How a table finds the flow of a packet.
#[derive(Debug)]
pub(super) enum Matcher {
    /// The table has one flow, which matches every packet.
    Always(u32),
    Search(Snapshot),
}

/// A table.
#[derive(Debug)]
pub(super) struct CompiledTable {
    pub(super) matcher: Matcher,
    /// The columns that flows test.
    pub(super) columns: Vec<Column>,
    pub(super) needs_headers: bool,
    /// Flows test fields that may lie behind the head.
    pub(super) needs_all: bool,
}

/// Flows of one part of all, by their places.
pub(super) type Chunk = [Option<Arc<CompiledFlow>>; CHUNK];

pub(super) const CHUNK: usize = 256;

/// All tables of a bridge, compiled for workers. A program never changes; the next one shares what stays
/// the same.
#[derive(Clone, Debug, Default)]
pub struct FlowProgram {
    pub(super) ports: Arc<FlowPorts>,
    /// The connections of packets; none while no flow searches for them.
    pub(super) connections: Option<Arc<conntrack::Table>>,
    pub(super) tables: Vec<Option<Arc<CompiledTable>>>,
    pub(super) flows: Vec<Arc<Chunk>>,
}

impl FlowProgram {
    #[inline]
    pub(super) fn table(&self, number: u8) -> Option<&CompiledTable> {
        self.tables.get(usize::from(number))?.as_deref()
    }

    /// Returns the flow of a place.
    #[inline]
    pub(super) fn flow(&self, place: u32) -> Option<&CompiledFlow> {
        let place = place as usize;
        self.flows.get(place / CHUNK)?[place % CHUNK].as_deref()
    }
}

impl CompiledTable {
    /// Returns the table of some rules; `None` if there are none.
    pub(super) fn new(rules: &Table) -> Option<Self> {
        let mut all = rules.rules();
        let first = all.next()?.1;
        let matcher = if first.tests().is_empty() && all.next().is_none() {
            Matcher::Always(first.result())
        } else {
            Matcher::Search(rules.snapshot())
        };
        let columns = match &matcher {
            Matcher::Always(_) => Vec::new(),
            Matcher::Search(snapshot) => snapshot.columns(),
        };
        let needs_headers = columns.iter().any(|&column| needs_headers(column));
        let needs_all = columns.iter().any(|&column| is_deep(column));
        Some(CompiledTable { matcher, columns, needs_headers, needs_all })
    }
}

/// Returns whether a column may be read from headers that lie behind the head.
fn is_deep(column: Column) -> bool {
    let is_of_frame = matches!(
        column,
        Column::Vlan
            | Column::EthDstHigh
            | Column::EthDstLow
            | Column::EthSrcHigh
            | Column::EthSrcLow
            | Column::EtherType
    );
    needs_headers(column) && !is_of_frame
}

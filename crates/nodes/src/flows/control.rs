//! The control half of flow tables: the flows of a bridge, and their program for workers.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use straightline_conntrack as conntrack;
use straightline_flow::{Expiry, FlowCommand, FlowEntry, FlowError, FlowTables, Meter, Owner, PortTable, parse_flows};
use straightline_graph::{Clock, NodeControl, RateStats, TableEvent, TableView, Unprepared};
use straightline_packet::{PortIndex, Rcu};

use super::ct;
use super::{FlowCompiler, FlowCounters, FlowMeters, FlowTable};

/// Entries that are looked at for connections whose time is over, several times a second.
const SWEPT: u32 = 50_000;

/// The settings of a bridge's flow tables, as the configuration file has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// The ports of the bridge by name, in their order.
    pub ports: Vec<(String, PortIndex)>,
    /// Meters, each with its number.
    pub meters: Vec<(u32, Meter)>,
    /// The lines of all flows.
    pub lines: Vec<String>,
    /// The connections that flows may search for.
    pub connections: FlowConnections,
}

/// The connections of a bridge's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConnections {
    /// Most connections. The ports of the bridge have equal parts.
    pub most: u32,
    /// Timeouts and windows.
    pub tracking: conntrack::Settings,
}

/// The flow tables of a bridge. They live across reloads, with the flows that clients have added.
#[derive(Debug)]
pub struct FlowControl {
    settings: FlowSettings,
    /// The tables that workers see. A successor has that of the one before it.
    table: OnceLock<Arc<FlowTable>>,
    own_table: Arc<FlowTable>,
    state: Arc<Mutex<FlowState>>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct FlowState {
    /// A successor has the tables: this one publishes nothing any more.
    is_replaced: bool,
    /// A thread compiles a table.
    is_compiling: bool,
    flows: Flows,
    meters: FlowMeters,
    compiler: FlowCompiler,
    /// Connections of packets, since a flow has first searched for them.
    connections: Option<Arc<conntrack::Table>>,
}

/// The flows that a successor takes over.
#[derive(Clone, Debug, Default)]
struct Flows {
    tables: FlowTables<FlowCounters>,
    names: PortTable,
}

impl FlowControl {
    /// Creates tables with the flows of the file. Their times are those of this clock.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn new(settings: FlowSettings, rcu: &Rcu, clock: Clock) -> Result<Self, FlowError> {
        let flows = Flows::default().with(&settings, clock.workers_time())?;
        let own_table = Arc::new(FlowTable::new(rcu));
        let state = FlowState { flows, ..FlowState::default() };
        let state = Arc::new(Mutex::new(state));
        let control = FlowControl { settings, table: OnceLock::new(), own_table, state, clock };
        control.publish(&mut control.lock());
        Ok(control)
    }

    /// Returns the tables as workers see them. After [`NodeControl::commit`], it is that of the tables
    /// before, which workers may have already.
    #[must_use]
    pub fn table(&self) -> &Arc<FlowTable> {
        self.table.get().unwrap_or(&self.own_table)
    }

    /// Looks at the flows, with the names of ports and the present time.
    pub fn view<R>(&self, look: impl FnOnce(&FlowTables<FlowCounters>, &PortTable, Duration) -> R) -> R {
        let state = self.lock();
        look(&state.flows.tables, &state.flows.names, self.clock.workers_time())
    }

    /// Changes the flows, and publishes them before it returns. If `change` fails, it has changed nothing.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change<R>(
        &self,
        change: impl FnOnce(&mut FlowTables<FlowCounters>, &PortTable, Duration) -> Result<R, FlowError>,
    ) -> Result<R, FlowError> {
        let mut state = self.lock();
        let Flows { tables, names } = &mut state.flows;
        let result = change(tables, names, self.clock.workers_time())?;
        self.publish(&mut state);
        Ok(result)
    }

    /// Removes the flows whose time is over, and returns them.
    pub fn expire(&self) -> Vec<(Arc<FlowEntry<FlowCounters>>, Expiry)> {
        let mut state = self.lock();
        let ended = state.flows.tables.expire(self.clock.workers_time());
        if !ended.is_empty() {
            self.publish(&mut state);
        }
        ended
    }

    /// Compiles a table anew whose flows have changed often since, in a thread of its own. Packets and
    /// changes go on meanwhile.
    fn tidy(&self) {
        let mut state = self.lock();
        if state.is_compiling || state.is_replaced {
            return;
        }
        let Some((number, compilation)) = state.compiler.stale() else { return };
        let shared = Arc::clone(&self.state);
        let table = Arc::clone(self.table());
        let compile = move || {
            let compiled = compilation.run();
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_compiling = false;
            if !state.is_replaced {
                table.publish(state.compiler.adopt(number, compiled));
            }
        };
        // Without a thread, lookups are slower until the next try.
        state.is_compiling = std::thread::Builder::new().name("flows".to_owned()).spawn(compile).is_ok();
    }

    /// Returns the most reads of memory that the search in one of the tables takes for any packet.
    #[must_use]
    pub fn accesses(&self) -> usize {
        self.lock().compiler.accesses()
    }

    /// Returns the counts of the connections; none if no flow searches for them.
    #[must_use]
    pub fn connections(&self) -> Option<conntrack::Counts> {
        self.lock().connections.as_ref()?.counts(ct::SHARE)
    }

    /// Looks at the connections. The opener of each is the port that has begun it; its address is the
    /// remote one of the key, and its zone the VLAN.
    pub fn for_each_connection(&self, look: impl FnMut(conntrack::Connection)) {
        let table = self.lock().connections.clone();
        if let Some(table) = table {
            table.connections(ct::SHARE, self.clock.seconds().wrapping_mul(1000)).for_each(look);
        }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &FlowSettings {
        &self.settings
    }

    /// Looks at the counters of a meter.
    pub fn meter<R>(&self, number: u32, look: impl FnOnce(&RateStats) -> R) -> Option<R> {
        self.lock().meters.stats(number).map(look)
    }

    fn publish(&self, state: &mut FlowState) {
        let FlowState { is_replaced, is_compiling: _, flows: Flows { tables, names }, meters, compiler, connections } =
            state;
        if *is_replaced {
            return;
        }
        if connections.is_none() && tables.search_connections() {
            let table = ct::new_table(self.settings.connections, self.settings.ports.len());
            *connections = Some(Arc::new(table));
        }
        compiler.set_connections(connections.clone());
        meters.replace(tables.meters().map(|(number, meter, _)| (number, meter)));
        let index = |name: &str| {
            let known = self.settings.ports.iter().find(|(known, _)| known == name);
            known.map(|(_, index)| *index)
        };
        let ports = names.present().filter_map(|(number, name)| Some((number, index(name)?))).collect();
        self.table().publish(compiler.compile(tables, ports, meters));
    }

    fn lock(&self) -> MutexGuard<'_, FlowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flows {
    /// Returns the flows with the ports, meters and flows of the file.
    fn with(mut self, settings: &FlowSettings, now: Duration) -> Result<Self, FlowError> {
        self.names.update(settings.ports.iter().map(|(name, _)| name.as_str()));
        self.tables.replace_file_meters(&settings.meters)?;
        let requests = parse_flows(&settings.lines.join("\n"), FlowCommand::Add, &self.names)?;
        self.tables.replace(&requests, Owner::File, now)?;
        Ok(self)
    }
}

impl NodeControl for FlowControl {
    fn prepare(&self, before: Option<&dyn NodeControl>) -> Result<(), Unprepared> {
        let Some(before) = before.and_then(<dyn NodeControl>::downcast::<Self>) else { return Ok(()) };
        let flows = before.lock().flows.clone();
        flows
            .with(&self.settings, self.clock.workers_time())
            .map(drop)
            .map_err(|error| Unprepared { key: None, why: error.to_string() })
    }

    /// Takes over the flows of clients, and all counters. Workers go on with the same table, so a bridge
    /// whose flows alone have changed does not pause.
    fn commit(&self, before: &dyn NodeControl) {
        let Some(before) = before.downcast::<Self>() else { return };
        let _ = self.table.set(Arc::clone(before.table()));
        let mut state = self.lock();
        // It was possible in `prepare`. If it is not any more, the file's flows are in force.
        let mut before = before.lock();
        before.is_replaced = true;
        if let Ok(taken) = before.flows.clone().with(&self.settings, self.clock.workers_time()) {
            state.flows = taken;
        }
        state.meters = before.meters.clone();
        let FlowConnections { tracking, .. } = self.settings.connections;
        let share = ct::share(self.settings.connections, self.settings.ports.len());
        let successor = |table: &Arc<conntrack::Table>| Arc::new(table.successor(tracking, &[(ct::SHARE, share)]));
        state.connections = before.connections.as_ref().map(successor);
        drop(before);
        self.publish(&mut state);
    }

    fn is_table(&self) -> bool {
        false
    }

    fn events(&self, _view: &TableView<'_>) -> Vec<TableEvent> {
        self.expire();
        self.tidy();
        let connections = self.lock().connections.clone();
        if let Some(table) = connections {
            table.sweep(self.clock.seconds().wrapping_mul(1000), SWEPT);
        }
        Vec::new()
    }
}

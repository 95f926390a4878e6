//! Requests about flow tables.

use std::sync::Arc;

use az::SaturatingAs;
use straightline_api::nearest_first;
use straightline_conntrack as conntrack;
use straightline_flow::{
    FlowChanges, FlowCommand, FlowCount, FlowEntry, FlowError, FlowMod, FlowWriter, NoPortNames, Owner, PortNames,
    parse_flow, parse_flows, parse_line, parse_meter, parse_meter_number,
};
use straightline_graph::{Clock, RateStats};
use straightline_nodes::{FlowConnections, FlowControl, FlowCounters, FlowSettings};
use straightline_packet::{IgnorePoison, PortIndex, Rcu};

use crate::Switch;
use crate::api::{
    ChangeFlows, ChangeMeter, ErrorCode, EventKind, Flow, FlowMeter, FlowSearch, FlowTrace, Flows, FlowsChanged,
    FlowsRequest, Meters, Refusal, TraceFlow,
};
use crate::config::{BridgeConfig, Config};
use crate::running::Snapshot;

/// The flow of tables that a client's first flow makes: other packets pass the bridge as before.
const FIRST: &str = "priority=0,actions=normal";

/// Returns the bound of a search in the flow tables of each bridge that has flows: the most reads of memory
/// for any packet.
#[must_use]
pub fn flow_accesses(config: &Config) -> Vec<(String, usize)> {
    let accesses = |bridge: &BridgeConfig| {
        let flows = bridge.flows.as_ref()?;
        let ports = (0..).map(PortIndex).zip(bridge.ports.iter()).map(|(index, name)| (name.to_owned(), index));
        let tracking = conntrack::Settings::default();
        let settings = FlowSettings {
            ports: ports.collect(),
            meters: flows.meters.clone(),
            lines: flows.lines.clone(),
            connections: FlowConnections { most: bridge.connections, tracking },
        };
        let control = FlowControl::new(settings, &Rcu::new(), Clock::real()).ok()?;
        Some((bridge.name.clone(), control.accesses()))
    };
    config.bridges.iter().filter_map(accesses).collect()
}

impl Snapshot {
    /// Returns the bounds of searches in flow tables.
    pub(crate) fn flow_searches(&self) -> Vec<FlowSearch> {
        let search = |bridge: &BridgeConfig| {
            let accesses = self.tables.get::<FlowControl>("flows", &bridge.name)?.accesses().saturating_as::<u64>();
            Some(FlowSearch { bridge: bridge.name.clone(), accesses })
        };
        self.config.bridges.iter().filter_map(search).collect()
    }

    /// Returns flows of a bridge.
    pub(crate) fn flows(&self, request: &FlowsRequest) -> Result<Flows, Refusal> {
        let FlowsRequest { bridge, filter, names, after, limit } = request;
        let Some(control) = self.flow_control(bridge)? else {
            return Ok(Flows { bridge: bridge.clone(), ..Flows::default() });
        };
        let limit = (*limit).clamp(1, FlowsRequest::MOST).saturating_as::<usize>();
        let accesses = control.accesses().saturating_as::<u64>();
        control.view(|tables, ports, now| {
            let read = |text: &str| parse_flow(text, FlowCommand::DeleteStrict, ports).map_err(|e| refused(bridge, &e));
            // A filter has no priority. One with another word is refused like a deletion.
            let filter = parse_flow(filter, FlowCommand::Delete, ports).map_err(|error| refused(bridge, &error))?;
            let after = after.as_deref().map(read).transpose()?.map(|place| place.into_flow().key);
            let all: Box<dyn Iterator<Item = _>> = match &after {
                Some(place) => Box::new(tables.from(place).skip_while(move |entry| entry.flow.key == *place)),
                None => Box::new(tables.entries()),
            };
            let mut shown = all.filter(|entry| filter.covers(entry));
            let entries: Vec<_> = shown.by_ref().take(limit).collect();
            let next = entries.last().filter(|_| shown.next().is_some()).map(|entry| place(entry));
            let with_names: &dyn PortNames = if *names { ports } else { &NoPortNames };
            let writer = FlowWriter::new(with_names);
            let flows = entries.into_iter().map(|entry| {
                let statistics = entry.statistics(now);
                let flow = &entry.flow;
                Flow {
                    text: writer.flow_with_statistics(flow, &statistics),
                    short: writer.flow(flow),
                    table: flow.key.table,
                    priority: flow.key.priority,
                    condition: writer.condition(straightline_flow::DEFAULT_PRIORITY, &flow.key.condition),
                    actions: writer.actions(&flow.actions),
                    cookie: flow.cookie,
                    owner: owner(entry.owner),
                    packets: entry.counters.packets(),
                    bytes: entry.counters.bytes(),
                    duration: statistics.duration.as_secs_f64(),
                    idle: statistics.idle.as_secs_f64(),
                    idle_timeout: flow.idle_timeout.as_secs(),
                    hard_timeout: flow.hard_timeout.as_secs(),
                }
            });
            Ok(Flows { bridge: bridge.clone(), flows: flows.collect(), total: tables.len() as u64, accesses, next })
        })
    }

    /// Returns the meters of a bridge.
    pub(crate) fn meters(&self, bridge: &str) -> Result<Meters, Refusal> {
        let Some(control) = self.flow_control(bridge)? else {
            return Ok(Meters { bridge: bridge.to_owned(), ..Meters::default() });
        };
        let row = |number, meter, maker, users| FlowMeter {
            text: format!("meter={number} {meter}"),
            meter: number,
            owner: owner(maker),
            flows: users,
            ..FlowMeter::default()
        };
        let mut meters: Vec<_> = control.view(|tables, _, _| {
            let with_users = |(number, meter, maker)| row(number, meter, maker, tables.meter_users(number) as u64);
            tables.meters().map(with_users).collect()
        });
        for row in &mut meters {
            // A meter that goes meanwhile has no counters.
            let counts = |stats: &RateStats| (stats.packets.get(), stats.bytes.get(), stats.dropped.get());
            (row.packets, row.bytes, row.dropped) = control.meter(row.meter, counts).unwrap_or_default();
        }
        Ok(Meters { bridge: bridge.to_owned(), meters })
    }

    /// Returns the way of a packet through the tables of a bridge.
    pub(crate) fn trace_flow(&self, request: &TraceFlow) -> Result<FlowTrace, Refusal> {
        let TraceFlow { bridge, packet } = request;
        let Some(control) = self.flow_control(bridge)? else {
            let error = format!("bridge {bridge:?} has no flow tables: all packets pass the bridge");
            return Err(Refusal::new(ErrorCode::Refused, error).about(bridge));
        };
        control.view(|tables, ports, _| {
            let packet = parse_flow(packet, FlowCommand::Delete, ports).map_err(|error| refused(bridge, &error))?;
            Ok(FlowTrace { bridge: bridge.clone(), lines: tables.trace(&packet.condition, ports) })
        })
    }

    /// Returns the flow tables of a bridge. `None`: it has none.
    fn flow_control(&self, bridge: &str) -> Result<Option<Arc<FlowControl>>, Refusal> {
        let bridges = &self.config.bridges;
        if bridges.iter().any(|known| known.name == bridge) {
            return Ok(self.tables.get("flows", bridge));
        }
        let known = nearest_first(bridge, bridges.iter().map(|bridge| bridge.name.as_str()));
        let error = match known.as_str() {
            "" => format!("no such bridge {bridge:?}; the switch has none"),
            known => format!("no such bridge {bridge:?}; bridges are {known}"),
        };
        Err(Refusal::new(ErrorCode::Refused, error).about(bridge))
    }
}

/// Returns the place of a flow: its key, as text with numbers of ports.
fn place(entry: &FlowEntry<FlowCounters>) -> String {
    let key = &entry.flow.key;
    let condition = FlowWriter::new(&NoPortNames).condition(straightline_flow::DEFAULT_PRIORITY, &key.condition);
    let comma = if condition.is_empty() { "" } else { "," };
    format!("table={},priority={}{comma}{condition}", key.table, key.priority)
}

fn owner(owner: Owner) -> String {
    if owner == Owner::File { "file".to_owned() } else { "api".to_owned() }
}

fn refused(bridge: &str, error: &FlowError) -> Refusal {
    Refusal::new(ErrorCode::Refused, format!("bridge {bridge:?}: {error}")).about(bridge)
}

impl Switch {
    /// Changes flows of a bridge. `text` has a flow in each line.
    ///
    /// # Errors
    /// The first line that is wrong or not possible. Nothing is changed then.
    pub fn change_flows(&self, request: &ChangeFlows, text: &str) -> Result<FlowsChanged, Refusal> {
        let ChangeFlows { bridge, command: word, .. } = request;
        let command = match word.as_str() {
            "add" | "replace" => FlowCommand::Add,
            "modify" => FlowCommand::Modify,
            "modify-strict" => FlowCommand::ModifyStrict,
            "delete" => FlowCommand::Delete,
            "delete-strict" => FlowCommand::DeleteStrict,
            other => {
                let words = "add, modify, modify-strict, delete, delete-strict or replace";
                let error = format!("command {other:?}: it must be {words}");
                return Err(Refusal::new(ErrorCode::BadRequest, error));
            }
        };
        let deletes = matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        if deletes && self.running.now().flow_control(bridge)?.is_none() {
            return Ok(FlowsChanged::default());
        }
        let done = self.with_flows(bridge, |control| {
            control.change(|tables, ports, now| {
                let requests = requests(text, command, ports)?;
                match word.as_str() {
                    "replace" => tables.replace(&requests, Owner::Api, now),
                    _ => tables.apply(&requests, Owner::Api, now),
                }
            })
        })?;
        let FlowChanges { added, modified, deleted, kept } = done;
        let count = |number: usize| number.saturating_as::<u64>();
        let message =
            format!("bridge {bridge:?}: flows {added} added, {modified} modified, {deleted} deleted by a command");
        tracing::info!("{message}");
        let kind = EventKind::FlowsChanged {
            bridge: bridge.clone(),
            added: count(added),
            modified: count(modified),
            deleted: count(deleted),
        };
        self.running.events.add(kind, message);
        Ok(FlowsChanged { added: count(added), modified: count(modified), deleted: count(deleted), kept: count(kept) })
    }

    /// Adds, changes or deletes a meter.
    ///
    /// # Errors
    /// The meter is not valid, or the change is not possible.
    pub fn change_meter(&self, request: &ChangeMeter) -> Result<(), Refusal> {
        let ChangeMeter { bridge, command, meter } = request;
        if !["add", "modify", "delete"].contains(&command.as_str()) {
            let error = format!("command {command:?}: it must be add, modify or delete");
            return Err(Refusal::new(ErrorCode::BadRequest, error));
        }
        self.with_flows(bridge, |control| {
            control.change(|tables, _, _| {
                if command == "delete" {
                    return tables.delete_meter(parse_meter_number(meter)?, Owner::Api);
                }
                let (number, meter) = parse_meter(meter)?;
                tables.set_meter(number, meter, Owner::Api, command == "modify")
            })
        })?;
        tracing::info!("bridge {bridge:?}: meter {command} by a command: {meter}");
        Ok(())
    }

    /// Calls `change` with the flow tables of a bridge. A bridge without tables gets some.
    fn with_flows<R>(
        &self,
        bridge: &str,
        change: impl FnOnce(&FlowControl) -> Result<R, FlowError>,
    ) -> Result<R, Refusal> {
        // No reload replaces the tables meanwhile.
        let mut desired = self.desired.lock().ignore_poison();
        let known = self.running.now().flow_control(bridge)?;
        let control = match known {
            Some(control) => control,
            None => {
                desired.flow_bridges.insert(bridge.to_owned());
                let made = desired.with_dynamic_ports(&desired.config).and_then(|whole| self.change(&whole, &desired));
                if let Err(error) = made {
                    desired.flow_bridges.remove(bridge);
                    return Err(Refusal::new(ErrorCode::Refused, format!("{error:#}")).about(bridge));
                }
                let made = self.running.now().flow_control(bridge)?;
                made.ok_or_else(|| Refusal::new(ErrorCode::Internal, "the bridge has no flow tables"))?
            }
        };
        change(&control).map_err(|error| refused(bridge, &error))
    }
}

/// Adds [`FIRST`] to tables that have no flows yet.
pub(crate) fn begin(control: &FlowControl) {
    let begun = control.change(|tables, ports, now| {
        let first = parse_flow(FIRST, FlowCommand::Add, ports)?;
        tables.apply(&[(0, first)], Owner::Api, now)
    });
    if let Err(error) = begun {
        tracing::error!("flow tables cannot begin: {error}; this is a bug");
    }
}

/// Reads the lines of a change. A deletion without text means all flows, so an empty line of it counts.
fn requests(text: &str, command: FlowCommand, ports: &dyn PortNames) -> Result<Vec<(usize, FlowMod)>, FlowError> {
    let deletes = matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict);
    if deletes && text.trim().is_empty() {
        return Ok(vec![(0, parse_flow("", command, ports)?)]);
    }
    // One line needs no number.
    if !text.trim_end().contains('\n') {
        let request = parse_line(text.trim_end(), command, ports)?;
        return Ok(request.into_iter().map(|request| (0, request)).collect());
    }
    parse_flows(text, command, ports)
}

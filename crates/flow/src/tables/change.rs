//! A transaction: requests in order, and the way back if one is not possible.

use std::sync::Arc;
use std::time::Duration;

use super::entry::{FlowCount, FlowEntry, Owner};
use super::{FlowChanges, FlowTables, MAX_FLOWS, MOST_COMPARISONS, meter_of};
use crate::action::{Action, PortNumber};
use crate::flow::{Flow, FlowCommand, FlowKey, FlowMod};
use crate::matching::Match;
use crate::parse::FlowError;
use crate::ports::NoPortNames;
use crate::text::FlowWriter;

pub(super) struct Change<'a, C> {
    tables: &'a mut FlowTables<C>,
    owner: Owner,
    now: Duration,
    /// The entries before each change, the last change last.
    before: Vec<(FlowKey, Option<Arc<FlowEntry<C>>>)>,
    comparisons: usize,
    /// Flows with the action `conjunction` have come.
    has_clauses: bool,
    pub(super) done: FlowChanges,
}

impl<'a, C: FlowCount> Change<'a, C> {
    pub(super) fn new(tables: &'a mut FlowTables<C>, owner: Owner, now: Duration) -> Self {
        Self {
            tables,
            owner,
            now,
            before: Vec::new(),
            comparisons: 0,
            has_clauses: false,
            done: FlowChanges::default(),
        }
    }

    /// Ends the transaction.
    ///
    /// # Errors
    /// The flows are possible one by one, but not together. All changes are undone.
    pub(super) fn end(self) -> Result<FlowChanges, FlowError> {
        let checked = if self.has_clauses { self.tables.check_conjunctions() } else { Ok(()) };
        let done = self.done;
        match checked {
            Ok(()) => Ok(done),
            Err(error) => {
                self.undo();
                Err(error)
            }
        }
    }

    /// Undoes all changes.
    pub(super) fn undo(self) {
        for (key, entry) in self.before.into_iter().rev() {
            match entry {
                Some(entry) => self.tables.flows.insert(key, entry),
                None => self.tables.flows.remove(&key),
            };
        }
    }

    pub(super) fn run(&mut self, request: &FlowMod) -> Result<(), FlowError> {
        match request.command {
            FlowCommand::Add => self.add(request),
            FlowCommand::Modify | FlowCommand::ModifyStrict => self.modify(request),
            FlowCommand::Delete | FlowCommand::DeleteStrict => self.delete(request),
        }
    }

    fn add(&mut self, request: &FlowMod) -> Result<(), FlowError> {
        let flow = request.clone().into_flow();
        self.check(&flow)?;
        match self.tables.flows.get(&flow.key) {
            Some(known) if known.owner != self.owner => return Err(owned_by_file(&flow.key)),
            Some(_) => {}
            None if self.tables.len() >= MAX_FLOWS => return Err(too_many()),
            None if request.check_overlap => self.check_overlap(&flow.key)?,
            None => {}
        }
        let counters = C::default();
        self.put(FlowEntry { flow, owner: self.owner, counters, added: self.now, changed: self.now });
        self.done.added += 1;
        Ok(())
    }

    /// Refuses a flow if another one of its table and priority may match the same packet.
    fn check_overlap(&mut self, key: &FlowKey) -> Result<(), FlowError> {
        let first = FlowKey { condition: Match::new(), ..key.clone() };
        let same = self.tables.flows.range(first..).map(|(other, _)| other);
        let same = same.take_while(|other| other.table == key.table && other.priority == key.priority);
        let mut compared = 0;
        let found = same.inspect(|_| compared += 1).find(|other| other.condition.overlaps(&key.condition));
        let found = found.map(describe);
        self.count(compared)?;
        match found {
            None => Ok(()),
            Some(other) => Err(FlowError::new(
                "check_overlap",
                format!("refuses the flow: it overlaps with `{other}`; give one of them another priority"),
            )),
        }
    }

    /// Counts comparisons of conditions, and refuses too many of them.
    fn count(&mut self, comparisons: usize) -> Result<(), FlowError> {
        self.comparisons += comparisons;
        if self.comparisons > MOST_COMPARISONS {
            let problem = "the transaction has too many loose changes for so many flows: split it, or use strict ones";
            return Err(FlowError::new("", problem));
        }
        Ok(())
    }

    /// Returns the flows that a request means. Those of another owner are counted only.
    fn meant(&mut self, request: &FlowMod) -> Result<Vec<Arc<FlowEntry<C>>>, FlowError> {
        let is_strict = matches!(request.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        let all: Vec<Arc<FlowEntry<C>>> = match request.table {
            Some(table) if is_strict => {
                let key = FlowKey { table, priority: request.priority, condition: request.condition.clone() };
                self.tables.flows.get(&key).into_iter().filter(|entry| is_meant(entry, request)).cloned().collect()
            }
            _ => {
                self.count(self.tables.len())?;
                let is_same = |entry: &FlowEntry<C>| !is_strict || request.is_for(&entry.flow.key);
                self.tables.matching(request).filter(|entry| is_same(entry)).cloned().collect()
            }
        };
        let (own, foreign): (Vec<_>, Vec<_>) = all.into_iter().partition(|entry| entry.owner == self.owner);
        if let Some(entry) = foreign.first().filter(|_| is_strict) {
            return Err(owned_by_file(&entry.flow.key));
        }
        self.done.kept += foreign.len();
        Ok(own)
    }

    /// Changes the actions of flows. Without such flows it adds one, as OpenFlow 1.0 does.
    fn modify(&mut self, request: &FlowMod) -> Result<(), FlowError> {
        let kept = self.done.kept;
        let meant = self.meant(request)?;
        if meant.is_empty() && self.done.kept == kept && request.cookie_filter.1 == 0 {
            return self.add(request);
        }
        for entry in meant {
            let flow = Flow {
                actions: request.actions.clone(),
                cookie: request.cookie.unwrap_or(entry.flow.cookie),
                ..entry.flow.clone()
            };
            self.check(&flow)?;
            let counters = if request.reset_counts { C::default() } else { entry.counters.clone() };
            self.put(FlowEntry { flow, counters, owner: self.owner, added: entry.added, changed: self.now });
            self.done.modified += 1;
        }
        Ok(())
    }

    fn delete(&mut self, request: &FlowMod) -> Result<(), FlowError> {
        for entry in self.meant(request)? {
            let key = entry.flow.key.clone();
            self.tables.flows.remove(&key);
            self.before.push((key, Some(entry)));
            self.done.deleted += 1;
        }
        Ok(())
    }

    /// Checks the actions of a flow against its table and the meters.
    fn check(&self, flow: &Flow) -> Result<(), FlowError> {
        if let Some(number) = meter_of(flow).filter(|number| !self.tables.meters.contains_key(number)) {
            return Err(FlowError::new(&format!("meter:{number}"), "is no meter of the bridge: add it first"));
        }
        match flow.actions.last() {
            Some(Action::GotoTable(table)) if *table <= flow.key.table => Err(FlowError::new(
                &format!("goto_table:{table}"),
                format!("leads to the own or an earlier table: use a later one, or `resubmit(,{table})`"),
            )),
            _ => Ok(()),
        }
    }

    fn put(&mut self, entry: FlowEntry<C>) {
        self.has_clauses |= entry.flow.is_clause();
        let key = entry.flow.key.clone();
        let before = self.tables.flows.insert(key.clone(), Arc::new(entry));
        self.before.push((key, before));
    }
}

/// Returns whether a request means a flow, apart from the priority.
pub(super) fn is_meant<C>(entry: &FlowEntry<C>, request: &FlowMod) -> bool {
    let flow = &entry.flow;
    let (cookie, mask) = request.cookie_filter;
    request.table.is_none_or(|table| table == flow.key.table)
        && (flow.cookie ^ cookie) & mask == 0
        && request.out_port.is_none_or(|port| outputs_to(flow, port))
        && request.condition.covers(&flow.key.condition)
}

fn outputs_to(flow: &Flow, port: PortNumber) -> bool {
    flow.actions.contains(&Action::Output(port))
}

impl FlowMod {
    /// Returns whether a loose request means a flow: by table, condition, cookie and output.
    #[must_use]
    pub fn covers<C>(&self, entry: &FlowEntry<C>) -> bool {
        is_meant(entry, self)
    }

    /// Returns whether a strict request, or one that adds, is for this flow.
    pub(super) fn is_for(&self, key: &FlowKey) -> bool {
        let table = if self.command == FlowCommand::Add { Some(self.table.unwrap_or(0)) } else { self.table };
        table.is_none_or(|table| table == key.table) && self.priority == key.priority && self.condition == key.condition
    }
}

fn describe(key: &FlowKey) -> String {
    let condition = FlowWriter::new(&NoPortNames).condition(key.priority, &key.condition);
    let table = key.table;
    if condition.is_empty() { format!("table={table}") } else { format!("table={table},{condition}") }
}

pub(super) fn owned_by_file(key: &FlowKey) -> FlowError {
    FlowError::new(&describe(key), "is a flow of the configuration file: change it there")
}

pub(super) fn too_many() -> FlowError {
    FlowError::new("", format!("the bridge has {MAX_FLOWS} flows already, which is the most: delete some first"))
}

//! The flow tables of a bridge, as control changes them.

mod change;
mod conjunction;
mod entry;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::action::Action;
use crate::flow::{Flow, FlowKey, FlowMod};
use crate::meter::Meter;
use crate::parse::FlowError;
use change::Change;
pub use conjunction::{Clauses, ConjunctionKey};
pub use entry::{Expiry, FlowCount, FlowEntry, Owner};

/// Most flows of a bridge.
pub const MAX_FLOWS: usize = 65_536;

/// Most meters of a bridge.
pub const MAX_METERS: usize = 4096;

/// Most combinations of a bridge's conjunctions: rules that workers search in.
pub const MAX_COMBINATIONS: usize = 65_536;

/// Most comparisons of conditions in one transaction. Each loose change and each check of overlaps
/// looks at all flows: a full table takes 512 of them.
const MOST_COMPARISONS: usize = 1 << 25;

/// The work that a transaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowChanges {
    /// Flows added, those that replaced another one among them.
    pub added: usize,
    /// Flows with new actions.
    pub modified: usize,
    /// Flows deleted.
    pub deleted: usize,
    /// Flows of another owner that a deletion or change left alone.
    pub kept: usize,
}

/// The flow tables of a bridge, and its meters. `C` are the counters of a flow.
///
/// Changes come as transactions: all of a list of requests, or none. Times are those of one clock.
///
/// ```
/// use straightline_flow::{FlowCommand, FlowTables, NoCount, NoPortNames, Owner, parse_flows};
/// use std::time::Duration;
///
/// let mut tables = FlowTables::<NoCount>::default();
/// let text = "in_port=1,actions=2\nin_port=2,actions=1\ndelete_strict in_port=1";
/// let requests = parse_flows(text, FlowCommand::Add, &NoPortNames).expect("flows");
/// let changes = tables.apply(&requests, Owner::Api, Duration::ZERO).expect("a transaction");
/// assert_eq!((changes.added, changes.deleted, tables.len()), (2, 1, 1));
/// ```
#[derive(Clone, Debug)]
pub struct FlowTables<C> {
    flows: BTreeMap<FlowKey, Arc<FlowEntry<C>>>,
    meters: BTreeMap<u32, (Meter, Owner)>,
}

impl<C> Default for FlowTables<C> {
    fn default() -> Self {
        Self { flows: BTreeMap::new(), meters: BTreeMap::new() }
    }
}

impl<C: FlowCount> FlowTables<C> {
    /// Returns tables with these flows, without the checks of a transaction.
    #[cfg(test)]
    pub(crate) fn unchecked(flows: impl Iterator<Item = Flow>) -> Self {
        let entry = |flow: Flow| {
            let key = flow.key.clone();
            let times = Duration::ZERO;
            (key, Arc::new(FlowEntry { flow, owner: Owner::Api, counters: C::default(), added: times, changed: times }))
        };
        Self { flows: flows.map(entry).collect(), meters: BTreeMap::new() }
    }

    /// Returns the number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns whether there are no flows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Returns whether a flow searches for the connections of packets.
    #[must_use]
    pub fn search_connections(&self) -> bool {
        self.entries().any(|entry| entry.flow.actions.iter().any(|action| matches!(action, Action::Ct(_))))
    }

    /// Returns the flows in the order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<FlowEntry<C>>> {
        self.flows.values()
    }

    /// Returns the flows from a key on, in the order of their keys.
    pub fn from(&self, first: &FlowKey) -> impl Iterator<Item = &Arc<FlowEntry<C>>> {
        self.flows.range(first..).map(|(_, entry)| entry)
    }

    /// Returns the flow of a key.
    #[must_use]
    pub fn get(&self, key: &FlowKey) -> Option<&Arc<FlowEntry<C>>> {
        self.flows.get(key)
    }

    /// Returns the flows that a deletion with this filter would delete, of all owners: what `dump`
    /// shows.
    pub fn matching(&self, filter: &FlowMod) -> impl Iterator<Item = &Arc<FlowEntry<C>>> {
        self.entries().filter(move |entry| change::is_meant(entry, filter))
    }

    /// Changes flows: all requests in order, or none. Each request has the number of its line.
    ///
    /// # Errors
    /// The first request that is not possible, with its line.
    pub fn apply(
        &mut self,
        requests: &[(usize, FlowMod)],
        owner: Owner,
        now: Duration,
    ) -> Result<FlowChanges, FlowError> {
        let mut change = Change::new(self, owner, now);
        for (line, request) in requests {
            if let Err(error) = change.run(request) {
                change.undo();
                return Err(error.at(*line));
            }
        }
        change.end()
    }

    /// Makes these requests, run on empty tables, the flows of an owner. Flows that stay as they were
    /// keep their counters and ages. The file takes flows of clients with the same keys over; a client
    /// cannot.
    ///
    /// # Errors
    /// The first request that is not possible, with its line. Nothing is changed then.
    pub fn replace(
        &mut self,
        requests: &[(usize, FlowMod)],
        owner: Owner,
        now: Duration,
    ) -> Result<FlowChanges, FlowError> {
        let mut wanted = Self { flows: BTreeMap::new(), meters: self.meters.clone() };
        wanted.apply(requests, owner, now)?;
        let is_own = |entry: &FlowEntry<C>| entry.owner == owner;
        let mut kept = 0;
        for entry in self.flows.values().filter(|entry| !is_own(entry)) {
            let key = &entry.flow.key;
            if !wanted.flows.contains_key(key) {
                kept += 1;
            } else if owner == Owner::Api {
                let request = requests.iter().rev().find(|(_, request)| request.is_for(key));
                return Err(change::owned_by_file(key).at(request.map_or(0, |(line, _)| *line)));
            }
        }
        if wanted.len() + kept > MAX_FLOWS {
            return Err(change::too_many());
        }
        let has_clauses = wanted.entries().any(|entry| entry.flow.is_clause());
        let mut done = FlowChanges { kept, ..FlowChanges::default() };
        for entry in self.flows.values() {
            match wanted.flows.get_mut(&entry.flow.key) {
                Some(new) if new.flow == entry.flow => {
                    let taken = FlowEntry { owner, ..FlowEntry::clone(entry) };
                    *new = Arc::new(taken);
                }
                Some(_) => done.modified += 1,
                None if is_own(entry) => done.deleted += 1,
                None => {
                    wanted.flows.insert(entry.flow.key.clone(), Arc::clone(entry));
                }
            }
        }
        if has_clauses {
            // Flows of another owner may be parts of the same conjunctions.
            wanted.check_conjunctions()?;
        }
        let is_new = |key: &&FlowKey| !self.flows.contains_key(*key);
        done.added = wanted.flows.keys().filter(is_new).count();
        self.flows = wanted.flows;
        Ok(done)
    }

    /// Removes the flows whose time is over, and returns them.
    pub fn expire(&mut self, now: Duration) -> Vec<(Arc<FlowEntry<C>>, Expiry)> {
        let ended = self.entries().filter_map(|entry| Some((Arc::clone(entry), entry.expiry(now)?)));
        let ended: Vec<_> = ended.collect();
        for (entry, _) in &ended {
            self.flows.remove(&entry.flow.key);
        }
        ended
    }

    /// Returns the meters by their numbers.
    pub fn meters(&self) -> impl Iterator<Item = (u32, Meter, Owner)> {
        self.meters.iter().map(|(number, (meter, owner))| (*number, *meter, *owner))
    }

    /// Returns the number of flows that use a meter.
    #[must_use]
    pub fn meter_users(&self, number: u32) -> usize {
        self.entries().filter(|entry| entry.flow.actions.contains(&Action::Meter(number))).count()
    }

    /// Adds a meter, or changes an own one if `replaces` is set.
    ///
    /// # Errors
    /// There is a meter with this number, or there are too many.
    pub fn set_meter(&mut self, number: u32, meter: Meter, owner: Owner, replaces: bool) -> Result<(), FlowError> {
        let word = format!("meter={number}");
        match self.meters.get(&number) {
            Some((_, Owner::File)) if owner == Owner::Api => {
                Err(FlowError::new(&word, "is a meter of the configuration file: change it there"))
            }
            Some(_) if !replaces => Err(FlowError::new(&word, "is there already: delete it first")),
            None if self.meters.len() >= MAX_METERS => {
                Err(FlowError::new(&word, format!("is one too many: a bridge has at most {MAX_METERS} meters")))
            }
            _ => {
                self.meters.insert(number, (meter, owner));
                Ok(())
            }
        }
    }

    /// Deletes a meter.
    ///
    /// # Errors
    /// There is no such meter, it is the file's, or flows use it.
    pub fn delete_meter(&mut self, number: u32, owner: Owner) -> Result<(), FlowError> {
        let word = format!("meter={number}");
        let wrong = |problem: String| Err(FlowError::new(&word, problem));
        match self.meters.get(&number) {
            None => return wrong("is no meter of the bridge".to_owned()),
            Some((_, known)) if *known != owner => {
                return wrong("is a meter of the configuration file: delete it there".to_owned());
            }
            Some(_) => {}
        }
        let users = self.meter_users(number);
        if users > 0 {
            return wrong(format!("is used by {users} flows: delete these first"));
        }
        self.meters.remove(&number);
        Ok(())
    }

    /// Makes these the meters of the file, in place of those before.
    ///
    /// # Errors
    /// There are too many, or a flow of a client uses a meter that is gone.
    pub fn replace_file_meters(&mut self, meters: &[(u32, Meter)]) -> Result<(), FlowError> {
        let mut all = self.meters.clone();
        all.retain(|_, (_, owner)| *owner != Owner::File);
        all.extend(meters.iter().map(|(number, meter)| (*number, (*meter, Owner::File))));
        if all.len() > MAX_METERS {
            return Err(FlowError::new("", format!("the bridge has more than {MAX_METERS} meters")));
        }
        let is_missing = |number: &u32| !all.contains_key(number);
        let meter_of_client = |entry: &Arc<FlowEntry<C>>| meter_of(&entry.flow).filter(|_| entry.owner == Owner::Api);
        if let Some(number) = self.flows.values().filter_map(meter_of_client).find(is_missing) {
            return Err(FlowError::new(&format!("meter={number}"), "is gone, but flows of clients use it: keep it"));
        }
        self.meters = all;
        Ok(())
    }
}

/// Returns the meter of a flow.
fn meter_of(flow: &Flow) -> Option<u32> {
    flow.actions.iter().find_map(|action| match action {
        Action::Meter(number) => Some(*number),
        _ => None,
    })
}

/// Counters that count nothing, for tables without packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoCount;

impl FlowCount for NoCount {
    fn packets(&self) -> u64 {
        0
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn last_used(&self) -> Option<Duration> {
        None
    }
}

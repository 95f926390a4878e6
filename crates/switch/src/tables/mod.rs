//! The tables of a switch: all things with state beside its ports, by name. Each has a control half
//! ([`NodeControl`]). It lives across reloads while its settings stay the same.
//!
//! A reload has two steps. [`Tables::after`] makes the control halves whose settings are new, and asks
//! each whether it can continue the one before it; this may fail. [`Tables::commit`] has them take over
//! what was known, while no worker uses them.

mod firewall;
mod spec;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use az::SaturatingAs;
use straightline_graph::{Clock, NodeControl, Rows, TableView, Unprepared};
use straightline_packet::{Drops, Rcu};

use crate::api::{ErrorCode, Refusal, Table, TableRequest, TableSummary};
use crate::config::Config;
use crate::plan::Plan;
#[cfg(test)]
pub(crate) use spec::same;
use spec::{TableSpec, specs};

/// The tables, by name: the kind and the name of what has the table, such as `bridge:lan`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables(BTreeMap<String, Entry>);

#[derive(Clone, Debug)]
struct Entry {
    /// The value that the table was made from.
    spec: TableSpec,
    control: Arc<dyn NodeControl>,
}

impl Tables {
    /// Returns the tables of a configuration. Those of `self` that stay the same live on. The others
    /// are new, and know nothing before [`Self::commit`]. `rcu` has the workers,
    /// `clock` the times of entries, and `drops` returns the drop counters of the port of this name.
    ///
    /// # Errors
    /// The line and the reason why a table cannot have its settings.
    pub(crate) fn after(
        &self,
        config: &Config,
        plan: &Plan,
        rcu: &Rcu,
        clock: &Clock,
        drops: impl Fn(&str) -> Arc<Drops>,
    ) -> anyhow::Result<Self> {
        let mut tables = Tables::default();
        for spec in specs(config, plan)? {
            let name = spec.name();
            let before = self.0.get(&name);
            if let Some(same) = before.filter(|before| before.spec == spec) {
                tables.0.insert(name, same.clone());
                continue;
            }
            let Some(control) = spec.open(&tables, rcu, clock, &drops)? else { continue };
            if let Err(Unprepared { key, why }) = control.prepare(before.map(|before| &*before.control)) {
                bail!("{}", spec.refusal(key.as_deref(), &why));
            }
            tables.0.insert(name, Entry { spec, control });
        }
        Ok(tables)
    }

    /// Has each new table take over what the one of its name in `before` knows. No worker may use
    /// either of them.
    pub(crate) fn commit(&self, before: &Self) {
        for (name, Entry { control, .. }) in &self.0 {
            if let Some(before) = before.0.get(name).filter(|before| !Arc::ptr_eq(&before.control, control)) {
                control.commit(&*before.control);
            }
        }
    }

    /// Returns the control half of this name, if there is one of this type.
    pub(crate) fn get<T: NodeControl>(&self, kind: &str, name: &str) -> Option<Arc<T>> {
        let control = Arc::clone(&self.0.get(&format!("{kind}:{name}"))?.control);
        let control: Arc<dyn Any + Send + Sync> = control;
        control.downcast().ok()
    }

    /// Returns the control halves of a type, by name.
    pub(crate) fn all<T: NodeControl>(&self) -> impl Iterator<Item = &T> {
        self.controls().filter_map(|control| control.downcast())
    }

    /// Returns the control halves, by name.
    pub(crate) fn controls(&self) -> impl Iterator<Item = &dyn NodeControl> {
        self.0.values().map(|entry| &*entry.control)
    }

    /// Returns a line for each table that the API shows.
    pub(crate) fn summaries(&self, view: &TableView<'_>) -> Vec<TableSummary> {
        let shown = self.0.iter().filter(|(_, entry)| entry.control.is_table());
        let summary = |(name, entry): (&String, &Entry)| {
            let mut rows = Rows::count();
            entry.control.rows(view, &mut rows);
            let counters = entry.control.counters().into_iter().map(|(name, count)| (name.to_owned(), count));
            TableSummary { table: name.clone(), rows: rows.total(), counters: counters.collect() }
        };
        shown.map(summary).collect()
    }

    /// Returns rows of a table.
    ///
    /// # Errors
    /// There is no such table.
    pub(crate) fn page(&self, view: &TableView<'_>, request: &TableRequest) -> Result<Table, Refusal> {
        let TableRequest { table, after, limit } = request;
        let Some(entry) = self.0.get(table).filter(|entry| entry.control.is_table()) else {
            let names = self.0.iter().filter(|(_, entry)| entry.control.is_table()).map(|(name, _)| name.as_str());
            return Err(no_table(table, names));
        };
        let limit = (*limit).min(TableRequest::MOST);
        let mut rows = Rows::new(after.clone(), limit.saturating_as::<usize>());
        entry.control.rows(view, &mut rows);
        let total = rows.total();
        let (rows, next) = rows.into_page();
        Ok(Table { table: table.clone(), rows, total, next })
    }
}

fn no_table<'a>(table: &str, names: impl Iterator<Item = &'a str>) -> Refusal {
    let known = crate::api::nearest_first(table, names);
    let error = match known.as_str() {
        "" => format!("no such table {table:?}; the switch has none"),
        known => format!("no such table {table:?}; tables are {known}"),
    };
    Refusal::new(ErrorCode::UnknownTable, error).about(table)
}

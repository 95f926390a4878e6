//! The answer to `tables`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::layout::{Grid, count};

/// The answer to `tables`: all tables of the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tables {
    /// The tables, by name.
    pub tables: Vec<TableSummary>,
}

/// A table of the switch: what a bridge, an underlay or a node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TableSummary {
    /// The name of the table: its kind and the name of its owner, such as `bridge:lan`.
    pub table: String,
    /// The number of rows.
    pub rows: u64,
    /// The counters of the table.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// Renders the answer to `tables`: a row for each table.
#[must_use]
pub fn text(tables: &Tables) -> String {
    if tables.tables.is_empty() {
        return "no tables\n".to_owned();
    }
    let mut grid = Grid::new(&["<table", ">rows", "<counters"]);
    for table in &tables.tables {
        let counters = table.counters.iter().filter(|(_, number)| **number > 0);
        let counters: Vec<_> = counters.map(|(name, number)| format!("{name} {}", count(*number))).collect();
        grid.row([table.table.clone(), count(table.rows), counters.join(", ")]);
    }
    grid.render("")
}

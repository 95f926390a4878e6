//! The request `table` and its answer.

mod row;

use serde::{Deserialize, Serialize};

use crate::layout::count;
pub use row::{AllowedAddress, Cell, FirewallRule, GroupMember, MirroredTo, MulticastRouter, Row};

/// The arguments of the request `table`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "command-line", derive(clap::Args))]
#[cfg_attr(feature = "command-line", command(after_help = "Example:\n  straightline table bridge:lan"))]
pub struct TableRequest {
    /// The name of the table, as `tables` shows it.
    #[cfg_attr(feature = "command-line", arg(value_name = "TABLE", help = "Name of the table, as `tables` shows it"))]
    pub table: String,
    /// Only rows behind this place are of interest: `next` of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "command-line", arg(long, value_name = "PLACE", help = "Begin behind this place"))]
    pub after: Option<String>,
    /// The most rows of the answer.
    #[serde(default = "TableRequest::default_limit")]
    #[cfg_attr(feature = "command-line", arg(long, value_name = "ROWS", help = "Show at most so many rows"))]
    #[cfg_attr(feature = "command-line", arg(default_value_t = TableRequest::default_limit()))]
    #[cfg_attr(feature = "command-line", arg(value_parser = clap::value_parser!(u32).range(1..=Self::MOST.into())))]
    pub limit: u32,
}

impl TableRequest {
    /// The most rows of an answer, whatever the request asks for.
    pub const MOST: u32 = 10_000;

    fn default_limit() -> u32 {
        1000
    }

    /// Returns the request for the first rows of a table.
    #[must_use]
    pub fn new(table: impl Into<String>) -> Self {
        Self { table: table.into(), after: None, limit: Self::default_limit() }
    }
}

/// The answer to `table`: rows of a table, in the order of their places.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Table {
    /// The name of the table.
    pub table: String,
    /// The rows. A row that comes or goes between two requests is in the second answer or not; all
    /// others are in exactly one answer.
    pub rows: Vec<Row>,
    /// The number of all rows of the table.
    pub total: u64,
    /// The place of the last row, if there are rows behind it: the next request has it as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Renders the answer to `table`: a table of text for each kind of row.
#[must_use]
pub fn text(table: &Table) -> String {
    if table.rows.is_empty() {
        return "no rows\n".to_owned();
    }
    let rows = row::text(&table.rows);
    let Some(next) = &table.next else { return rows };
    let shown = count(table.rows.len().try_into().unwrap_or(u64::MAX));
    format!("{rows}\n{shown} of {} rows; for those behind: --after \"{next}\"\n", count(table.total))
}

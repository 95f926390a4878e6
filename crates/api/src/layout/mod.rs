//! Text for terminals: tables for 100 columns, text for 80.

mod grid;

use std::time::Duration;

pub(crate) use grid::{Grid, count, printable, render_columns, wrap};

/// The width of a terminal that tables fit.
pub(crate) const TABLE_WIDTH: usize = 100;

/// The column at which text is wrapped.
pub(crate) const WIDTH: usize = 80;

/// The indent of each line of a port's block but the first.
pub(crate) const INDENT: &str = "    ";

/// Formats seconds as days, hours, minutes and seconds, from the first that is not 0.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds).map_or(0, |time| time.as_secs());
    let days = whole / 86400;
    let hours = whole / 3600 % 24;
    let minutes = whole / 60 % 60;
    let rest = whole % 60;
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds:.1} s"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, _, _) => format!("{hours} h {minutes} min {rest} s"),
        _ => format!("{days} d {hours} h {minutes} min"),
    }
}

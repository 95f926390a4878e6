//! `straightline top`

use std::time::Duration;

use straightline_top::{Column, Output, TopOptions, run};

use crate::cli::Top;

/// Shows the running switch on a screen, in tables or as JSON.
pub(crate) fn execute(args: Top) -> anyhow::Result<()> {
    let Top { batch, count, interval, json, sort, columns, api } = args;
    let output = match (json, batch) {
        (true, _) => Output::Json,
        (false, true) => Output::Tables,
        (false, false) => Output::Screen,
    };
    // A batch ends by itself.
    let count = count.or(batch.then_some(1));
    let columns = if columns.is_empty() { Column::ALL.to_vec() } else { columns };
    let interval = Duration::from_secs_f64(interval);
    Ok(run(&TopOptions { api, interval, count, output, sort, columns })?)
}

//! `straightline lab machine`

use clap::Args;
use straightline_lab::machine::memory_bounds;

use crate::output;

pub(crate) const HELP: &str = "\
Every packet that is copied passes this memory, so its bandwidth bounds each rate. A line's round trip
bounds what a ring costs: a guest writes its entries, and the switch on another CPU reads them.

A report shows which share of a copy's bound its results reach, if DIR/machine.json has the bounds.

Examples:
  straightline lab machine --cpu 1
  straightline lab machine --cpu 1 --json > DIR/machine.json";

#[derive(Debug, Args)]
pub(crate) struct Machine {
    /// CPU that measures
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    pub(crate) cpu: usize,
    /// Seconds for each figure
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub(crate) secs: f64,
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures the bounds of this machine's memory.
pub(crate) fn execute(args: &Machine) -> anyhow::Result<()> {
    let bounds = memory_bounds(args.cpu, args.secs, &mut |what| output::progress(&what))?;
    if args.json {
        return output::answer(&format!("{}\n", serde_json::to_string(&bounds)?));
    }
    output::answer(&bounds.to_string())
}

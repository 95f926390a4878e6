//! `peers flows`: compares flow tables with Open vSwitch's, in rounds: the same files of flows between the
//! same two ports, with the same embedded guest.
//!
//! | file | holds |
//! |---|---|
//! | `options` | the command line, and the axes of a trial |
//! | `trial` | flows, switches and guests of a trial |

mod options;
mod trial;

use std::path::PathBuf;

use anyhow::{Result, bail};
use straightline_lab::rounds::table::{self, Row};
use straightline_report::results::Sample;

use crate::machine::{Machine, Need, two_cpus};
use crate::measure::{Candidate, Cell as _, NO_VALID_TRIAL, SwitchKind, TrialPlan, require};
use options::FlowsCell;
pub(crate) use options::Options;

/// Runs all trials. Returns true if each of them is valid.
pub(crate) fn run(options: Options) -> Result<bool> {
    let options = options::checked(options)?;
    let common = &options.common;
    let machine = Machine { switch: PathBuf::new(), cache: common.cache.clone(), long: false };
    if common.switches.iter().any(|switch| switch.kind == SwitchKind::Ovs) {
        require(&machine, Need::Ovs, "leave ovs out, or run as root with huge pages reserved")?;
    }
    let (guest_cpu, switch_cpu) = two_cpus()?;
    if guest_cpu == switch_cpu {
        bail!("this process may use one CPU only: two are needed, one for the guest and one for the switch");
    }
    let cells = options.cells();
    let switches = &common.switches[..];
    let out = common.out.as_deref();
    let near = common.near;
    let plan = TrialPlan { scenario: "flows", rounds: common.rounds, switches, cells: &cells, out, near };
    let done = plan.run(|switch, cell| trial::run(&machine, &options, switch, cell))?;
    println!("Medians (smallest-largest).\n\n{}", markdown(switches, &cells, &done.samples));
    Ok(done.judge())
}

/// Metrics in the table: name, title, digits.
const SHOWN: [(&str, &str, usize); 3] = [
    ("mpps", "both directions, Mpps", 2),
    ("second_mpps", "of them from the second port", 2),
    ("switch_cycles_per_packet", "switch, cycles a packet", 0),
];

/// Returns a table with rows for the metrics of each cell, and a column for each switch.
fn markdown(switches: &[Candidate], cells: &[FlowsCell], samples: &[Sample]) -> String {
    let names = || switches.iter().map(|switch| switch.name.as_str());
    let mut rows = Vec::new();
    for cell in cells {
        let Some(row) = Row::new(samples, &cell.axes(), names()) else { continue };
        for (metric, title, digits) in SHOWN {
            let series = row.series(metric);
            let spreads = series
                .iter()
                .map(|own| table::spread(own, table::fixed(digits)).unwrap_or_else(|| NO_VALID_TRIAL.to_owned()));
            rows.push([cell.to_string(), title.to_owned()].into_iter().chain(spreads).collect());
        }
    }
    let head: Vec<&str> = ["flows", "metric"].into_iter().chain(names()).collect();
    table::markdown(&head, &rows)
}

//! `peers rates`: measures limits of ports, in rounds, and compares them with those of other switches.
//!
//! | file | holds |
//! |---|---|
//! | `options` | the command line, and the axes of a trial |
//! | `packets` | embedded guests: the share of a rate that passes, the delay below it, ports that wait |
//! | `tcp` | two Linux guests with iperf3, also over Open vSwitch and Linux's tbf |

mod options;
mod packets;
mod tcp;

use std::path::PathBuf;

use anyhow::{Result, bail};
use straightline_lab::rounds::table::{self, Row};
use straightline_report::results::Sample;

use crate::machine::{Machine, Need, two_cpus};
use crate::measure::{Candidate, Cell as _, NO_VALID_TRIAL, SwitchKind, TrialPlan, require};
use crate::proc;
pub(crate) use options::Options;
use options::RateCell;

/// Runs all trials. Returns true if each of them is valid.
pub(crate) fn run(options: Options) -> Result<bool> {
    let options = options::checked(options)?;
    let common = &options.common;
    let machine = Machine { switch: PathBuf::new(), cache: common.cache.clone(), long: false };
    let groups = groups(&common.switches, &options.cells());
    let cells = groups.iter().flat_map(|(_, cells)| cells);
    if cells.clone().any(|cell| matches!(cell, RateCell::Tcp { .. })) {
        require(&machine, Need::Uml(2), "`cargo xtask test` installs the packages for the guests")?;
    }
    let has_kind = |kind| groups.iter().flat_map(|(switches, _)| switches).any(|switch| switch.kind == kind);
    if has_kind(SwitchKind::OvsSleeping) {
        require(&machine, Need::Ovs, "leave ovs out, or run as root with huge pages reserved")?;
    }
    if has_kind(SwitchKind::Tbf) {
        require(&machine, Need::Namespaces, "leave tbf out, or run as root")?;
    }
    let (guest_cpu, switch_cpu) = two_cpus()?;
    if guest_cpu == switch_cpu {
        bail!("this process may use one CPU only: two are needed, one for the guest and one for the switch");
    }
    let mut valid = true;
    let mut tables = String::new();
    for (number, (switches, cells)) in (1..).zip(&groups) {
        let out = common.out.as_ref().map(|out| out.join(number.to_string()));
        let near = common.near;
        let plan = TrialPlan { scenario: "rates", rounds: common.rounds, switches, cells, out: out.as_deref(), near };
        let done = plan.run(|switch, cell| match cell {
            RateCell::Tcp { rate, offload } => tcp::trial(&machine, options.secs, switch, *rate, *offload),
            _ => packets::trial(&machine, options.secs, switch, cell),
        })?;
        tables += &format!("{}\n", markdown(switches, cells, &done.samples));
        valid &= done.judge();
        if proc::interrupted() {
            break;
        }
    }
    println!("Medians (smallest-largest).\n\n{tables}");
    Ok(valid)
}

/// Returns the rows with embedded guests and those with Linux guests, each time with the switches that
/// take part.
fn groups(switches: &[Candidate], cells: &[RateCell]) -> Vec<(Vec<Candidate>, Vec<RateCell>)> {
    let (tcp, packets): (Vec<_>, Vec<_>) = cells.iter().partition(|cell| matches!(cell, RateCell::Tcp { .. }));
    let ours = switches.iter().filter(|switch| matches!(switch.kind, SwitchKind::Ours(_))).cloned().collect();
    let mut groups = vec![(ours, packets), (switches.to_vec(), tcp)];
    groups.retain(|(switches, cells)| !switches.is_empty() && !cells.is_empty());
    groups
}

/// Metrics in the table: name, title, digits.
const SHOWN: [(&str, &str, usize); 9] = [
    ("share", "share of the rate, counted by the switch", 4),
    ("gbit_per_s", "payload, Gbit/s", 3),
    ("payload_share", "payload, as a share of the rate", 3),
    ("retransmits", "retransmits", 0),
    ("switch_cpu_s_per_gb", "switch, CPU s/GB", 2),
    ("latency_p50_us", "delay p50, us", 1),
    ("latency_p99_us", "delay p99, us", 1),
    ("latency_max_us", "delay max, us", 1),
    ("switch_cpu_percent", "switch, % of a CPU", 2),
];

/// Returns a table with rows for the metrics of each cell, and a column for each switch.
fn markdown(switches: &[Candidate], cells: &[RateCell], samples: &[Sample]) -> String {
    let names = || switches.iter().map(|switch| switch.name.as_str());
    let mut rows = Vec::new();
    for cell in cells {
        let Some(row) = Row::new(samples, &cell.axes(), names()) else { continue };
        // The bridge of Linux has no process, and so no CPU time of its own.
        let valid: Vec<bool> = row.places.iter().map(|place| place.iter().any(|sample| sample.is_valid())).collect();
        for (metric, title, digits) in SHOWN {
            let series = row.series(metric);
            if series.iter().any(|series| !series.is_empty()) {
                let spreads = series.iter().zip(&valid).map(|(own, &is_valid)| {
                    let none = if is_valid { "" } else { NO_VALID_TRIAL };
                    table::spread(own, table::fixed(digits)).unwrap_or_else(|| none.to_owned())
                });
                rows.push([cell.to_string(), title.to_owned()].into_iter().chain(spreads).collect());
            }
        }
    }
    let head: Vec<&str> = ["load", "metric"].into_iter().chain(names()).collect();
    table::markdown(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::options::{OneRate, PortsLoad, Size};
    use super::*;

    #[test]
    fn a_table_has_the_metrics_that_were_measured() {
        let ours = Candidate::read("ours=bin/s", &[]).expect("ours");
        let rate = OneRate::ALL[0];
        let cells =
            [RateCell::Share { rate, packed: false, size: Size::Longest }, RateCell::Ports { load: PortsLoad::Wait }];
        let sample = |round, share: f64| Sample {
            round,
            variant: "ours".to_owned(),
            cell: cells[0].axes(),
            metrics: [("share".to_owned(), share)].into(),
            ..Sample::default()
        };
        let text = markdown(&[ours], &cells, &[sample(1, 0.99), sample(2, 0.998), sample(3, 1.0)]);
        let row =
            "| share 1 Gbit/s split 1514 B | share of the rate, counted by the switch | 0.9980 (0.9900-1.0000) |\n";
        assert_eq!(text, format!("| load | metric | ours |\n|---|---|---|\n{row}"));
    }
}

//! `peers linux`: compares switches side by side, each between two Linux guests, in rounds.
//!
//! | file | holds |
//! |---|---|
//! | `options` | the command line, and the axes of a trial |
//! | `rte` | the smallest possible switch with DPDK's vhost library (`rte_patch.c`), compiled at run time |

mod options;
pub(crate) mod rte;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use straightline_lab::rounds::Measured;
use straightline_lab::rounds::table::{self, Row};
use straightline_report::results::Sample;
use straightline_report::statistics::{Looks, median, percentile};

use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::{Machine, Need};
use crate::measure::{self, Candidate, NO_VALID_TRIAL, SwitchKind, TrialPlan, require};
use crate::proc::Proc;
use crate::traffic::{self, Iperf};
use options::LinuxCell;
pub(crate) use options::Options;

/// Runs all trials. Returns true if each of them is valid.
pub(crate) fn run(options: Options) -> Result<bool> {
    let options = options::checked(options)?;
    let common = &options.common;
    let machine = Machine { switch: PathBuf::new(), cache: common.cache.clone(), long: false };
    require(&machine, Need::Uml(2), "`cargo xtask test` installs the packages for the guests")?;
    let rte = if common.switches.iter().any(|switch| switch.kind == SwitchKind::RteVhost) {
        require(&machine, Need::RteVhost, "leave rte out, or run as root with huge pages reserved")?;
        Some(rte::build(&common.cache)?)
    } else {
        None
    };
    let rounds = common.rounds;
    let switches = &common.switches[..];
    let out = common.out.as_deref();
    let near = common.near;
    let plan = TrialPlan { scenario: "linux", rounds, switches, cells: &options.cells, out, near };
    let done = plan.run(|switch, cell| trial(&machine, &options, switch, rte.as_deref(), cell))?;
    println!("{}", markdown(switches, &options.cells, &done.samples));
    Ok(done.judge())
}

fn start(lab: &Lab, switch: &Candidate, rte: Option<&Path>) -> Result<Proc> {
    match (&switch.kind, rte) {
        (SwitchKind::Ours(ours), _) => ours.start(lab, "sleep"),
        (SwitchKind::RteVhost, Some(program)) => rte::start(lab, program),
        _ => bail!("{} cannot be compared with Linux guests: use `cargo xtask compare`", switch.name),
    }
}

/// Boots two guests on a switch. One pings the other, then sends to it.
fn trial(
    machine: &Machine,
    options: &Options,
    switch: &Candidate,
    rte: Option<&Path>,
    cell: &LinuxCell,
) -> Result<Measured> {
    let lab = Lab::new(machine, "linux")?;
    let switch = start(&lab, switch, rte)?;
    let [mut one, mut two] = LinuxGuest::boot_pair(&lab, GuestKind::Uml, cell.mtu)?;
    for guest in [&mut one, &mut two] {
        traffic::turn_off(guest, cell.offload.off())?;
    }
    let second = two.ip();
    traffic::reach(&mut one, &second)?;
    let trips = traffic::round_trips(&mut one, &second, options.pings)?;
    traffic::iperf3_server(&mut two)?;
    let ticks = switch.cpu_ticks()?;
    let began = Instant::now();
    let moved = traffic::iperf3_client(&mut one, &second, options.secs, false)?;
    let took = began.elapsed().as_secs_f64();
    let cpu_s = f64::from(u32::try_from(switch.cpu_ticks()? - ticks)?) / 100.0;
    // Broken packets make the measurement invalid.
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    measure::end(switch)?;
    Ok(metrics(options.pings, &trips, &moved, cpu_s, took))
}

/// Returns the metrics of a trial. The switch used `cpu_s` seconds of CPU time while iperf3's
/// client ran, for `took` seconds.
fn metrics(pings: u32, trips: &[f64], moved: &Iperf, cpu_s: f64, took: f64) -> Measured {
    let micros = |percent| percentile(trips, percent).map(|ms| ms * 1000.0);
    let Iperf { gbit_per_s, bytes, retransmits } = *moved;
    let cpu_s_per_gb = cpu_s / (bytes / 1e9);
    let came = u32::try_from(trips.len()).unwrap_or(pings);
    let metrics = [
        ("gbit_per_s", Some(gbit_per_s)),
        ("retransmits", Some(retransmits)),
        ("switch_cpu_s_per_gb", Some(cpu_s_per_gb)),
        ("switch_cpu_ratio", Some(cpu_s / took)),
        ("ping_min_us", micros(0.0)),
        ("ping_p50_us", micros(50.0)),
        ("ping_p99_us", micros(99.0)),
        ("ping_max_us", micros(100.0)),
        ("pings_lost", Some(f64::from(pings.saturating_sub(came)))),
    ];
    let metrics = metrics.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let ping = median(trips).unwrap_or(0.0);
    let summary =
        format!("{gbit_per_s:.2} Gbit/s, {retransmits:.0} retransmits, {cpu_s_per_gb:.2} CPU s/GB, ping {ping:.2} ms");
    Measured { metrics, summary, ..Measured::default() }
}

/// Metrics in the table: name, title, digits.
const SHOWN: [(&str, &str, usize); 5] = [
    ("gbit_per_s", "Gbit/s", 2),
    ("switch_cpu_s_per_gb", "switch, CPU s/GB", 2),
    ("retransmits", "retransmits", 0),
    ("ping_p50_us", "ping p50, us", 0),
    ("ping_p99_us", "ping p99, us", 0),
];

/// Returns a table with rows for each combination that was tried, and a column for each switch.
fn markdown(switches: &[Candidate], cells: &[LinuxCell], samples: &[Sample]) -> String {
    let names = || switches.iter().map(|switch| switch.name.as_str());
    let mut rows = Vec::new();
    for cell in cells {
        let Some(row) = Row::new(samples, &measure::Cell::axes(cell), names()) else { continue };
        for (metric, title, digits) in SHOWN {
            let shown = table::spreads(&row.series(metric), Looks::One, 0, table::fixed(digits), 2, NO_VALID_TRIAL);
            rows.push([cell.to_string(), title.to_owned()].into_iter().chain(shown).collect());
        }
    }
    let head: Vec<&str> = ["offload, MTU", "metric"].into_iter().chain(names()).collect();
    format!(
        "Medians (smallest-largest), ratio of medians to the first switch [95 % interval, from six rounds on].\n\n{}",
        table::markdown(&head, &rows)
    )
}

#[cfg(test)]
mod tests {
    use straightline_report::results::Validity;

    use super::options::Offload;
    use super::*;
    use crate::measure::Cell as _;

    #[test]
    fn figures_are_in_their_units_and_in_the_table() {
        let moved = Iperf { gbit_per_s: 4.0, bytes: 2.5e9, retransmits: 7.0 };
        let measured = metrics(4, &[0.25, 0.75, 0.5], &moved, 5.0, 5.5);
        let metric_of = |name: &str| measured.metrics[name];
        assert_eq!(
            [metric_of("switch_cpu_s_per_gb"), metric_of("ping_p50_us"), metric_of("pings_lost")],
            [2.0, 500.0, 1.0]
        );
        assert_eq!(measured.summary, "4.00 Gbit/s, 7 retransmits, 2.00 CPU s/GB, ping 0.50 ms");

        let cells = [LinuxCell { offload: Offload::Tso, mtu: 1500 }, LinuxCell { offload: Offload::None, mtu: 9000 }];
        let switch = |name: &str| Candidate {
            name: name.to_owned(),
            kind: SwitchKind::RteVhost,
            version: String::new(),
            copies_nothing: false,
        };
        let sample = |round, variant: &str, gbit_per_s: f64| Sample {
            round,
            variant: variant.to_owned(),
            cell: cells[0].axes(),
            metrics: [("gbit_per_s".to_owned(), gbit_per_s)].into(),
            ..Sample::default()
        };
        let mut samples: Vec<Sample> =
            (1..=6).flat_map(|round| [sample(round, "a", 2.0), sample(round, "b", 3.0)]).collect();
        samples[11].validity = Validity::SpoiltByBackend("it died".to_owned());
        let text = markdown(&[switch("a"), switch("b")], &cells, &samples);
        let row = "| tso 1500 | Gbit/s | 2.00 (2.00-2.00) | 3.00 (3.00-3.00) x1.50 |\n";
        assert!(text.contains(row) && !text.contains("9000"), "{text}");
        assert!(text.ends_with("| tso 1500 | ping p99, us | no valid trial | no valid trial |\n"), "{text}");
    }
}

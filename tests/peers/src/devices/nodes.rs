//! The node of the experiment `cold` at an AF_XDP socket: it swaps the addresses of packets where the
//! kernel has put them. Its loops are compared, in rounds.
//!
//! A source on the one CPU sends by an AF_PACKET socket into a veth pair, and the kernel copies each
//! packet there. The node is on the other CPU. It waits until a whole batch has come, so that its size
//! is that of the row.

use std::cell::Cell as Counter;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use straightline_lab::rounds::table::{self, Row};
use straightline_lab::rounds::{Cell, Measured, Plan, Variant};
use straightline_report::results::Sample;
use straightline_report::statistics::Looks;

use super::kernel_side::KernelSide;
use crate::lab::Lab;
use crate::machine::{Machine, two_cpus};
use crate::measure::{Interrupts, in_quiet, output_of, run_plan};
use crate::net::{self, Namespace};
use crate::proc;

/// The loops: their names here, and in `kernel_side.c`. The others are compared with the first.
const LOOPS: [(&str, &str); 6] = [
    ("none", "none"),
    ("4 ahead", "4-ahead"),
    ("two at once, none", "two-at-once-none"),
    ("two at once", "two-at-once"),
    ("four at once, none", "four-at-once-none"),
    ("four at once", "four-at-once"),
];

/// Packets in a batch: about those of the seed, and the most.
const BATCHES: [usize; 2] = [16, 256];

const METRIC: &str = "node_cycles_per_packet";

/// The interface of the node, and the other end of its pair.
const PAIR: [&str; 2] = ["d0", "f0"];

/// Compares the loops. Returns true if each trial is valid.
pub(super) fn run(
    machine: &Machine,
    kernel: &KernelSide,
    rounds: u32,
    time: Duration,
    out: Option<&Path>,
) -> Result<bool> {
    let disturbed = Counter::new(0);
    let cells = BATCHES.map(|batch| {
        let variants = LOOPS.map(|(name, in_c)| {
            let disturbed = &disturbed;
            Variant::new(name, move |_: &Interrupts| in_quiet(disturbed, || trial(machine, kernel, batch, in_c, time)))
        });
        Cell::new([("batch", &batch)], variants)
    });
    let plan = Plan { name: "af-xdp-node", shown: Vec::new(), cells: cells.into(), left_out: Vec::new() };
    let version = output_of(std::process::Command::new("cc").arg("--version"))?;
    let compiler = version.lines().next().unwrap_or_default();
    let results = run_plan(&plan, rounds, out, &[("cc", compiler)], &disturbed)?;
    let batches: Vec<_> = plan.cells.iter().map(|cell| &cell.axes).collect();
    println!("Cycles of the node per packet; ratio to the first.\n\n{}", markdown(&batches, &results.samples));
    Ok(results.judge())
}

fn trial(machine: &Machine, kernel: &KernelSide, batch: usize, in_c: &str, time: Duration) -> Result<Measured> {
    let lab = Lab::new(machine, "nodes")?;
    let namespace = Namespace::silent("nodes")?;
    let (source_cpu, node_cpu) = two_cpus()?;
    let [inside, outside] = PAIR;
    net::veth([(&namespace, inside), (&namespace, outside)], 1, 1500)?;
    let secs = time.as_secs_f64().to_string();
    let batch = batch.to_string();
    let mut node = kernel.open(&lab, &namespace, node_cpu, &["xdp-node", inside, &batch, in_c, &secs])?;
    // The source ends later, so that packets come all the time.
    let longer = time + Duration::from_millis(200);
    let longer_secs = longer.as_secs_f64().to_string();
    let mut source = kernel.open(&lab, &namespace, source_cpu, &["packet-out", outside, "64", &longer_secs])?;
    source.go()?;
    proc::pause(Duration::from_millis(50))?;
    node.go()?;
    let report = node.end(time)?;
    source.end(longer).context("the source")?;
    ensure!(report.packets > 0.0 && report.node_cycles > 0.0, "no batch came");
    let metrics = [(METRIC.to_owned(), report.node_cycles), ("mpps".to_owned(), report.mpps)].into();
    let summary = format!("{:.1} cycles a packet, {:.3} Mpps", report.node_cycles, report.mpps);
    Ok(Measured { metrics, summary, ..Measured::default() })
}

fn markdown(batches: &[&BTreeMap<String, String>], samples: &[Sample]) -> String {
    let names = LOOPS.map(|(name, _)| name);
    let head: Vec<&str> = ["batch"].into_iter().chain(names).collect();
    let row = |axes: &&BTreeMap<String, String>| {
        let row = Row::new(samples, axes, names)?;
        let medians = table::spreads(&row.series(METRIC), Looks::One, 0, |cycles| format!("{cycles:.1}"), 2, "-");
        Some(axes.values().cloned().chain(medians).collect())
    };
    table::markdown(&head, &batches.iter().filter_map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_ratios_to_no_prefetch() {
        let axes: BTreeMap<String, String> = [("batch".to_owned(), "16".to_owned())].into();
        let sample = |round, variant: &str, cycles: f64| Sample {
            round,
            variant: variant.to_owned(),
            cell: axes.clone(),
            metrics: [(METRIC.to_owned(), cycles)].into(),
            ..Sample::default()
        };
        let samples: Vec<_> =
            (1..=6).flat_map(|round| [sample(round, "none", 50.0), sample(round, "4 ahead", 25.0)]).collect();
        let text = markdown(&[&axes], &samples);
        assert!(text.contains("| 16 | 50.0 (50.0-50.0) | 25.0 (25.0-25.0) x0.50 [0.50, 0.50] |"), "{text}");
    }
}

//! One small cell of each experiment, as users run it with `--quick`.

use std::collections::BTreeMap;

use straightline_config::{Config, NodeConfig};
use straightline_graph::{Next, Node};
use straightline_lab::experiments::{self, ALL, Cell, Plan, Settings, TrafficPath, TunnelChoice};
use straightline_packet::{Batch, Packets, Reason};
use straightline_report::results::Sample;

use crate::experiments::{are_whole, at, chosen, is_paced, round};

/// Rounds in which each variant has a valid trial.
const ROUNDS: usize = 10;

/// Runs these cells until each variant has a valid trial. A variant of a paced port may have none whose
/// trials were all spoilt by the load: two CPUs may have no time for a generator beside ports that flood.
fn valid_samples(plan: &mut Plan, settings: &Settings) -> (Vec<Sample>, BTreeMap<String, Vec<&'static str>>) {
    let mut samples: Vec<Sample> = Vec::new();
    let mut negotiated = BTreeMap::new();
    let mut invalid = Vec::new();
    for _ in 0..ROUNDS {
        invalid.clear();
        let (valid, others): (Vec<_>, Vec<_>) =
            round(plan, settings, &mut negotiated).into_iter().partition(Sample::is_valid);
        samples.extend(valid);
        invalid.extend(others);
        plan.cells.retain_mut(|cell| {
            let is_measured = |name: &str| samples.iter().any(|at| at.cell == cell.axes && at.variant == name);
            cell.variants.retain(|variant| !is_measured(&variant.name));
            !cell.variants.is_empty()
        });
        if plan.cells.is_empty() {
            break;
        }
    }
    let is_excused = |cell: &Cell| cell.axes.get("load").is_some_and(|load| load == "paced");
    let are_spoilt_by_load = invalid.iter().filter(|at| is_paced(at)).all(|at| at.validity.is_spoilt_by_load());
    assert!(plan.cells.iter().all(is_excused) && are_spoilt_by_load, "no valid trial of {:?}: {invalid:?}", plan.cells);
    (samples, negotiated)
}

fn settings() -> Option<Settings> {
    Settings::new(true).ok()
}

/// Runs one cell of an experiment.
fn one_cell(name: &str, is_chosen: impl Fn(&Cell) -> bool) {
    let Some(_cpus) = super::cpus() else { return };
    let Some(settings) = settings() else { return };
    let plan = || {
        let mut plan = chosen(name, &settings, &is_chosen);
        plan.cells.truncate(1);
        plan
    };
    let (samples, negotiated) = valid_samples(&mut plan(), &settings);
    are_whole(name, &plan(), &samples, &negotiated);
}

#[test]
fn memcpy() {
    one_cell("memcpy", |cell| at(cell, "size", "imix") && at(cell, "path", "pvp"));
}

#[test]
fn header_align() {
    one_cell("header-align", |cell| at(cell, "path", "loop") && at(cell, "size", "64"));
}

#[test]
fn touch() {
    one_cell("touch", |cell| at(cell, "core", "another") && at(cell, "ring", "64"));
}

#[test]
fn width() {
    one_cell("width", |cell| at(cell, "size", "1020") && at(cell, "frame", "unaligned"));
}

#[test]
fn prefetch() {
    one_cell("prefetch", |cell| at(cell, "node", "swap"));
}

#[test]
fn batch() {
    one_cell("batch", |cell| at(cell, "path", "loop") && at(cell, "size", "64"));
}

#[test]
fn levels() {
    one_cell("levels", |cell| at(cell, "node", "stations"));
}

#[test]
fn noisy() {
    one_cell("noisy", |cell| at(cell, "size", "64") && at(cell, "neighbour_kib", "8192") && at(cell, "load", "loop"));
    one_cell("noisy", |cell| at(cell, "neighbour_seat", "other-ports"));
}

#[test]
fn offload() {
    let Some(_cpus) = super::cpus() else { return };
    let Some(settings) = settings() else { return };
    let mut plan = chosen("offload", &settings, |cell| at(cell, "load", "segments"));
    let (samples, _) = valid_samples(&mut plan, &settings);
    assert!(samples.iter().all(|sample| sample.metrics["payload_gbit_per_s"] > 0.0), "{samples:?}");
}

/// Without a switch. The clock's own cost is subtracted from the cycles of a loop.
#[test]
fn cold() {
    let Some(_cpus) = super::cpus() else { return };
    let Some(settings) = settings() else { return };
    let mut plan = chosen("cold", &settings, |_| true);
    plan.cells.truncate(1);
    let (samples, _) = valid_samples(&mut plan, &settings);
    assert!(samples.iter().all(|sample| sample.metrics["node_cycles_per_packet"] > 0.0), "{samples:?}");
}

/// The cell with a line is valid only if the line is the limit.
#[test]
fn tunnel() {
    let Some(_cpus) = super::cpus() else { return };
    let Some(settings) = settings() else { return };
    let choice = TunnelChoice { kinds: vec!["l2tpv3".parse().expect("a kind")], line: 2e7, ..TunnelChoice::default() };
    let mut plan = experiments::tunnel_plan(&choice);
    let (samples, _) = valid_samples(&mut plan, &settings);
    assert_eq!(samples.len(), 8, "four loads without and with the tunnel: {samples:?}");
}

/// Drops one packet, after the reflector's probes and before all packets of the loop have passed.
#[derive(Clone)]
struct Leak {
    passed: usize,
}

impl Node for Leak {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            self.passed += 1;
            if self.passed == 200 { packets.discard(id, Reason::Node) } else { next.push(0, id) }
        }
    }
}

#[test]
fn a_packet_that_is_lost_in_a_loop_is_missed() {
    let Some(_cpus) = super::cpus() else { return };
    let Some(settings) = settings() else { return };
    let configure = |config: &mut Config| {
        config.ports.iter_mut().for_each(|port| port.nodes.push("leak".to_owned()));
        config.nodes.push(NodeConfig::new("leak", "leak", Leak { passed: 0 }));
    };
    let why = experiments::bench(&settings, TrafficPath::LOOP, configure, |options| options.bursts = Some(8));
    let why = why.expect_err("a packet is lost").to_string();
    assert!(why.contains("packets of the loop are lost"), "{why}");
}

/// Names of all experiments that have a test above.
#[test]
fn each_experiment_has_a_real_cell() {
    let known = [
        "memcpy",
        "header-align",
        "offload",
        "touch",
        "width",
        "prefetch",
        "cold",
        "batch",
        "levels",
        "noisy",
        "tunnel",
    ];
    assert_eq!(ALL.iter().map(|experiment| experiment.name).collect::<Vec<_>>(), known);
}

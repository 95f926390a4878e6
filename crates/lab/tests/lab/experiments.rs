//! Each experiment in some cells: every variant moves its packets intact through our switch, and has its
//! metrics. A measurement ends by packets, so no result depends on time. `long/experiments.rs` has real
//! trials.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity};
use straightline_lab::experiments::{self, Cell, Plan, Settings};
use straightline_lab::rounds::Record;
use straightline_lab::traffic::Counted;
use straightline_lab::trial::{Step, Watch};
use straightline_report::results::Sample;
use straightline_report::statistics::Looks;
use straightline_testing::PATIENCE;
use straightline_testing::host::skip;

/// Packets by which each port or guest ends a measurement.
const PACKETS: u32 = 2000;

/// Settings for trials by packets. On a machine with one CPU, guest and switch share it.
fn settings() -> Settings {
    let ours = sched_getaffinity(None).expect("our CPUs");
    let only = (0..CpuSet::MAX_CPU).find(|&cpu| ours.is_set(cpu)).expect("one of them");
    Settings {
        cpus: Settings::new(true).map_or([only; 2], |settings| settings.cpus),
        warm_up: Duration::ZERO,
        // The measured time is never shorter than this.
        time: Duration::from_nanos(1),
        stop: Arc::new(AtomicBool::new(false)),
        near_ns: None,
        bound: None,
        counted: Some(Counted { packets: PACKETS.into(), patience: PATIENCE }),
    }
}

pub(crate) struct Quiet;

impl Watch for Quiet {
    fn begins(&mut self, _: &Step) {}
    fn is_invalid(&mut self, _: &Step, _: &str) {}
}

/// Held while cells run. The results do not depend on it, but workers that poll would take each other's
/// CPUs, and the tests would take longer.
static CPUS: Mutex<()> = Mutex::new(());

/// Features by what they were negotiated with.
type Negotiated = BTreeMap<String, Vec<&'static str>>;

/// Returns the `chosen` cells of a quick plan.
pub(crate) fn chosen(name: &str, settings: &Settings, is_chosen: impl Fn(&Cell) -> bool) -> Plan {
    let mut plan = (experiments::find(name).expect("an experiment").plan)(settings, true);
    plan.cells.retain(is_chosen);
    assert!(!plan.cells.is_empty(), "no such cell of {name}");
    plan
}

/// Runs a round of a plan. Returns its samples, and adds what was negotiated.
pub(crate) fn round(plan: &Plan, settings: &Settings, negotiated: &mut Negotiated) -> Vec<Sample> {
    let _alone = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut samples = Vec::new();
    let outcome = plan.run(1, settings, &mut Quiet, &mut |kept| {
        match kept {
            Record::Negotiated(ring, features) => _ = negotiated.insert(ring.to_owned(), features.to_vec()),
            Record::Sample(sample) => samples.push(sample.clone()),
            Record::Peer(..) | Record::Trial(_) => panic!("there is no other program, and no search"),
        }
        Ok(())
    });
    assert_eq!(outcome.expect("samples are kept").made, plan.trials());
    samples
}

/// Runs the `chosen` cells of a quick plan once, by packets. Every trial is valid.
fn samples(name: &str, settings: &Settings, is_chosen: impl Fn(&Cell) -> bool) -> (Plan, Vec<Sample>) {
    let plan = chosen(name, settings, is_chosen);
    let mut negotiated = Negotiated::new();
    let samples = round(&plan, settings, &mut negotiated);
    let invalid: Vec<_> = samples.iter().filter(|sample| !sample.is_valid()).collect();
    assert!(invalid.is_empty(), "{invalid:?}");
    assert_eq!(samples.len(), plan.trials());
    are_whole(name, &plan, &samples, &negotiated);
    let table = experiments::markdown(&plan, &samples, Looks::One);
    assert!(plan.shown.iter().all(|shown| table.contains(shown.metric)), "{table}");
    (plan, samples)
}

/// Checks that valid samples have the metrics of their experiment, and that features were negotiated.
pub(crate) fn are_whole(name: &str, plan: &Plan, samples: &[Sample], negotiated: &Negotiated) {
    // The negotiated features are the subject of `offload`.
    let layouts = match name {
        "offload" => 5,
        "tunnel" => 2,
        _ => 1,
    };
    assert_eq!(negotiated.len(), layouts, "{negotiated:?}");
    let packed = plan.cells.iter().all(|cell| at(cell, "ring", "packed"));
    for (ring, features) in negotiated {
        assert_eq!((*ring == "packed", features.contains(&"ring-packed")), (packed, packed));
        assert!(features.contains(&"version-1"), "{negotiated:?}");
        assert_eq!(features.contains(&"guest-csum"), ring.ends_with(" passed"), "{negotiated:?}");
    }
    for sample in samples {
        for (metric, value) in &sample.metrics {
            assert!(value.is_finite() && *value >= 0.0, "{metric} of {sample:?}");
        }
        // A paced port has latencies, and neither a rate nor cycles.
        if is_paced(sample) {
            continue;
        }
        let rate = if ["offload", "tunnel"].contains(&name) { "gbit_per_s" } else { "mpps" };
        // With a neighbour on the generator's CPU a rate is meaningless.
        let has_rate = sample.cell.get("neighbour_seat").is_none_or(|place| place == "own-cpu");
        assert_eq!(sample.metrics.get(rate).is_some_and(|&rate| rate > 0.0), has_rate, "{sample:?}");
        assert!(sample.metrics["switch_cycles_per_packet"] > 0.0, "{sample:?}");
        let phases: Vec<_> = sample.cycles.keys().map(String::as_str).collect();
        let node: &[&str] = match name {
            "prefetch" | "levels" => &["node"],
            "tunnel" if sample.variant != "plain" => &["decap", "encap", "own"],
            _ => &[],
        };
        assert_eq!(phases, [node, &["patch", "rx", "turn-end", "tx"]].concat(), "{sample:?}");
    }
}

pub(crate) fn is_paced(sample: &Sample) -> bool {
    sample.cell.get("load").is_some_and(|load| load == "paced")
}

pub(crate) fn at(cell: &Cell, axis: &str, place: &str) -> bool {
    cell.axes.get(axis).is_some_and(|there| there == place)
}

#[test]
fn memcpy() {
    let settings = settings();
    samples("memcpy", &settings, |cell| at(cell, "size", "imix") && at(cell, "path", "loop"));
    samples("memcpy", &settings, |cell| at(cell, "size", "1518") && at(cell, "path", "flood"));
    let (_, samples) = samples("memcpy", &settings, |cell| at(cell, "size", "imix") && at(cell, "path", "pvp"));
    for sample in &samples {
        let metric = |name: &str| sample.metrics[name];
        assert!(metric("guest_cycles_per_packet") > 0.0 && metric("generator_limit_mpps") > 0.0, "{sample:?}");
        assert!((64.0..=1518.0).contains(&metric("frame_bytes")), "{sample:?}");
    }
}

#[test]
fn width() {
    samples("width", &settings(), |cell| at(cell, "size", "1020") && at(cell, "frame", "unaligned"));
    let (_, samples) = samples("width", &settings(), |cell| cell.axes.contains_key("registers"));
    // Both directions have their copy.
    for sample in &samples {
        let both = ["guest_to_host_cycles_per_packet", "host_to_guest_cycles_per_packet"];
        assert!(both.iter().all(|metric| sample.metrics[*metric] > 0.0), "{sample:?}");
    }
}

#[test]
fn header_align() {
    // 1500 bytes are 1512 with their header. They take three buffers of 512, and do not fill the last.
    // 2048 bytes of 2060 fill a first buffer, but with the line before the data one holds all.
    let of_2048: &[&str] = &["33 2", "33 1", "33 1"];
    for (path, size, lines) in [
        ("loop", "64", &["2 2", "2 1"][..]),
        ("pvp", "64", &["2 2", "2 1"]),
        ("pvp", "1500", &["27 2", "24 1"]),
        ("pvp", "2048", of_2048),
    ] {
        for ring in ["split", "packed"] {
            let chosen = |cell: &Cell| at(cell, "path", path) && at(cell, "ring", ring) && at(cell, "size", size);
            let (_, mut samples) = samples("header-align", &settings(), chosen);
            samples.sort_by(|a, b| a.variant.cmp(&b.variant));
            let line = |sample: &Sample, metric: &str| format!("{:.0}", sample.metrics[metric]);
            let found: Vec<_> = samples
                .iter()
                .map(|sample| line(sample, "lines_per_packet") + " " + &line(sample, "touched_lines_per_packet"))
                .collect();
            assert_eq!(found, lines, "{path} {ring} {size}");
        }
    }
    // Only the position of received frames depends on the variant.
    for sent in ["frame on a line", "header on a line"] {
        let chosen = |cell: &Cell| at(cell, "path", "one-way") && at(cell, "sent", sent);
        let (_, samples) = samples("header-align", &settings(), chosen);
        for sample in &samples {
            let lines = if sample.variant == "frame on a line" { 25.0 } else { 24.0 };
            assert!((sample.metrics["lines_per_packet"] - lines).abs() < 1e-9, "{sample:?}");
        }
    }
}

#[test]
fn touch() {
    for core in ["another", "same"] {
        samples("touch", &settings(), |cell| at(cell, "core", core) && at(cell, "size", "1020"));
    }
    let (_, samples) = samples("touch", &settings(), |cell| at(cell, "ring", "64"));
    for sample in &samples {
        let busy = sample.metrics["switch_busy_ratio"];
        assert!(busy > 0.0 && busy <= 1.0, "{sample:?}");
    }
}

#[test]
fn prefetch() {
    let (_, samples) = samples("prefetch", &settings(), |cell| at(cell, "node", "swap"));
    for sample in &samples {
        let metric = |metric: &str| sample.metrics[metric];
        assert!(metric("node_cycles_per_packet") > 0.0 && metric("node_packets_per_call") >= 1.0, "{sample:?}");
    }
}

#[test]
fn noisy() {
    let is_one = |cell: &Cell| at(cell, "neighbour_kib", "8192") || at(cell, "neighbour_seat", "other-ports");
    let chosen = |cell: &Cell| at(cell, "size", "64") && is_one(cell);
    let (plan, samples) = samples("noisy", &settings(), chosen);
    assert!(plan.cells.iter().any(|cell| at(cell, "load", "paced")), "{:?}", plan.cells);
    for sample in &samples {
        assert_eq!(sample.metrics.contains_key("latency_p99_9_us"), is_paced(sample), "{sample:?}");
        if sample.cell["neighbour_seat"] == "other-ports" {
            continue;
        }
        let lines = sample.metrics.get("neighbour_lines").map(|lines| format!("{lines:.0}"));
        assert_eq!(lines.as_deref(), (sample.variant != "quiet").then_some("131072"), "{sample:?}");
    }
}

#[test]
fn offload() {
    let (_, samples) = samples("offload", &settings(), |_| true);
    for sample in &samples {
        let metric = |metric: &str| sample.metrics[metric];
        let is_whole = sample.cell["load"] == "segments" && sample.variant == "passed";
        let bytes = match sample.cell["load"].as_str() {
            // A window need not have the lengths in the proportions of the mix.
            "mix" => 60.0..1514.0,
            _ if is_whole => 64_294.0..64_295.0,
            _ => 1514.0..1515.0,
        };
        assert!(bytes.contains(&metric("frame_bytes")), "{sample:?}");
        // At the end of each trial one window is checked: about 512 frames from each, or 16 large
        // packets.
        let checked = if is_whole { 2.0 * 16.0 } else { 2.0 * 400.0 };
        assert!(metric("checked_packets") >= checked, "{sample:?}");
        assert!(metric("payload_gbit_per_s") < metric("gbit_per_s"), "{sample:?}");
    }
}

#[test]
fn tunnel() {
    let (_, samples) = samples("tunnel", &settings(), |cell| !at(cell, "load", "line"));
    let metric_of = |sample: &Sample, metric: &str| sample.metrics[metric];
    let plain = |sample: &Sample| {
        let is_beside = |other: &&Sample| other.variant == "plain" && other.cell == sample.cell;
        samples.iter().find(is_beside).expect("plain").clone()
    };
    for sample in &samples {
        let overhead = metric_of(sample, "wire_frame_bytes") - metric_of(&plain(sample), "wire_frame_bytes");
        let expected = match sample.variant.as_str() {
            "plain" => 0.0,
            // Ethernet and IPv6; then the session and the cookie, or UDP and 8 bytes, or a key.
            "l2tpv3" => 54.0 + 4.0 + 8.0,
            "vxlan" | "geneve" => 54.0 + 8.0 + 8.0,
            "gre" => 54.0 + 8.0,
            other => panic!("{other}"),
        };
        // A few frames ask for MAC addresses. They are among those that both guests got.
        let short = 8.0 * metric_of(sample, "wire_frame_bytes") / f64::from(2 * PACKETS);
        assert!((overhead - expected).abs() < 1.0 + short, "{overhead}: {sample:?}");
        let bytes = match sample.cell["load"].as_str() {
            "1500" => 1514.0..1515.0,
            "64" => 60.0..61.0,
            // The number of segments that are coalesced depends on their arrival.
            _ => 1514.0..64_295.0,
        };
        assert!(bytes.contains(&metric_of(sample, "frame_bytes")), "{sample:?}");
        assert!(metric_of(sample, "checked_packets") >= 16.0, "{sample:?}");
    }
}

#[test]
fn what_fails_is_a_sample_with_its_reason() {
    for name in ["width", "offload", "tunnel"] {
        let settings = Settings { cpus: [usize::MAX, 0], ..settings() };
        let mut plan = chosen(name, &settings, |_| true);
        plan.cells.truncate(1);
        let mut reasons = Vec::new();
        let outcome = plan.run(1, &settings, &mut Quiet, &mut |kept| {
            let Record::Sample(sample) = kept else { panic!("with nobody: {kept:?}") };
            assert!(sample.validity.is_spoilt_by_load(), "{sample:?}");
            reasons.push(sample.validity.reason().expect("there is no such CPU").to_owned());
            Ok(())
        });
        assert_eq!(outcome.expect("samples are kept").invalid, 3 * plan.trials(), "each is made three times");
        assert!(reasons.iter().all(|why| why.contains("no CPU")), "{reasons:?}");
    }
}

#[test]
fn trials_of_cpus_that_are_far_apart_are_not_valid() {
    let settings = Settings { near_ns: Some(1e-3), ..settings() };
    if settings.cpus[0] == settings.cpus[1] {
        return skip("trials_of_cpus_that_are_far_apart_are_not_valid", "it needs two CPUs");
    }
    let mut plan = chosen("width", &settings, |_| true);
    plan.cells.truncate(1);
    let samples = round(&plan, &settings, &mut Negotiated::new());
    // No line is as fast as that. Each trial is made three times.
    assert_eq!(samples.len(), 3 * plan.trials());
    for sample in samples {
        let why = sample.validity.reason().expect("it is too far");
        assert!(sample.validity.is_spoilt_by_load() && why.contains("more than the 0 ns of --near"), "{why}");
    }
}

/// Stops a run as soon as its first trial begins.
struct Stopper(Arc<AtomicBool>);

impl Watch for Stopper {
    fn begins(&mut self, _: &Step) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_invalid(&mut self, _: &Step, _: &str) {}
}

#[test]
fn a_stop_ends_the_trial_that_runs() {
    for name in ["width", "offload", "tunnel"] {
        // Only the stop can end the trial.
        let counted = Some(Counted { packets: u64::MAX, patience: PATIENCE });
        let settings = Settings { time: Duration::from_secs(600), counted, ..settings() };
        let plan = chosen(name, &settings, |_| true);
        let mut samples = Vec::new();
        let outcome = plan.run(1, &settings, &mut Stopper(Arc::clone(&settings.stop)), &mut |kept| {
            samples.extend(if let Record::Sample(sample) = kept { Some(sample.clone()) } else { None });
            Ok(())
        });
        let outcome = outcome.expect("samples are kept");
        assert_eq!((outcome.made, outcome.is_cut_short()), (0, true), "{name}");
        // Packets may have come before the trial notices the stop.
        assert!(samples.len() <= 1, "{samples:?}");
        for sample in samples {
            let why = sample.validity.reason().expect("it is not whole");
            assert!(why.starts_with("interrupted, after ") && why.ends_with(" of 600.0 s"), "{why}");
            assert!(sample.metrics["gbit_per_s"] > 0.0, "{sample:?}");
        }
    }
}

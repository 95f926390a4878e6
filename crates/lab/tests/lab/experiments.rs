//! Each experiment in one real cell, as short as possible: every variant is valid, and has its
//! metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use straightline_lab::experiments::{self, Cell, Plan, Settings};
use straightline_lab::rounds::Record;
use straightline_lab::trial::{Step, Watch};
use straightline_report::results::Sample;
use straightline_report::statistics::Looks;
use straightline_testing::host::skip;

/// Settings for short trials. On a machine with one CPU, guest and switch share it.
fn settings() -> Settings {
    let short = Settings { time: Duration::from_millis(50), warm_up: Duration::from_millis(10), ..alone() };
    Settings::new(true).map_or(short.clone(), |settings| Settings { cpus: settings.cpus, ..short })
}

fn alone() -> Settings {
    Settings {
        cpus: [0, 0],
        warm_up: Duration::ZERO,
        time: Duration::ZERO,
        stop: Arc::new(AtomicBool::new(false)),
        near_ns: None,
        bound: None,
        counted: None,
    }
}

struct Quiet;

impl Watch for Quiet {
    fn begins(&mut self, _: &Step) {}
    fn is_invalid(&mut self, _: &Step, _: &str) {}
}

/// Held while cells run: trials side by side would take each other's CPUs, and few would be valid.
static CPUS: Mutex<()> = Mutex::new(());

/// Rounds after which a paced variant may be left out whose trials were all spoilt by the load: two
/// CPUs may have no time for a generator beside ports that flood.
const ROUNDS_OF_PACED: usize = 20;

/// Runs the `chosen` cells of a quick plan until every variant is valid. On a busy machine such a
/// short trial may see no packet, or last longer than planned; any other fault fails the test.
fn samples(name: &str, settings: &Settings, chosen: impl Fn(&Cell) -> bool) -> (Plan, Vec<Sample>) {
    let experiment = experiments::find(name).expect("an experiment");
    let make = || {
        let mut plan = (experiment.plan)(settings, true);
        plan.cells.retain(&chosen);
        plan
    };
    let plan = make();
    assert!(!plan.cells.is_empty(), "no such cell of {name}");
    let mut samples: Vec<Sample> = Vec::new();
    let mut negotiated = BTreeMap::new();
    let _alone = CPUS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut left = make();
    let mut left_out = 0;
    for round in 0..100 {
        let mut are_spoilt_by_load = true;
        let outcome = left.run(1, settings, &mut Quiet, &mut |kept| {
            let sample = match kept {
                Record::Negotiated(ring, features) => {
                    negotiated.insert(ring.to_owned(), features.to_vec());
                    return Ok(());
                }
                Record::Peer(..) | Record::Trial(_) => panic!("there is no other program, and no search"),
                Record::Sample(sample) => sample,
            };
            let is_there = |other: &Sample| (&other.cell, &other.variant) == (&sample.cell, &sample.variant);
            match sample.validity.reason() {
                None if !samples.iter().any(is_there) => samples.push(sample.clone()),
                Some(why) => {
                    are_spoilt_by_load &= sample.validity.is_spoilt_by_load() && is_paced(sample);
                    let known = [
                        "packets came from",
                        "nothing has come",
                        "nothing has returned",
                        "this thread was descheduled",
                    ];
                    // Its packets pass a third thread, the wire, which may have been away too.
                    let of_the_wire = ["has counted no packet", "no packet has passed the wire"];
                    // A paced generator notices that it was away.
                    let paced = ["were not sent in time"];
                    let known = known.iter().chain(of_the_wire.iter().filter(|_| name == "tunnel"));
                    let known = known.chain(paced.iter().filter(|_| name == "noisy"));
                    assert!(known.into_iter().any(|known| why.contains(known)), "{why}: {sample:?}");
                }
                None => {}
            }
            Ok(())
        });
        let outcome = outcome.expect("samples are kept");
        assert_eq!(outcome.made, left.trials());
        left.cells.retain_mut(|cell| {
            let is_there = |name: &str| samples.iter().any(|at| (&at.cell, at.variant.as_str()) == (&cell.axes, name));
            cell.variants.retain(|variant| !is_there(&variant.name));
            !cell.variants.is_empty()
        });
        left_out = if are_spoilt_by_load && round >= ROUNDS_OF_PACED { left.trials() } else { 0 };
        if samples.len() + left_out == plan.trials() {
            // The negotiated features are the subject of `offload`.
            let layouts = match name {
                "offload" => 5,
                "tunnel" => 2,
                _ => 1,
            };
            assert_eq!(negotiated.len(), layouts, "{negotiated:?}");
            let packed = plan.cells.iter().all(|cell| at(cell, "ring", "packed"));
            for (ring, features) in &negotiated {
                assert_eq!((*ring == "packed", features.contains(&"ring-packed")), (packed, packed));
                assert!(features.contains(&"version-1"), "{negotiated:?}");
                assert_eq!(features.contains(&"guest-csum"), ring.ends_with(" passed"), "{negotiated:?}");
            }
            break;
        }
    }
    assert_eq!(samples.len() + left_out, plan.trials(), "valid variants: {samples:?}");
    for sample in &samples {
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
            "prefetch" => &["node"],
            "tunnel" if sample.variant != "plain" => &["decap", "encap", "own"],
            _ => &[],
        };
        assert_eq!(phases, [node, &["patch", "rx", "turn-end", "tx"]].concat(), "{sample:?}");
    }
    let table = experiments::markdown(&plan, &samples, Looks::One);
    // A busy machine may have left out all trials with some metric.
    let may_lack = |metric: &str| left_out > 0 && samples.iter().all(|sample| !sample.metrics.contains_key(metric));
    assert!(plan.shown.iter().all(|shown| table.contains(shown.metric) || may_lack(shown.metric)), "{table}");
    (plan, samples)
}

fn is_paced(sample: &Sample) -> bool {
    sample.cell.get("load").is_some_and(|load| load == "paced")
}

fn at(cell: &Cell, axis: &str, place: &str) -> bool {
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
    // A busy machine may have left out all of their trials.
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
        // A few frames ask for MAC addresses. On a busy machine they are among few.
        let frames = metric_of(sample, "mpps") * 1e6 * settings().time.as_secs_f64();
        let short = 8.0 * metric_of(sample, "wire_frame_bytes") / frames;
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
        let mut plan = (experiments::find(name).expect("an experiment").plan)(&settings, true);
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
    let mut plan = (experiments::find("width").expect("an experiment").plan)(&settings, true);
    plan.cells.truncate(1);
    let mut reasons = Vec::new();
    let outcome = plan.run(3, &settings, &mut Quiet, &mut |kept| {
        if let Record::Sample(sample) = kept {
            reasons.extend(sample.validity.reason().map(str::to_owned));
        }
        Ok(())
    });
    // No line is as fast as that. On a busy machine some trials fail for other reasons.
    assert_eq!(outcome.expect("samples are kept").valid, 0);
    assert!(reasons.iter().any(|why| why.contains("more than the 0 ns of --near")), "{reasons:?}");
}

#[test]
fn a_stop_ends_the_trial_that_runs() {
    for name in ["width", "offload", "tunnel"] {
        let settings = Settings { time: Duration::from_secs(600), ..settings() };
        let plan = (experiments::find(name).expect("an experiment").plan)(&settings, true);
        let stop = Arc::clone(&settings.stop);
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        let mut samples = Vec::new();
        let outcome = plan.run(1, &settings, &mut Quiet, &mut |kept| {
            samples.extend(if let Record::Sample(sample) = kept { Some(sample.clone()) } else { None });
            Ok(())
        });
        let outcome = outcome.expect("samples are kept");
        stopper.join().expect("the stopper");
        assert_eq!((outcome.made, outcome.is_cut_short()), (0, true), "{name}");
        // On a busy machine the measurement may not have begun.
        assert!(samples.len() <= 1, "{samples:?}");
        for sample in samples {
            let why = sample.validity.reason().expect("it is not whole");
            assert!(why.starts_with("interrupted, after ") && why.ends_with(" of 600.0 s"), "{why}");
            assert!(sample.metrics["gbit_per_s"] > 0.0, "{sample:?}");
        }
    }
}

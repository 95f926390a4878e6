//! One trial: a switch with patches between pairs of ports, and the endpoints connected to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use straightline_config::Config;
use straightline_switch::Switch;
use straightline_switch::api::Runtime;

use super::settings::Settings;
use super::{Variant, pvp};
use crate::guests::reflector::{self, Load, ReflectorOptions};
use crate::machine::line_round_trip_ns;
use crate::rounds::Measured;
use crate::testbed::{patched, phases, vectors};
use crate::trial::validity;

/// The metric of the way between the two CPUs: the nanoseconds of a line's round trip, right before a
/// trial or right after, whichever is longer.
pub(super) const ROUND_TRIP: &str = "line_round_trip_ns";

/// The path of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficPath {
    /// Packets pass between the two ports of a reflector, with this load. The switch sees two
    /// guests.
    Guests(Load),
    /// Packets pass from each port of a generator, through a guest that forwards them, to the
    /// generator's other port: physical, virtual, physical. The generator always sends at maximum
    /// rate. The switch sees each packet twice.
    Pvp,
}

impl TrafficPath {
    /// The reflector's loop.
    pub const LOOP: TrafficPath = TrafficPath::Guests(Load::Loop);

    /// Returns the path's name in cells.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TrafficPath::Guests(load) => load.name(),
            TrafficPath::Pvp => "pvp",
        }
    }

    /// Returns the number of switch ports on this path.
    pub(super) fn ports(self) -> usize {
        match self {
            TrafficPath::Guests(_) => 2,
            TrafficPath::Pvp => 4,
        }
    }
}

impl Variant {
    /// Makes a variant that [`bench()`] measures. Such variants differ only in their changes to the
    /// switch and to the guest.
    pub fn bench(
        name: impl Into<String>,
        traffic: TrafficPath,
        configure: impl Fn(&mut Config) + 'static,
        choose: impl Fn(&mut ReflectorOptions) + 'static,
    ) -> Variant {
        Variant::new(name, move |settings| bench(settings, traffic, &configure, &choose))
    }
}

/// Starts our switch in this process, measures packets on this path, and stops the switch.
/// `configure` changes the switch's configuration; `choose` changes the guest and the frames. The
/// switch's counters are read before and after the measured time, so its cycles are those of this
/// time. A stop interrupts the trial and marks it as not valid ([`Measured::validity`]).
///
/// # Errors
/// The trial is not valid.
pub fn bench(
    settings: &Settings,
    traffic: TrafficPath,
    configure: impl FnOnce(&mut Config),
    choose: impl FnOnce(&mut ReflectorOptions),
) -> anyhow::Result<Measured> {
    let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
    let sockets = sockets(folder.path());
    let mut config = patched(settings.cpus[1], &sockets[..traffic.ports()]);
    configure(&mut config);
    let before = line_round_trip_ns(settings.cpus);
    let switch = Switch::start(&config)?;
    let source = switch.source();
    let mut options = options(settings, traffic, &sockets);
    choose(&mut options);
    let measured = measure(traffic, &options, &sockets, &|| Ok(source.runtime()));
    switch.stop();
    let mut measured = measured?;
    // With one CPU there is no way.
    if let (Ok(before), Ok(after)) = (before, line_round_trip_ns(settings.cpus)) {
        let ns = before.max(after);
        measured.note([(ROUND_TRIP, ns)]);
        if let Some(at_most) = settings.near_ns {
            validity::near(ns, at_most).demand()?;
        }
    }
    Ok(measured)
}

/// Returns paths of sockets in a trial's folder, enough for the switch with the most ports.
pub(super) fn sockets(folder: &Path) -> [PathBuf; 4] {
    ["p0", "p1", "p2", "p3"].map(|port| folder.join(port))
}

pub(super) fn options(settings: &Settings, traffic: TrafficPath, sockets: &[PathBuf; 4]) -> ReflectorOptions {
    let [first, second, ..] = sockets.clone();
    let usual = ReflectorOptions::new([first, second]);
    ReflectorOptions {
        load: if let TrafficPath::Guests(load) = traffic { load } else { usual.load },
        cpu: Some(settings.cpus[0]),
        warm_up: settings.warm_up,
        time: settings.time,
        stop: Some(Arc::clone(&settings.stop)),
        may_end_early: true,
        counted: settings.counted,
        ..usual
    }
}

/// Reads the counters of a switch.
pub(super) type Ask<'a> = dyn Fn() -> anyhow::Result<Runtime> + 'a;

/// Measures packets on this path, on the calling thread, through the switch that has these sockets.
pub(super) fn measure(
    traffic: TrafficPath,
    options: &ReflectorOptions,
    sockets: &[PathBuf; 4],
    runtime: &Ask<'_>,
) -> anyhow::Result<Measured> {
    match traffic {
        TrafficPath::Guests(_) => polled(options, runtime),
        TrafficPath::Pvp => pvp::measure(options, sockets, runtime),
    }
}

fn polled(options: &ReflectorOptions, runtime: &Ask<'_>) -> anyhow::Result<Measured> {
    let mut edges = Vec::new();
    let mut at_edge = || {
        edges.push(runtime()?);
        Ok(())
    };
    let report = reflector::run_watched(options, &mut at_edge)?;
    validity::returned(report.lost.unwrap_or(0)).demand()?;
    let [before, after] = <[Runtime; 2]>::try_from(edges).ok().context("the switch's counters were not read")?;
    let mut measured = of_switch(&before, &after, report.frame_bytes)?;
    measured.note([
        ("mpps", report.mpps),
        ("gbit_per_s", report.gbit_per_s),
        ("guest_cycles_per_packet", report.guest_cycles_per_packet),
        ("packets_per_turn", report.packets_per_turn),
        ("lines_per_packet", report.lines_per_packet),
        ("touched_lines_per_packet", report.touched_lines_per_packet),
    ]);
    let validity = validity::whole(report.secs, options.time.as_secs_f64());
    Ok(Measured { negotiated: Some((report.ring, report.features)), validity, ..measured })
}

/// Returns the metrics of a switch between two readings of its counters. `frame_bytes` is the mean
/// frame length.
pub(super) fn of_switch(before: &Runtime, after: &Runtime, frame_bytes: f64) -> anyhow::Result<Measured> {
    let cycles = phases(before, after)?;
    let all: f64 = cycles.values().sum();
    let phase = |name: &str| cycles.get(name).copied().unwrap_or(0.0);
    let values = [
        ("switch_cycles_per_packet", all),
        ("switch_cycles_per_byte", all / frame_bytes),
        // The costs of the way into the switch and of the way out, each with its rings and copies.
        ("guest_to_host_cycles_per_packet", phase("rx")),
        ("host_to_guest_cycles_per_packet", phase("tx")),
        ("frame_bytes", frame_bytes),
    ];
    let mut measured = Measured::default();
    measured.note(values);
    measured.note(busy(before, after).map(|ratio| ("switch_busy_ratio", ratio)));
    let vectors = vectors(before, after).map(|(phase, packets)| (format!("{phase}_packets_per_call"), packets));
    measured.metrics.extend(vectors);
    Ok(Measured { cycles, ..measured })
}

/// Returns the fraction of the switch's time in which it moved packets. Near 1, the switch is slower
/// than the generator, and packets wait for it.
fn busy(before: &Runtime, after: &Runtime) -> Option<f64> {
    let seconds = |runtime: &Runtime| {
        let workers = runtime.workers.iter();
        workers.fold([0.0, 0.0], |[busy, empty], worker| [busy + worker.busy_s, empty + worker.empty_poll_s])
    };
    let [busy_before, empty_before] = seconds(before);
    let [busy_after, empty_after] = seconds(after);
    let busy = busy_after - busy_before;
    let all = busy + empty_after - empty_before;
    (all > 0.0).then(|| busy / all)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    use straightline_switch::api::{Node, Worker};
    use straightline_testing::{PATIENCE, wait_until};

    use super::super::tests::by_packets;
    use super::*;
    use crate::testbed::phase;
    use crate::traffic::Counted;

    #[test]
    fn what_a_stop_interrupts_has_the_figures_until_then() {
        for traffic in [TrafficPath::LOOP, TrafficPath::Pvp] {
            // Only the stop can end this trial.
            let counted = Some(Counted { packets: u64::MAX, patience: PATIENCE });
            let settings = Settings { time: Duration::from_secs(3600), counted, ..by_packets() };
            let measured = stopped(&settings, traffic).expect("a trial");
            let why = measured.validity.reason().expect("it is not whole");
            assert!(why.starts_with("interrupted, after ") && why.ends_with(" of 3600.0 s"), "{why}");
            for metric in ["mpps", "gbit_per_s", "switch_cycles_per_packet", "guest_cycles_per_packet"] {
                assert!(measured.metrics[metric] > 0.0, "{metric} of {measured:?}");
            }
            assert!(measured.negotiated.is_some(), "{measured:?}");
        }
    }

    /// Runs a trial that is stopped as soon as packets have come through each port in the measured
    /// time.
    fn stopped(settings: &Settings, traffic: TrafficPath) -> anyhow::Result<Measured> {
        const NOT_YET: u64 = u64::MAX;
        let folder = tempfile::tempdir()?;
        let sockets = sockets(folder.path());
        let switch = Switch::start(&patched(settings.cpus[1], &sockets[..traffic.ports()]))?;
        let source = switch.source();
        let least = |runtime: &Runtime| {
            let received = runtime.nodes.iter().filter(|node| phase(&node.name) == "rx").map(|node| node.packets);
            received.min().unwrap_or(0)
        };
        let before = AtomicU64::new(NOT_YET);
        let is_over = AtomicBool::new(false);
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| {
                let has_some = || match before.load(Ordering::Relaxed) {
                    NOT_YET => false,
                    before => least(&source.runtime()) >= before + 5000,
                };
                wait_until("packets come, or the trial ends", || has_some() || is_over.load(Ordering::Relaxed));
                settings.stop.store(true, Ordering::Relaxed);
            });
            let measured = measure(traffic, &options(settings, traffic, &sockets), &sockets, &|| {
                let runtime = source.runtime();
                // `before` keeps the first reading. The second one is not needed.
                let _ = before.compare_exchange(NOT_YET, least(&runtime), Ordering::Relaxed, Ordering::Relaxed);
                Ok(runtime)
            });
            is_over.store(true, Ordering::Relaxed);
            measured
        });
        switch.stop();
        measured
    }

    fn runtime(nodes: &[(&str, u64, u64)]) -> Runtime {
        let node = |&(name, packets, cycles): &(&str, u64, u64)| Node::new(name, 1, packets, cycles);
        Runtime { nodes: nodes.iter().map(node).collect(), ..Runtime::default() }
    }

    #[test]
    fn a_switch_is_busy_where_its_turns_move_packets() {
        let at = |busy_s, empty_poll_s| {
            let worker = Worker { busy_s, empty_poll_s, idle_s: 9.0, ..Worker::default() };
            Runtime { workers: vec![worker], ..Runtime::default() }
        };
        assert_eq!(busy(&at(1.0, 2.0), &at(4.0, 3.0)), Some(0.75));
        assert_eq!(busy(&at(1.0, 2.0), &at(1.0, 2.0)), None);
    }

    #[test]
    fn vectors_are_those_of_the_time_between() {
        let with = |nodes: &[(&str, u64, u64)]| Runtime {
            nodes: nodes.iter().map(|&(name, calls, packets)| Node::new(name, calls, packets, 0)).collect(),
            ..Runtime::default()
        };
        let before = with(&[("p0-rx", 1, 1), ("node.a", 1, 1)]);
        let after = with(&[("p0-rx", 2, 33), ("p1-rx", 1, 8), ("node.a", 2, 41), ("p1-tx", 0, 0), ("turn-end", 9, 9)]);
        let vectors: Vec<_> = vectors(&before, &after).map(|(phase, packets)| format!("{phase} {packets}")).collect();
        assert_eq!(vectors, ["node 40", "rx 20"]);
    }

    #[test]
    fn phases_are_those_of_the_time_between() {
        let before = runtime(&[("p0-rx", 10, 1000), ("p1-rx", 0, 0), ("patch.a", 10, 50)]);
        let after = runtime(&[
            ("p0-rx", 20, 1500),
            ("p1-rx", 30, 1500),
            ("patch.a", 50, 250),
            ("p1-tx", 10, 300),
            ("p0-tx", 30, 500),
            ("turn-end", 40, 80),
        ]);
        let phases = phases(&before, &after).expect("packets came");
        let expected = [("patch", 5.0), ("rx", 50.0), ("turn-end", 2.0), ("tx", 20.0)];
        for ((name, cycles), expected) in phases.iter().zip(expected) {
            assert!(name == expected.0 && (cycles - expected.1).abs() < 1e-9, "{phases:?}");
        }
        assert_eq!(phases.len(), expected.len());
        let error = super::phases(&after, &after).expect_err("nothing came").to_string();
        assert!(error.contains("no packet"), "{error}");
    }
}

//! The cost of a neighbour that fills the last-level cache, and the gain from dividing that cache:
//! `docs/experiments/noisy.md`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use az::SaturatingAs;

use super::bench::{TrafficPath, bench};
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{ReflectorOptions, Sizes};
use crate::machine::are_apart;
use crate::rounds::{Measured, Shown};
use crate::testbed::neighbour::resctrl::{Allocation, Class, ROOT};
use crate::testbed::neighbour::{Neighbour, NeighbourCpu, Proof};

/// Frame lengths: headers alone, and a full body.
const SIZES: [u32; 2] = [64, 1514];

/// Memory sizes of the neighbour: within a CPU's second-level cache, within the third-level cache,
/// and larger than any cache.
const FOOTPRINTS: [usize; 4] = [256 << 10, 8 << 20, 64 << 20, 256 << 20];

pub(super) fn plan(settings: &Settings, quick: bool) -> Plan {
    plan_at(Path::new(ROOT), settings, quick)
}

fn plan_at(root: &Path, settings: &Settings, quick: bool) -> Plan {
    let [generator, worker] = settings.cpus;
    let mut left_out = Vec::new();
    let place = NeighbourCpu::find(worker, generator).unwrap_or(NeighbourCpu::SharedWithGenerator(generator));
    left_out.extend(missed(place, worker, are_apart));
    let allocation = Allocation::open(root);
    if let Err(why) = &allocation {
        left_out.push(format!("a divided cache: {why:#}"));
    }
    let can_divide = allocation.is_ok();
    let footprints = if quick { &FOOTPRINTS[1..3] } else { &FOOTPRINTS };
    let cells = SIZES.iter().flat_map(|&size| footprints.iter().map(move |&footprint| (size, footprint)));
    let cells = cells.map(|(size, footprint)| {
        let noisy = move |root: Option<PathBuf>| {
            move |settings: &Settings| trial(settings, size, place, Some((footprint, root.as_deref())))
        };
        let mut variants = vec![
            Variant::new("quiet", move |settings: &Settings| trial(settings, size, place, None)),
            Variant::new("noisy", noisy(None)),
        ];
        if can_divide {
            variants.push(Variant::new("noisy, cache divided", noisy(Some(root.to_owned()))));
        }
        let kib = footprint >> 10;
        let place = place.as_str();
        Cell::new([("size", &size), ("neighbour_kib", &kib), ("neighbour_seat", &place)], variants)
    });
    let cells = cells.collect();
    let mut shown = vec![
        Shown::SWITCH_CYCLES,
        Shown { metric: "rx_packets_per_call", title: "Packets that the switch receives per call" },
        Shown::MPPS,
        Shown { metric: "neighbour_line_ns", title: "Nanoseconds of the neighbour's processor time per line" },
    ];
    shown.retain(|shown| !says_nothing(place, shown.metric));
    Plan { name: "noisy", shown, cells, left_out }
}

/// Returns a description of what cannot be measured with the neighbour on this CPU, if anything.
fn missed(place: NeighbourCpu, worker: usize, are_apart: impl Fn(usize, usize) -> bool) -> Option<String> {
    match place {
        NeighbourCpu::SharedWithGenerator(_) => Some(
            "a neighbour on a CPU of its own: there is no third CPU, so it shares the guest's CPU with the guest"
                .to_owned(),
        ),
        NeighbourCpu::Own(cpu) if are_apart(cpu, worker) => Some(format!(
            "a neighbour that shares the switch's last-level cache: the only other CPUs on its NUMA node are threads \
             of the switch's own core, so the neighbour runs on CPU {cpu} of another node"
        )),
        NeighbourCpu::Own(_) => None,
    }
}

/// Returns whether a metric says nothing about caches. If the neighbour shares the generator's CPU,
/// rates depend on the processor time that the neighbour takes. All variants leave such metrics
/// out, because variants are compared.
fn says_nothing(place: NeighbourCpu, metric: &str) -> bool {
    matches!(place, NeighbourCpu::SharedWithGenerator(_)) && ["mpps", "gbit_per_s"].contains(&metric)
}

/// Makes a trial. `neighbour` has the footprint of a neighbour on this CPU, if there is one. If the
/// cache is to be divided, it also has the root of the resctrl file system. Then the neighbour gets
/// a class of its own.
fn trial(
    settings: &Settings,
    size: u32,
    place: NeighbourCpu,
    neighbour: Option<(usize, Option<&Path>)>,
) -> anyhow::Result<Measured> {
    let mut guards = None;
    if let Some((footprint, root)) = neighbour {
        let neighbour = Neighbour::start(footprint, place.cpu())?;
        let classes = root.map(|root| divide(&Allocation::open(root)?, &neighbour)).transpose()?;
        guards = Some((neighbour, classes));
    }
    let mut measured =
        bench(settings, TrafficPath::LOOP, |_| (), |options: &mut ReflectorOptions| options.sizes = Sizes::one(size))?;
    measured.metrics.retain(|metric, _| !says_nothing(place, metric));
    if let Some((neighbour, _classes)) = guards {
        measured.metrics.extend(metrics(&neighbour.stop()?));
    }
    Ok(measured)
}

/// Divides the cache. The neighbour may fill the fewest possible ways, and all other threads of
/// this process the rest. A new thread is in the class of the thread that starts it.
fn divide(allocation: &Allocation, neighbour: &Neighbour) -> anyhow::Result<[Class; 2]> {
    let (few, rest) = allocation.divide()?;
    let id = std::process::id();
    let theirs = allocation.class(&format!("straightline-{id}-neighbour"), few)?;
    let ours = allocation.class(&format!("straightline-{id}"), rest)?;
    theirs.take(neighbour.task())?;
    for task in std::fs::read_dir("/proc/self/task").context("cannot list our threads")? {
        let task = task?.file_name();
        let task: u32 = task.to_string_lossy().parse().context("a thread id")?;
        if task != neighbour.task() {
            ours.take(task)?;
        }
    }
    Ok([theirs, ours])
}

fn metrics(proof: &Proof) -> impl Iterator<Item = (String, f64)> {
    let count = |n: u64| f64::from(n.saturating_as::<u32>());
    let values = [
        ("neighbour_lines", Some(count(proof.lines.saturating_as::<u64>()))),
        ("neighbour_rounds", Some(count(proof.rounds))),
        ("neighbour_line_ns", proof.ns_per_line),
        ("neighbour_spread_ratio", proof.spread_ratio),
    ];
    values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{counted, labels, names, settings};
    use super::*;

    /// A resctrl file system of eight ways, made of ordinary files.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(root.path().join("info/L3")).expect("a folder");
        let files = [
            ("schemata", "L3:0=ff"),
            ("info/L3/cbm_mask", "ff"),
            ("info/L3/min_cbm_bits", "2"),
            ("info/L3/num_closids", "4"),
        ];
        for (name, text) in files {
            std::fs::write(root.path().join(name), format!("{text}\n")).expect("a file");
        }
        root
    }

    #[test]
    fn without_a_cache_to_divide_that_variant_is_left_out_with_the_reason() {
        let nothing = tempfile::tempdir().expect("a folder");
        let plan = plan_at(nothing.path(), &settings(), true);
        assert_eq!(plan.cells.len(), 4);
        assert!(labels(&plan)[0].contains("neighbour_kib=8192") && labels(&plan)[0].contains("size=64"), "{plan:?}");
        assert_eq!(names(&plan)[0], ["quiet", "noisy"]);
        let why = plan.left_out.last().expect("a reason");
        assert!(why.starts_with("a divided cache: ") && why.contains("resctrl is not mounted there"), "{why}");
        let tree = tree();
        let plan = plan_at(tree.path(), &settings(), false);
        assert_eq!((plan.cells.len(), names(&plan)[0].len()), (8, 3));
        assert!(!plan.left_out.iter().any(|what| what.contains("a divided cache")), "{plan:?}");
    }

    #[test]
    fn a_neighbour_that_shares_no_cache_is_told_of() {
        let apart = |one: usize, other: usize| one % 2 != other % 2;
        assert_eq!(missed(NeighbourCpu::Own(4), 2, apart), None);
        let why = missed(NeighbourCpu::Own(1), 2, apart).expect("another node");
        assert!(why.contains("the switch's last-level cache") && why.contains("CPU 1 of another"), "{why}");
        assert!(missed(NeighbourCpu::SharedWithGenerator(0), 2, apart).is_some_and(|why| why.contains("no third CPU")));
    }

    #[test]
    fn a_trial_shows_what_the_neighbour_touched_and_who_may_fill_what() {
        let Ok(settings) = Settings::new(true) else { return };
        let settings = Settings { warm_up: Duration::ZERO, time: Duration::from_millis(50), ..settings };
        let place = NeighbourCpu::find(settings.cpus[1], settings.cpus[0]).expect("a place");
        // The kernel removes the folder of a class together with its files. Ordinary folders with
        // files stay, so each trial has a tree of its own.
        let (tree, noisy) = counted(|| {
            let tree = tree();
            let noisy = trial(&settings, 64, place, Some((1 << 20, Some(tree.path()))))?;
            Ok((tree, noisy))
        });
        assert!((noisy.metrics["neighbour_lines"] - 16384.0).abs() < 0.5, "{noisy:?}");
        assert!(
            noisy.metrics["neighbour_rounds"] >= 1.0 && noisy.metrics["switch_cycles_per_packet"] > 0.0,
            "{noisy:?}"
        );
        let quiet = counted(|| trial(&settings, 64, place, None));
        for measured in [&quiet, &noisy] {
            for rate in ["mpps", "gbit_per_s"] {
                assert_eq!(measured.metrics.contains_key(rate), matches!(place, NeighbourCpu::Own(_)), "{measured:?}");
            }
        }
        let file = |class: &str, name: &str| {
            let class = format!("straightline-{}{class}", std::process::id());
            std::fs::read_to_string(tree.path().join(class).join(name)).expect("a file")
        };
        assert_eq!((file("-neighbour", "schemata").as_str(), file("", "schemata").as_str()), ("L3:0=3\n", "L3:0=fc\n"));
        assert!(file("-neighbour", "tasks").trim().parse::<u32>().expect("its thread") > 0);
        assert!(!file("", "tasks").is_empty());
    }
}

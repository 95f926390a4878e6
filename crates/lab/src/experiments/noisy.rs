//! The cost of a neighbour that fills the last-level cache, in cycles at full load and in latency of
//! a paced port, and the gain from dividing that cache: `docs/experiments/noisy.md`.

use std::path::{Path, PathBuf};
use std::{fmt, iter};

use anyhow::Context;
use az::SaturatingAs;

use super::bench::{TrafficPath, bench};
use super::settings::Settings;
use super::{Cell, Plan, Variant, paced};
use crate::guests::forward::Mode;
use crate::guests::reflector::{ReflectorOptions, Sizes};
use crate::machine::are_apart;
use crate::rounds::{Measured, Shown};
use crate::testbed::neighbour::resctrl::{Allocation, Class, ROOT};
use crate::testbed::neighbour::{Neighbour, NeighbourCpu, NeighbourTurns, Proof};

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
    let mut noises = vec![("noisy", Noise { root: None, is_limited: false })];
    match allocation {
        Err(why) => left_out.push(format!("a divided cache, and limited memory bandwidth: {why:#}")),
        Ok(allocation) => {
            noises.push(("noisy, cache divided", Noise { root: Some(root.to_owned()), is_limited: false }));
            if allocation.limits_bandwidth() {
                let both = Noise { root: Some(root.to_owned()), is_limited: true };
                noises.push(("noisy, cache divided and bandwidth limited", both));
            } else {
                left_out.push("limited memory bandwidth: this processor's resctrl has no `MB`".to_owned());
            }
        }
    }
    let footprints = if quick { &FOOTPRINTS[1..3] } else { &FOOTPRINTS };
    let seat = place.as_str();
    let mut cells = Vec::new();
    for load in [Load::Loop, Load::Paced] {
        // A thread that takes turns with the generator has no class of its own.
        let is_apart = load == Load::Loop || matches!(place, NeighbourCpu::Own(_));
        let noises = if is_apart { &noises[..] } else { &noises[..1] };
        // A quick run has the latencies of short frames only.
        let sizes = if quick && load == Load::Paced { &SIZES[..1] } else { &SIZES };
        for &size in sizes {
            for &footprint in footprints {
                let case = Case { load, size, place, footprint };
                let quiet = Variant::new("quiet", move |settings: &Settings| case.measure(settings, None));
                let noisy = noises.iter().map(|(name, noise)| {
                    let noise = noise.clone();
                    Variant::new(*name, move |settings: &Settings| case.measure(settings, Some(&noise)))
                });
                let axes: [(_, &dyn fmt::Display); 4] = [
                    ("load", &load.name()),
                    ("size", &size),
                    ("neighbour_kib", &(footprint >> 10)),
                    ("neighbour_seat", &seat),
                ];
                cells.push(Cell::new(axes, iter::once(quiet).chain(noisy)));
            }
        }
        if load == Load::Paced {
            cells.extend(sizes.iter().map(|&size| beside_ports(size)));
        }
    }
    if matches!(place, NeighbourCpu::SharedWithGenerator(_)) && noises.len() > 1 {
        left_out.push("latencies with a divided cache: the neighbour has no thread of its own".to_owned());
    }
    let mut shown = vec![
        Shown::SWITCH_CYCLES,
        Shown { metric: "rx_packets_per_call", title: "Packets that the switch receives per call" },
        Shown::MPPS,
        Shown { metric: "latency_p50_us", title: "Latency of a paced packet in microseconds: half of the packets" },
        Shown { metric: "latency_p99_us", title: "Latency of a paced packet in microseconds: 99 %" },
        Shown { metric: "latency_p99_9_us", title: "Latency of a paced packet in microseconds: 99.9 %" },
        Shown { metric: "neighbour_line_ns", title: "Nanoseconds of the neighbour's processor time per line" },
    ];
    shown.retain(|shown| !says_nothing(place, shown.metric));
    Plan { name: "noisy", shown, cells, left_out }
}

/// Makes the cell of paced ports beside two ports of the same worker that flood each other.
fn beside_ports(size: u32) -> Cell {
    let variant =
        |name: &str, mode| Variant::new(name, move |settings: &Settings| paced::measure(settings, size, mode, None));
    let variants = [variant("quiet", Mode::RxOnly), variant("noisy", Mode::FlowGen)];
    Cell::new([("load", &Load::Paced.name()), ("size", &size), ("neighbour_seat", &"other-ports")], variants)
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

/// The traffic that the neighbour disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// As many packets as go round; the switch's cycles count.
    Loop,
    /// Few packets; their latencies count.
    Paced,
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Load::Loop => "loop",
            Load::Paced => "paced",
        }
    }
}

/// The share of a neighbour that fills the caches.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Noise {
    /// The root of the resctrl file system if the cache is to be divided. Then the neighbour gets a
    /// class of its own.
    root: Option<PathBuf>,
    /// True if the memory bandwidth of that class is to be limited.
    is_limited: bool,
}

/// A cell: the load, and the neighbour with its footprint.
#[derive(Clone, Copy, Debug)]
struct Case {
    load: Load,
    size: u32,
    place: NeighbourCpu,
    footprint: usize,
}

impl Case {
    /// Makes a trial beside the neighbour, if there is one.
    fn measure(self, settings: &Settings, noise: Option<&Noise>) -> anyhow::Result<Measured> {
        let Case { load, size, place, footprint } = self;
        if let (Load::Paced, NeighbourCpu::SharedWithGenerator(_)) = (load, place) {
            // Without noise the turns take the same time, at one line.
            let mut neighbour = NeighbourTurns::new(noise.map_or(0, |_| footprint));
            let mut measured = paced::measure(settings, size, Mode::RxOnly, Some(&mut neighbour))?;
            let proof = neighbour.stop()?;
            if noise.is_some() {
                measured.metrics.extend(metrics(&proof));
            }
            return Ok(measured);
        }
        let mut guards = None;
        if let Some(noise) = noise {
            let neighbour = Neighbour::start(footprint, place.cpu())?;
            let divided = |root: &PathBuf| divide(&Allocation::open(root)?, &neighbour, noise.is_limited);
            let classes = noise.root.as_ref().map(divided).transpose()?;
            guards = Some((neighbour, classes));
        }
        let mut measured = match load {
            Load::Loop => {
                let choose = |options: &mut ReflectorOptions| options.sizes = Sizes::one(size);
                bench(settings, TrafficPath::LOOP, |_| (), choose)?
            }
            Load::Paced => paced::measure(settings, size, Mode::RxOnly, None)?,
        };
        measured.metrics.retain(|metric, _| !says_nothing(place, metric));
        if let Some((neighbour, _classes)) = guards {
            measured.metrics.extend(metrics(&neighbour.stop()?));
        }
        Ok(measured)
    }
}

/// Divides the cache. The neighbour may fill the fewest possible ways, and all other threads of
/// this process the rest. If `is_limited`, the neighbour also gets the least memory bandwidth. A new
/// thread is in the class of the thread that starts it.
fn divide(allocation: &Allocation, neighbour: &Neighbour, is_limited: bool) -> anyhow::Result<[Class; 2]> {
    let (few, rest) = allocation.divide()?;
    let id = std::process::id();
    let theirs = allocation.class(&format!("straightline-{id}-neighbour"), few, is_limited)?;
    let ours = allocation.class(&format!("straightline-{id}"), rest, false)?;
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
    use super::super::tests::{by_packets, labels, names, settings};
    use super::*;

    /// A resctrl file system of eight ways, made of ordinary files.
    fn tree(has_bandwidth: bool) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["info/L3", "info/MB"] {
            std::fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        let files = [
            ("schemata", if has_bandwidth { "L3:0=ff\nMB:0=100" } else { "L3:0=ff" }),
            ("info/L3/cbm_mask", "ff"),
            ("info/L3/min_cbm_bits", "2"),
            ("info/L3/num_closids", "4"),
            ("info/MB/min_bandwidth", "10"),
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
        // Two footprints with two sizes, then with one size, and one beside ports.
        assert_eq!(plan.cells.len(), 4 + 2 + 1);
        let first = &labels(&plan)[0];
        assert!(["load=loop", "neighbour_kib=8192", "size=64"].iter().all(|axis| first.contains(axis)), "{plan:?}");
        assert_eq!(names(&plan)[0], ["quiet", "noisy"]);
        let why = plan.left_out.last().expect("a reason");
        assert!(
            why.starts_with("a divided cache, and limited") && why.contains("resctrl is not mounted there"),
            "{why}"
        );
    }

    #[test]
    fn what_resctrl_has_is_a_variant() {
        let divided = ["quiet", "noisy", "noisy, cache divided"];
        let limited = [&divided[..], &["noisy, cache divided and bandwidth limited"]].concat();
        for (has_bandwidth, variants) in [(false, &divided[..]), (true, &limited)] {
            let tree = tree(has_bandwidth);
            let plan = plan_at(tree.path(), &settings(), false);
            assert_eq!(plan.cells.len(), 8 + 8 + 2);
            assert_eq!(names(&plan)[0], variants);
            assert!(!plan.left_out.iter().any(|what| what.contains("a divided cache, and")), "{plan:?}");
            assert_eq!(plan.left_out.iter().any(|what| what.contains("no `MB`")), !has_bandwidth, "{plan:?}");
            // Beside other ports there is no thread to limit.
            assert_eq!(names(&plan).last().expect("a cell"), &["quiet", "noisy"]);
        }
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
    fn a_trial_shows_what_the_neighbour_touched_and_who_may_take_what() {
        let settings = by_packets();
        let place = NeighbourCpu::find(settings.cpus[1], settings.cpus[0]).expect("a place");
        // The kernel removes the folder of a class together with its files. Ordinary folders with
        // files stay, so each trial has a tree of its own.
        let case = Case { load: Load::Loop, size: 64, place, footprint: 1 << 20 };
        let divided = |case: Case, is_limited| {
            let tree = tree(true);
            let noise = Noise { root: Some(tree.path().to_owned()), is_limited };
            let noisy = case.measure(&settings, Some(&noise)).expect("a trial");
            (tree, noisy)
        };
        let (tree, noisy) = divided(case, false);
        assert!((noisy.metrics["neighbour_lines"] - 16384.0).abs() < 0.5, "{noisy:?}");
        assert!(
            noisy.metrics["neighbour_rounds"] >= 1.0 && noisy.metrics["switch_cycles_per_packet"] > 0.0,
            "{noisy:?}"
        );
        let quiet = case.measure(&settings, None).expect("a trial");
        for measured in [&quiet, &noisy] {
            for rate in ["mpps", "gbit_per_s"] {
                assert_eq!(measured.metrics.contains_key(rate), matches!(place, NeighbourCpu::Own(_)), "{measured:?}");
            }
        }
        let file = |tree: &tempfile::TempDir, class: &str, name: &str| {
            let class = format!("straightline-{}{class}", std::process::id());
            std::fs::read_to_string(tree.path().join(class).join(name)).expect("a file")
        };
        let schemata = |tree| (file(tree, "-neighbour", "schemata"), file(tree, "", "schemata"));
        assert_eq!(schemata(&tree), ("L3:0=3\n".to_owned(), "L3:0=fc\n".to_owned()));
        assert!(file(&tree, "-neighbour", "tasks").trim().parse::<u32>().expect("its thread") > 0);
        assert!(!file(&tree, "", "tasks").is_empty());
        // A neighbour with a thread of its own, on whichever CPU, is limited beside paced ports too.
        let own = NeighbourCpu::Own(place.cpu());
        let (tree, paced) = divided(Case { load: Load::Paced, place: own, ..case }, true);
        assert!(paced.metrics["neighbour_rounds"] >= 1.0, "{paced:?}");
        assert_eq!(schemata(&tree), ("L3:0=3\nMB:0=10\n".to_owned(), "L3:0=fc\n".to_owned()));
        // Where it has none, both variants take turns of the same time, and one touches the footprint.
        let shared = Case { load: Load::Paced, place: NeighbourCpu::SharedWithGenerator(place.cpu()), ..case };
        let without = Noise { root: None, is_limited: false };
        let [quiet, noisy] = [None, Some(&without)].map(|noise| shared.measure(&settings, noise).expect("a trial"));
        assert!(!quiet.metrics.contains_key("neighbour_lines"), "{quiet:?}");
        assert!((noisy.metrics["neighbour_lines"] - 16384.0).abs() < 0.5, "{noisy:?}");
    }
}

//! The seeds' experiments, in the pipeline: a switch of ours and a guest that only polls, each on a CPU of its own, one thing
//! changed at a time.
//!
//! An experiment is a [`Plan`]: cells, and in each cell variants to be compared. [`run`] takes them in rounds: in each
//! round every variant of every cell comes once, those of a cell beside one another. A trial that fails is recorded with
//! its reason, and the rest goes on. Samples go into a folder of results as all others do ([`crate::results`]). Pages in
//! `docs/experiments/` say what others found, and how each is done here.
//!
//! | file | holds |
//! |---|---|
//! | `harness` | plans, rounds, samples |
//! | `settings` | what trials have in common: CPUs, times, the stop |
//! | `cpus` | which CPUs are taken |
//! | `bench` | one trial: switch, the way that packets go, cycles by phase |
//! | `pvp` | what of a trial is different where packets pass a guest |
//! | `bound` | the switch that copies nothing, a program of its own |
//! | `table` | medians and ratios, as Markdown |
//! | `memcpy`, `width`, `header_align`, `offload`, `touch`, `prefetch`, `noisy` | the experiments |

mod bench;
mod bound;
mod cpus;
mod harness;
mod header_align;
mod memcpy;
mod noisy;
mod offload;
mod prefetch;
mod pvp;
mod settings;
mod table;
mod touch;
mod width;

pub(crate) use bench::{LONGEST, patched};
pub use bench::{TrafficPath, bench, phases};
pub(crate) use cpus::{are_apart, cpu_beside, share_core, two_cpus, usable_cpus, used, warning};
pub use harness::{Cell, ExperimentRecord, Keep, Measured, Outcome, Plan, Shown, Step, Variant, Watch, run};
pub use settings::{Bound, Settings};
pub use table::markdown;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it asks, in one line.
    pub question: &'static str,
    /// Its cells and variants; fewer of them where it is to be quick.
    pub plan: fn(&Settings, quick: bool) -> Plan,
}

/// All of them.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "memcpy",
        question: "what a copy costs: our kernels, the C library, `rep movsb`, none at all",
        plan: memcpy::plan,
    },
    Experiment {
        name: "header-align",
        question: "where in a cache line the virtio-net header should lie",
        plan: header_align::plan,
    },
    Experiment {
        name: "offload",
        question: "what checksums and segmentation cost in the switch, in the guest that sends, and left to the one that receives",
        plan: offload::plan,
    },
    Experiment {
        name: "touch",
        question: "what it costs the switch that its guest reads or edits packets, on this CPU or on another",
        plan: touch::plan,
    },
    Experiment {
        name: "width",
        question: "whether wider registers copy faster, to aligned places and to others",
        plan: width::plan,
    },
    Experiment {
        name: "prefetch",
        question: "how far ahead a node should prefetch what it will touch, if at all",
        plan: prefetch::plan,
    },
    Experiment {
        name: "noisy",
        question: "what a neighbour that fills the last cache costs, and what dividing that cache gives back",
        plan: noisy::plan,
    },
];

/// The experiment of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    pub(super) fn settings() -> Settings {
        Settings {
            cpus: [0, 1],
            warm_up: Duration::ZERO,
            time: Duration::from_millis(1),
            stop: std::sync::Arc::default(),
            bound: None,
        }
    }

    /// The first trial that counts: on a busy machine one as short as these may see no packet. Whatever else is wrong with
    /// one is a fault.
    pub(super) fn counted<T>(mut trial: impl FnMut() -> anyhow::Result<T>) -> T {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            match trial() {
                Ok(measured) => return measured,
                Err(why) => {
                    let why = format!("{why:#}");
                    let known = ["packets came from", "nothing has come", "has counted no packet"];
                    let saw_none = known.iter().any(|known| why.contains(known));
                    assert!(saw_none && std::time::Instant::now() < end, "{why}");
                }
            }
        }
    }

    pub(super) fn labels(plan: &Plan) -> Vec<String> {
        plan.cells.iter().map(Cell::label).collect()
    }

    pub(super) fn names(plan: &Plan) -> Vec<Vec<String>> {
        plan.cells.iter().map(|cell| cell.variants.iter().map(|variant| variant.name.clone()).collect()).collect()
    }

    #[test]
    fn an_experiment_is_found_by_its_name_and_its_cells_differ() {
        for experiment in ALL {
            assert_eq!(find(experiment.name).expect("itself").name, experiment.name);
            for quick in [false, true] {
                let plan = (experiment.plan)(&settings(), quick);
                assert_eq!(plan.name, experiment.name);
                let mut labels = labels(&plan);
                assert!(labels.len() > 2 && names(&plan).iter().all(|names| !names.is_empty()));
                labels.sort();
                labels.dedup();
                assert_eq!(labels.len(), plan.cells.len(), "{plan:?}");
                // A quick one is to end within some two minutes, with six rounds of trials of some 0.7 s.
                assert!(!quick || plan.trials() <= 30, "{} trials in a round", plan.trials());
            }
        }
        assert!(find("memory").is_none());
    }
}

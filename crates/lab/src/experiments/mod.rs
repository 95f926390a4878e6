//! Experiments in the pipeline: our switch and a reflector, each on a CPU of its own. Each
//! experiment varies one thing at a time.
//!
//! An experiment is a [`Plan`]: cells, and in each cell variants to compare, in
//! [rounds]. The pages in `docs/experiments/` describe what others have found, and the
//! method of each experiment.
//!
//! | file | holds |
//! |---|---|
//! | `settings` | settings of all trials: CPUs, times, the stop |
//! | `bench` | one trial: switch, path of packets, cycles by phase |
//! | `pvp` | a trial in which packets pass a guest |
//! | `paced` | a trial that measures the latency of few packets beside others |
//! | `bound` | the switch that copies nothing, a separate program |
//! | `table` | medians and ratios, as Markdown |
//! | `memcpy`, `width`, `header_align`, `offload`, `touch`, `prefetch`, `cold`, `batch`, `levels`, `noisy`, `tunnel` | the experiments |

mod batch;
mod bench;
mod bound;
mod cold;
mod header_align;
mod levels;
mod memcpy;
mod noisy;
mod offload;
mod paced;
mod prefetch;
mod pvp;
mod settings;
mod table;
mod touch;
mod tunnel;
mod width;

pub use bench::{TrafficPath, bench};
pub use settings::{Bound, Settings};
pub use table::markdown;
pub use tunnel::{
    Choice as TunnelChoice, CostReport, LineReport, ManyCost, ManyReport, TunnelReport, many_plan, many_reports,
    many_table, reports as tunnel_reports, table as tunnel_table, tunnel_plan,
};

use crate::rounds;

/// A variant of an experiment.
pub type Variant = rounds::Variant<'static, Settings>;
/// A cell of an experiment.
pub type Cell = rounds::Cell<'static, Settings>;
/// An experiment's cells.
pub type Plan = rounds::Plan<'static, Settings>;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The experiment's name on the command line.
    pub name: &'static str,
    /// The experiment's question, in one line.
    pub question: &'static str,
    /// Returns the experiment's cells and variants; fewer of them with `quick`.
    pub plan: fn(&Settings, quick: bool) -> Plan,
}

/// All experiments.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "memcpy",
        question: "the cost of a copy: our kernels, the C library, `rep movsb`, no copy",
        plan: memcpy::plan,
    },
    Experiment {
        name: "header-align",
        question: "the best place of the virtio-net header in a cache line",
        plan: header_align::plan,
    },
    Experiment {
        name: "offload",
        question: "the cost of checksums and segmentation in the switch, in the sending guest, and left to the \
         receiving one",
        plan: offload::plan,
    },
    Experiment {
        name: "touch",
        question: "the cost for the switch if its guest reads or edits packets, on this CPU or on another",
        plan: touch::plan,
    },
    Experiment {
        name: "width",
        question: "whether wider registers copy faster, to aligned and to unaligned places",
        plan: width::plan,
    },
    Experiment {
        name: "prefetch",
        question: "the best distance for a node's prefetches, if any",
        plan: prefetch::plan,
    },
    Experiment {
        name: "cold",
        question: "the gain from prefetching headers that another core has, in loops of several shapes",
        plan: cold::plan,
    },
    Experiment { name: "batch", question: "the best number of packets in a turn", plan: batch::plan },
    Experiment {
        name: "levels",
        question: "the gain of nodes that are compiled for a wider instruction set",
        plan: levels::plan,
    },
    Experiment {
        name: "noisy",
        question: "the cost of a neighbour that fills the last-level cache, in cycles and in latency, and the gain from \
                   dividing that cache",
        plan: noisy::plan,
    },
    Experiment {
        name: "tunnel",
        question: "the cost of a tunnel of each kind, beside patches that segment alike",
        plan: tunnel::plan,
    },
];

/// Returns the experiment with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use straightline_testing::PATIENCE;

    use super::*;
    use crate::machine::usable_cpus;
    use crate::traffic::Counted;

    pub(super) fn settings() -> Settings {
        Settings {
            cpus: [0, 1],
            warm_up: Duration::ZERO,
            time: Duration::from_millis(1),
            stop: std::sync::Arc::default(),
            near_ns: None,
            bound: None,
            counted: None,
        }
    }

    /// Returns settings for trials of some packets, whatever time they take. On a machine with one CPU,
    /// guest and switch share it.
    pub(super) fn by_packets() -> Settings {
        let cpus = usable_cpus().expect("our CPUs");
        let counted = Some(Counted { packets: 2000, patience: PATIENCE });
        // The measured time is never shorter than this.
        let time = Duration::from_nanos(1);
        Settings { cpus: [cpus[0], cpus[cpus.len() - 1]], time, counted, ..settings() }
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
                // A quick experiment must end within about two minutes, with six rounds of trials
                // of about 0.7 s.
                assert!(!quick || plan.trials() <= 30, "{} trials in a round", plan.trials());
            }
        }
        assert!(find("memory").is_none());
    }
}

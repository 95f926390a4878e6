//! What a guest that reads or edits packets costs the switch: `docs/experiments/touch.md`.

use straightline_switch::config::{Config, Copies, Idle};

use super::bench::Way;
use super::cpus::Topology;
use super::harness::{Cell, Plan, Shown, Variant};
use super::settings::Settings;
use crate::forward::Touch;
use crate::poller::{Load, Options, Sizes};

/// The slides' lengths.
const SIZES: [u32; 3] = [60, 1020, 1514];

/// Whether the switch runs on the guest's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Core {
    Another,
    Same,
}

impl Core {
    fn name(self) -> &'static str {
        match self {
            Core::Another => "another",
            Core::Same => "same",
        }
    }
}

pub(super) fn plan(settings: &Settings, quick: bool) -> Plan {
    let [guest, _] = settings.cpus;
    // Of two copies one is from the guest and one to the guest, as in the switch that the slides have measured.
    let seed = |core| Case { load: Load::OneWay, copies: Copies::Two, core, prefetch: true };
    let mut cases = vec![seed(Core::Another), seed(Core::Same)];
    if !quick {
        for (load, copies) in [(Load::Loop, Copies::Two), (Load::Loop, Copies::One)] {
            cases.extend([Core::Another, Core::Same].map(|core| Case { load, copies, ..seed(core) }));
        }
        let ours = Case { load: Load::Loop, copies: Copies::One, ..seed(Core::Another) };
        cases.extend([seed(Core::Another), ours].map(|case| Case { prefetch: false, ..case }));
    }
    let mut cells = Vec::new();
    for case in cases {
        for size in SIZES {
            let variants = Touch::ALL.iter().map(|&touch| case.variant(guest, size, touch));
            let copies = if case.copies == Copies::Two { 2 } else { 1 };
            let prefetch = if case.prefetch { "on" } else { "off" };
            let (load, core) = (case.load.name(), case.core.name());
            cells.push(Cell::new(
                [("load", &load), ("copies", &copies), ("core", &core), ("prefetch", &prefetch), ("size", &size)],
                variants,
            ));
        }
    }
    Plan {
        name: "touch",
        shown: vec![
            Shown { metric: "host_to_guest_cycles_per_packet", title: "Cycles a packet, host to guest" },
            Shown { metric: "guest_to_host_cycles_per_packet", title: "Cycles a packet, guest to host" },
            Shown::MPPS,
        ],
        cells,
        left_out: vec![format!("a guest on another memory node: {}", nodes(&Topology::here(), settings.cpus))],
    }
}

/// Which memory nodes there are, and what that means for a guest and a switch on these CPUs.
fn nodes(topology: &Topology, [guest, switch]: [usize; 2]) -> String {
    match topology.nodes().len() {
        0 => "which nodes this machine has is not known".to_owned(),
        1 => "this machine has one node".to_owned(),
        n if topology.share_node(guest, switch) => {
            format!("this machine has {n} nodes, and this experiment stays on one")
        }
        n => format!(
            "this machine has {n} nodes, and this experiment has but CPUs {guest} and {switch}, which are of two of them"
        ),
    }
}

/// What is the same for all that the guest may do.
#[derive(Clone, Copy, Debug)]
struct Case {
    load: Load,
    copies: Copies,
    core: Core,
    /// Whether the switch asks for lines before it needs them.
    prefetch: bool,
}

impl Case {
    /// What a guest on this CPU does.
    fn variant(self, guest: usize, size: u32, touch: Touch) -> Variant {
        let Case { load, copies, core, prefetch } = self;
        let configure = move |config: &mut Config| {
            (config.switch.copies, config.switch.without_prefetch) = (copies, !prefetch);
            if core == Core::Same {
                // One that sleeps leaves the CPU to its guest where there is nothing to do.
                (config.switch.workers, config.switch.idle) = (vec![guest], Idle::Sleep);
            }
        };
        let choose = move |options: &mut Options| {
            (options.sizes, options.touch, options.shares_cpu) = (Sizes::one(size), touch, core == Core::Same);
        };
        Variant::bench(touch.name(), Way::Guests(load), configure, choose)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpus::tests::machine;
    use super::super::tests::{labels, names, settings};
    use super::*;

    #[test]
    fn memory_nodes_are_looked_for() {
        let (_folder, one) = machine(&[&[&[0], &[1]]]);
        assert_eq!(nodes(&one, [0, 1]), "this machine has one node");
        let (_folder, two) = machine(&[&[&[0], &[1]], &[&[2], &[3]]]);
        assert_eq!(nodes(&two, [0, 1]), "this machine has 2 nodes, and this experiment stays on one");
        assert!(nodes(&two, [1, 2]).contains("CPUs 1 and 2, which are of two"));
        let (_folder, none) = machine(&[]);
        assert!(nodes(&none, [0, 1]).contains("not known"));
        assert!(plan(&settings(), true).left_out[0].contains(&nodes(&Topology::here(), [0, 1])));
    }

    #[test]
    fn cells_and_variants() {
        let quick = plan(&settings(), true);
        let expected = ["another", "same"]
            .map(|core| SIZES.map(|size| format!("copies=2 core={core} load=one-way prefetch=on size={size}")));
        assert_eq!(labels(&quick), expected.concat());
        let whole = labels(&plan(&settings(), false));
        assert_eq!(whole.iter().filter(|label| label.contains("prefetch=on")).count(), 18);
        assert_eq!(
            whole.iter().filter(|label| label.contains("core=another") && label.contains("prefetch=off")).count(),
            6
        );
        assert_eq!(names(&quick)[0], ["none", "header", "read", "edit"]);
    }
}

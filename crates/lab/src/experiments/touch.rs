//! The cost for the switch if its guest reads or edits packets: `docs/experiments/touch.md`.

use straightline_config::{Config, Copies, Idle};

use super::bench::{ROUND_TRIP, TrafficPath};
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{Load, ReflectorOptions, Sizes};
use crate::guests::touch::Touch;
use crate::machine::{Topology, usable_cpus};
use crate::rounds::Shown;

/// The frame lengths of the slides.
const SIZES: [u32; 3] = [60, 1020, 1514];

const LONGEST: u32 = SIZES[2];

/// Loads with fewer packets than usual: the entries of a ring, and the packets under way in each
/// direction.
const RINGS: [(Load, u16, u16); 6] = [
    (Load::OneWay, 64, 64),
    (Load::OneWay, 256, 256),
    (Load::Loop, 64, 32),
    (Load::Loop, 64, 64),
    (Load::Loop, 1024, 32),
    (Load::Loop, 1024, 128),
];

/// The rings' entries, and the packets under way in each direction.
#[derive(Clone, Copy, Debug)]
struct Rings {
    entries: u16,
    under_way: u16,
}

impl Rings {
    /// Returns the rings of other experiments. A flood keeps its ring full.
    fn usual(load: Load) -> Rings {
        Rings { entries: 1024, under_way: if load == Load::Loop { 512 } else { 1024 } }
    }
}

/// The CPU of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Core {
    /// Its usual CPU.
    Another,
    /// The guest's CPU.
    Same,
    /// This CPU, which is on another NUMA node than the guest's CPU.
    Node(usize),
}

impl Core {
    fn name(self) -> &'static str {
        match self {
            Core::Another => "another",
            Core::Same => "same",
            Core::Node(_) => "another-node",
        }
    }
}

pub(super) fn plan(settings: &Settings, quick: bool) -> Plan {
    plan_at(&Topology::here(), &usable_cpus().unwrap_or_default(), settings, quick)
}

fn plan_at(topology: &Topology, usable: &[usize], settings: &Settings, quick: bool) -> Plan {
    let [guest, _] = settings.cpus;
    let elsewhere = elsewhere(topology, usable, settings.cpus);
    let mut left_out = Vec::new();
    // Of the two copies of each packet, one is from the guest and one to the guest, as in the
    // switch that the slides measured.
    let seed = |core| Case {
        load: Load::OneWay,
        copies: Copies::Two,
        core,
        prefetch: true,
        rings: Rings::usual(Load::OneWay),
    };
    let mut cases = vec![seed(Core::Another), seed(Core::Same)];
    match elsewhere {
        Ok(_) if quick => left_out.push("a guest on another NUMA node: measured only without --quick".to_owned()),
        Ok(cpu) => cases.push(seed(Core::Node(cpu))),
        Err(why) => left_out.push(format!("a guest on another NUMA node: {why}")),
    }
    if !quick {
        let cores: Vec<_> = cases.iter().map(|case| case.core).collect();
        let circling = Rings::usual(Load::Loop);
        for copies in [Copies::Two, Copies::One] {
            cases.extend(cores.iter().map(|&core| Case { load: Load::Loop, copies, rings: circling, ..seed(core) }));
        }
        let ours = Case { load: Load::Loop, copies: Copies::One, rings: circling, ..seed(Core::Another) };
        cases.extend([seed(Core::Another), ours].map(|case| Case { prefetch: false, ..case }));
    }
    let mut cells: Vec<_> = cases.into_iter().flat_map(|case| SIZES.map(|size| case.cell(guest, size))).collect();
    // Which cache has the lines that the guest has touched depends on the memory that it touches
    // before the switch comes to them.
    let few = |&(load, entries, under_way): &(Load, u16, u16)| {
        Case { load, rings: Rings { entries, under_way }, ..seed(Core::Another) }.cell(guest, LONGEST)
    };
    cells.extend(if quick { &RINGS[..1] } else { &RINGS }.iter().map(few));
    Plan {
        name: "touch",
        shown: vec![
            Shown { metric: "host_to_guest_cycles_per_packet", title: "Cycles per packet, host to guest" },
            Shown { metric: "guest_to_host_cycles_per_packet", title: "Cycles per packet, guest to host" },
            Shown::MPPS,
            Shown { metric: "switch_busy_ratio", title: "Part of the time in which the switch's turns move packets" },
            Shown { metric: ROUND_TRIP, title: "Nanoseconds of a line's round trip between the CPUs" },
        ],
        cells,
        left_out,
    }
}

/// Returns a CPU for the switch on another NUMA node than the guest's. The error is the reason why
/// there is no such CPU, or why the experiment does not need one.
fn elsewhere(topology: &Topology, usable: &[usize], [guest, switch]: [usize; 2]) -> Result<usize, String> {
    match topology.nodes().len() {
        0 => Err("the NUMA nodes of this machine are not known".to_owned()),
        1 => Err("this machine has one node".to_owned()),
        n if topology.are_apart(guest, switch) => Err(format!(
            "this machine has {n} nodes, but this process has only CPUs {guest} and {switch}, which are on two of \
             them: this is measured as `another`"
        )),
        n => usable.iter().copied().find(|&cpu| topology.are_apart(guest, cpu)).ok_or_else(|| {
            format!(
                "this machine has {n} nodes, but all CPUs that this process may use are on the node of CPU \
             {guest}"
            )
        }),
    }
}

/// The settings of a cell apart from the frame length.
#[derive(Clone, Copy, Debug)]
struct Case {
    load: Load,
    copies: Copies,
    core: Core,
    /// True if the switch prefetches lines.
    prefetch: bool,
    rings: Rings,
}

impl Case {
    /// Makes the cell of a guest on this CPU, with a variant for each of its accesses.
    fn cell(self, guest: usize, size: u32) -> Cell {
        let copies = if self.copies == Copies::Two { 2 } else { 1 };
        let prefetch = if self.prefetch { "on" } else { "off" };
        let Rings { entries, under_way } = self.rings;
        Cell::new(
            [
                ("load", &self.load.name()),
                ("copies", &copies),
                ("core", &self.core.name()),
                ("prefetch", &prefetch),
                ("ring", &entries),
                ("under_way", &under_way),
                ("size", &size),
            ],
            Touch::ALL.iter().map(|&touch| self.variant(guest, size, touch)),
        )
    }

    /// Makes the variant of a guest on this CPU with these accesses.
    fn variant(self, guest: usize, size: u32, touch: Touch) -> Variant {
        let Case { load, copies, core, prefetch, rings } = self;
        let configure = move |config: &mut Config| {
            (config.switch.copies, config.switch.without_prefetch) = (copies, !prefetch);
            match core {
                Core::Another => {}
                // The worker may sleep, so that it leaves the CPU to its guest when it has nothing
                // to do.
                Core::Same => (config.switch.workers, config.switch.idle) = (vec![guest], Idle::Sleep),
                Core::Node(cpu) => config.switch.workers = vec![cpu],
            }
        };
        let choose = move |options: &mut ReflectorOptions| {
            (options.sizes, options.touch, options.shares_cpu) = (Sizes::one(size), touch, core == Core::Same);
            (options.ports.queue_size, options.bursts) = (rings.entries, Some(rings.under_way / 32));
        };
        Variant::bench(touch.name(), TrafficPath::Guests(load), configure, choose)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{labels, names, settings};
    use super::*;
    use crate::machine::tests::machine;

    #[test]
    fn memory_nodes_are_looked_for() {
        let why = |topology: &Topology, usable: &[usize], cpus| elsewhere(topology, usable, cpus).expect_err("nowhere");
        let (_folder, one) = machine(&[&[&[0], &[1]]]);
        assert_eq!(why(&one, &[0, 1], [0, 1]), "this machine has one node");
        let (_folder, two) = machine(&[&[&[0], &[1]], &[&[2], &[3]]]);
        assert_eq!(elsewhere(&two, &[0, 1, 2, 3], [0, 1]), Ok(2));
        assert_eq!(elsewhere(&two, &[0, 1, 3], [0, 1]), Ok(3));
        assert!(why(&two, &[0, 1], [0, 1]).ends_with("are on the node of CPU 0"));
        assert!(why(&two, &[1, 2], [1, 2]).contains("CPUs 1 and 2, which are on two"));
        let (_folder, none) = machine(&[]);
        assert!(why(&none, &[0, 1], [0, 1]).contains("not known"));
    }

    #[test]
    fn there_are_cells_of_another_node_where_there_is_one() {
        let (_folder, one) = machine(&[&[&[0], &[1]]]);
        let (_folder, two) = machine(&[&[&[0], &[1]], &[&[2], &[3]]]);
        let elsewhere = |plan: &Plan| labels(plan).iter().filter(|label| label.contains("core=another-node")).count();
        for (topology, quick, cells, left_out) in [
            (&one, true, 0, "this machine has one node"),
            (&one, false, 0, "this machine has one node"),
            (&two, true, 0, "without --quick"),
            (&two, false, 9, ""),
        ] {
            let plan = plan_at(topology, &[0, 1, 2, 3], &settings(), quick);
            assert_eq!(elsewhere(&plan), cells);
            assert_eq!(plan.left_out.len(), usize::from(cells == 0), "{plan:?}");
            assert!(plan.left_out.iter().all(|what| what.ends_with(left_out)), "{plan:?}");
            assert!(!quick || plan.trials() == 28);
        }
    }

    #[test]
    fn cells_and_variants() {
        let (_folder, one) = machine(&[&[&[0], &[1]]]);
        let plan = |quick| plan_at(&one, &[0, 1], &settings(), quick);
        let quick = plan(true);
        let usual = ["another", "same"].map(|core| {
            SIZES.map(|size| {
                format!("copies=2 core={core} load=one-way prefetch=on ring=1024 size={size} under_way=1024")
            })
        });
        let few = "copies=2 core=another load=one-way prefetch=on ring=64 size=1514 under_way=64";
        assert_eq!(labels(&quick), [&usual.concat()[..], &[few.to_owned()]].concat());
        let whole = labels(&plan(false));
        let count = |part: &str| whole.iter().filter(|label| label.contains(part)).count();
        assert_eq!([count("prefetch=on"), count("prefetch=off")], [18 + RINGS.len(), 6]);
        assert_eq!([count("load=loop"), count("under_way=512"), count("ring=64 ")], [19, 15, 3]);
        assert_eq!(names(&quick)[0], ["none", "header", "read", "edit"]);
    }
}

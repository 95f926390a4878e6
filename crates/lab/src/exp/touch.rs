//! What a guest that reads or edits packets costs the switch: `docs/experiments/touch.md`.

use straightline_switch::config::{Config, Copies, Idle};

use super::bench::Way;
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
    let all: &[(Load, Copies)] = &[(Load::OneWay, Copies::Two), (Load::Loop, Copies::Two), (Load::Loop, Copies::One)];
    let mut cells = Vec::new();
    for &(load, copies) in if quick { &all[..1] } else { all } {
        for core in [Core::Another, Core::Same] {
            for size in SIZES {
                let variants = Touch::ALL.iter().map(|&touch| variant(guest, (load, copies), core, size, touch));
                let number = if copies == Copies::Two { 2 } else { 1 };
                let (load, core) = (load.name(), core.name());
                cells.push(Cell::new(
                    [("load", &load), ("copies", &number), ("core", &core), ("size", &size)],
                    variants,
                ));
            }
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
        left_out: vec![
            "a guest on another memory node: there is one, or the tester does not look for more".to_owned(),
            "prefetching on and off: an experiment of its own".to_owned(),
        ],
    }
}

/// What a guest on this CPU does.
fn variant(guest: usize, (load, copies): (Load, Copies), core: Core, size: u32, touch: Touch) -> Variant {
    let configure = move |config: &mut Config| {
        config.switch.copies = copies;
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

#[cfg(test)]
mod tests {
    use super::super::tests::{labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let quick = plan(&settings(), true);
        let expected =
            ["another", "same"].map(|core| SIZES.map(|size| format!("copies=2 core={core} load=one-way size={size}")));
        assert_eq!(labels(&quick), expected.concat());
        assert_eq!(plan(&settings(), false).cells.len(), 18);
        assert_eq!(names(&quick)[0], ["none", "header", "read", "edit"]);
    }
}

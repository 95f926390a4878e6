//! The best number of packets in a turn: `docs/experiments/batch.md`.

use straightline_packet::MAX_BATCH;

use super::bench::TrafficPath;
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{ReflectorOptions, Sizes};
use crate::rounds::Shown;

/// Limits of a turn. The largest, the switch's own, comes first, so that the others are compared with
/// it.
const LIMITS: [usize; 6] = [MAX_BATCH, 128, 64, 16, 4, 1];
const QUICK_LIMITS: [usize; 3] = [MAX_BATCH, 64, 16];

/// Frame lengths without checksum.
const SIZES: [u32; 2] = [64, 1514];

/// Packets that circle from each port of a loop, in bursts of 32. A turn takes at most 64 of a port.
const BURSTS: [u16; 2] = [4, 32];

pub(super) fn plan(_: &Settings, quick: bool) -> Plan {
    let mut cells = Vec::new();
    for size in SIZES {
        for bursts in BURSTS {
            if bursts == BURSTS[1] || !quick {
                cells.push(cell(TrafficPath::LOOP, size, Some(bursts), quick));
            }
        }
        cells.push(cell(TrafficPath::Pvp, size, None, quick));
    }
    Plan {
        name: "batch",
        shown: vec![
            Shown::SWITCH_CYCLES,
            Shown::MPPS,
            Shown { metric: "rx_packets_per_call", title: "Packets of a port per call" },
            Shown { metric: "patch_packets_per_call", title: "Packets that the patch gets per call" },
        ],
        cells,
        left_out: vec!["slots of another size: their size is a constant of the build".to_owned()],
    }
}

/// Makes a cell of packets of one length. `bursts` is `None` where the generator sends as much as its
/// buffers hold.
fn cell(traffic: TrafficPath, size: u32, bursts: Option<u16>, quick: bool) -> Cell {
    let limits = if quick { &QUICK_LIMITS[..] } else { &LIMITS };
    let variants = limits.iter().map(|&most| {
        let choose = move |options: &mut ReflectorOptions| {
            options.sizes = Sizes::one(size);
            options.bursts = bursts.or(options.bursts);
        };
        Variant::bench(most.to_string(), traffic, move |config| config.switch.turn_packets = Some(most), choose)
    });
    let packets = bursts.map_or_else(|| "all".to_owned(), |bursts| (32 * bursts).to_string());
    Cell::new([("path", &traffic.name()), ("size", &size), ("packets", &packets)], variants)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{by_packets, labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let quick = plan(&settings(), true);
        let expected = [
            "packets=1024 path=loop size=64",
            "packets=all path=pvp size=64",
            "packets=1024 path=loop size=1514",
            "packets=all path=pvp size=1514",
        ];
        assert_eq!(labels(&quick), expected);
        assert_eq!(names(&quick)[0], ["256", "64", "16"]);
        let whole = plan(&settings(), false);
        assert_eq!((whole.cells.len(), names(&whole)[0].len()), (6, 6));
    }

    #[test]
    fn a_turn_has_no_more_packets_than_its_limit() {
        let settings = by_packets();
        let cell = cell(TrafficPath::LOOP, 64, Some(32), false);
        let per_call = |variant: usize| {
            let measured = cell.variants[variant].measure(&settings).expect("a trial");
            measured.metrics["patch_packets_per_call"]
        };
        // 4 packets a turn, and 1.
        assert!(per_call(4) <= 4.0);
        assert!((per_call(5) - 1.0).abs() < 1e-9);
    }
}

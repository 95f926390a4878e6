//! Whether wider registers copy faster, and aligned places too: `docs/experiments/width.md`.

use straightline_config::{Config, Copies};
use straightline_packet::Level;

use super::bench::{ROUND_TRIP, TrafficPath};
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{Load, ReflectorOptions, Sizes};
use crate::guests::touch::Touch;
use crate::rounds::Shown;

/// The frame lengths of the slides, without the Ethernet checksum.
const SIZES: [u32; 3] = [60, 1020, 1514];

/// Bytes from the start of a cache line to the virtio-net header. The frame starts on a line, or
/// one byte after it as in the slides' `dst + 1`.
const PLACES: [(&str, u32); 2] = [("aligned", 52), ("unaligned", 53)];

/// Names of instruction sets, each with the number of bits of a register.
const WIDTHS: [(&str, u32); 4] = [("sse2", 128), ("avx2", 256), ("avx512-copies", 512), ("neon", 128)];

/// A guest's packets and the switch's copies of them.
#[derive(Clone, Copy, Debug)]
struct Case {
    load: Load,
    copies: Copies,
    size: u32,
    /// The set, and the number of bits of its registers.
    width: (&'static str, u32),
    place: (&'static str, u32),
}

impl Case {
    fn level(self) -> Option<Level> {
        Level::supported().find(|level| level.name() == self.width.0)
    }

    fn width_name(self) -> String {
        let (name, bits) = self.width;
        format!("{bits} bits ({name})")
    }

    /// Makes a variant, unless this machine lacks the set.
    fn variant(self, name: impl Into<String>) -> Option<Variant> {
        let Case { load, copies, size, place: (_, offset), .. } = self;
        let level = self.level()?;
        let configure = move |config: &mut Config| (config.switch.simd, config.switch.copies) = (Some(level), copies);
        let choose = move |options: &mut ReflectorOptions| {
            (options.sizes, options.ports.header_offset, options.touch) = (Sizes::one(size), offset, Touch::Read);
        };
        Some(Variant::bench(name, TrafficPath::Guests(load), configure, choose))
    }
}

pub(super) fn plan(_: &Settings, quick: bool) -> Plan {
    let mut cells = Vec::new();
    for size in SIZES {
        for place in PLACES {
            let case = |width| Case { load: Load::Loop, copies: Copies::One, size, width, place };
            let variants = WIDTHS.into_iter().filter_map(|width| case(width).variant(case(width).width_name()));
            cells.push(Cell::new([("size", &size), ("frame", &place.0)], variants));
        }
    }
    // The alignment of each copy by itself. With two copies, the copy on receipt reads from the guest's
    // place, and the copy on delivery writes to it. The other end of both is the switch's buffer.
    let sizes = if quick { &SIZES[1..] } else { &SIZES };
    for &size in sizes {
        for width in WIDTHS {
            let case = |place| Case { load: Load::OneWay, copies: Copies::Two, size, width, place };
            let variants: Vec<_> = PLACES.iter().filter_map(|&place| case(place).variant(place.0)).collect();
            if !variants.is_empty() {
                cells.push(Cell::new([("size", &size), ("registers", &case(PLACES[0]).width_name())], variants));
            }
        }
    }
    let here = |name: &str| Level::supported().any(|level| level.name() == name);
    let absent =
        WIDTHS.into_iter().filter(|(name, _)| !here(name) && (*name == "neon") == cfg!(target_arch = "aarch64"));
    Plan {
        name: "width",
        shown: vec![
            Shown::MPPS,
            Shown::SWITCH_CYCLES,
            Shown { metric: "guest_to_host_cycles_per_packet", title: "Cycles per packet, receiving it" },
            Shown { metric: "host_to_guest_cycles_per_packet", title: "Cycles per packet, delivering it" },
            Shown { metric: ROUND_TRIP, title: "Nanoseconds of a line's round trip between the CPUs" },
        ],
        cells,
        left_out: absent
            .map(|(name, bits)| format!("{bits} bits ({name}): this machine does not have this instruction set"))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let plan = |quick| plan(&settings(), quick);
        let is_here = |name: &str| Level::supported().any(|level| level.name() == name);
        let quick = plan(true);
        assert_eq!(
            labels(&quick)[..3],
            ["frame=aligned size=60", "frame=unaligned size=60", "frame=aligned size=1020"]
        );
        for (name, bits) in WIDTHS {
            let named = format!("{bits} bits ({name})");
            assert!(names(&quick)[..6].iter().all(|names| names.contains(&named) == is_here(name)), "{named}");
            let of_this_kind = (name == "neon") == cfg!(target_arch = "aarch64");
            let said = quick.left_out.iter().any(|what| what.starts_with(&named));
            assert_eq!(said, !is_here(name) && of_this_kind, "{named}");
            // Each width has its own pair of places.
            let own = labels(&quick).iter().filter(|label| label.contains(&format!("registers={named}"))).count();
            assert_eq!(own, if is_here(name) { 2 } else { 0 }, "{named}");
        }
        assert!(names(&quick)[6..].iter().all(|names| names == &["aligned", "unaligned"]));
        assert_eq!(plan(false).cells.len(), 6 + (quick.cells.len() - 6) / 2 * 3);
    }
}

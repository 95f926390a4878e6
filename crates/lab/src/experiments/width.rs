//! Whether wider registers copy faster: `docs/experiments/width.md`.

use straightline_packet::Level;

use super::bench::TrafficPath;
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{ReflectorOptions, Sizes};
use crate::guests::touch::Touch;
use crate::rounds::Shown;

/// The frame lengths of the slides, without the Ethernet checksum.
const SIZES: [u32; 3] = [60, 1020, 1514];

/// Bytes from the start of a cache line to the virtio-net header. The frame starts on a line, or
/// one byte after it as in the slides' `dst + 1`.
const PLACES: [(&str, u32); 2] = [("aligned", 52), ("unaligned", 53)];

/// Names of instruction sets, each with the number of bits of a register.
const WIDTHS: [(&str, u32); 4] = [("sse2", 128), ("avx2", 256), ("avx512-copies", 512), ("neon", 128)];

pub(super) fn plan(_: &Settings, _quick: bool) -> Plan {
    let here = |name: &str| Level::supported().find(|level| level.name() == name);
    let variants = |size: u32, offset: u32| {
        WIDTHS.into_iter().filter_map(move |(name, bits)| {
            let level = here(name)?;
            let choose = move |options: &mut ReflectorOptions| {
                (options.sizes, options.ports.header_offset, options.touch) = (Sizes::one(size), offset, Touch::Read);
            };
            let name = format!("{bits} bits ({name})");
            Some(Variant::bench(name, TrafficPath::LOOP, move |config| config.switch.simd = Some(level), choose))
        })
    };
    let mut cells = Vec::new();
    for size in SIZES {
        for (place, offset) in PLACES {
            cells.push(Cell::new([("size", &size), ("frame", &place)], variants(size, offset)));
        }
    }
    let absent = WIDTHS
        .into_iter()
        .filter(|(name, _)| here(name).is_none() && (*name == "neon") == cfg!(target_arch = "aarch64"));
    Plan {
        name: "width",
        shown: vec![
            Shown::MPPS,
            Shown::SWITCH_CYCLES,
            Shown { metric: "guest_to_host_cycles_per_packet", title: "Cycles per packet, receiving it" },
            Shown { metric: "host_to_guest_cycles_per_packet", title: "Cycles per packet, delivering it" },
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
        let plan = plan(&settings(), true);
        assert_eq!(labels(&plan)[..3], ["frame=aligned size=60", "frame=unaligned size=60", "frame=aligned size=1020"]);
        assert_eq!(plan.cells.len(), 6);
        for (name, bits) in WIDTHS {
            let named = format!("{bits} bits ({name})");
            let is_here = Level::supported().any(|level| level.name() == name);
            assert!(names(&plan).iter().all(|names| names.contains(&named) == is_here), "{named}");
            let of_this_kind = (name == "neon") == cfg!(target_arch = "aarch64");
            let said = plan.left_out.iter().any(|what| what.starts_with(&named));
            assert_eq!(said, !is_here && of_this_kind, "{named}");
        }
    }
}

//! Where in a cache line the virtio-net header should lie: `docs/experiments/header-align.md`.

use anyhow::ensure;

use super::bench::{Way, bench};
use super::harness::{Cell, Measured, Plan, Shown, Variant};
use super::settings::Settings;
use crate::forward::Touch;
use crate::guest::HEADER_LEN;
use crate::poller::{Layout, Options, Sizes, lines, touched_lines};

/// The RFC's lengths that fit into one buffer.
const SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 1500, 2000];
const QUICK_SIZES: [u32; 3] = [64, 256, 1500];

/// The RFC's buffers.
const BUFFER: u32 = 2048;

/// Bytes from the beginning of a line to the header. Before the RFC the frame began on a line; with it the header does; in
/// the thread, the frame on 16 bytes was tried.
const PLACES: [(&str, u32); 3] = [("frame on a line", 52), ("header on a line", 0), ("frame on 16 bytes", 4)];

pub(super) fn plan(_: &Settings, quick: bool) -> Plan {
    let (sizes, places): (&[u32], _) = if quick { (&QUICK_SIZES, &PLACES[..2]) } else { (&SIZES, &PLACES[..]) };
    let mut cells = Vec::new();
    for layout in [Layout::Split, Layout::Packed] {
        for &size in sizes {
            let variants = places.iter().map(|&(name, offset)| {
                Variant::new(name, move |settings: &Settings| trial(settings, layout, size, offset))
            });
            cells.push(Cell::new([("ring", &layout.name()), ("size", &size), ("buffer", &BUFFER)], variants));
        }
    }
    Plan {
        name: "header-align",
        shown: vec![
            Shown::MPPS,
            Shown::SWITCH_CYCLES,
            Shown { metric: "guest_cycles_per_packet", title: "Cycles of the guest a packet" },
            Shown { metric: "lines_per_packet", title: "Lines of guest memory that a packet is in" },
            Shown { metric: "touched_lines_per_packet", title: "Lines that the guest reads" },
        ],
        cells,
        left_out: vec![
            "2048 bytes in buffers of 2048, 1500 and 2048 in buffers of 512: the guest has one buffer for a packet"
                .to_owned(),
        ],
    }
}

/// The guest reads the virtio-net header, as a driver does, and the Ethernet header, as one that forwards does: it is their
/// lines that the placement is about.
fn trial(settings: &Settings, layout: Layout, size: u32, offset: u32) -> anyhow::Result<Measured> {
    let choose = |options: &mut Options| {
        (options.layout, options.sizes, options.header_offset) = (layout, Sizes::one(size), offset);
        (options.buffer_len, options.touch) = (Some(BUFFER), Touch::Header);
    };
    let measured = bench(settings, Way::LOOP, |_| {}, choose)?;
    let computed = [
        ("lines_per_packet", lines(u64::from(offset), size + HEADER_LEN)),
        ("touched_lines_per_packet", touched_lines(Touch::Header, u64::from(offset), size + HEADER_LEN)),
    ];
    for (metric, computed) in computed {
        let traced = measured.metrics.get(metric).copied().unwrap_or(0.0);
        let computed = f64::from(u32::try_from(computed)?);
        ensure!(
            (traced - computed).abs() < 1e-6,
            "not a valid trial: by the addresses in which packets came, {metric} is {traced}, where {computed} was computed"
        );
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let quick = plan(&settings(), true);
        let expected = ["split", "packed"].map(|ring| QUICK_SIZES.map(|n| format!("buffer=2048 ring={ring} size={n}")));
        assert_eq!(labels(&quick), expected.concat());
        assert_eq!(names(&quick)[0], ["frame on a line", "header on a line"]);
        let full = plan(&settings(), false);
        assert_eq!((full.cells.len(), names(&full)[0].len()), (14, 3));
        assert!(full.left_out[0].contains("one buffer"));
    }

    /// What the RFC is about: for who reads both headers, one line instead of two; nothing where the packet is long.
    #[test]
    fn lines_by_place() {
        let [before, after, sixteen] = PLACES.map(|(_, offset)| {
            let read = touched_lines(Touch::Header, offset.into(), 76);
            (read, lines(offset.into(), 76), lines(offset.into(), 1512))
        });
        assert_eq!((before, after, sixteen), ((2, 2, 25), (1, 2, 24), (1, 2, 24)));
    }
}

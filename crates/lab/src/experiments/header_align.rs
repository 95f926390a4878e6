//! The best place of the virtio-net header in a cache line: `docs/experiments/header-align.md`.

use std::cell::OnceCell;

use straightline_guest::HEADER_LEN;

use super::bench::{TrafficPath, bench};
use super::pvp;
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{Layout, ReflectorOptions, Sizes};
use crate::guests::touch::{Touch, lines};
use crate::rounds::{Measured, Shown};
use crate::trial::validity;

/// The loop: frame lengths, each with a length of buffers.
const LOOP: [(u32, u32); 7] =
    [(64, 2048), (128, 2048), (256, 2048), (512, 2048), (1024, 2048), (1500, 2048), (2000, 2048)];
const QUICK_LOOP: [(u32, u32); 3] = [LOOP[0], LOOP[2], LOOP[5]];

/// PVP: frame lengths of the RFC, each with a length of buffers. Some buffers are as short as a
/// guest could have them, so that a frame needs several.
const PVP: [(u32, u32); 10] = [
    (64, 2048),
    (256, 2048),
    (1024, 2048),
    (1500, 2048),
    (2000, 2048),
    (2048, 2048),
    (1500, 512),
    (2048, 512),
    (512, 256),
    (1500, 256),
];
const QUICK_PVP: [(u32, u32); 2] = [PVP[0], PVP[6]];

/// Bytes from the start of a line to the header. Before the RFC the frame began on a line; with the
/// RFC the header begins on a line. The RFC's mail thread also tried frames aligned to 16 bytes.
const PLACES: [(&str, u32); 3] = [("frame on a line", 52), ("header on a line", 0), ("frame on 16 bytes", 4)];

/// The metrics of a packet, header included: the number of its cache lines, and the number of these
/// lines that the guest reads.
const LINES: &str = "lines_per_packet";
const TOUCHED: &str = "touched_lines_per_packet";

pub(super) fn plan(_: &Settings, quick: bool) -> Plan {
    let all: [(TrafficPath, &[(u32, u32)]); 2] = if quick {
        [(TrafficPath::LOOP, &QUICK_LOOP), (TrafficPath::Pvp, &QUICK_PVP)]
    } else {
        [(TrafficPath::LOOP, &LOOP), (TrafficPath::Pvp, &PVP)]
    };
    let places = if quick { &PLACES[..2] } else { &PLACES };
    let mut cells = Vec::new();
    for (traffic, lens) in all {
        for layout in [Layout::Split, Layout::Packed] {
            for &(size, buffer) in lens {
                let variants = places.iter().map(|&(name, offset)| {
                    let case = Case { traffic, layout, size, buffer, offset };
                    let traced = OnceCell::new();
                    Variant::new(name, move |settings: &Settings| case.trial(settings, &traced))
                });
                let path = traffic.name();
                let ring = layout.name();
                cells.push(Cell::new(
                    [("path", &path), ("ring", &ring), ("size", &size), ("buffer", &buffer)],
                    variants,
                ));
            }
        }
    }
    Plan {
        name: "header-align",
        shown: vec![
            Shown::MPPS,
            Shown::SWITCH_CYCLES,
            Shown { metric: "guest_cycles_per_packet", title: "Cycles of the guest per packet" },
            Shown { metric: LINES, title: "Lines of guest memory per packet" },
            Shown { metric: TOUCHED, title: "Lines that the guest reads per packet" },
        ],
        cells,
        left_out: vec!["in a loop, packets that need several buffers: the reflector has one for each".to_owned()],
    }
}

/// The placement of frames of one length.
#[derive(Clone, Copy, Debug)]
struct Case {
    traffic: TrafficPath,
    layout: Layout,
    size: u32,
    buffer: u32,
    offset: u32,
}

impl Case {
    /// The guest reads the virtio-net header, as a driver does, and the Ethernet header, as a guest
    /// that forwards does. The placement decides which lines these headers are in.
    fn choose(self, options: &mut ReflectorOptions) {
        (options.ports.layout, options.ports.header_offset) = (self.layout, self.offset);
        (options.sizes, options.buffer_len, options.touch) = (Sizes::one(self.size), Some(self.buffer), Touch::Header);
    }

    /// A reflector reports the lines of its packets at the end of each trial. For a guest that
    /// forwards, counting lines is extra work. So this guest's lines are counted once, in a short
    /// trial of its own.
    fn trial(self, settings: &Settings, traced: &OnceCell<[f64; 2]>) -> anyhow::Result<Measured> {
        let choose = |options: &mut ReflectorOptions| self.choose(options);
        if self.traffic == TrafficPath::Pvp && traced.get().is_none() {
            let _ = traced.set(pvp::trace(settings, choose)?);
        }
        let mut measured = bench(settings, self.traffic, |_| {}, choose)?;
        if let Some(&[lines, touched]) = traced.get() {
            measured.note([(LINES, lines), (TOUCHED, touched)]);
        }
        for (metric, computed) in [LINES, TOUCHED].into_iter().zip(self.lines()) {
            let traced = measured.metrics.get(metric).copied().unwrap_or(0.0);
            let computed = f64::from(u32::try_from(computed)?);
            validity::addresses(metric, traced, computed).demand()?;
        }
        Ok(measured)
    }

    /// Computes the number of a packet's lines, and the number of these lines that the guest reads.
    fn lines(self) -> [u64; 2] {
        let at = u64::from(self.offset);
        let len = self.size + HEADER_LEN;
        // All buffers of a packet except the last one are full.
        let full = u64::from(len / self.buffer) * lines(at, self.buffer);
        [full + lines(at, len % self.buffer), Touch::Header.lines(at, len.min(self.buffer))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let quick = plan(&settings(), true);
        let cells = |path: &str, lens: &[(u32, u32)]| {
            let of_ring = |ring| {
                let label = move |(size, buffer)| format!("buffer={buffer} path={path} ring={ring} size={size}");
                lens.iter().copied().map(label).collect::<Vec<_>>()
            };
            ["split", "packed"].map(of_ring).concat()
        };
        assert_eq!(labels(&quick), [cells("loop", &QUICK_LOOP), cells("pvp", &QUICK_PVP)].concat());
        assert_eq!(names(&quick)[0], ["frame on a line", "header on a line"]);
        let full = plan(&settings(), false);
        assert_eq!((full.cells.len(), names(&full)[0].len()), (34, 3));
        assert!(full.left_out[0].contains("several buffers"));
    }

    /// The RFC's argument: a guest that reads both headers reads one line instead of two. Long
    /// packets gain nothing.
    #[test]
    fn lines_by_place() {
        let lines_of = |size, buffer| {
            PLACES.map(|(_, offset)| {
                Case { traffic: TrafficPath::Pvp, layout: Layout::Split, size, buffer, offset }.lines()
            })
        };
        assert_eq!(lines_of(64, 2048), [[2, 2], [2, 1], [2, 1]]);
        assert_eq!(lines_of(1500, 2048), [[25, 2], [24, 1], [24, 1]]);
        // The buffers get 512, 512 and 488 bytes. A packet of 4096 bytes ends with a full buffer.
        assert_eq!(lines_of(1500, 512), [[27, 2], [24, 1], [26, 1]]);
        assert_eq!(lines_of(4084, 2048), [[66, 2], [64, 1], [66, 1]]);
    }
}

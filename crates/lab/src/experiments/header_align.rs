//! The best place of the virtio-net header in a cache line: `docs/experiments/header-align.md`.

use std::cell::OnceCell;

use straightline_guest::HEADER_LEN;

use super::bench::{TrafficPath, bench};
use super::pvp;
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{Layout, Load, ReflectorOptions, Sizes};
use crate::guests::touch::{Touch, lines};
use crate::rounds::{Measured, Shown};
use crate::trial::validity;

/// The loop: frame lengths, each with the bytes of data that a buffer has.
const LOOP: [(u32, u32); 7] =
    [(64, 2048), (128, 2048), (256, 2048), (512, 2048), (1024, 2048), (1500, 2048), (2000, 2048)];
const QUICK_LOOP: [(u32, u32); 3] = [LOOP[0], LOOP[2], LOOP[5]];

/// PVP: the rows of the RFC, then two with buffers as short as a guest could have them.
const PVP: [(u32, u32); 12] = [
    (64, 2048),
    (128, 2048),
    (256, 2048),
    (512, 2048),
    (1024, 2048),
    (1500, 2048),
    (2000, 2048),
    (2048, 2048),
    (1500, 512),
    (2048, 512),
    (512, 256),
    (1500, 256),
];
const QUICK_PVP: [(u32, u32); 3] = [PVP[0], PVP[7], PVP[8]];

/// Frames that go one way, from buffers of the sender's own place.
const ONE_WAY: [(u32, u32); 3] = [(512, 2048), (1024, 2048), (1500, 2048)];
const QUICK_ONE_WAY: [(u32, u32); 1] = [ONE_WAY[2]];

/// The place of the virtio-net header in a buffer with a headroom, as DPDK's have it. The data begin
/// on a cache line, behind the headroom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    name: &'static str,
    /// Bytes from the data to the header: negative in the headroom.
    start: i32,
}

/// Before the RFC, and in DPDK today: the frame begins with the data.
const FRAME: Place = Place { name: "frame on a line", start: -12 };
/// The RFC: the header begins with the data, so the frame has 12 bytes less.
const HEADER: Place = Place { name: "header on a line", start: 0 };
/// The RFC's thread also tried frames on 16 bytes.
const SIXTEEN: Place = Place { name: "frame on 16 bytes", start: 4 };
/// The RFC's remedy for frames that no longer fit: the header begins the line before the data. The
/// frame lies in its line as with [`HEADER`].
const BEFORE: Place = Place { name: "header on the line before", start: -64 };

impl Place {
    /// Returns the bytes from the start of a line to the header.
    fn offset(self) -> u32 {
        self.start.rem_euclid(64).unsigned_abs()
    }

    /// Returns the bytes that the guest gives to the switch of a buffer with this much data.
    fn buffer(self, data: u32) -> u32 {
        data.saturating_add_signed(-self.start)
    }
}

/// The metrics of a packet, header included: the number of its cache lines, and the number of these
/// lines that the guest reads.
const LINES: &str = "lines_per_packet";
const TOUCHED: &str = "touched_lines_per_packet";

pub(super) fn plan(_: &Settings, quick: bool) -> Plan {
    let one_way = TrafficPath::Guests(Load::OneWay);
    let all: [(TrafficPath, &[(u32, u32)]); 3] = if quick {
        [(TrafficPath::LOOP, &QUICK_LOOP), (TrafficPath::Pvp, &QUICK_PVP), (one_way, &QUICK_ONE_WAY)]
    } else {
        [(TrafficPath::LOOP, &LOOP), (TrafficPath::Pvp, &PVP), (one_way, &ONE_WAY)]
    };
    let mut cells = Vec::new();
    for (traffic, lens) in all {
        // Whether both ends of a copy are aligned has nothing to do with the ring.
        let rings: &[Layout] = if traffic == one_way { &[Layout::Split] } else { &[Layout::Split, Layout::Packed] };
        let senders: &[Option<Place>] = match (traffic == one_way, quick) {
            (false, _) => &[None],
            (true, true) => &[Some(FRAME), Some(HEADER)],
            (true, false) => &[Some(FRAME), Some(HEADER), Some(SIXTEEN)],
        };
        for (&layout, &sender) in rings.iter().flat_map(|ring| senders.iter().map(move |sender| (ring, sender))) {
            for &(size, data) in lens {
                let case = Case { traffic, layout, size, data, sender, place: FRAME };
                let path = traffic.name();
                let ring = layout.name();
                let mut cell = Cell::new(
                    [("path", &path), ("ring", &ring), ("size", &size), ("data", &data)],
                    case.places(quick).map(Case::variant),
                );
                cell.axes.extend(sender.map(|sender| ("sent".to_owned(), sender.name.to_owned())));
                cells.push(cell);
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
    /// Bytes of data of each buffer, behind its headroom.
    data: u32,
    /// The sender's place, if it is not the same as the receiver's.
    sender: Option<Place>,
    place: Place,
}

impl Case {
    /// Returns the cell's cases. The line before the data matters where it saves a buffer only:
    /// elsewhere the same bytes lie in the same lines as with the header on a line.
    fn places(self, quick: bool) -> impl Iterator<Item = Case> {
        let at = move |place| Case { place, ..self };
        let saves = at(BEFORE).buffers() < at(HEADER).buffers();
        let sixteen = Some(at(SIXTEEN)).filter(|_| !quick);
        [Some(at(FRAME)), Some(at(HEADER)), sixteen, Some(at(BEFORE)).filter(|_| saves)].into_iter().flatten()
    }

    fn variant(self) -> Variant {
        let traced = OnceCell::new();
        Variant::new(self.place.name, move |settings: &Settings| self.trial(settings, &traced))
    }

    /// The guest reads the virtio-net header, as a driver does, and the Ethernet header, as a guest
    /// that forwards does. The placement decides which lines these headers are in.
    fn choose(self, options: &mut ReflectorOptions) {
        (options.ports.layout, options.ports.header_offset) = (self.layout, self.place.offset());
        (options.sizes, options.touch) = (Sizes::one(self.size), Touch::Header);
        options.buffer_len = Some(self.place.buffer(self.data));
        options.sent_offset = self.sender.map(Place::offset);
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

    /// Returns the number of a packet's buffers.
    fn buffers(self) -> u32 {
        (self.size + HEADER_LEN).div_ceil(self.place.buffer(self.data))
    }

    /// Computes the number of a packet's lines, and the number of these lines that the guest reads.
    fn lines(self) -> [u64; 2] {
        let at = u64::from(self.place.offset());
        let len = self.size + HEADER_LEN;
        let buffer = self.place.buffer(self.data);
        // All buffers of a packet except the last one are full.
        let full = u64::from(len / buffer) * lines(at, buffer);
        [full + lines(at, len % buffer), Touch::Header.lines(at, len.min(buffer))]
    }
}

#[cfg(test)]
mod tests {
    use straightline_guest::endpoints::{Memory, PortOptions};

    use super::super::tests::{labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let quick = plan(&settings(), true);
        let cells = |path: &str, lens: &[(u32, u32)]| {
            let of_ring = |ring| {
                let label = move |(size, data)| format!("data={data} path={path} ring={ring} size={size}");
                lens.iter().copied().map(label).collect::<Vec<_>>()
            };
            ["split", "packed"].map(of_ring).concat()
        };
        let one_way =
            [FRAME, HEADER].map(|sent| format!("data=2048 path=one-way ring=split sent={} size=1500", sent.name));
        let expected = [cells("loop", &QUICK_LOOP), cells("pvp", &QUICK_PVP), one_way.to_vec()].concat();
        assert_eq!(labels(&quick), expected);
        assert_eq!(names(&quick)[0], ["frame on a line", "header on a line"]);
        // 2048 bytes in buffers of 2048: with the header on a line they need two.
        assert_eq!(names(&quick)[7], ["frame on a line", "header on a line", "header on the line before"]);
        let full = plan(&settings(), false);
        assert_eq!((full.cells.len(), names(&full)[0].len()), (47, 3));
        assert!(full.left_out[0].contains("several buffers"));
        let remedied = full.cells.iter().filter(|cell| cell.variants.len() == 4).map(|cell| {
            let at = |axis: &str| cell.axes[axis].as_str();
            [at("size"), at("data")]
        });
        let rows = [["2048", "2048"], ["2048", "512"], ["512", "256"], ["1500", "256"]];
        assert_eq!(remedied.collect::<Vec<_>>(), [rows, rows].concat());
    }

    fn at(place: Place, size: u32, data: u32) -> Case {
        Case { traffic: TrafficPath::Pvp, layout: Layout::Split, size, data, sender: None, place }
    }

    const ALL: [Place; 4] = [FRAME, HEADER, SIXTEEN, BEFORE];

    /// The RFC's arguments: a guest that reads both headers reads one line instead of two, and long
    /// packets gain nothing.
    #[test]
    fn lines_by_place() {
        let lines_of = |size, data| ALL.map(|place| at(place, size, data).lines());
        assert_eq!(lines_of(64, 2048), [[2, 2], [2, 1], [2, 1], [2, 1]]);
        assert_eq!(lines_of(1500, 2048), [[25, 2], [24, 1], [24, 1], [24, 1]]);
        // Three buffers. With the frame on a line they have 524, 524 and 464 bytes.
        assert_eq!(lines_of(1500, 512), [[27, 2], [24, 1], [24, 1], [24, 1]]);
        // A packet of 4096 bytes ends with a full buffer.
        assert_eq!(lines_of(4084, 2048)[1], [64, 1]);
    }

    /// The RFC's only loss: with the header on a line, 2048 bytes need a second buffer. Its remedy
    /// needs one.
    #[test]
    fn buffers_by_place() {
        let buffers_of = |size, data| ALL.map(|place| at(place, size, data).buffers());
        assert_eq!(buffers_of(2036, 2048), [1, 1, 2, 1]);
        assert_eq!(buffers_of(2048, 2048), [1, 2, 2, 1]);
        assert_eq!(buffers_of(2048, 512), [4, 5, 5, 4]);
        assert_eq!(buffers_of(1500, 512), [3, 3, 3, 3]);
    }

    /// Places differ in nothing but the header's place: the data lie in the same lines.
    #[test]
    fn data_lie_alike_in_all_places() {
        for data in [256, 512, 2048] {
            let far_apart = |place: Place| {
                let buffer_len = place.buffer(data);
                let header_offset = place.offset();
                let options = PortOptions { buffer_len, header_offset, queue_size: 32, ..PortOptions::default() };
                let buffers = Memory::new(&options, 2).expect("memory").buffers();
                assert_eq!(buffers[0] % 64, u64::from(header_offset));
                buffers[1] - buffers[0]
            };
            assert_eq!(ALL.map(far_apart), [far_apart(FRAME); 4], "{data}");
            let end = |place: Place| i64::from(place.start) + i64::from(place.buffer(data));
            assert_eq!(ALL.map(end), [i64::from(data); 4]);
        }
    }
}

//! The fastest copy in the switch's pipeline: `docs/experiments/memcpy.md`.

use straightline_packet::Level;

use super::bench::TrafficPath;
use super::bound;
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{Load, ReflectorOptions, Sizes};
use crate::guests::touch::Touch;
use crate::rounds::Shown;

/// Frame lengths, and a mix of lengths: a copy that wins at one length may lose when lengths cannot
/// be predicted.
const SIZES: [&str; 7] = ["64", "128", "256", "512", "1024", "1518", "imix"];
const QUICK_SIZES: [&str; 3] = ["64", "1518", "imix"];

/// Lengths of TCP packets that are passed unsegmented, up to the longest.
const LONG_SIZES: [&str; 4] = ["2048", "4096", "16384", "65214"];

/// Paths: two guests that forward or flood, and a guest between two ports of a generator.
const PATHS: [TrafficPath; 3] = [TrafficPath::LOOP, TrafficPath::Guests(Load::Flood), TrafficPath::Pvp];

/// Copies that are measured at every length. They come after the C library's.
const COPIES: [&str; 3] = ["kernel", "bytes", "movsb"];
const QUICK_COPIES: [&str; 2] = ["kernel", "movsb"];

/// Copies that differ from the kernel only in bodies of more than 256 bytes.
const BODY_COPIES: [&str; 2] = ["unaligned", "streaming"];

/// A path, and what is special about its packets.
#[derive(Clone, Copy)]
struct Case {
    /// The name of the axis `path`.
    name: &'static str,
    traffic: TrafficPath,
    touch: Touch,
    /// True for TCP packets that are passed unsegmented.
    is_long: bool,
    /// Bytes from the start of a cache line to the virtio-net header, if not the usual ones.
    offset: Option<u32>,
}

impl Case {
    const LOOP: Case =
        Case { name: "loop", traffic: TrafficPath::LOOP, touch: Touch::None, is_long: false, offset: None };
    /// The lines are modified in the cache of the guest's CPU.
    const EDITED: Case = Case { name: "loop, edited", touch: Touch::Edit, ..Case::LOOP };
    /// Both ends of each body begin at a cache line, because the head is a whole number of lines.
    const ON_A_LINE: Case = Case { name: "loop, on a line", offset: Some(52), ..Case::LOOP };
    const BESIDE_A_LINE: Case = Case { name: "loop, beside a line", offset: Some(53), ..Case::LOOP };
    const SEGMENTS: Case = Case { name: "segments", is_long: true, ..Case::LOOP };
    const EDITED_SEGMENTS: Case = Case { name: "segments, edited", touch: Touch::Edit, ..Case::SEGMENTS };

    fn choose(self, sizes: Sizes) -> impl Fn(&mut ReflectorOptions) + Clone + 'static {
        move |options| {
            options.sizes = sizes.clone();
            options.touch = self.touch;
            if let Some(offset) = self.offset {
                options.ports.header_offset = offset;
            }
            if self.is_long {
                options.ports.segments = true;
                // The buffers are so large that longer rings would exceed the caches of a machine.
                options.ports.queue_size = 256;
                options.bursts = Some(2);
            }
        }
    }
}

pub(super) fn plan(settings: &Settings, quick: bool) -> Plan {
    let names: &[&str] = if quick { &QUICK_SIZES } else { &SIZES };
    let copies: &[&str] = if quick { &QUICK_COPIES } else { &COPIES };
    let mut cells = Vec::new();
    let mut add = |case: Case, sizes: &[&str], copies: &[&str]| {
        for &name in sizes {
            let Ok(sizes) = name.parse::<Sizes>() else { continue };
            let variants = variants(settings, case, &sizes, copies);
            cells.push(Cell::new([("path", &case.name), ("size", &name)], variants));
        }
    };
    for traffic in PATHS {
        let case = Case { name: traffic.name(), traffic, ..Case::LOOP };
        for &name in names {
            let has_body = !quick && ["1024", "1518", "imix"].contains(&name);
            let more = if has_body { &BODY_COPIES[..] } else { &[] };
            add(case, &[name], &[copies, more].concat());
        }
    }
    if quick {
        add(Case::SEGMENTS, &LONG_SIZES[3..], copies);
    } else {
        let all = [&COPIES[..], &BODY_COPIES].concat();
        let long = [&all[..], &["movsb-long"]].concat();
        add(Case::EDITED, &["512", "1518"], &all);
        add(Case::ON_A_LINE, &["1518"], &["kernel", "unaligned"]);
        add(Case::BESIDE_A_LINE, &["1518"], &["kernel", "unaligned"]);
        add(Case::SEGMENTS, &LONG_SIZES, &long);
        add(Case::EDITED_SEGMENTS, &LONG_SIZES, &long);
    }
    let mut left_out = Vec::new();
    if settings.bound.is_none() {
        left_out.push(
            "the bound, a switch that copies nothing: set `--bound PROGRAM` to a build with `--features \
             bench-no-copies`"
                .to_owned(),
        );
    }
    let is_absent = |name: &&str| !Level::for_comparison().any(|level| level.name() == *name);
    let absent = Level::COMPARISONS.into_iter().filter(is_absent);
    left_out.extend(absent.map(|name| format!("`{name}`: this machine does not have it")));
    Plan {
        name: "memcpy",
        shown: vec![
            Shown::MPPS,
            Shown { metric: "gbit_per_s", title: "Gbit/s" },
            Shown::SWITCH_CYCLES,
            Shown { metric: "switch_cycles_per_byte", title: "Cycles of the switch per byte" },
        ],
        cells,
        left_out,
    }
}

/// The copy that other programs use comes first, so that ours is shown as a ratio to it. The source
/// compares with DPDK's copy in this way.
fn variants(settings: &Settings, case: Case, sizes: &Sizes, copies: &[&str]) -> Vec<Variant> {
    let traffic = case.traffic;
    let choose = case.choose(sizes.clone());
    let named = |name: &str| match name {
        "kernel" => Some(None),
        name => Level::for_comparison().find(|level| level.name() == name).map(Some),
    };
    let mut variants = Vec::new();
    for name in ["libc"].into_iter().chain(copies.iter().copied()) {
        let Some(copy) = named(name) else { continue };
        variants.push(Variant::bench(name, traffic, move |config| config.switch.copy = copy, choose.clone()));
    }
    if let Some(none) = settings.bound.clone().filter(|_| !case.is_long) {
        variants.push(Variant::new("none", move |settings: &Settings| bound::bench(settings, traffic, &none, &choose)));
    }
    variants
}

#[cfg(test)]
mod tests {
    use super::super::settings::Bound;
    use super::super::tests::{labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let quick = plan(&settings(), true);
        let expected =
            ["loop", "flood", "pvp"].map(|traffic| QUICK_SIZES.map(|size| format!("path={traffic} size={size}")));
        assert_eq!(labels(&quick), [&expected.concat()[..], &["path=segments size=65214".to_owned()]].concat());
        assert!(names(&quick)[0].starts_with(&["libc".to_owned(), "kernel".to_owned()]));
        assert!(quick.left_out[0].contains("--bound PROGRAM"));
        let full = plan(&settings(), false);
        assert_eq!(full.cells.len(), 33);
        let copies_in = |label: &str| {
            let at = labels(&full).iter().position(|known| known == label).expect(label);
            names(&full).swap_remove(at)
        };
        // Copies of a head and a short body are the same with and without these.
        assert!(!copies_in("path=loop size=512").contains(&"streaming".to_owned()));
        for wanted in Level::for_comparison() {
            assert!(copies_in("path=segments, edited size=65214").contains(&wanted.name().to_owned()), "{wanted}");
        }
        let bound = Bound { program: "p".into(), version: "0".to_owned() };
        let bound = plan(&Settings { bound: Some(bound), ..settings() }, true);
        let (last, others) =
            names(&bound).split_last().map(|(last, others)| (last.clone(), others.to_vec())).expect("cells");
        assert!(others.iter().all(|names| names.last().is_some_and(|name| name == "none")));
        assert!(!last.contains(&"none".to_owned()), "a bound has no segments");
        assert!(bound.left_out.iter().all(|what| !what.contains("bound")));
    }
}

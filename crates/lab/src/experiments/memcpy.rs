//! The fastest copy in the switch's pipeline: `docs/experiments/memcpy.md`.

use straightline_config::Copier;

use super::bench::TrafficPath;
use super::bound;
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{Load, ReflectorOptions, Sizes};
use crate::rounds::Shown;

/// Frame lengths, and a mix of lengths: a copy that wins at one length may lose when lengths cannot
/// be predicted.
const SIZES: [&str; 7] = ["64", "128", "256", "512", "1024", "1518", "imix"];
const QUICK_SIZES: [&str; 3] = ["64", "1518", "imix"];

/// Paths: two guests that forward or flood, and a guest between two ports of a generator.
const PATHS: [TrafficPath; 3] = [TrafficPath::LOOP, TrafficPath::Guests(Load::Flood), TrafficPath::Pvp];

pub(super) fn plan(settings: &Settings, quick: bool) -> Plan {
    let names: &[&str] = if quick { &QUICK_SIZES } else { &SIZES };
    let mut cells = Vec::new();
    for traffic in PATHS {
        for &name in names {
            let Ok(sizes) = name.parse::<Sizes>() else { continue };
            cells.push(Cell::new([("path", &traffic.name()), ("size", &name)], variants(settings, traffic, &sizes)));
        }
    }
    let mut left_out = Vec::new();
    if settings.bound.is_none() {
        left_out.push(
            "the bound, a switch that copies nothing: set `--bound PROGRAM` to a build with `--features \
             bench-no-copies`"
                .to_owned(),
        );
    }
    if Copier::ALL.len() < 3 {
        left_out.push("`rep movsb`: only on x86-64".to_owned());
    }
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
fn variants(settings: &Settings, traffic: TrafficPath, sizes: &Sizes) -> Vec<Variant> {
    let choose = {
        let sizes = sizes.clone();
        move |options: &mut ReflectorOptions| options.sizes = sizes.clone()
    };
    let mut copiers = Copier::ALL.to_vec();
    copiers.sort_by_key(|&copier| copier != Copier::Libc);
    let mut variants: Vec<_> = copiers
        .into_iter()
        .map(|copier| {
            Variant::bench(copier.as_str(), traffic, move |config| config.switch.copy = copier, choose.clone())
        })
        .collect();
    if let Some(none) = settings.bound.clone() {
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
        assert_eq!(labels(&quick), expected.concat());
        assert_eq!(plan(&settings(), false).cells.len(), 21);
        assert!(names(&quick)[0].starts_with(&["libc".to_owned(), "kernel".to_owned()]));
        assert!(quick.left_out[0].contains("--bound PROGRAM"));
        let bound = Bound { program: "p".into(), version: "0".to_owned() };
        let bound = plan(&Settings { bound: Some(bound), ..settings() }, true);
        assert!(names(&bound).iter().all(|names| names.last().is_some_and(|name| name == "none")));
        assert!(bound.left_out.iter().all(|what| !what.contains("bound")));
    }
}

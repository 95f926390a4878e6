//! The table of results: medians, spreads and ratios, as Markdown.

use straightline_report::results::{Sample, series};
use straightline_report::statistics::{Pairing, ratio};

use super::options::{Path, TunnelCell, Variant};
use crate::measure::{NO_VALID_TRIAL, SwitchKind, samples_of, spread};

/// Metrics in the table: name, title, digits, and whether ratios are shown.
const SHOWN: [(&str, &str, usize, bool); 7] = [
    ("gbit_per_s", "Gbit/s, mean of both directions", 2, true),
    ("forward_gbit_per_s", "Gbit/s, first direction", 2, false),
    ("back_gbit_per_s", "Gbit/s, second direction", 2, false),
    ("retransmits", "retransmits", 0, false),
    ("veth_drops", "packets that the veth pair dropped", 0, false),
    ("guest_drops", "packets dropped at the guests' ports", 0, false),
    ("switch_cpu_s_per_gb", "both switches, CPU s/GB", 2, false),
];

/// Returns a table with rows for metrics and a column for each variant. Below it are the ratios of
/// each tunnel to the plain path of its switch, and of each binary of ours to the other switches.
pub(super) fn markdown(variants: &[Variant], samples: &[Sample]) -> String {
    let names: Vec<&str> = variants.iter().map(|variant| variant.switch.name.as_str()).collect();
    let mut text = format!("| {TunnelCell} | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    let mut ratios = String::new();
    let places: Vec<Vec<&Sample>> =
        variants.iter().map(|variant| samples_of(samples, &TunnelCell, &variant.switch)).collect();
    for (metric, title, digits, has_ratios) in SHOWN {
        let values: Vec<Vec<(u32, f64)>> = places.iter().map(|place| series(place.iter().copied(), metric)).collect();
        let none = if has_ratios { NO_VALID_TRIAL } else { "" };
        let columns = values.iter().map(|own| spread(own, None, digits).unwrap_or_else(|| none.to_owned()));
        text += &format!("| {title} | {} |\n", columns.collect::<Vec<_>>().join(" | "));
        let pairs = (0..variants.len()).flat_map(|one| (0..variants.len()).map(move |other| (one, other)));
        for (one, other) in pairs.filter(|&(one, other)| has_ratios && are_compared(&variants[one], &variants[other])) {
            if let Some(ratio) = ratio(&values[one], &values[other], Pairing::ByRound) {
                let interval = ratio.interval.map(|i| format!(" [{:.2}, {:.2}]", i.low, i.high));
                let interval = interval.unwrap_or_default();
                ratios += &format!("- {} / {}: {:.2}{interval}\n", names[one], names[other], ratio.value);
            }
        }
    }
    format!("{text}\n{ratios}")
}

/// Returns whether the table has the ratio of these two.
fn are_compared(one: &Variant, other: &Variant) -> bool {
    let to_plain = one.of == other.of && one.path != Path::Plain && other.path == Path::Plain;
    let ours = |variant: &Variant| matches!(variant.switch.kind, SwitchKind::Ours(_));
    to_plain || ours(one) && !ours(other) && one.path == other.path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Candidate, Cell as _};

    #[test]
    fn a_table_has_the_ratios_to_plain_and_to_the_other_switch() {
        let read = |name: &str| Candidate::read(name, &[("ovs", SwitchKind::Ovs)]).expect("a switch");
        let variants: Vec<Variant> = ["ours=bin/s", "ovs"]
            .into_iter()
            .enumerate()
            .flat_map(|(of, name)| [Path::Plain, Path::Vxlan].map(|path| (of, name, path)))
            .map(|(of, name, path)| {
                let switch = read(name);
                Variant { switch: Candidate { name: format!("{} {path:?}", switch.name), ..switch }, of, path }
            })
            .collect();
        let sample = |round, variant: &Variant, gbit_per_s: f64| Sample {
            round,
            variant: variant.switch.name.clone(),
            cell: TunnelCell.axes(),
            metrics: [("gbit_per_s".to_owned(), gbit_per_s)].into(),
            ..Sample::default()
        };
        let rates = variants.iter().zip([4.0, 3.0, 2.0]);
        let samples: Vec<Sample> =
            (1..=6).flat_map(|round| rates.clone().map(move |(of, rate)| sample(round, of, rate))).collect();
        let text = markdown(&variants, &samples);
        let row = "| Gbit/s, mean of both directions | 4.00 (4.00-4.00) | 3.00 (3.00-3.00) | 2.00 (2.00-2.00) | no valid trial |\n";
        let ratios = "\n- ours Plain / ovs Plain: 2.00 [2.00, 2.00]\n- ours Vxlan / ours Plain: 0.75 [0.75, 0.75]\n";
        assert!(
            text.starts_with("| MTU 1500 | ours Plain | ") && text.contains(row) && text.ends_with(ratios),
            "{text}"
        );
    }
}

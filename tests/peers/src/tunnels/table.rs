//! The table of results: medians, spreads and ratios, as Markdown.

use straightline_lab::rounds::table::{self, Row, fixed, ratio_to, spread};
use straightline_report::results::Sample;

use super::options::{Path, TunnelCell, Variant};
use crate::measure::{Cell as _, NO_VALID_TRIAL, SwitchKind};

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
    let mut rows = Vec::new();
    let mut ratios = String::new();
    let row = Row::new(samples, &TunnelCell.axes(), names.iter().copied());
    for (metric, title, digits, has_ratios) in SHOWN {
        let series = row.as_ref().map_or_else(|| vec![Vec::new(); names.len()], |row| row.series(metric));
        let none = if has_ratios { NO_VALID_TRIAL } else { "" };
        let columns = series.iter().map(|own| spread(own, fixed(digits)).unwrap_or_else(|| none.to_owned()));
        rows.push([title.to_owned()].into_iter().chain(columns).collect());
        let pairs = (0..variants.len()).flat_map(|one| (0..variants.len()).map(move |other| (one, other)));
        for (one, other) in pairs.filter(|&(one, other)| has_ratios && are_compared(&variants[one], &variants[other])) {
            if let Some(ratio) = ratio_to(&series[one], &series[other], 2) {
                ratios += &format!("- {} / {}: {ratio}\n", names[one], names[other]);
            }
        }
    }
    let corner = TunnelCell.to_string();
    let head: Vec<&str> = [corner.as_str()].into_iter().chain(names.iter().copied()).collect();
    format!("{}\n{ratios}", table::markdown(&head, &rows))
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
    use crate::measure::Candidate;

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

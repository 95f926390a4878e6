//! The table of results: medians, spreads and ratios, as Markdown.

use straightline_lab::rounds::table::{self, Row, fixed, ratio_to};
use straightline_report::results::{Sample, series};
use straightline_report::statistics::median;

use super::options::CompareCell;
use crate::measure::{Candidate, Cell, NO_VALID_TRIAL};

/// Returns a table with a row for each combination that was tried, and a column for each switch.
pub(super) fn markdown(switches: &[Candidate], cells: &[CompareCell], samples: &[Sample]) -> String {
    let text = String::from(
        "Million packets per second received by the guest on both ports: median (smallest-largest), ratio of medians to the \
         first switch [95 % interval]; then cycles per packet of the switch alone, and of the guest. For a search: the highest \
         rate without loss (NDR), with 0.5 % loss (PDR), and the latency at half of that, median and p99.\n\n",
    );
    let names = || switches.iter().map(|switch| switch.name.as_str());
    let mut rows = Vec::new();
    for cell in cells {
        let Some(row) = Row::new(samples, &cell.axes(), names()) else { continue };
        let first = row.series("mpps").swap_remove(0);
        let show = |(at, place): (usize, &Vec<&Sample>)| {
            show(place, Some(&first[..]).filter(|_| at > 0)).unwrap_or_else(|| NO_VALID_TRIAL.to_owned())
        };
        rows.push([cell.to_string()].into_iter().chain(row.places.iter().enumerate().map(show)).collect());
    }
    let head: Vec<&str> = ["guest, load, ring, frame"].into_iter().chain(names()).collect();
    text + &table::markdown(&head, &rows)
}

/// Returns a table with the ratios of each binary of ours to the switches before it, in columns of
/// their own. `corner` names the axes of a row.
pub(super) fn with_ratios<C: Cell>(corner: &str, switches: &[Candidate], cells: &[C], samples: &[Sample]) -> String {
    let names = || switches.iter().map(|switch| switch.name.as_str());
    let pairs = Candidate::pairs(switches);
    let ratios: Vec<String> =
        pairs.iter().map(|&(one, other)| format!("{} / {}", switches[one].name, switches[other].name)).collect();
    let mut rows = Vec::new();
    for cell in cells {
        let Some(row) = Row::new(samples, &cell.axes(), names()) else { continue };
        let rates = row.series("mpps");
        let places = row.places.iter().map(|place| show(place, None).unwrap_or_else(|| NO_VALID_TRIAL.to_owned()));
        let ratios = pairs.iter().map(|&(one, other)| ratio_to(&rates[one], &rates[other], 2).unwrap_or_default());
        rows.push([cell.to_string()].into_iter().chain(places).chain(ratios).collect());
    }
    let head: Vec<&str> = [corner].into_iter().chain(names()).chain(ratios.iter().map(String::as_str)).collect();
    let text = "Million packets per second: median (smallest-largest); then cycles per packet of the switch alone, and \
                of the guest. Ratios are of the medians [95 % interval, from six rounds on].\n\n";
    text.to_owned() + &table::markdown(&head, &rows)
}

fn show(place: &[&Sample], first: Option<&[(u32, f64)]>) -> Option<String> {
    let bounds: Vec<&Sample> = place.iter().copied().filter(|sample| sample.is_at_least()).collect();
    let least = |metric: &str| -> Vec<(u32, f64)> {
        bounds.iter().filter_map(|sample| Some((sample.round, *sample.metrics.get(metric)?))).collect()
    };
    let spread = |series: &[(u32, f64)]| table::spread(series, fixed(2));
    let rates = series(place.iter().copied(), "mpps");
    let ratio =
        first.and_then(|first| ratio_to(&rates, first, 2)).map_or_else(String::new, |ratio| format!(" x{ratio}"));
    let rates = spread(&rates).map(|rates| rates + &ratio);
    // Lower bounds are not mixed with measured rates, and have no ratio.
    let rates_at_least =
        spread(&least("mpps")).map(|least| format!("at least {least} in {} of {}", bounds.len(), place.len()));
    let values_of = |metric: &str| if rates.is_some() { series(place.iter().copied(), metric) } else { least(metric) };
    let middle = |metric: &str| median(&values_of(metric).into_iter().map(|(_, value)| value).collect::<Vec<_>>());
    let pdr = |metric| spread(&values_of(metric));
    let half = ["at_50_percent_latency_p50_us", "at_50_percent_latency_p99_us"].map(middle);
    let cycles = |who: &str, metric| middle(metric).map(|cycles| format!("{who} {cycles:.0}"));
    let texts = [
        rates.clone(),
        rates_at_least,
        pdr("pdr_mpps").map(|pdr| format!("PDR {pdr}")),
        pdr("pdr_least_mpps").map(|pdr| format!("PDR at least {pdr}")),
        half[0].zip(half[1]).map(|(p50, p99)| format!("{p50:.1} and {p99:.1} us at half of it")),
        cycles("switch", "switch_cycles_per_packet"),
        cycles("guest", "guest_cycles_per_packet"),
    ];
    (rates.is_some() || !bounds.is_empty()).then(|| texts.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use straightline_report::results::Validity;

    use super::super::options::{Load, Ring, Size, TrafficSource};
    use super::*;
    use crate::measure::SwitchKind;

    #[test]
    fn a_table_says_what_was_measured_and_what_was_not() {
        let ring = Ring { name: "split", packed: false, mergeable: true, in_order: false, vectorized: false };
        let cell = |size| CompareCell { guest: TrafficSource::Own, load: Load::Loop, ring, size: Size::Bytes(size) };
        let cells = [cell(64), cell(512)];
        let switch = |name: &str| Candidate {
            name: name.to_owned(),
            kind: SwitchKind::Ovs,
            version: String::new(),
            copies_nothing: false,
        };
        let sample = |round, variant: &str, metrics: &[(&str, f64)]| Sample {
            round,
            variant: variant.to_owned(),
            cell: cells[0].axes(),
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            validity: match metrics {
                [] => Validity::SpoiltByBackend("it died".to_owned()),
                _ => Validity::Valid,
            },
            ..Sample::default()
        };
        let latencies = [("at_50_percent_latency_p50_us", 2.0), ("at_50_percent_latency_p99_us", 31.44)];
        let found = sample(1, "a", &[&[("mpps", 4.0), ("pdr_mpps", 6.0)], &latencies[..]].concat());
        let bound = &[("mpps", 5.0), ("pdr_least_mpps", 5.5)];
        let mut bound = sample(2, "a", &[&bound[..], &latencies].concat());
        bound.validity = Validity::LowerBound("nothing was too much".to_owned());
        let first: Option<&[(u32, f64)]> = Some(&[(1, 2.0), (2, 2.0)]);
        let alone = "at least 5.00 (5.00-5.00) in 1 of 1; PDR at least 5.50 (5.50-5.50); 2.0 and 31.4 us at half of it";
        assert_eq!(show(&[&bound], first).as_deref(), Some(alone));
        let both = "4.00 (4.00-4.00) x2.00; at least 5.00 (5.00-5.00) in 1 of 2; PDR 6.00 (6.00-6.00); \
                    2.0 and 31.4 us at half of it";
        assert_eq!(show(&[&found, &bound], first).as_deref(), Some(both));
        let mut samples = Vec::new();
        for (round, mpps) in (1..).zip([4.0, 2.0, 3.0]) {
            let guest = ("guest_cycles_per_packet", 30.0);
            samples.push(sample(round, "a", &[("mpps", mpps), guest, ("switch_cycles_per_packet", 200.0)]));
            samples.push(sample(round, "b", &[("mpps", 2.0 * mpps), guest]));
            samples.push(sample(round, "c", &[]));
        }
        let text = markdown(&[switch("a"), switch("b"), switch("c")], &cells, &samples);
        let row = "| own loop split 64 B | 3.00 (2.00-4.00); switch 200; guest 30 | 6.00 (4.00-8.00) x2.00; guest 30 | no valid trial |\n";
        let head = "| guest, load, ring, frame | a | b | c |\n|---|---|---|---|\n";
        // A combination that an interrupted run did not reach has no row.
        assert!(text.ends_with(&format!("{head}{row}")), "{text}");
        let ours = Candidate::read("c=bin/s", &[]).expect("ours");
        samples.iter_mut().filter(|sample| sample.variant == "b").for_each(|sample| sample.variant = "c".to_owned());
        let text = with_ratios("row", &[switch("a"), ours], &cells, &samples);
        let head = "| row | a | c | c / a |\n|---|---|---|---|\n";
        let row =
            "| own loop split 64 B | 3.00 (2.00-4.00); switch 200; guest 30 | 6.00 (4.00-8.00); guest 30 | 2.00 |\n";
        assert!(text.ends_with(&format!("{head}{row}")), "{text}");
    }
}

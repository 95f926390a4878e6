//! The results of an experiment as Markdown: medians with the smallest and the largest value, and
//! the ratio to the first variant with its interval.

use std::collections::BTreeSet;
use std::fmt::Write;

use straightline_report::results::{Reasons, Sample};
use straightline_report::statistics::{EQUAL, Looks};

use super::{Cell, Plan};
use crate::rounds::Shown;
use crate::rounds::table::{self, Row};

/// Returns a table for each metric that the plan shows. The things that were not measured and the
/// trials that are not valid follow.
#[must_use]
pub fn markdown(plan: &Plan, samples: &[Sample], looks: Looks) -> String {
    let mut text = String::new();
    for shown in &plan.shown {
        if samples.iter().any(|sample| sample.metrics.contains_key(shown.metric)) {
            one(&mut text, plan, *shown, samples, looks);
        }
    }
    for what in &plan.left_out {
        let _ = writeln!(text, "Not measured: {what}.\n");
    }
    let mut reasons = Reasons::default();
    for sample in samples {
        if let Some(why) = sample.validity.reason() {
            reasons.add(sample.variant.as_str(), why);
        }
    }
    let mut reasons: Vec<_> = reasons.all().collect();
    reasons.sort();
    for (variant, why, count) in reasons {
        let _ = writeln!(text, "Trials of {variant} that are not valid: {count} ({}).\n", why.replace('\n', " "));
    }
    text
}

fn one(text: &mut String, plan: &Plan, shown: Shown, samples: &[Sample], looks: Looks) {
    let axes: BTreeSet<&str> = plan.cells.iter().flat_map(|cell| cell.axes.keys().map(String::as_str)).collect();
    let mut variants: Vec<&str> = Vec::new();
    for variant in plan.cells.iter().flat_map(|cell| &cell.variants) {
        if !variants.contains(&variant.name.as_str()) {
            variants.push(&variant.name);
        }
    }
    let head: Vec<&str> = axes.iter().copied().chain(variants.iter().copied()).collect();
    let _ = writeln!(
        text,
        "{} (`{}`): median (smallest-largest), ratio to the first [{} % interval]; variants are equal if the interval is \
         within {:.0} % of 1, and otherwise differ if it excludes 1\n",
        shown.title,
        shown.metric,
        looks.percent(),
        EQUAL * 100.0
    );
    let row = |cell: &Cell| {
        let at = |axis: &&str| cell.axes.get(*axis).cloned().unwrap_or_default();
        let series = Row::new(samples, &cell.axes, variants.iter().copied())
            .map_or_else(|| vec![Vec::new(); variants.len()], |row| row.series(shown.metric));
        // A cell may lack the variant of the first column.
        let is_first = |name: &&str| cell.variants.first().is_some_and(|variant| variant.name == *name);
        let first = variants.iter().position(is_first).unwrap_or(0);
        axes.iter().map(at).chain(table::spreads(&series, looks, first, show, 3, "-")).collect()
    };
    text.push_str(&table::markdown(&head, &plan.cells.iter().map(row).collect::<Vec<_>>()));
    text.push('\n');
}

/// Formats a number with about three digits.
fn show(n: f64) -> String {
    match n.abs() {
        100.0.. => format!("{n:.0}"),
        10.0.. => format!("{n:.1}"),
        1.0.. => format!("{n:.2}"),
        _ => format!("{n:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Variant;
    use super::*;
    use crate::rounds::Measured;
    use straightline_report::results::Validity;

    #[test]
    fn medians_and_ratios_of_each_cell() {
        let variant = |name: &str| Variant::new(name, |_| Ok(Measured::default()));
        let cell = |size: &str| Cell::new([("size", &size)], [variant("a"), variant("b")]);
        let plan = Plan {
            name: "fake",
            shown: vec![Shown::MPPS, Shown { metric: "absent", title: "Nothing" }],
            cells: vec![cell("64"), cell("1518")],
            left_out: vec!["512 bits: this machine does not have them".to_owned()],
        };
        let sample = |size: &str, variant: &str, mpps: Option<f64>| Sample {
            round: 1,
            variant: variant.to_owned(),
            cell: BTreeMap::from([("size".to_owned(), size.to_owned())]),
            metrics: mpps.map(|mpps| ("mpps".to_owned(), mpps)).into_iter().collect(),
            validity: match mpps {
                Some(_) => Validity::Valid,
                None => Validity::SpoiltByBackend("nothing\ncame".to_owned()),
            },
            ..Sample::default()
        };
        let mut samples: Vec<_> = [3.0, 1.0, 2.0].map(|mpps| sample("64", "a", Some(mpps))).into();
        samples.extend([4.0, 3.0].map(|mpps| sample("64", "b", Some(mpps))));
        (1..).zip(&mut samples).for_each(|(round, sample)| sample.round = round);
        samples.extend([sample("64", "b", None), sample("1518", "a", None), sample("1518", "b", Some(123.456))]);
        let expected = "Million packets per second (`mpps`): median (smallest-largest), ratio to the first [95 % interval]; variants are equal if the interval is within 2 % of 1, and otherwise differ if it excludes 1

| size | a | b |
|---|---|---|
| 64 | 2.00 (1.00-3.00) | 3.50 (3.00-4.00) x1.750 |
| 1518 | - | 123 (123-123) |

Not measured: 512 bits: this machine does not have them.

Trials of a that are not valid: 1 (nothing came).

Trials of b that are not valid: 1 (nothing came).

";
        assert_eq!(markdown(&plan, &samples, Looks::One), expected);
        // With six rounds or more there is an interval.
        let rounds = (1..=6).flat_map(|round| {
            ["a", "b"]
                .map(|variant| Sample { round, ..sample("64", variant, Some(if variant == "a" { 2.0 } else { 3.0 })) })
        });
        let table = markdown(&plan, &rounds.collect::<Vec<_>>(), Looks::One);
        assert!(table.contains("| 64 | 2.00 (2.00-2.00) | 3.00 (3.00-3.00) x1.500 [1.500, 1.500] |"), "{table}");
    }
}

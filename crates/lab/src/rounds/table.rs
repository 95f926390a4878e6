//! Medians and ratios as Markdown.

use std::collections::BTreeMap;

use straightline_report::results::{Sample, series};
use straightline_report::statistics::{Looks, Pairing, estimate};

/// A metric's values by round.
pub type Series = Vec<(u32, f64)>;

/// The samples of a cell, by variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<'s> {
    /// The samples of each variant, in the order of the variants.
    pub places: Vec<Vec<&'s Sample>>,
}

impl<'s> Row<'s> {
    /// Makes the row of the cell with these axes. Returns `None` if no variant was tried there.
    pub fn new<'v>(
        samples: &'s [Sample],
        axes: &BTreeMap<String, String>,
        variants: impl IntoIterator<Item = &'v str>,
    ) -> Option<Self> {
        let here: Vec<&Sample> = samples.iter().filter(|sample| sample.cell == *axes).collect();
        let place = |variant| here.iter().copied().filter(|sample| sample.variant == variant).collect();
        let places: Vec<Vec<&Sample>> = variants.into_iter().map(place).collect();
        places.iter().any(|place| !place.is_empty()).then_some(Row { places })
    }

    /// Returns a metric's values by variant.
    #[must_use]
    pub fn series(&self, metric: &str) -> Vec<Series> {
        self.places.iter().map(|place| series(place.iter().copied(), metric)).collect()
    }
}

/// Returns the median with the smallest and the largest value; `None` without values.
#[must_use]
pub fn spread(own: &[(u32, f64)], show: impl Fn(f64) -> String) -> Option<String> {
    let found = estimate(&own.iter().map(|(_, value)| *value).collect::<Vec<_>>())?;
    Some(format!("{} ({}-{})", show(found.median), show(found.lowest), show(found.highest)))
}

/// Returns the ratio of medians to those of the same rounds of another variant. From six rounds on
/// it has its 95 % interval. Returns `None` if there is no ratio.
#[must_use]
pub fn ratio_to(own: &[(u32, f64)], other: &[(u32, f64)], digits: usize) -> Option<String> {
    ratio_after(Looks::One, own, other, digits)
}

/// Returns the ratio of [`ratio_to`] after these looks.
fn ratio_after(looks: Looks, own: &[(u32, f64)], other: &[(u32, f64)], digits: usize) -> Option<String> {
    let found = looks.ratio(own, other, Pairing::ByRound)?;
    let interval = found.interval.map(|i| format!(" [{:.digits$}, {:.digits$}]", i.low, i.high));
    Some(format!("{:.digits$}{}", found.value, interval.unwrap_or_default()))
}

/// Returns the spread of each variant. All but the variant number `first` also have the ratio to
/// that one. A variant without values has `none`.
#[must_use]
pub fn spreads(
    all: &[Series],
    looks: Looks,
    first: usize,
    show: impl Fn(f64) -> String,
    ratio_digits: usize,
    none: &str,
) -> Vec<String> {
    let text = |(number, own): (usize, &Series)| {
        let first = all.get(first).filter(|_| number != first);
        let ratio = first.and_then(|first| ratio_after(looks, own, first, ratio_digits));
        let ratio = ratio.map_or_else(String::new, |ratio| format!(" x{ratio}"));
        spread(own, &show).map_or_else(|| none.to_owned(), |spread| spread + &ratio)
    };
    all.iter().enumerate().map(text).collect()
}

/// Returns a table in Markdown.
#[must_use]
pub fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    rows.iter().for_each(|row| text += &format!("| {} |\n", row.join(" | ")));
    text
}

/// Returns a function that formats values with this number of digits behind the point.
pub fn fixed(digits: usize) -> impl Fn(f64) -> String {
    move |value| format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_intervals_where_there_are_rounds_enough() {
        let series = |rounds, factor: f64| -> Series { (1..=rounds).map(|n| (n, factor * f64::from(n))).collect() };
        let both = |rounds, digits| {
            spreads(&[series(rounds, 1.0), series(rounds, 2.0)], Looks::One, 0, fixed(digits), 2, "none")
        };
        assert_eq!(both(3, 2), ["2.00 (1.00-3.00)", "4.00 (2.00-6.00) x2.00"]);
        assert_eq!(both(6, 0), ["4 (1-6)", "7 (2-12) x2.00 [2.00, 2.00]"]);
        assert_eq!(both(0, 0), ["none", "none"]);
        // A metric of 0 has no ratio.
        assert_eq!(
            spreads(&[series(1, 1.0), series(1, 0.0)], Looks::One, 0, fixed(0), 2, "none"),
            ["1 (1-1)", "0 (0-0)"]
        );
        let to_second = spreads(&[series(1, 3.0), series(1, 1.0)], Looks::One, 1, fixed(0), 1, "none");
        assert_eq!(to_second, ["3 (3-3) x3.0", "1 (1-1)"]);
    }

    #[test]
    fn a_cell_that_was_not_reached_has_no_row() {
        let sample = |variant: &str| Sample {
            round: 1,
            variant: variant.to_owned(),
            metrics: [("mpps".to_owned(), 2.0)].into(),
            ..Sample::default()
        };
        let samples = [sample("a"), sample("b")];
        let row = Row::new(&samples, &BTreeMap::new(), ["b", "c"]).expect("a row");
        assert_eq!(row.series("mpps"), [vec![(1, 2.0)], vec![]]);
        assert_eq!(row.places, [vec![&samples[1]], vec![]]);
        assert_eq!(Row::new(&samples, &BTreeMap::from([("size".to_owned(), "64".to_owned())]), ["a"]), None);
    }
}

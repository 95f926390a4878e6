//! A metric's median, spread and ratio as text.

use straightline_report::results::Sample;
use straightline_report::statistics::{Pairing, estimate, ratio};

use super::{Candidate, Cell};

/// The text for a combination whose trials were all invalid, or that was not tried.
pub(crate) const NO_VALID_TRIAL: &str = "no valid trial";

/// Returns a switch's samples in a cell.
pub(crate) fn samples_of<'a>(samples: &'a [Sample], cell: &impl Cell, switch: &Candidate) -> Vec<&'a Sample> {
    let axes = cell.axes();
    samples.iter().filter(|sample| sample.cell == axes && sample.variant == switch.name).collect()
}

/// Returns the median of a metric with its smallest and largest value, or `None` if there is no
/// sample. With `first`, adds the ratio of the median to the median of another switch in the same
/// rounds. If there are enough rounds, it also adds the ratio's 95 % interval.
pub(crate) fn spread(samples: &[(u32, f64)], first: Option<&[(u32, f64)]>, digits: usize) -> Option<String> {
    let found = estimate(&samples.iter().map(|(_, value)| *value).collect::<Vec<_>>())?;
    let mut text = format!("{:.digits$} ({:.digits$}-{:.digits$})", found.median, found.lowest, found.highest);
    if let Some(ratio) = first.and_then(|first| ratio(samples, first, Pairing::ByRound)) {
        text += &format!(" x{:.2}", ratio.value);
        if let Some(interval) = ratio.interval {
            text += &format!(" [{:.2}, {:.2}]", interval.low, interval.high);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_intervals_where_there_are_rounds_enough() {
        let samples =
            |rounds, factor: f64| -> Vec<(u32, f64)> { (1..=rounds).map(|n| (n, factor * f64::from(n))).collect() };
        assert_eq!(spread(&samples(3, 1.0), None, 2).as_deref(), Some("2.00 (1.00-3.00)"));
        assert_eq!(spread(&samples(3, 2.0), Some(&samples(3, 1.0)), 0).as_deref(), Some("4 (2-6) x2.00"));
        let six = spread(&samples(6, 2.0), Some(&samples(6, 1.0)), 0);
        assert_eq!(six.as_deref(), Some("7 (2-12) x2.00 [2.00, 2.00]"));
        assert_eq!(spread(&[], None, 0), None);
        // A metric of 0 has no ratio.
        assert_eq!(spread(&[(1, 0.0)], Some(&samples(1, 1.0)), 0).as_deref(), Some("0 (0-0)"));
    }
}

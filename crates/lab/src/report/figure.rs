//! A figure out of several trials: its median, how far that can be trusted, and how it stands to another one.

/// A median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) median: f64,
    /// The 95 % interval of the median; none where there are too few trials for one.
    pub(super) interval: Option<(f64, f64)>,
    /// Trials.
    pub(super) n: usize,
}

/// A variant's figure in a cell, and its ratio to the first variant's there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) figure: Figure,
    pub(super) ratio: Option<Figure>,
}

/// A value by the round it was measured in.
pub(super) type Trial = (u32, f64);

impl Figure {
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let median = f64::midpoint(*values.get(n.checked_sub(1)? / 2)?, *values.get(n / 2)?);
        Some(Figure { median, interval: ranks(n).map(|(low, high)| (values[low], values[high])), n })
    }

    /// The ratio of two variants, from the rounds that both have: what disturbs a round disturbs both.
    pub(super) fn ratio(of: &[Trial], to: &[Trial]) -> Option<Self> {
        let pairs = of.iter().filter_map(|&(round, value)| {
            let &(_, base) = to.iter().find(|other| other.0 == round)?;
            (base != 0.0).then(|| value / base).filter(|ratio| plausible(*ratio))
        });
        Figure::of(pairs)
    }

    /// Whether all of it is zero.
    pub(super) fn is_nothing(&self) -> bool {
        self.median == 0.0 && self.interval.is_none_or(|interval| interval == (0.0, 0.0))
    }

    /// Whether a ratio is called different from 1, and which way.
    pub(super) fn verdict(&self) -> Option<std::cmp::Ordering> {
        let (low, high) = self.interval?;
        if low > 1.0 {
            Some(std::cmp::Ordering::Greater)
        } else if high < 1.0 {
            Some(std::cmp::Ordering::Less)
        } else {
            None
        }
    }
}

/// Whether a value can be drawn and counted with. Files may say anything.
pub(super) fn plausible(value: f64) -> bool {
    value == 0.0 || (1e-30..1e30).contains(&value.abs())
}

/// The places in order of the values between which the median lies with 95 %: so many of `n` trials are above it as a
/// coin shows heads.
fn ranks(n: usize) -> Option<(usize, usize)> {
    let trials = i32::try_from(n).ok()?;
    let (mut tail, mut term, mut low) = (0.0, 0.5_f64.powi(trials), None);
    for rank in 0..n / 2 {
        tail += term;
        if tail > 0.025 {
            break;
        }
        low = Some(rank);
        let next = (n - rank) as f64 / (rank + 1) as f64;
        term *= next;
    }
    low.map(|low| (low, n - 1 - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_trials_are_the_fewest_with_an_interval() {
        assert_eq!(Figure::of([]), None);
        assert_eq!(Figure::of([3.0, 1.0, 2.0, 5.0]), Some(Figure { median: 2.5, interval: None, n: 4 }));
        let six = Figure::of([6.0, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("values");
        assert_eq!((six.median, six.interval), (3.5, Some((1.0, 6.0))));
        assert_eq!(ranks(20), Some((5, 14)));
    }

    #[test]
    fn a_ratio_is_of_the_same_round() {
        let of: Vec<Trial> = (0..8).map(|round| (round, 2.0 * f64::from(round + 1))).collect();
        let to: Vec<Trial> = (2..9).map(|round| (round, f64::from(round + 1))).collect();
        let ratio = Figure::ratio(&of, &to).expect("rounds");
        assert_eq!((ratio.median, ratio.n, ratio.verdict()), (2.0, 6, Some(std::cmp::Ordering::Greater)));
        assert_eq!(Figure::ratio(&of, &[(0, 0.0)]), None);
    }
}

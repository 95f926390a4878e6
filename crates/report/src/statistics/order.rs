//! Medians and percentiles.

/// Returns the middle of the values, or the mean of the two in the middle. None if there are no
/// values, or if one of them is no number.
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 50.0)
}

/// Returns the value below which this percentage of the values is, interpolated linearly (Hyndman
/// and Fan's definition 7, which numpy and R use). None if there are no values, if one of them is
/// no number, or if the percentage is not from 0 to 100.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    if values.is_empty() || !(0.0..=100.0).contains(&percent) || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(of_sorted(&sorted, percent / 100.0))
}

/// Returns a percentile of values in ascending order, of which there is at least one. `part` is
/// from 0 to 1.
pub(super) fn of_sorted(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len() - 1;
    let place = part * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the last index")]
    let below = (place.floor() as usize).min(last);
    let low = sorted[below];
    let high = sorted[(below + 1).min(last)];
    // Not `low + (high - low) * part`: that differs from `low` if both are infinite.
    if low == high { low } else { low + (high - low) * (place - below as f64) }
}

//! Counts and cycles as figures.

/// A count, or cycles, for people: what is beyond 2^53 is rounded.
#[expect(clippy::cast_precision_loss, reason = "of what is counted here there are fewer than 2^53")]
pub(crate) fn float(n: u64) -> f64 {
    n as f64
}

/// Cycles of a clock with so many in a second.
pub(crate) fn seconds(cycles: u64, hertz: f64) -> f64 {
    float(cycles) / hertz
}

//! Conversions of counts and cycles to floating-point metrics.

/// Converts a count or a number of cycles to a floating-point number. Values beyond 2^53 are
/// rounded.
#[expect(clippy::cast_precision_loss, reason = "the counts here are below 2^53")]
pub(crate) fn float(n: u64) -> f64 {
    n as f64
}

/// Converts cycles of a clock of `hertz` to seconds.
pub(crate) fn seconds(cycles: u64, hertz: f64) -> f64 {
    float(cycles) / hertz
}

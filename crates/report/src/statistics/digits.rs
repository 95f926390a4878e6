//! Values and ratios in few digits.

/// Formats a value with four digits.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if (1e3..1e7).contains(&size) {
        format!("{value:.0}")
    } else if (1e-3..1e3).contains(&size) {
        let digits = if size >= 100.0 {
            1
        } else if size >= 10.0 {
            2
        } else if size >= 0.1 {
            3
        } else {
            5
        };
        format!("{value:.digits$}")
    } else {
        format!("{value:.3e}")
    }
}

/// Formats a ratio with three digits; with four if three would show a difference from 1 as 1.
#[must_use]
pub fn ratio_digits(ratio: f64) -> String {
    let off = (ratio - 1.0).abs();
    if off > 0.0 && off < 0.005 {
        format!("{ratio:.3}")
    } else if (0.01..10.0).contains(&ratio) {
        format!("{ratio:.2}")
    } else if (10.0..100.0).contains(&ratio) {
        format!("{ratio:.1}")
    } else {
        number(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_four_digits_and_ratios_three() {
        let text: Vec<String> =
            [0.0, 8.937_987, 240.07, 1394.77, 12.3456, 0.5, 0.0012, 1e-9, 2.5e12].map(number).into();
        assert_eq!(text, ["0", "8.938", "240.1", "1395", "12.35", "0.500", "0.00120", "1.000e-9", "2.500e12"]);
        let text: Vec<String> = [1.0, 1.002, 0.996, 1.02, 12.34, 0.001, 250.0].map(ratio_digits).into();
        assert_eq!(text, ["1.00", "1.002", "0.996", "1.02", "12.3", "0.00100", "250.0"]);
    }
}

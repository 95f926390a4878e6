//! Numbers, curves and bars as text.

/// The characters of a curve, lowest first.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Formats a rate with three digits and a unit prefix: `1.23 M`. Returns `-` if it is not known.
pub(crate) fn rate(rate: Option<f64>) -> String {
    let Some(mut rest) = rate else { return "-".to_owned() };
    if rest <= 0.0 {
        return "0".to_owned();
    }
    if rest < 0.095 {
        return "<0.1".to_owned();
    }
    let mut prefixes = ["", " k", " M", " G", " T", " P"].into_iter();
    let mut prefix = prefixes.next().unwrap_or_default();
    // 999.5 would be shown as 1000.
    while rest >= 999.5 {
        let Some(next) = prefixes.next() else { return ">999 P".to_owned() };
        (rest, prefix) = (rest / 1000.0, next);
    }
    let digits = match rest {
        _ if prefix.is_empty() && rest >= 9.95 => 0,
        _ if prefix.is_empty() => 1,
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    format!("{rest:.digits$}{prefix}")
}

/// Formats a share of 0 to 1 as a percentage without a sign.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// Formats a mean with one decimal; `-` if it is not known.
pub(crate) fn mean(mean: Option<f64>) -> String {
    match mean {
        None => "-".to_owned(),
        Some(mean) if mean >= 999.95 => rate(Some(mean)),
        Some(mean) => format!("{mean:.1}"),
    }
}

/// Formats seconds in at most two units.
pub(crate) fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and NaN becomes 0")]
    let whole = seconds as u64;
    let days = whole / 86400;
    let hours = whole / 3600 % 24;
    let minutes = whole / 60 % 60;
    let rest = whole % 60;
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Replaces control characters: text that comes over a socket must not steer the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Draws a curve of the newest values, as many as `width`, on a scale from 0 to their maximum. A
/// space stands for 0.
pub(crate) fn curve<'a>(values: impl DoubleEndedIterator<Item = &'a f64> + ExactSizeIterator, width: usize) -> String {
    let skipped = values.len().saturating_sub(width);
    let values: Vec<f64> = values.skip(skipped).copied().collect();
    let max = values.iter().copied().fold(0.0, f64::max);
    let step = |value: &f64| {
        if *value <= 0.0 || max <= 0.0 {
            return ' ';
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let step = (value / max * 8.0).ceil() as usize;
        STEPS[step.clamp(1, 8) - 1]
    };
    let drawn: String = values.iter().map(step).collect();
    let missing = width.saturating_sub(values.len());
    format!("{}{drawn}", " ".repeat(missing))
}

/// Divides `width` cells among shares that add up to 1, by largest remainders: the cells add up to
/// `width`.
pub(crate) fn divide<const N: usize>(shares: [f64; N], width: u16) -> [u16; N] {
    let exact = shares.map(|share| share.clamp(0.0, 1.0) * f64::from(width));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most `width`")]
    let mut cells = exact.map(|cells| cells.floor() as u16);
    let mut order: [usize; N] = std::array::from_fn(|at| at);
    let remainder = |at: usize| exact[at] - exact[at].floor();
    order.sort_by(|a, b| remainder(*b).total_cmp(&remainder(*a)));
    let given: u16 = cells.iter().sum();
    for at in order.into_iter().cycle().take(width.saturating_sub(given).into()) {
        cells[at] += 1;
    }
    cells
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates() {
        let texts = [
            (0.0, "0"),
            (0.01, "<0.1"),
            (0.5, "0.5"),
            (9.94, "9.9"),
            (9.96, "10"),
            (999.4, "999"),
            (999.6, "1.00 k"),
            (12_340.0, "12.3 k"),
            (99_960.0, "100 k"),
            (1_234_567.0, "1.23 M"),
            (98.7e9, "98.7 G"),
            (f64::MAX, ">999 P"),
        ];
        for (number, expected) in texts {
            assert_eq!(rate(Some(number)), expected);
        }
        assert_eq!(rate(None), "-");
        assert_eq!([mean(None), mean(Some(12.34)), mean(Some(12_340.0))], ["-", "12.3", "12.3 k"]);
        assert_eq!([duration(59.9), duration(61.0), duration(7300.0)], ["59 s", "1 min 1 s", "2 h 1 min"]);
        assert_eq!([duration(f64::NAN), duration(90_000.0)], ["0 s", "1 d 1 h"]);
    }

    #[test]
    fn curves() {
        assert_eq!(curve([0.0, 1.0, 8.0].iter(), 5), "   ▁█");
        assert_eq!(curve([5.0, 1.0, 2.0].iter(), 2), "▄█");
        assert_eq!(curve([].iter(), 2), "  ");
    }

    proptest! {
        #[test]
        fn a_rate_has_at_most_six_characters(number in 0.0..f64::MAX) {
            prop_assert!(rate(Some(number)).len() <= 6, "{}", rate(Some(number)));
        }

        #[test]
        fn a_bar_adds_up(parts in prop::array::uniform4(0.0_f64..1e9), width in 0_u16..500) {
            let sum: f64 = parts.iter().sum();
            prop_assume!(sum > 0.0);
            let cells = divide(parts.map(|part| part / sum), width);
            prop_assert_eq!(cells.iter().sum::<u16>(), width);
            for (cells, part) in cells.iter().zip(parts) {
                prop_assert!((f64::from(*cells) - part / sum * f64::from(width)).abs() < 1.0 + 1e-6);
            }
        }
    }
}

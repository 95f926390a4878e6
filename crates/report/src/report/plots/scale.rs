//! Scales, which map values to places: linear scales that contain zero, logarithmic scales of ratios,
//! and scales with powers of ten.

/// A linear scale that contains zero, with round steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Linear {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) step: f64,
}

impl Linear {
    /// Makes a scale for these values, in four to nine steps.
    pub(super) fn over(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = values.into_iter().fold((0.0, 0.0), |(low, high): (f64, f64), v| (low.min(v), high.max(v)));
        let span = if high > low { high - low } else { 1.0 };
        let step = round_step(span / 7.0);
        // A value that differs from a step only by rounding ends at this step.
        let low = (low / step + 1e-9).floor() * step;
        let high = (high / step - 1e-9).ceil() * step;
        Linear { low, high: if high > low { high } else { low + step }, step }
    }

    /// Returns 0 at the low end, 1 at the high one.
    pub(super) fn at(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Returns the steps and their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        let mut value = self.low;
        while value <= self.high + self.step / 2.0 {
            ticks.push((value, self.name(value)));
            value += self.step;
        }
        ticks
    }

    fn name(&self, value: f64) -> String {
        // Because of rounding, a sum of steps may differ slightly from zero.
        let value = if value.abs() < self.step / 2.0 { 0.0 } else { value };
        let size = self.step.log10().floor();
        if value == 0.0 {
            "0".to_owned()
        } else if self.step >= 1e6 || self.step < 1e-5 {
            format!("{:.2e}", value).replace(".00e", "e").replace("0e", "e")
        } else {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 5")]
            let digits = (-size).clamp(0.0, 5.0) as usize;
            format!("{value:.digits$}")
        }
    }
}

/// Returns the next 1, 2 or 5 times a power of ten.
fn round_step(raw: f64) -> f64 {
    let power = 10.0_f64.powf(raw.log10().floor());
    let digit = raw / power;
    let digit = [1.0, 2.0, 5.0].into_iter().find(|&round| digit <= round * 1.000_001).unwrap_or(10.0);
    digit * power
}

/// A logarithmic scale of ratios that contains 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratios {
    /// The natural logarithms of both ends.
    low: f64,
    high: f64,
}

/// The ratios of one decade that are labelled, from many to few.
const DECADES: [&[f64]; 5] = [
    &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 8.5, 9.0, 9.5],
    &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
    &[1.0, 2.0, 5.0],
    &[1.0],
];

impl Ratios {
    /// Makes a scale for these ratios, with some space at both ends. The line at 1 is always inside.
    pub(super) fn over(ratios: impl IntoIterator<Item = f64>) -> Self {
        let logs = ratios.into_iter().map(|ratio| ratio.clamp(1e-30, 1e30).ln());
        let (low, high) = logs.fold((-0.1, 0.1), |(low, high): (f64, f64), log| (low.min(log), high.max(log)));
        let space = 0.03 * (high - low);
        Ratios { low: low - space, high: high + space }
    }

    pub(super) fn at(&self, ratio: f64) -> f64 {
        ((ratio.clamp(1e-30, 1e30).ln() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Returns the labelled ratios: as many as have room. `share` is the part of the scale that a
    /// label takes.
    pub(super) fn ticks(&self, share: impl Fn(&str) -> f64) -> Vec<(f64, String)> {
        let has_room = |ticks: &[(f64, String)]| {
            ticks.windows(2).all(|pair| {
                let room = (share(&pair[0].1) + share(&pair[1].1)) / 2.0;
                self.at(pair[1].0) - self.at(pair[0].0) >= room
            })
        };
        // Powers of ten are thinned out on a scale of many decades.
        let powers = (1..=60_usize).map(|step| (DECADES[DECADES.len() - 1], step));
        let choices = DECADES.iter().map(|&decade| (decade, 1)).chain(powers);
        for (decade, step) in choices {
            let mut ticks = Vec::new();
            for power in (-30..=30_i32).filter(|power| (power.unsigned_abs() as usize).is_multiple_of(step)) {
                ticks.extend(decade.iter().map(|digits| digits * 10_f64.powi(power)));
            }
            ticks.retain(|&ratio| (self.low..=self.high).contains(&ratio.ln()));
            let ticks: Vec<(f64, String)> = ticks.into_iter().map(|ratio| (ratio, ratio_name(ratio))).collect();
            if has_room(&ticks) {
                return ticks;
            }
        }
        vec![(1.0, "1".to_owned())]
    }
}

fn ratio_name(ratio: f64) -> String {
    if (1e-3..1e4).contains(&ratio) {
        // Rounding hides the error of powers of ten.
        let text = format!("{ratio:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{ratio:.0e}")
    }
}

/// A logarithmic scale of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decades {
    low: u32,
    high: u32,
}

impl Decades {
    /// Makes a scale for these values; less than a nanosecond counts as one.
    pub(super) fn over(low: u64, high: u64) -> Self {
        let low = low.max(1).ilog10();
        let high = high.max(1);
        let top = high.ilog10() + u32::from(10_u64.checked_pow(high.ilog10()) != Some(high));
        Decades { low, high: top.max(low + 1) }
    }

    pub(super) fn at(&self, value: u64) -> f64 {
        let log = (value.max(1) as f64).log10();
        ((log - f64::from(self.low)) / f64::from(self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Returns the labelled values: powers of ten, and also 2 and 5 times these if there are few.
    pub(super) fn ticks(&self) -> Vec<u64> {
        let few: &[u64] = if self.high - self.low <= 2 { &[1, 2, 5] } else { &[1] };
        let mut ticks = Vec::new();
        for power in self.low..=self.high {
            let Some(decade) = 10_u64.checked_pow(power) else { break };
            let digits = if power == self.high { &few[..1] } else { few };
            ticks.extend(digits.iter().filter_map(|digit| decade.checked_mul(*digit)));
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_scales_contain_zero_and_have_round_steps() {
        let scale = Linear::over([3.2, 8.94]);
        assert_eq!((scale.low, scale.high, scale.step), (0.0, 10.0, 2.0));
        let names: Vec<String> = scale.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(names, ["0", "2", "4", "6", "8", "10"]);
        let names: Vec<String> = Linear::over([-0.3, 0.62]).ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(names, ["-0.4", "-0.2", "0", "0.2", "0.4", "0.6", "0.8"]);
        assert_eq!(Linear::over([]).at(0.0), 0.0);
        assert_eq!(Linear::over([0.0, 1e30]).ticks().len(), 6);
        assert_eq!(Linear::over([11.5]).high, 12.0);
        assert_eq!(Linear::over([-1e30, 1e-30]).at(-1e30), 0.0);
        assert_eq!(Linear::over([2.3e7]).ticks()[1].1, "5e6");
    }

    #[test]
    fn ratios_have_as_many_labels_as_have_room_and_one_is_among_them() {
        let names = |ratios: &[f64], share: f64| -> Vec<String> {
            Ratios::over(ratios.iter().copied()).ticks(|_| share).into_iter().map(|tick| tick.1).collect()
        };
        assert_eq!(names(&[0.92, 1.0], 0.1), ["0.9", "0.95", "1", "1.1"]);
        assert_eq!(names(&[0.5, 2.0], 0.1), ["0.5", "0.7", "1", "1.5", "2"]);
        assert_eq!(names(&[0.1, 4.0], 0.15), ["0.1", "0.2", "0.5", "1", "2"]);
        assert_eq!(names(&[1e-30, 1e30], 0.3), ["1e-20", "1", "1e20"]);
        assert_eq!(names(&[2.0], 2.0), ["1"]);
        for ratios in [&[][..], &[5.0], &[0.2], &[f64::MAX, 0.0]] {
            let scale = Ratios::over(ratios.iter().copied());
            assert!((0.0..=1.0).contains(&scale.at(1.0)) && scale.at(0.5) <= scale.at(1.0), "{scale:?}");
            assert!(scale.ticks(|_| 0.1).iter().any(|tick| tick.1 == "1"), "{scale:?}");
        }
    }

    #[test]
    fn decades_hold_all_times() {
        assert_eq!(Decades::over(300, 40_000), Decades { low: 2, high: 5 });
        assert_eq!(Decades::over(100, 1000).ticks(), [100, 200, 500, 1000]);
        assert_eq!(Decades::over(0, 0), Decades { low: 0, high: 1 });
        let widest = Decades::over(0, u64::MAX);
        assert!((0.96..=1.0).contains(&widest.at(u64::MAX)));
        assert_eq!(widest.ticks().len(), 20);
    }
}

//! Tests against numpy and scipy (`crates/report/tests/statistics/record.py` recorded their values),
//! and of properties.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::random::Random;

#[derive(Deserialize)]
struct ReferenceValues {
    tails: Vec<(usize, f64)>,
    estimates: Vec<Known>,
    ratios: Vec<KnownRatio>,
}

#[derive(Deserialize)]
struct Known {
    name: String,
    values: Vec<f64>,
    median: f64,
    percentiles: Vec<(f64, f64)>,
    interval: Option<[f64; 2]>,
}

#[derive(Deserialize)]
struct KnownRatio {
    name: String,
    a: Vec<f64>,
    b: Vec<f64>,
    ratio: f64,
    by_round: [f64; 2],
    apart: [f64; 2],
}

fn reference_values() -> ReferenceValues {
    serde_json::from_str(include_str!("../../tests/statistics/figures.json")).expect("figures")
}

fn close(ours: f64, theirs: f64, by: f64) -> bool {
    (ours - theirs).abs() <= by * theirs.abs().max(1e-300)
}

/// Compares two intervals. Both come from random resamples, so an end may be off by a part of the
/// interval.
fn agree(name: &str, ours: Option<Interval>, [low, high]: [f64; 2]) {
    let ours = ours.expect("enough samples");
    let most = 0.06 * (high - low);
    assert!(
        (ours.low - low).abs() <= most && (ours.high - high).abs() <= most,
        "{name}: {ours:?}, not {low} to {high}"
    );
}

fn rounds(values: &[f64]) -> Vec<(u32, f64)> {
    (1..).zip(values.iter().copied()).collect()
}

#[test]
fn tails_are_those_of_scipy() {
    for (samples, tail) in reference_values().tails {
        assert!(close(bootstrap::tail(samples, Looks::One), tail, 2e-3), "{samples}: {tail}");
    }
}

#[test]
fn medians_percentiles_and_intervals_are_those_of_numpy_and_scipy() {
    for known in reference_values().estimates {
        let estimate = estimate(&known.values).expect("samples");
        assert!(close(estimate.median, known.median, 1e-12), "{}", known.name);
        for (percent, value) in known.percentiles {
            let ours = percentile(&known.values, percent).expect("samples");
            assert!(close(ours, value, 1e-12), "{}: the {percent} % percentile is {ours}, not {value}", known.name);
        }
        match known.interval {
            Some(interval) => agree(&known.name, estimate.interval, interval),
            None => assert_eq!(estimate.interval, None, "{}", known.name),
        }
    }
}

#[test]
fn ratios_are_those_of_scipy() {
    for known in reference_values().ratios {
        let a = rounds(&known.a);
        let b = rounds(&known.b);
        let by_round = ratio(&a, &b, Pairing::ByRound).expect("samples");
        let apart = ratio(&a, &b, Pairing::Apart).expect("samples");
        assert!(close(by_round.value, known.ratio, 1e-12) && by_round.value == apart.value, "{}", known.name);
        agree(&known.name, by_round.interval, known.by_round);
        agree(&known.name, apart.interval, known.apart);
    }
}

#[test]
fn few_samples_have_a_median_and_no_interval() {
    for count in 1..Looks::One.fewest() {
        let values: Vec<f64> = (1_u32..).take(count).map(f64::from).collect();
        let few = estimate(&values).expect("samples");
        assert_eq!((few.interval, few.samples, few.lowest), (None, count, 1.0));
        let tenfold: Vec<f64> = values.iter().map(|value| value * 10.0).collect();
        let ratio = ratio(&rounds(&tenfold), &rounds(&values), Pairing::ByRound).expect("samples");
        assert_eq!((ratio.value, ratio.interval), (10.0, None));
        assert_eq!(ratio.verdict(Better::More), Verdict::Unclear);
    }
    assert_eq!(estimate(&[]), None);
    assert_eq!(estimate(&[1.0, f64::NAN]), None);
    assert_eq!(ratio(&[], &rounds(&[1.0]), Pairing::Apart), None);
    assert_eq!(ratio(&rounds(&[1.0]), &rounds(&[0.0]), Pairing::Apart), None);
    assert_eq!(percentile(&[1.0], 100.1), None);
}

#[test]
fn a_change_is_judged_where_a_ratio_cannot_be() {
    let none = rounds(&[0.0; 6]);
    let some = rounds(&[0.2, 0.1, 0.3, 0.2, 0.2, 0.1]);
    assert_eq!(ratio(&some, &none, Pairing::ByRound), None);
    let up = Looks::One.change(&some, &none, Pairing::ByRound).expect("samples");
    assert!((up.value - 0.2).abs() < 1e-12 && up.interval.expect("enough").low > 0.0, "{up:?}");
    assert_eq!((up.verdict(Better::Less), up.verdict(Better::More)), (Verdict::Slower, Verdict::Faster));
    let down = Looks::One.change(&none, &some, Pairing::Apart).expect("samples");
    assert_eq!(down.verdict(Better::Less), Verdict::Faster);
    let same = Looks::One.change(&none, &none, Pairing::Apart).expect("samples");
    assert_eq!((same.value, same.verdict(Better::Less)), (0.0, Verdict::Equal));
    assert_eq!(
        Looks::One.change(&some[..5], &none, Pairing::Apart).expect("samples").verdict(Better::Less),
        Verdict::Unclear
    );
    assert_eq!(Looks::One.change(&[], &none, Pairing::Apart), None);
}

#[test]
fn rounds_that_only_one_has_are_drawn_alone() {
    // Pairs of equal values; and a round of the first alone, far off, which sometimes moves its
    // median.
    let values: Vec<f64> = (1..=7).map(f64::from).collect();
    let both = rounds(&values);
    let same = ratio(&both, &both, Pairing::ByRound).expect("samples");
    assert_eq!(same.interval, Some(Interval { low: 1.0, high: 1.0 }));
    let mut more = both.clone();
    more.push((8, 1000.0));
    let ratio = ratio(&more, &both, Pairing::ByRound).expect("samples");
    let interval = ratio.interval.expect("enough");
    assert!(interval.low >= 1.0 && interval.high > 1.0 && interval.high < 3.0, "{ratio:?}");
}

#[test]
fn what_is_better_follows_from_the_name() {
    for (name, better) in [
        ("mpps", Some(Better::More)),
        ("received_mpps", Some(Better::More)),
        ("gbit_per_s", Some(Better::More)),
        ("switch_cycles_per_packet", Some(Better::Less)),
        ("loss_ratio", Some(Better::Less)),
        ("latency_p99_us", Some(Better::Less)),
        ("packets_per_s", Some(Better::More)),
        ("tx_kbit_per_s", Some(Better::More)),
        ("pause_ms", Some(Better::Less)),
        ("rx_drops", Some(Better::Less)),
        ("switch_cpu_s_per_gb", Some(Better::Less)),
        ("retransmits", Some(Better::Less)),
        ("cache_misses_per_packet", Some(Better::Less)),
        ("rx_packets_per_call", None),
        ("frame_bytes", None),
        ("secs", None),
        ("generator_limit_mpps", None),
    ] {
        assert_eq!(Better::of(name), better, "{name}");
    }
    let ratio = |low, high| Ratio { value: low, interval: Some(Interval { low, high }) };
    for (ratio, more, less) in [
        (ratio(1.01, 1.2), Verdict::Faster, Verdict::Slower),
        (ratio(0.8, 0.99), Verdict::Slower, Verdict::Faster),
        (ratio(0.9, 1.1), Verdict::Unclear, Verdict::Unclear),
        (ratio(1.0, 1.1), Verdict::Unclear, Verdict::Unclear),
    ] {
        assert_eq!((ratio.verdict(Better::More), ratio.verdict(Better::Less)), (more, less));
    }
}

/// Returns a number of a skewed distribution whose median is 1.
fn skewed(random: &mut Random) -> f64 {
    let sum: u64 = (0..12).map(|_| random.below(1 << 20)).sum();
    let normal = sum as f64 / f64::from(1 << 20) - 6.0;
    (0.3 * normal).exp()
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_say() {
    // With drift that both have in common in a round; 95 % of 120 cases are 114, with a deviation
    // of 2.4.
    for samples in [6, 7, 12] {
        let mut random = Random::new(99);
        let mut median_in = 0;
        let mut ratio_in = 0;
        let mut apart_in = 0;
        let mut called = 0;
        for _ in 0..120 {
            let mut a = Vec::new();
            let mut b = Vec::new();
            for round in 1..=samples {
                let drift = skewed(&mut random);
                a.push((round, drift * (1.0 + 0.02 * skewed(&mut random))));
                b.push((round, drift * (1.0 + 0.02 * skewed(&mut random))));
            }
            let plain: Vec<f64> = (0..samples).map(|_| skewed(&mut random)).collect();
            median_in += u32::from(estimate(&plain).expect("samples").interval.expect("enough").contains(1.0));
            let by_round = ratio(&a, &b, Pairing::ByRound).expect("samples");
            ratio_in += u32::from(by_round.interval.expect("enough").contains(1.0));
            called += u32::from(matches!(by_round.verdict(Better::More), Verdict::Faster | Verdict::Slower));
            let apart = ratio(&a, &b, Pairing::Apart).expect("samples");
            apart_in += u32::from(apart.interval.expect("enough").contains(1.0));
        }
        assert!(median_in >= 109, "{samples}: {median_in}");
        assert!(ratio_in >= 109, "{samples}: {ratio_in}");
        // The values do not differ, so at most one in twenty comparisons may find a difference. It is
        // none if it is small.
        assert!(called <= 120 - ratio_in, "{samples}: {called}");
        // Unpaired, the common drift makes intervals wide.
        assert!(apart_in >= 117, "{samples}: {apart_in}");
    }
}

#[test]
fn further_rounds_for_what_is_unclear_find_no_more_differences() {
    // Equal variants, in 7 rounds, or in 14 if the comparison is unclear then.
    let called = |looks: Looks| {
        let mut random = Random::new(7);
        let mut called = 0;
        for _ in 0..60 {
            let mut draw = |count| (1..=count).map(|round| (round, 1.0 + skewed(&mut random))).collect::<Vec<_>>();
            let a = draw(14);
            let b = draw(14);
            let verdict = |rounds: usize| {
                let ratio = looks.ratio(&a[..rounds], &b[..rounds], Pairing::ByRound).expect("samples");
                ratio.verdict(Better::More)
            };
            let is_decided = |verdict| matches!(verdict, Verdict::Faster | Verdict::Slower);
            let first = verdict(7);
            called += u32::from(is_decided(first) || (first == Verdict::Unclear && is_decided(verdict(14))));
        }
        called
    };
    // 5 % of 60 are 3, with a deviation of 1.7.
    let both = [Looks::One, Looks::Two].map(called);
    assert!(both[1] <= 6 && both[1] <= both[0], "{both:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_unit_changes_nothing(values in prop::collection::vec(0.001..1e6_f64, 6..20), power in -20..20_i32) {
        // Powers of two, so that nothing is rounded.
        let unit = 2.0_f64.powi(power);
        let scaled: Vec<f64> = values.iter().map(|value| value * unit).collect();
        let one = estimate(&values).expect("samples");
        let other = estimate(&scaled).expect("samples");
        prop_assert_eq!(one.median * unit, other.median);
        let one = one.interval.expect("enough");
        let other = other.interval.expect("enough");
        prop_assert_eq!(Interval { low: one.low * unit, high: one.high * unit }, other);
        let backwards = |values: &[f64]| rounds(&values.iter().rev().copied().collect::<Vec<_>>());
        for pairing in [Pairing::ByRound, Pairing::Apart] {
            let ratio_of = |values: &[f64]| ratio(&rounds(values), &backwards(values), pairing);
            prop_assert_eq!(ratio_of(&values), ratio_of(&scaled));
        }
    }

    #[test]
    fn an_interval_is_of_the_samples_and_holds_their_median(values in prop::collection::vec(-1e3..1e3_f64, 6..30)) {
        let estimate = estimate(&values).expect("samples");
        let interval = estimate.interval.expect("enough");
        prop_assert!(estimate.lowest <= interval.low && interval.high <= estimate.highest);
        prop_assert!(interval.contains(estimate.median));
        let pairs = rounds(&values.iter().map(|value| value.abs() + 1.0).collect::<Vec<_>>());
        let ones = rounds(&vec![1.0; pairs.len()]);
        let interval = |looks: Looks| looks.ratio(&pairs, &ones, Pairing::ByRound).and_then(|ratio| ratio.interval);
        let once = interval(Looks::One).expect("enough");
        prop_assert_eq!(interval(Looks::Two).is_some(), pairs.len() > 6);
        let twice = interval(Looks::Two).unwrap_or(once);
        prop_assert!(twice.low <= once.low && once.high <= twice.high, "{:?} {:?}", once, twice);
        let below = values.iter().filter(|&&value| value < estimate.median).count();
        prop_assert!(below * 2 <= values.len());
    }
}

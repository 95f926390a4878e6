use super::*;
use crate::statistics::{Change, Interval, Ratio};

fn ratio(value: f64, low: f64, high: f64) -> Effect {
    Effect::Ratio(Ratio { value, interval: Some(Interval { low, high }) })
}

fn of(name: &str, cells: &[(&str, Option<Effect>)]) -> Effects {
    Effects { name: name.to_owned(), cells: cells.iter().map(|&(cell, effect)| (cell.to_owned(), effect)).collect() }
}

fn sentence(metric: &str, variants: &[Effects]) -> String {
    finding(&Metric::new(metric), variants, "none").to_string()
}

/// The effects of a variant by cell, and the sentence about them.
type Case<'c> = (&'c [(&'c str, Option<Effect>)], &'c str);

#[test]
fn one_variant_is_described_by_its_cells() {
    let (up, same, wide) = (ratio(1.06, 1.03, 1.09), ratio(1.01, 0.98, 1.02), ratio(1.2, 0.9, 1.5));
    let down = ratio(0.8, 0.7, 0.9);
    let none = Effect::Ratio(Ratio { value: 1.2, interval: None });
    let many = |effects: &[(Effect, usize)]| -> Vec<(&'static str, Option<Effect>)> {
        effects.iter().flat_map(|&(effect, times)| (0..times).map(move |_| ("64 B", Some(effect)))).collect()
    };
    let cases: [Case<'_>; 14] = [
        (&[("", Some(up))], "`4` is 1.06 times as fast as `none` [1.03, 1.09]"),
        (&[("", Some(same))], "`4` against `none`: no difference [0.98, 1.02]"),
        (&[("", Some(wide))], "`4` against `none`: inconclusive [0.90, 1.50]"),
        (&[("", None)], "`4` against `none`: no result of both"),
        (
            &[("64 B", Some(up)), ("1518 B", Some(same))],
            "`4` is 1.06 times as fast as `none` at 64 B [1.03, 1.09]; no difference at 1518 B [0.98, 1.02]",
        ),
        (
            &[("64 B", Some(up)), ("1518 B", Some(wide))],
            "`4` is 1.06 times as fast as `none` at 64 B [1.03, 1.09]; 1 inconclusive",
        ),
        (
            &[("64 B", Some(up)), ("1518 B", Some(down))],
            "`4` is 1.06 times as fast as `none` at 64 B [1.03, 1.09] and 0.80 times at 1518 B [0.70, 0.90]",
        ),
        (
            &[("64 B", Some(up)), ("128 B", Some(ratio(1.4, 1.3, 1.5))), ("256 B", None)],
            "`4` is 1.06 to 1.40 times as fast as `none` at 64 B and 128 B; 1 inconclusive",
        ),
        (&[("64 B", Some(wide)), ("128 B", Some(none))], "`4` against `none`: inconclusive in all 2 cells"),
        (&many(&[(up, 5)]), "`4` is 1.06 times as fast as `none` in all 5 cells"),
        (
            &many(&[(up, 3), (down, 2), (same, 4), (wide, 3)]),
            "`4` is 1.06 times as fast as `none` in 3 of 12 cells and 0.80 times in 2 of 12 cells; no difference in 4 of \
             12 cells; 3 inconclusive",
        ),
        (
            &[("64 B", Some(Effect::AtLeast(Ratio { value: 1.4, interval: Some(Interval { low: 1.3, high: 1.5 }) })))],
            "`4` is at least 1.40 times as fast as `none` at 64 B [1.30, 1.50]",
        ),
        (
            &[("64 B", Some(Effect::AtMost(Ratio { value: 0.7, interval: Some(Interval { low: 0.6, high: 0.8 }) })))],
            "`4` is at most 0.70 times as fast as `none` at 64 B [0.60, 0.80]",
        ),
        (&[], "`4` against `none`: no result of both"),
    ];
    for (cells, expected) in cases {
        assert_eq!(sentence("mpps", &[of("4", cells)]), expected);
    }
}

#[test]
fn the_verb_follows_the_metric() {
    let cells = [("64 B", Some(ratio(1.2, 1.1, 1.3)))];
    for (metric, expected) in [
        ("switch_cycles_per_packet", "`a` takes 1.20 times the switch cycles of `none` at 64 B [1.10, 1.30]"),
        ("latency_p99_us", "`a` has 1.20 times the latency p99 of `none` at 64 B [1.10, 1.30]"),
        ("payload_gbit_per_s", "`a` has 1.20 times the payload throughput of `none` at 64 B [1.10, 1.30]"),
        ("odd", "`a` has 1.20 times the odd of `none` at 64 B [1.10, 1.30]"),
    ] {
        assert_eq!(sentence(metric, &[of("a", &cells)]), expected);
    }
    let more = Effect::Change(Change { value: 0.2, interval: Some(Interval { low: 0.1, high: 0.3 }) });
    let lost = sentence("loss_ratio", &[of("a", &[("64 B", Some(more))])]);
    assert_eq!(lost, "`a` differs by +0.200 in loss from `none` at 64 B [0.100, 0.300]");
}

#[test]
fn the_variants_with_most_differences_are_described() {
    let (up, down, wide) = (ratio(1.2, 1.1, 1.3), ratio(0.5, 0.4, 0.6), ratio(1.0, 0.5, 2.0));
    let variant =
        |name: &str, effects: [Effect; 2]| of(name, &[("64 B", Some(effects[0])), ("1518 B", Some(effects[1]))]);
    let two = [variant("a", [up, wide]), variant("b", [down, down])];
    assert_eq!(
        sentence("switch_cycles_per_packet", &two),
        "`a` takes 1.20 times the switch cycles of `none` at 64 B [1.10, 1.30]; `b` takes 0.50 times the cycles at 64 B \
         and 1518 B; 1 of 4 comparisons inconclusive"
    );
    let five = [
        variant("a", [wide, wide]),
        variant("b", [up, up]),
        variant("c", [down, up]),
        variant("d", [up, wide]),
        variant("e", [down, wide]),
    ];
    let told = sentence("mpps", &five);
    assert!(told.starts_with("`b` is 1.20 times as fast as `none`") && !told.contains("`d`"), "{told}");
    assert!(told.contains("; 2 other variants: 1 better; 4 of 10 comparisons inconclusive"), "{told}");
    assert_eq!(
        sentence("mpps", &[variant("a", [wide, wide]), variant("b", [wide, wide])]),
        "no variant is shown to differ from `none`: 4 inconclusive"
    );
}

#[test]
fn a_cell_is_named_by_its_size_first() {
    assert_eq!(cell_in_words([("ring", "split"), ("size", "64")]), "64 B (ring = split)");
    assert_eq!(cell_in_words([("size", "imix")]), "imix");
    assert_eq!(cell_in_words([("load", "mix"), ("core", "same")]), "load = mix, core = same");
    assert_eq!(cell_in_words([]), "");
}

#[test]
fn a_variant_alone_has_its_values() {
    let alone = |cell: &str, median: f64, is_at_least: bool| {
        let interval = Some(Interval { low: median - 0.1, high: median + 0.1 });
        let estimate = Estimate { median, interval, lowest: median, highest: median, samples: 6 };
        Alone { cell: cell.to_owned(), estimate, is_at_least }
    };
    let sentence = |cells: &[Alone]| finding_alone(&Metric::new("mpps"), "ours", cells).to_string();
    assert_eq!(sentence(&[]), "`ours`: throughput unknown, no valid trial");
    assert_eq!(sentence(&[alone("", 7.25, false)]), "`ours`: throughput 7.250 Mpps [7.150, 7.350]");
    assert_eq!(
        sentence(&[alone("64 B", 7.25, false), alone("1518 B", 9.5, true)]),
        "`ours`: throughput 7.250 Mpps at 64 B [7.150, 7.350] and at least 9.500 Mpps at 1518 B"
    );
    let three = [alone("64 B", 7.0, true), alone("1 B", 9.0, false), alone("2 B", 8.0, false)];
    assert_eq!(sentence(&three), "`ours`: throughput 7.000 to 9.000 Mpps in 3 cells, 1 of them lower bounds");
}

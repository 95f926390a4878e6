use super::*;
use crate::statistics::{Change, Interval, Ratio};

fn ratio(value: f64, low: f64, high: f64) -> Effect {
    Effect::Ratio(Ratio { value, interval: Some(Interval { low, high }) })
}

/// Returns the cell of a size and other axes, as `64 ring=split`.
fn place(cell: &str) -> CellAxes {
    let axis = |pair: &str| {
        let (axis, value) = pair.split_once('=').unwrap_or(("size", pair));
        (axis.to_owned(), value.to_owned())
    };
    cell.split_whitespace().map(axis).collect()
}

fn of(name: &str, cells: &[(&str, Option<Effect>)]) -> Effects {
    Effects { name: name.to_owned(), cells: cells.iter().map(|&(cell, effect)| (place(cell), effect)).collect() }
}

fn sentence(metric: &str, variants: &[Effects]) -> String {
    finding(&Metric::new(metric), variants, "none").to_string()
}

/// The effects of a variant by cell, and the sentence about them.
type Case<'c> = (&'c [(&'c str, Option<Effect>)], &'c str);

#[test]
fn one_variant_is_described_by_its_cells() {
    let up = ratio(1.06, 1.03, 1.09);
    let same = ratio(1.01, 0.98, 1.02);
    let wide = ratio(1.2, 0.9, 1.5);
    let down = ratio(0.8, 0.7, 0.9);
    let none = Effect::Ratio(Ratio { value: 1.2, interval: None });
    let many = |effects: &[(Effect, usize)]| -> Vec<(&'static str, Option<Effect>)> {
        effects.iter().flat_map(|&(effect, times)| (0..times).map(move |_| ("64", Some(effect)))).collect()
    };
    let cases: [Case<'_>; 14] = [
        (&[("", Some(up))], "`4` is 1.06 times as fast as `none` [1.03, 1.09]"),
        (&[("", Some(same))], "`4` against `none`: no difference [0.98, 1.02]"),
        (&[("", Some(wide))], "`4` against `none`: inconclusive, 1.20 [0.90, 1.50]"),
        (&[("", None)], "`4` against `none`: no result of both"),
        (
            &[("64", Some(up)), ("1518", Some(same))],
            "`4` is 1.06 times as fast as `none` in 1 of 2 cells: 64 B [1.03, 1.09]; no difference in 1 of 2 cells: 1518 B \
             [0.98, 1.02]",
        ),
        (
            &[("64", Some(up)), ("1518", Some(wide))],
            "`4` is 1.06 times as fast as `none` in 1 of 2 cells: 64 B [1.03, 1.09]; 1 inconclusive",
        ),
        (
            &[("64", Some(up)), ("1518", Some(down))],
            "`4` is 1.06 times as fast as `none` in 1 of 2 cells: 64 B [1.03, 1.09] and 0.80 times in 1 of 2 cells: \
             1518 B [0.70, 0.90]",
        ),
        (
            &[("64", Some(up)), ("128", Some(ratio(1.4, 1.3, 1.5))), ("256", None)],
            "`4` is 1.06 to 1.40 times as fast as `none` in 2 of 3 cells: 64 B and 128 B; 1 inconclusive",
        ),
        (&[("64", Some(wide)), ("128", Some(none))], "`4` against `none`: inconclusive in all 2 cells"),
        (&many(&[(up, 5)]), "`4` is 1.06 times as fast as `none` in all 5 cells"),
        (
            &many(&[(up, 3), (down, 2), (same, 4), (wide, 3)]),
            "`4` is 1.06 times as fast as `none` in 3 of 12 cells and 0.80 times in 2 of 12 cells; no difference in 4 of \
             12 cells; 3 inconclusive",
        ),
        (
            &[("64", Some(Effect::AtLeast(Ratio { value: 1.4, interval: Some(Interval { low: 1.3, high: 1.5 }) })))],
            "`4` is at least 1.40 times as fast as `none` at 64 B [1.30, 1.50]",
        ),
        (
            &[("64", Some(Effect::AtMost(Ratio { value: 0.7, interval: Some(Interval { low: 0.6, high: 0.8 }) })))],
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
    let cells = [("64", Some(ratio(1.2, 1.1, 1.3)))];
    for (metric, expected) in [
        ("switch_cycles_per_packet", "`a` takes 1.20 times the switch cycles of `none` at 64 B [1.10, 1.30]"),
        ("switch_cycles_per_byte", "`a` takes 1.20 times the switch cycles per byte of `none` at 64 B [1.10, 1.30]"),
        ("latency_p99_us", "`a` has 1.20 times the latency p99 of `none` at 64 B [1.10, 1.30]"),
        ("payload_gbit_per_s", "`a` has 1.20 times the payload throughput of `none` at 64 B [1.10, 1.30]"),
        ("odd", "`a` has 1.20 times the odd of `none` at 64 B [1.10, 1.30]"),
    ] {
        assert_eq!(sentence(metric, &[of("a", &cells)]), expected);
    }
    let more = Effect::Change(Change { value: 0.2, interval: Some(Interval { low: 0.1, high: 0.3 }) });
    let lost = sentence("loss_ratio", &[of("a", &[("64", Some(more))])]);
    assert_eq!(lost, "`a` differs by +0.200 in loss from `none` at 64 B [0.100, 0.300]");
}

#[test]
fn the_variants_with_most_differences_are_described() {
    let up = ratio(1.2, 1.1, 1.3);
    let down = ratio(0.5, 0.4, 0.6);
    let wide = ratio(1.0, 0.5, 2.0);
    let variant = |name: &str, effects: [Effect; 2]| of(name, &[("64", Some(effects[0])), ("1518", Some(effects[1]))]);
    let two = [variant("a", [up, wide]), variant("b", [down, down])];
    assert_eq!(
        sentence("switch_cycles_per_packet", &two),
        "`a` takes 1.20 times the switch cycles of `none` in 1 of 2 cells: 64 B [1.10, 1.30]; `b` takes 0.50 times the cycles of `none` at \
         64 B and 1518 B; 1 of 4 comparisons inconclusive"
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
    assert!(told.contains("; 2 other variants: 1 better of 4 comparisons; 4 of 10 comparisons inconclusive"), "{told}");
    assert_eq!(
        sentence("mpps", &[variant("a", [wide, wide]), variant("b", [wide, wide])]),
        "no variant is shown to differ from `none`: 4 inconclusive"
    );
}

#[test]
fn a_group_of_cells_has_what_they_have_in_common() {
    let up = ratio(1.2, 1.1, 1.3);
    let down = ratio(0.5, 0.4, 0.6);
    let wide = ratio(1.0, 0.5, 2.0);
    let cells = |effects: [Effect; 6]| -> Vec<(&'static str, Option<Effect>)> {
        let cells =
            ["64 core=same", "64 core=other", "512 core=same", "512 core=other", "1514 core=same", "1514 core=other"];
        cells.into_iter().zip(effects.map(Some)).collect()
    };
    let start = "`a` takes ";
    for (effects, expected) in [
        (
            [wide, wide, wide, wide, up, up],
            "1.20 times the switch cycles of `none` in 2 of 6 cells (each with 1514 B); 4 inconclusive",
        ),
        (
            [wide, wide, down, up, down, up],
            "0.50 times the switch cycles of `none` in 2 of 6 cells (each with core = same) and 1.20 times in 2 of 6 cells (each \
             with core = other); 2 inconclusive",
        ),
        ([up, wide, wide, up, wide, wide], "1.20 times the switch cycles of `none` in 2 of 6 cells; 4 inconclusive"),
        (
            [wide, wide, up, wide, wide, wide],
            "1.20 times the switch cycles of `none` in 1 of 6 cells: 512 B (core = same) [1.10, 1.30]; 5 inconclusive",
        ),
        ([up; 6], "1.20 times the switch cycles of `none` in all 6 cells"),
    ] {
        assert_eq!(sentence("switch_cycles_per_packet", &[of("a", &cells(effects))]), format!("{start}{expected}"));
    }
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

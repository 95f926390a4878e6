//! The results as a table, for a terminal of 100 columns.

use std::collections::BTreeMap;
use std::fmt::Write;

use straightline_report::results::{BOUNDS, Sample, SeriesKey, series};
use straightline_report::statistics::median;

use super::run::label;

/// Columns: the title, the width, the metric, and the digits after the decimal point.
const COLUMNS: [(&str, usize, &str, usize); 8] = [
    ("Mpps", 8, "mpps", 3),
    ("Gbit/s", 7, "gbit_per_s", 2),
    ("loss %", 9, "loss_ratio", 4),
    ("p50 us", 8, "latency_p50_us", 1),
    ("p99 us", 8, "latency_p99_us", 1),
    ("max us", 9, "latency_max_us", 1),
    ("cycles", 7, "switch_cycles_per_packet", 0),
    ("limit", 7, "generator_limit_mpps", 2),
];

/// The greatest width of a cell's name that still has its values on the same line.
const PLACE: usize = 23;

/// Returns the table. It has medians of valid samples, with the numbers of valid samples and of all
/// samples. If no sample is valid, it has the values of interrupted ones. Notes about packets that
/// came again and the reasons of invalid samples follow.
#[must_use]
pub fn table(samples: &[Sample]) -> String {
    let mut places: Vec<(SeriesKey, Vec<&Sample>)> = Vec::new();
    for sample in samples {
        let place = SeriesKey::of(sample);
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, all)) => all.push(sample),
            None => places.push((place, vec![sample])),
        }
    }
    let width = places.iter().map(|(place, _)| label(&place.cell).chars().count()).max().unwrap_or(0).min(PLACE);
    let scenario = samples.first().map_or("", |sample| sample.scenario.as_str());
    let mut text = format!("{scenario:width$}");
    for (title, wide, ..) in COLUMNS {
        let _ = write!(text, " {title:>wide$}");
    }
    text.push_str("     n\n");
    for (place, all) in &places {
        row(&mut text, &label(&place.cell), all, width);
    }
    text.push_str(
        "\nMpps and Gbit/s: received, both directions together. cycles: of our switch, per received packet.\n\
         limit: Mpps of the generator by itself. n: valid trials of all; values are medians of valid trials.\n",
    );
    if places.iter().any(|(_, all)| only_interrupted(all)) {
        text.push_str(
            "If no trial is valid, the values are of interrupted trials: packets under way then count as lost.\n",
        );
    }
    if places.iter().any(|(_, all)| only_at_least(all)) {
        text.push_str(
            "> before a value: at least. Higher loads were not searched, as the generator could not send them; no \
             valid trial had too much loss.\n",
        );
    }
    for (place, all) in &places {
        let again: f64 = series(all.iter().copied(), "duplicates").into_iter().map(|(_, count)| count).sum();
        if again > 0.0 {
            let _ = writeln!(text, "{again} packets came more than once: {}", label(&place.cell));
        }
    }
    for (place, all) in &places {
        drops(&mut text, &label(&place.cell), all);
    }
    reasons(&mut text, samples);
    text
}

/// Writes the packets that were dropped in a cell, by reason. They are also lost packets.
fn drops(text: &mut String, name: &str, samples: &[&Sample]) {
    for (prefix, place) in
        [("dropped_", "the generator's interfaces"), ("switch_dropped_", "our switch and its interfaces")]
    {
        let mut reasons: BTreeMap<&str, f64> = BTreeMap::new();
        for (metric, count) in samples.iter().flat_map(|sample| &sample.metrics) {
            if let Some(reason) = metric.strip_prefix(prefix) {
                *reasons.entry(reason).or_default() += count;
            }
        }
        if !reasons.is_empty() {
            let counts: Vec<_> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            let _ = writeln!(text, "{place} dropped {}: {name}", counts.join(", "));
        }
    }
}

fn row(text: &mut String, name: &str, samples: &[&Sample], width: usize) {
    if name.chars().count() > width {
        let _ = write!(text, "{name}\n{:width$}", "");
    } else {
        let _ = write!(text, "{name:width$}");
    }
    let interrupted = only_interrupted(samples);
    let at_least = only_at_least(samples);
    for (_, wide, metric, digits) in COLUMNS {
        let is_shown = |sample: &Sample| {
            sample.is_valid() || (interrupted && sample.validity.is_interrupted()) || (at_least && sample.is_at_least())
        };
        let shown = samples.iter().filter(|sample| is_shown(sample));
        let values: Vec<f64> = shown.filter_map(|sample| sample.metrics.get(metric).copied()).collect();
        let factor = if metric == "loss_ratio" { 100.0 } else { 1.0 };
        let sign = if at_least && BOUNDS.contains(&metric) { ">" } else { "" };
        let show = |value: f64| format!("{sign}{:.digits$}", value * factor);
        let value = median(&values).map_or_else(|| "-".to_owned(), show);
        let _ = write!(text, " {value:>wide$}");
    }
    let count = samples.iter().filter(|sample| sample.is_valid()).count();
    let _ = writeln!(text, " {:>5}", format!("{count}/{}", samples.len()));
}

/// Returns whether no sample is valid, but one is of a search that found no load too high.
fn only_at_least(samples: &[&Sample]) -> bool {
    samples.iter().all(|sample| !sample.is_valid()) && samples.iter().any(|sample| sample.is_at_least())
}

/// Returns whether no sample is valid, but one is interrupted.
fn only_interrupted(samples: &[&Sample]) -> bool {
    samples.iter().all(|sample| !sample.is_valid() && !sample.is_at_least())
        && samples.iter().any(|sample| sample.validity.is_interrupted())
}

/// Writes the reasons of invalid samples. Reasons that differ only in numbers are shown once.
fn reasons(text: &mut String, samples: &[Sample]) {
    let mut reasons: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for why in samples.iter().filter_map(|sample| sample.validity.reason()) {
        reasons.entry(why.replace(|c: char| c.is_ascii_digit(), "")).or_insert((0, why)).0 += 1;
    }
    for (count, why) in reasons.values() {
        let _ = writeln!(
            text,
            "{count} that {}: {why}",
            if *count == 1 { "is not valid" } else { "are not valid, such as" }
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use straightline_report::results::Validity;

    #[test]
    fn the_most_that_could_be_tried_is_said_to_be_that() {
        let sample = |mpps: f64, validity: Validity| {
            let metrics = [("mpps".to_owned(), mpps), ("generator_limit_mpps".to_owned(), 25.0)].into();
            Sample { metrics, validity, ..Sample::default() }
        };
        let why = "no load up to 9969100 packets a second is too high";
        let least = sample(9.9691, Validity::LowerBound(why.to_owned()));
        let text = table(&[least.clone(), sample(3.0, Validity::Interrupted("interrupted".to_owned()))]);
        assert!(text.contains("  >9.969 ") && text.contains("   25.00   0/2\n"), "{text}");
        assert!(text.contains("\n> before a value: at least.") && !text.contains("packets under way"), "{text}");
        // If another round has a valid result, that result is shown.
        let text = table(&[least, sample(8.0, Validity::Valid)]);
        assert!(text.contains("   8.000 ") && !text.contains('>'), "{text}");
    }

    #[test]
    fn it_fits_into_a_terminal_and_says_what_does_not_count() {
        let sample = |load: &str, mpps: f64, validity: Validity| Sample {
            scenario: "patch-external".to_owned(),
            round: 1,
            variant: "straightline".to_owned(),
            cell: [("size", "uniform:64-1518"), ("ring", "packed"), ("load", load)]
                .map(|(axis, at)| (axis.to_owned(), at.to_owned()))
                .into(),
            metrics: COLUMNS.map(|(_, _, metric, _)| (metric.to_owned(), mpps)).into(),
            validity,
            ..Sample::default()
        };
        let late = || Validity::SpoiltByLoad("too late".to_owned());
        let mut twice = sample("max", 1.0, Validity::Valid);
        twice.metrics.insert("duplicates".to_owned(), 5.0);
        for (reason, count) in [("dropped_no_buffer", 2.0), ("dropped_rx_dropped", 3.0), ("switch_dropped_x", 4.0)] {
            twice.metrics.insert(reason.to_owned(), count);
        }
        let samples = [
            twice,
            sample("max", 3.0, Validity::Valid),
            sample("max", 99.0, late()),
            sample("ndr", 9.995, Validity::Valid),
            sample("ndr", 7.0, Validity::Interrupted("interrupted".to_owned())),
            sample("1mpps", 4.0, late()),
            sample("1mpps", 6.0, Validity::Interrupted("interrupted, after 3.1 of 9.0 s".to_owned())),
        ];
        let text = table(&samples);
        let rows: Vec<&str> = text.lines().collect();
        let above = &rows[..rows.iter().position(|row| row.is_empty()).expect("a table")];
        assert!(above.iter().all(|row| row.chars().count() <= 100), "{text}");
        assert_eq!(above[1], "uniform:64-1518 packed max");
        assert!(
            above[2].contains(" 2.000 ") && above[2].contains(" 200.0000 ") && above[2].ends_with(" 2/3"),
            "{text}"
        );
        assert!(text.contains("\n5 packets came more than once: uniform:64-1518 packed max\n"), "{text}");
        for line in [
            "the generator's interfaces dropped 2 no_buffer, 3 rx_dropped",
            "our switch and its interfaces dropped 4 x",
        ] {
            assert!(text.contains(&format!("\n{line}: uniform:64-1518 packed max\n")), "{text}");
        }
        assert!(above[4].contains(" 9.995 ") && above[4].ends_with(" 1/2"), "{text}");
        assert!(above[6].contains(" 6.000 ") && above[6].ends_with(" 0/2"), "{text}");
        assert!(text.contains("of interrupted trials: packets under way"), "{text}");
        assert!(text.contains("1 that is not valid: interrupted, after 3.1 of 9.0 s\n"), "{text}");
        assert!(text.ends_with("2 that are not valid, such as: too late\n"), "{text}");
        assert!(!table(&samples[..4]).contains("interrupted"), "{text}");
    }
}

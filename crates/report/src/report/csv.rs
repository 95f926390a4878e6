//! All samples as a table for other programs (RFC 4180).

use std::collections::BTreeSet;

use super::distribution::Distribution;
use crate::results::Sample;

/// Percentiles of the histograms, as columns.
const PERCENTILES: [(&str, u32); 5] = [("p50", 2), ("p90", 10), ("p99", 100), ("p99.9", 1_000), ("p99.99", 10_000)];

/// Returns the table, with a line for each sample. A column is empty if the sample does not have
/// the metric.
pub(super) fn table(samples: &[Sample]) -> String {
    let names = |names: &dyn Fn(&Sample) -> Vec<String>| -> Vec<String> {
        samples.iter().flat_map(names).collect::<BTreeSet<String>>().into_iter().collect()
    };
    let axes = names(&|sample| sample.cell.keys().cloned().collect());
    let metrics = names(&|sample| sample.metrics.keys().cloned().collect());
    let phases = names(&|sample| sample.cycles.keys().cloned().collect());
    let latencies = samples.iter().any(|sample| sample.latency.is_some());
    let mut head: Vec<String> = ["scenario", "round", "variant"].map(str::to_owned).into();
    head.extend(axes.iter().map(|axis| format!("cell.{axis}")));
    head.extend(metrics.iter().cloned());
    head.extend(phases.iter().map(|phase| format!("cycles.{phase}")));
    if latencies {
        head.push("latency.packets".to_owned());
        head.extend(PERCENTILES.iter().map(|(name, _)| format!("latency.{name}_ns")));
        head.push("latency.most_ns".to_owned());
    }
    head.extend(["validity", "invalid"].map(str::to_owned));
    let mut text = row(&head);
    for sample in samples {
        let mut cells = vec![sample.scenario.clone(), sample.round.to_string(), sample.variant.clone()];
        cells.extend(axes.iter().map(|axis| sample.cell.get(axis).cloned().unwrap_or_default()));
        cells.extend(metrics.iter().map(|metric| value(sample.metrics.get(metric))));
        cells.extend(phases.iter().map(|phase| value(sample.cycles.get(phase))));
        if latencies {
            let all = Distribution::of(&sample.latency);
            let all = all.as_ref();
            cells.push(all.map_or(String::new(), |all| all.packets().to_string()));
            let above = |one_in| all.and_then(|all| all.above(one_in));
            cells.extend(
                PERCENTILES.iter().map(|&(_, one_in)| above(one_in).map_or(String::new(), |ns| ns.to_string())),
            );
            cells.push(all.map_or(String::new(), |all| all.most().to_string()));
        }
        cells.extend([sample.validity.word(), sample.validity.reason().unwrap_or_default()].map(str::to_owned));
        text.push_str(&row(&cells));
    }
    text
}

/// Formats a value with the fewest digits that parse to the same value.
fn value(value: Option<&f64>) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{value:?}").trim_end_matches(".0").to_owned(),
        _ => String::new(),
    }
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
    format!("{}\r\n", cells.join(","))
}

fn quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\r', '\n']) || cell.trim() != cell {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Validity;

    #[test]
    fn columns_are_what_any_sample_has() {
        let first = Sample {
            scenario: "a,\"b\"".to_owned(),
            metrics: [("mpps".to_owned(), 0.1), ("bad".to_owned(), f64::NAN)].into(),
            ..Sample::default()
        };
        let second = Sample {
            cell: [("size".to_owned(), "64".to_owned())].into(),
            cycles: [("copy".to_owned(), 120.0)].into(),
            validity: Validity::SpoiltByBackend("late\nagain".to_owned()),
            ..Sample::default()
        };
        let expected = "scenario,round,variant,cell.size,bad,mpps,cycles.copy,validity,invalid\r\n\
                        \"a,\"\"b\"\"\",0,,,,0.1,,valid,\r\n,0,,64,,,120,spoilt-by-backend,\"late\nagain\"\r\n";
        assert_eq!(table(&[first, second]), expected);
    }
}

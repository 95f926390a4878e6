//! The table of results: medians, spreads and ratios, as Markdown.

use straightline_lab::rounds::table::{self, Row, fixed, ratio_to, spread};
use straightline_report::results::Sample;

use super::options::{DeviceCell, Load, Size};
use crate::measure::{Candidate, Cell as _, NO_VALID_TRIAL};

/// A metric in the table: its name, its title, its digits, and whether ratios are shown.
type Shown = (&'static str, &'static str, usize, bool);

/// Returns the metrics of a row.
fn shown(cell: &DeviceCell) -> &'static [Shown] {
    const CYCLES: Shown = ("switch_cycles_per_packet", "cycles", 0, false);
    const SEND: Shown = ("send_ns", "ns to send", 0, false);
    const RECEIVE: Shown = ("receive_ns", "ns to receive", 0, false);
    const PACKETS: &[Shown] = &[("mpps", "Mpps", 3, true), CYCLES];
    const LOOP: &[Shown] = &[("mpps", "Mpps", 3, true), CYCLES, SEND, RECEIVE];
    const SEGMENTS: &[Shown] = &[("gbit_per_s", "Gbit/s", 1, true), CYCLES, SEND, RECEIVE];
    const GUESTS: &[Shown] = &[
        ("out_gbit_per_s", "out, Gbit/s", 2, true),
        ("out_cpu_s_per_gb", "out, switch, CPU s/GB", 2, false),
        ("in_gbit_per_s", "in, Gbit/s", 2, true),
        ("in_cpu_s_per_gb", "in, switch, CPU s/GB", 2, false),
    ];
    match (cell.load, cell.size) {
        (Load::Iperf(_), _) => GUESTS,
        (_, Size::Segments) => SEGMENTS,
        (Load::Loop, _) => LOOP,
        _ => PACKETS,
    }
}

/// Returns a table with rows for each combination that was tried, a column for each switch, and a
/// column for the ratios of each binary of ours to each other switch.
pub(super) fn markdown(switches: &[Candidate], cells: &[DeviceCell], samples: &[Sample]) -> String {
    let pairs = Candidate::pairs(switches);
    let names = || switches.iter().map(|switch| switch.name.as_str());
    let ratios: Vec<String> =
        pairs.iter().map(|&(one, other)| format!("{} / {}", switches[one].name, switches[other].name)).collect();
    let head: Vec<&str> = ["interface, load, frame", "metric"]
        .into_iter()
        .chain(names())
        .chain(ratios.iter().map(String::as_str))
        .collect();
    let mut rows = Vec::new();
    for cell in cells {
        let Some(row) = Row::new(samples, &cell.axes(), names()) else { continue };
        for &(metric, title, digits, has_ratios) in shown(cell) {
            let series = row.series(metric);
            let medians = series.iter().zip(&row.places).map(|(own, place)| {
                let none = if place.is_empty() || !has_ratios { "" } else { NO_VALID_TRIAL };
                spread(own, fixed(digits)).unwrap_or_else(|| none.to_owned())
            });
            let ratios = pairs.iter().map(|&(one, other)| {
                let ratio = if has_ratios { ratio_to(&series[one], &series[other], 2) } else { None };
                ratio.unwrap_or_default()
            });
            rows.push([cell.to_string(), title.to_owned()].into_iter().chain(medians).chain(ratios).collect());
        }
    }
    table::markdown(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::super::options::{Guest, Interface};
    use super::*;
    use crate::measure::SwitchKind;

    #[test]
    fn a_table_has_the_ratios_of_ours() {
        let read = |name: &str| Candidate::read(name, &[("bound", SwitchKind::Kernel)]).expect("a switch");
        let switches = [read("bound"), read("ours=bin/s")];
        let packets = DeviceCell { interface: Interface::Tap, load: Load::Out, size: Size::Bytes(64) };
        let linux = DeviceCell { interface: Interface::Tap, load: Load::Iperf(Guest::Uml), size: Size::Any };
        let sample = |round, variant: &str, mpps: f64| Sample {
            round,
            variant: variant.to_owned(),
            cell: packets.axes(),
            metrics: [("mpps".to_owned(), mpps)].into(),
            ..Sample::default()
        };
        let samples: Vec<Sample> =
            (1..=6).flat_map(|round| [sample(round, "bound", 2.0), sample(round, "ours", 1.5)]).collect();
        let text = markdown(&switches, &[packets, linux], &samples);
        let head = "| interface, load, frame | metric | bound | ours | ours / bound |\n";
        let row = "| tap out 64 B | Mpps | 2.000 (2.000-2.000) | 1.500 (1.500-1.500) | 0.75 [0.75, 0.75] |\n";
        assert!(text.starts_with(head) && text.contains(row) && !text.contains("uml"), "{text}");
    }
}

//! Medians, spreads and ratios, as Markdown.

use straightline_lab::statistics::median;

use super::guests::Measured;
use super::options::Cell;

/// The trials of one switch in one row.
#[derive(Debug, Default)]
struct Samples {
    mpps: Vec<f64>,
    switch_cycles: Vec<f64>,
    guest_cycles: Vec<f64>,
}

/// All trials that count, by row and column.
#[derive(Debug, Default)]
pub(super) struct Table {
    switches: Vec<String>,
    rows: Vec<(Cell, Vec<Samples>)>,
}

impl Table {
    /// Enters a trial; `None` is one that does not count.
    pub(super) fn add(&mut self, switch: &str, cell: &Cell, measured: Option<&Measured>, switch_cycles: Option<f64>) {
        let column = self.switches.iter().position(|name| name == switch).unwrap_or_else(|| {
            self.switches.push(switch.to_owned());
            self.switches.len() - 1
        });
        let row = self.rows.iter().position(|(known, _)| known == cell).unwrap_or_else(|| {
            self.rows.push((cell.clone(), Vec::new()));
            self.rows.len() - 1
        });
        let samples = &mut self.rows[row].1;
        if samples.len() <= column {
            samples.resize_with(column + 1, Samples::default);
        }
        if let Some(measured) = measured {
            samples[column].mpps.push(measured.mpps);
            samples[column].guest_cycles.extend(measured.guest_cycles_per_packet);
            samples[column].switch_cycles.extend(switch_cycles);
        }
    }

    /// A row for each guest, load, ring and size; a column for each switch.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from(
            "Million packets a second received by the guest on both ports: median (smallest-largest), ratio of medians to the \
             first; then cycles a packet of the switch alone, and of the guest.\n\n",
        );
        text += &format!("| guest, load, ring, frame | {} |\n", self.switches.join(" | "));
        text += &format!("|---|{}\n", "---|".repeat(self.switches.len()));
        for (cell, samples) in &self.rows {
            let base = samples.first().and_then(|first| median(&first.mpps));
            let shown: Vec<String> = (0..self.switches.len())
                .map(|column| {
                    samples.get(column).map_or_else(|| NONE.to_owned(), |samples| show(samples, base, column == 0))
                })
                .collect();
            text += &format!("| {cell} | {} |\n", shown.join(" | "));
        }
        text
    }
}

const NONE: &str = "no valid trial";

fn show(samples: &Samples, base: Option<f64>, is_first: bool) -> String {
    let Some(middle) = median(&samples.mpps) else { return NONE.to_owned() };
    let least = samples.mpps.iter().copied().fold(f64::INFINITY, f64::min);
    let most = samples.mpps.iter().copied().fold(0.0, f64::max);
    let mut text = format!("{middle:.2} ({least:.2}-{most:.2})");
    if let Some(base) = base.filter(|_| !is_first) {
        text += &format!(" x{:.2}", middle / base);
    }
    let mut cycles = |what, samples: &[f64]| {
        if let Some(cycles) = median(samples) {
            text += &format!("; {what} {cycles:.0}");
        }
    };
    cycles("switch", &samples.switch_cycles);
    cycles("guest", &samples.guest_cycles);
    text
}

#[cfg(test)]
mod tests {
    use super::super::options::{Guest, Load, Ring, Size};
    use super::*;

    #[test]
    fn a_table_says_what_was_measured_and_what_was_not() {
        let ring = Ring { name: "split", packed: false, mergeable: true, in_order: false, vectorized: false };
        let cell = Cell { guest: Guest::Own, load: Load::Loop, ring, size: Size::Bytes(64) };
        let mut table = Table::default();
        let measured = |mpps| Measured { mpps, gbit_per_s: 1.0, guest_cycles_per_packet: Some(30.0), lost: None };
        for mpps in [4.0, 2.0, 3.0] {
            table.add("a", &cell, Some(&measured(mpps)), Some(200.0));
            table.add("b", &cell, Some(&measured(2.0 * mpps)), None);
            table.add("c", &cell, None, None);
        }
        let text = table.markdown();
        let row = "| own loop split 64 B | 3.00 (2.00-4.00); switch 200; guest 30 | 6.00 (4.00-8.00) x2.00; guest 30 | no valid trial |";
        assert!(
            text.contains("| guest, load, ring, frame | a | b | c |\n|---|---|---|---|\n") && text.contains(row),
            "{text}"
        );
    }
}

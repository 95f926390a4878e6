//! One scenario of the page: its question, its finding, and the forest plot.

use super::html::{Page, capital};
use super::model::{Scenario, VariantResult};
use super::plots::{Forest, Layout, Row};
use super::question::question;
use super::tables;
use super::text::count;
use crate::results::MemoryBounds;
use crate::statistics::{Better, Effect, Looks, Metric, Outcome, axis_in_words};

/// The most rows of a plot. If there are more, those closest to 1 are left out, and counted.
const ROWS: usize = 60;

/// The most variants, beside the first one, whose rows are together.
const GROUPS: usize = 3;

/// The plot of a scenario's headline metric.
pub(super) struct Plot {
    pub(super) forest: Forest,
    /// The number of comparisons that the plot leaves out because they are unclear.
    unclear: usize,
    /// The number of all comparisons.
    all: usize,
    /// The number of rows for which there was no space.
    left_out: usize,
}

/// Writes a scenario's section.
pub(super) fn write(page: &mut Page, scenario: &Scenario<'_>, bounds: Option<&MemoryBounds>) {
    page.open_section(scenario.name);
    // With several scenarios, the finding is in the list on top, with what the names mean.
    if page.has_list() {
        page.note(question(scenario.name).unwrap_or_default());
    } else {
        page.question(scenario.name);
        page.finding(scenario);
    }
    if let Some(plot) = plot(scenario, page.id()) {
        page.figure(&plot.forest.title, Layout::ALL.map(|layout| plot.forest.draw(layout)));
        page.note(&plot.note());
    } else if scenario.is_compared() {
        page.note("No plot: no comparison shows a result.");
    }
    if let Some(shares) = bounds.and_then(|bounds| tables::shares(scenario, bounds)) {
        page.note(tables::SHARES);
        page.table(&shares, &format!("Share of the machine's bound that {} reaches", scenario.name));
    }
    page.close_section(scenario.name);
}

/// Returns the plot of a scenario's headline metric; `None` if there is no row.
pub(super) fn plot(scenario: &Scenario<'_>, id: String) -> Option<Plot> {
    let (metric, outcomes) = scenario.metrics.first()?;
    let mut rows = Vec::new();
    let mut all = 0;
    let mut unclear = 0;
    for (cell, results) in outcomes.iter().enumerate() {
        for (variant, result) in results.iter().enumerate() {
            let of = &scenario.cells[cell];
            let counts = if scenario.is_compared() { of.compares(variant) } else { of.tried[variant] > 0 };
            if !(counts && scenario.has(outcomes, cell)) {
                continue;
            }
            all += 1;
            match result.as_ref().and_then(|result| row(scenario, metric, (cell, variant), result)) {
                Some(row) => rows.push(row),
                None => unclear += 1,
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    let left_out = rows.len().saturating_sub(ROWS);
    let mut sides = None;
    let (title, axis);
    if scenario.is_compared() {
        let first = scenario.reference();
        sides = Some(match metric.better {
            Some(Better::More) => [Outcome::Worse, Outcome::Better],
            Some(Better::Less) => [Outcome::Better, Outcome::Worse],
            None => [Outcome::Lower, Outcome::Higher],
        });
        rows.sort_by(|a, b| b.value.ln().abs().total_cmp(&a.value.ln().abs()));
        rows.truncate(ROWS);
        // The rows of a variant are together if there are few variants.
        let group = |row: &Row| if scenario.variants.len() <= GROUPS + 1 { row.variant } else { 0 };
        rows.sort_by(|a, b| group(a).cmp(&group(b)).then(a.value.total_cmp(&b.value)));
        title = capital(&format!("{} of {}: ratio to {first}", metric.title(), scenario.name));
        axis = format!("ratio to {first}, with {} % intervals", scenario.looks.percent());
    } else {
        rows.truncate(ROWS);
        title = capital(&format!("{} of {}", metric.title(), scenario.name));
        axis = metric.title();
    }
    let common = take_common(&mut rows);
    let common = if common.is_empty() { String::new() } else { format!("all rows: {}", common.join(", ")) };
    Some(Plot { forest: Forest { id, title, axis, common, rows, sides }, unclear, all, left_out })
}

/// Removes the parts of labels that all rows have in common, and returns them.
fn take_common(rows: &mut [Row]) -> Vec<String> {
    let Some((first, rest)) = rows.split_first() else { return Vec::new() };
    if rest.is_empty() {
        return Vec::new();
    }
    let is_common = |part: &&String| rest.iter().all(|row| row.label.contains(*part));
    let common: Vec<String> = first.label.iter().filter(is_common).cloned().collect();
    for row in rows.iter_mut().filter(|row| row.label.len() > common.len()) {
        row.label.retain(|part| !common.contains(part));
    }
    common
}

impl Plot {
    /// Returns the words below a plot: what it leaves out.
    fn note(&self) -> String {
        let mut parts = Vec::new();
        if self.forest.sides.is_none() {
            let fewest = Looks::One.fewest();
            let with = self.forest.rows.iter().filter(|row| row.interval.is_some()).count();
            let intervals = match self.forest.rows.len() - with {
                0 => "Medians with their 95 % intervals.".to_owned(),
                _ if with == 0 => {
                    format!("Medians. There are too few trials for 95 % intervals, which take {fewest} valid ones.")
                }
                without => format!(
                    "Medians with their 95 % intervals; {} without, because an interval takes {fewest} valid trials.",
                    count(without, "row")
                ),
            };
            parts.push(intervals);
        } else if self.unclear > 0 {
            parts.push(format!(
                "{} of {} unclear, not drawn: the interval is too wide, or there are too few valid trials.",
                self.unclear,
                count(self.all, "comparison")
            ));
        }
        if self.left_out > 0 {
            parts.push(format!("{} not drawn for lack of space.", count(self.left_out, "more row")));
        }
        parts.join(" ")
    }
}

/// Returns the row of a result; `None` if it is unclear, or has no place on a scale of ratios.
fn row(
    scenario: &Scenario<'_>,
    metric: &Metric,
    (cell, variant): (usize, usize),
    result: &VariantResult,
) -> Option<Row> {
    let place = scenario.place(cell).filter_map(|(axis, value)| axis_in_words(axis, value));
    let place = place.map(|(axis, value)| if axis.is_empty() { value } else { format!("{axis} {value}") });
    let place: Vec<String> = place.collect();
    let has_choice = scenario.variants.len() > 2 || place.is_empty();
    let label = has_choice.then(|| scenario.variants[variant].to_owned()).into_iter().chain(place).collect();
    if !scenario.is_compared() {
        let text = tables::median(result);
        let interval = result.estimate.interval.filter(|_| !result.is_at_least);
        return Some(Row { label, variant, value: result.estimate.median, interval, text, outcome: None });
    }
    let effect = result.effect?;
    let outcome = effect.outcome(metric.better);
    if outcome == Outcome::Unclear || matches!(effect, Effect::Change(_)) {
        return None;
    }
    let text = format!("{}{}", effect.shown(), effect.brackets());
    Some(Row { label, variant, value: effect.value(), interval: effect.interval(), text, outcome: Some(outcome) })
}

//! The finding of a comparison, in one sentence of plain English.
//!
//! The report's page and `lab compare` print the same sentence, so it is made here, from effects by
//! cell. A cell whose interval includes 1 shows no difference only if the interval is narrow.
//! Otherwise the cell is inconclusive: a large difference may have been missed. Inconclusive cells
//! are counted, and not listed.

use std::fmt;

use super::cell::{CellAxes, cell_in_words, common};
use super::digits::{number, ratio_digits};
use super::{Effect, Estimate, Metric, Outcome};

/// The most variants that a sentence describes one by one.
const VARIANTS: usize = 3;

/// The most cells that a sentence names.
const NAMED: usize = 2;

/// The most cells of a comparison whose cells are named.
const FEW: usize = 4;

/// The effects of one variant, by cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Effects {
    /// The variant's name.
    pub name: String,
    /// Each cell with its effect; `None` without results of both variants.
    pub cells: Vec<(CellAxes, Option<Effect>)>,
}

/// A part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The name of a variant.
    Name(String),
    /// The values of a difference, and which kind it is.
    Values(String, Outcome),
    /// Other text.
    Text(String),
    /// The end of what is said about a variant. In text it is a semicolon.
    Next,
}

/// A finding: a sentence in pieces, so that a page can set names apart. Its text has names in
/// backticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// The pieces, in their order.
    pub pieces: Vec<Piece>,
}

impl fmt::Display for Finding {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Name(name) => write!(to, "`{name}`"),
            Piece::Values(text, _) | Piece::Text(text) => to.write_str(text),
            Piece::Next => to.write_str("; "),
        })
    }
}

impl Finding {
    fn name(&mut self, name: &str) -> &mut Self {
        self.pieces.push(Piece::Name(name.to_owned()));
        self
    }

    fn values(&mut self, group: &[Told<'_>], metric: &Metric) -> &mut Self {
        let outcome = group.first().map_or(Outcome::Inconclusive, |told| told.1.outcome(metric.better));
        self.pieces.push(Piece::Values(span(group), outcome));
        self
    }

    fn next(&mut self) -> &mut Self {
        self.pieces.push(Piece::Next);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
        self
    }
}

/// Returns the finding of a metric: variants compared with the variant `to`.
#[must_use]
pub fn finding(metric: &Metric, variants: &[Effects], to: &str) -> Finding {
    let parts: Vec<Parts<'_>> = variants.iter().map(|of| Parts::new(metric, of)).collect();
    let all: usize = parts.iter().map(|of| of.all).sum();
    let unknown: usize = parts.iter().map(|of| of.unknown).sum();
    let mut sentence = Finding::default();
    if parts.len() > 1 && parts.iter().all(|of| of.told() == 0) {
        sentence.text("no variant is shown to differ from ").name(to);
        return sentence.text(&format!(": {}", counts(&outcomes(metric, variants)))).clone();
    }
    // Variants with the most differences are described, in their original order.
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|&a, &b| parts[b].weight().partial_cmp(&parts[a].weight()).unwrap_or(a.cmp(&b)));
    let (chosen, others) = order.split_at(order.len().min(VARIANTS));
    let mut chosen = chosen.to_vec();
    chosen.sort_unstable();
    for (place, &variant) in chosen.iter().enumerate() {
        if place > 0 {
            sentence.next();
        }
        parts[variant].clause(&mut sentence, metric, to, place == 0);
    }
    if !others.is_empty() {
        let others: Vec<Effects> = others.iter().map(|&variant| variants[variant].clone()).collect();
        let what = if others.len() == 1 { "variant" } else { "variants" };
        let mut told = outcomes(metric, &others);
        let cells = told.len();
        told.retain(|&outcome| outcome != Outcome::Inconclusive);
        let told = if told.is_empty() {
            "all inconclusive".to_owned()
        } else {
            format!("{} of {cells} comparisons", counts(&told))
        };
        sentence.next().text(&format!("{} other {what}: {told}", others.len()));
    }
    if unknown > 0 && (unknown < all || parts.len() > 1) {
        let what = if parts.len() > 1 { format!("{unknown} of {all} comparisons") } else { unknown.to_string() };
        sentence.next().text(&format!("{what} inconclusive"));
    }
    sentence
}

/// Counts outcomes, as `3 better, 1 worse, 8 inconclusive`.
#[must_use]
pub fn counts(outcomes: &[Outcome]) -> String {
    let count = |of: Outcome| outcomes.iter().filter(|&&outcome| outcome == of).count();
    let parts = Outcome::ALL.map(|outcome| (count(outcome), outcome.words()));
    let parts: Vec<String> =
        parts.into_iter().filter(|part| part.0 > 0).map(|(count, words)| format!("{count} {words}")).collect();
    if parts.is_empty() { "nothing measured".to_owned() } else { parts.join(", ") }
}

fn outcomes(metric: &Metric, variants: &[Effects]) -> Vec<Outcome> {
    let all = variants.iter().flat_map(|of| &of.cells);
    all.map(|cell| cell.1.map_or(Outcome::Inconclusive, |effect| effect.outcome(metric.better))).collect()
}

/// A cell with its effect.
type Told<'e> = (&'e CellAxes, Effect);

/// The cells of one variant by outcome.
struct Parts<'e> {
    of: &'e Effects,
    all: usize,
    /// Better cells, and worse ones; or higher and lower ones.
    groups: [Vec<Told<'e>>; 2],
    same: Vec<Told<'e>>,
    unknown: usize,
}

impl<'e> Parts<'e> {
    fn new(metric: &Metric, of: &'e Effects) -> Self {
        let with = |wanted: [Outcome; 2]| -> Vec<Told<'e>> {
            let told = of.cells.iter().filter_map(|(cell, effect)| Some((cell, (*effect)?)));
            told.filter(|(_, effect)| wanted.contains(&effect.outcome(metric.better))).collect()
        };
        let groups = [with([Outcome::Better, Outcome::Higher]), with([Outcome::Worse, Outcome::Lower])];
        let same = with([Outcome::Same; 2]);
        let all = of.cells.len();
        let unknown = all - groups.iter().map(Vec::len).sum::<usize>() - same.len();
        Parts { of, all, groups, same, unknown }
    }

    fn told(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }

    /// Returns how much there is to say about the variant: the number of differences, then the
    /// largest one.
    fn weight(&self) -> (usize, f64) {
        let strength = |told: &Told<'_>| match told.1 {
            Effect::Change(change) => change.value.abs(),
            effect if effect.value() > 0.0 => effect.value().ln().abs(),
            _ => 0.0,
        };
        (self.told(), self.groups.iter().flatten().map(strength).fold(0.0, f64::max))
    }

    /// Adds the clause about the variant, compared with the variant `to`. The first clause names the
    /// metric in full.
    fn clause(&self, sentence: &mut Finding, metric: &Metric, to: &str, is_first: bool) {
        sentence.name(&self.of.name);
        for (number, group) in self.groups.iter().filter(|group| !group.is_empty()).enumerate() {
            let verb = Verb::of(metric, group.iter().any(|told| matches!(told.1, Effect::Change(_))));
            let before = if number == 0 { verb.before } else { "and" };
            sentence.text(&format!(" {before} ")).values(group, metric);
            if number == 0 {
                sentence.text(if is_first { &verb.after } else { verb.later }).text(verb.other).name(to);
            } else {
                sentence.text(verb.again);
            }
            sentence.text(&self.place(group));
        }
        if self.told() == 0 {
            sentence.text(" against ").name(to);
            let between = if self.same.is_empty() { self.unknown_alone() } else { String::new() };
            sentence.text(&format!(": {between}"));
        } else if !self.same.is_empty() {
            sentence.text("; ");
        }
        if !self.same.is_empty() {
            sentence.text(&format!("no difference{}", self.place(&self.same)));
        }
    }

    /// Formats the place of a group among all cells, and the interval of a single cell.
    fn place(&self, group: &[Told<'_>]) -> String {
        let all = self.all;
        let part = format!(" in {} of {all} cells", group.len());
        let words: Vec<String> = group.iter().map(|told| words(told.0)).filter(|words| !words.is_empty()).collect();
        match group {
            [(_, effect)] => {
                let at = match (words.first(), all) {
                    (Some(cell), 1) => format!(" at {cell}"),
                    (Some(cell), _) => format!("{part}: {cell}"),
                    (None, 1) => String::new(),
                    (None, _) => part,
                };
                format!("{at}{}", effect.brackets())
            }
            _ if group.len() == all && words.len() == all && all <= NAMED => format!(" at {}", words.join(" and ")),
            _ if group.len() == all => format!(" in all {all} cells"),
            _ if group.len() <= NAMED && all <= FEW && words.len() == group.len() => {
                format!("{part}: {}", words.join(" and "))
            }
            _ => {
                let group: Vec<&CellAxes> = group.iter().map(|told| told.0).collect();
                let all: Vec<&CellAxes> = self.of.cells.iter().map(|cell| &cell.0).collect();
                match common(&group, &all) {
                    Some(common) => format!("{part} (each with {common})"),
                    None => part,
                }
            }
        }
    }

    /// Returns the words for a variant without any result.
    fn unknown_alone(&self) -> String {
        match &self.of.cells[..] {
            cells if cells.iter().all(|cell| cell.1.is_none()) => "no result of both".to_owned(),
            [(_, Some(effect))] => format!("inconclusive, {}{}", effect.shown(), effect.brackets()),
            cells => format!("inconclusive in all {} cells", cells.len()),
        }
    }
}

/// Returns a cell in words.
fn words(cell: &CellAxes) -> String {
    cell_in_words(cell.iter().map(|(axis, value)| (axis.as_str(), value.as_str())))
}

/// The words around the value of an effect.
struct Verb {
    before: &'static str,
    after: String,
    /// The words instead of `after` where another clause named the metric in full.
    later: &'static str,
    /// The word before the variant that this one is compared with.
    other: &'static str,
    /// The words after a second value.
    again: &'static str,
}

impl Verb {
    fn of(metric: &Metric, is_change: bool) -> Verb {
        let label = &metric.label;
        let verb = |before, after, later, other| Verb { before, after, later, other, again: " times" };
        if is_change {
            return Verb { again: "", ..verb("differs by", format!(" in {label}"), "", " from ") };
        }
        if label == "throughput" {
            return verb("is", " times as fast".to_owned(), " times as fast", " as ");
        }
        match label.strip_suffix("cost") {
            Some(whose) if metric.unit.starts_with("cycles") => {
                let per = if metric.unit == "cycles/byte" { " per byte" } else { "" };
                verb("takes", format!(" times the {whose}cycles{per}"), " times the cycles", " of ")
            }
            _ => verb("has", format!(" times the {label}"), " times that", " of "),
        }
    }
}

/// Formats the values of a group, as `1.06` or `1.06 to 1.40`.
fn span(group: &[Told<'_>]) -> String {
    let by_value = |a: &&Told<'_>, b: &&Told<'_>| a.1.value().total_cmp(&b.1.value());
    let (Some(low), Some(high)) = (group.iter().min_by(by_value), group.iter().max_by(by_value)) else {
        return String::new();
    };
    let any_effect = |bound: fn(&Effect) -> bool| group.iter().any(|told| bound(&told.1));
    if any_effect(|effect| matches!(effect, Effect::AtLeast(_))) {
        return format!("at least {}", ratio_digits(low.1.value()));
    }
    if any_effect(|effect| matches!(effect, Effect::AtMost(_))) {
        return format!("at most {}", ratio_digits(high.1.value()));
    }
    let low = low.1.shown();
    let high = high.1.shown();
    if low == high { low } else { format!("{low} to {high}") }
}

/// A median in a cell without a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    /// The cell in [words](super::cell_in_words).
    pub cell: String,
    /// The median with its interval.
    pub estimate: Estimate,
    /// Whether a search found only a lower bound.
    pub is_at_least: bool,
}

/// Returns the finding of a metric of one variant that is compared with nothing.
#[must_use]
pub fn finding_alone(metric: &Metric, name: &str, cells: &[Alone]) -> Finding {
    let mut sentence = Finding::default();
    let unit = if metric.unit.is_empty() { String::new() } else { format!(" {}", metric.unit) };
    sentence.name(name).text(": ");
    let value = |of: &Alone| {
        let bound = if of.is_at_least { "at least " } else { "" };
        let within = of.estimate.interval.filter(|_| !of.is_at_least);
        let within =
            within.map_or_else(String::new, |within| format!(" [{}, {}]", number(within.low), number(within.high)));
        let at = if of.cell.is_empty() { String::new() } else { format!(" at {}", of.cell) };
        format!("{bound}{}{unit}{at}{within}", number(of.estimate.median))
    };
    let by_value = |a: &&Alone, b: &&Alone| a.estimate.median.total_cmp(&b.estimate.median);
    let text = match (cells.iter().min_by(by_value), cells.iter().max_by(by_value)) {
        (Some(low), Some(high)) if cells.len() > NAMED => {
            let low = number(low.estimate.median);
            let high = number(high.estimate.median);
            let bounds = cells.iter().filter(|cell| cell.is_at_least).count();
            let bounds = if bounds == 0 { String::new() } else { format!(", {bounds} of them lower bounds") };
            let range = if low == high { low } else { format!("{low} to {high}") };
            format!("{range}{unit} in {} cells{bounds}", cells.len())
        }
        (Some(_), Some(_)) => cells.iter().map(value).collect::<Vec<_>>().join(" and "),
        _ => "unknown, no valid trial".to_owned(),
    };
    sentence.text(&format!("{} {text}", metric.label));
    sentence
}

#[cfg(test)]
mod tests;

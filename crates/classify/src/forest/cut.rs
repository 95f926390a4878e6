//! Where a node of a tree is cut.

use crate::column::Column;

/// Most bits by which a node is cut.
const MOST_BITS: u32 = 8;

/// The values of a column that a rule accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) low: u32,
    pub(super) high: u32,
}

impl Span {
    /// Returns the part of the span within another one.
    pub(super) fn within(self, other: Self) -> Self {
        Self { low: self.low.max(other.low), high: self.high.min(other.high) }
    }

    pub(super) fn is_empty(self) -> bool {
        self.low > self.high
    }

    fn covers(self, other: Self) -> bool {
        self.low <= other.low && other.high <= self.high
    }
}

/// A cut: a number of bits of a column. Each of their values is a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) column: Column,
    pub(super) shift: u32,
    pub(super) bits: u32,
}

impl Cut {
    /// Returns the number of children.
    pub(super) fn children(self) -> usize {
        1 << self.bits
    }

    /// Returns the first and the last child that a span reaches. Bits above those of the cut may
    /// differ between values; then the span reaches all of them.
    pub(super) fn reach(self, span: Span) -> (usize, usize) {
        let last = self.children() - 1;
        let above = |value: u32| u64::from(value) >> (self.shift + self.bits);
        if above(span.low) != above(span.high) {
            return (0, last);
        }
        ((span.low >> self.shift) as usize & last, (span.high >> self.shift) as usize & last)
    }
}

/// The rules of the children of a cut: their sum, and the sum of their squares.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    sum: u64,
    squares: u64,
}

/// Returns the best cut of rules whose spans in each column, within the node's region, are given.
///
/// A rule that is drawn evenly is in a child with `squares / sum` rules, so the cut with the least
/// quotient wins. A cut may make at most `most_growth` copies of each rule, and must divide the number
/// of rules by at least 1.25.
pub(super) fn best_cut(columns: &[(Column, Span, Vec<Span>)], most_growth: u64) -> Option<Cut> {
    let rules = columns.first()?.2.len() as u64;
    let mut best: Option<(Cut, Outcome)> = None;
    for (column, region, spans) in columns {
        let Some(top) = top_difference(*region, spans) else { continue };
        let most = MOST_BITS.min(rules.ilog2() + 2);
        for cut in candidates(*column, top, most) {
            let outcome = outcome(cut, spans);
            if outcome.sum > rules * most_growth || outcome.squares * 5 > outcome.sum * rules * 4 {
                continue;
            }
            let is_better = best.is_none_or(|(_, other)| {
                u128::from(outcome.squares) * u128::from(other.sum)
                    < u128::from(other.squares) * u128::from(outcome.sum)
            });
            if is_better {
                best = Some((cut, outcome));
            }
        }
    }
    best.map(|(cut, _)| cut)
}

/// Returns the cuts to try: those that begin at the highest bit that differs, and a few below it.
/// Values such as ports differ in their low bits.
fn candidates(column: Column, top: u32, most: u32) -> impl Iterator<Item = Cut> {
    let at_top = [2, 4, 6, 8].into_iter().map(move |bits| (top + 1, bits));
    let below = (4..=top).step_by(4).flat_map(|end| [(end, 4), (end, 8)]);
    at_top.chain(below).filter(move |(_, bits)| *bits <= most.max(2)).map(move |(end, bits): (u32, u32)| {
        let bits = bits.min(end);
        Cut { column, shift: end - bits, bits }
    })
}

/// Returns the highest bit by which the bounds of spans differ. Spans that cover the region do not
/// count. `None` if there is none.
fn top_difference(region: Span, spans: &[Span]) -> Option<u32> {
    let mut parts = spans.iter().filter(|span| !span.covers(region));
    let first = parts.next()?;
    let differing = parts.fold(first.low ^ first.high, |all, span| all | first.low ^ span.low | first.low ^ span.high);
    // One value and rules that cover the region: the highest bit is as good as any.
    Some(differing.checked_ilog2().unwrap_or_else(|| (region.low ^ region.high).checked_ilog2().unwrap_or(0)))
}

fn outcome(cut: Cut, spans: &[Span]) -> Outcome {
    // Differences between the numbers of rules of neighbouring children.
    let mut steps = [0_i64; (1 << MOST_BITS) + 1];
    for &span in spans {
        let (first, last) = cut.reach(span);
        steps[first] += 1;
        steps[last + 1] -= 1;
    }
    let mut rules = 0;
    let mut all = Outcome { sum: 0, squares: 0 };
    for step in &steps[..cut.children()] {
        rules += step;
        all.sum += rules.unsigned_abs();
        all.squares += (rules * rules).unsigned_abs();
    }
    all
}

//! Builds the trees.

use super::Tree;
use super::cut::{Cut, Span, best_cut};
use super::node::Node;
use crate::column::Column;
use crate::rule::{Rank, Rules};

/// Most rules of a leaf that is not cut further.
const LEAF: usize = 3;

/// Most copies of each rule by one cut, for nodes with many and with few rules.
const GROWTH: u64 = 3;
const GROWTH_OF_FEW: u64 = 8;
const FEW: usize = 64;

/// Most entries of lists for each rule, in one tree. When they are used up, nodes become leaves.
const MOST_COPIES: usize = 24;

/// Most nodes on the way to a leaf.
const MOST_DEPTH: usize = 24;

/// The spans of all rules, by column.
pub(super) struct Spans<'a> {
    rules: &'a Rules,
    columns: Vec<Column>,
}

impl<'a> Spans<'a> {
    pub(super) fn new(rules: &'a Rules, columns: &[Column]) -> Self {
        Self { rules, columns: columns.to_vec() }
    }

    /// Returns the span of a rule. A column that the rule tests by a mask only is open: leaves compare
    /// all tests.
    pub(super) fn get(&self, rank: Rank, column: Column) -> Span {
        let (low, high) = self.rules.as_slice()[rank as usize].span(column);
        Span { low, high }
    }
}

/// Builds one tree of the rules of these ranks, in order.
pub(super) fn tree(spans: &Spans<'_>, ranks: &[Rank]) -> Tree {
    let mut builder = Builder {
        spans,
        nodes: Vec::new(),
        lists: Vec::new(),
        left: ranks.len() * MOST_COPIES + 256,
        depth: 0,
        longest: 0,
    };
    let region = spans.columns.iter().map(|column| Span { low: 0, high: column.greatest() }).collect();
    let root = builder.node(ranks, region, 0);
    Tree {
        root,
        nodes: builder.nodes,
        lists: builder.lists,
        least: ranks.first().copied().unwrap_or(Rank::MAX),
        depth: builder.depth,
        longest: builder.longest,
    }
}

struct Builder<'a> {
    spans: &'a Spans<'a>,
    nodes: Vec<Node>,
    lists: Vec<Rank>,
    left: usize,
    depth: usize,
    longest: usize,
}

impl Builder<'_> {
    /// Returns the node of these rules in a region, with all below it.
    fn node(&mut self, ranks: &[Rank], region: Vec<Span>, depth: usize) -> Node {
        self.depth = self.depth.max(depth);
        let can_match = |rank: Rank| {
            let mut columns = self.spans.columns.iter().zip(&region);
            columns.all(|(&column, &region)| !self.spans.get(rank, column).within(region).is_empty())
        };
        // A cut whose upper bits are not known gives rules to all of its children.
        let ranks: &[Rank] = &ranks.iter().copied().filter(|&rank| can_match(rank)).collect::<Vec<_>>();
        if ranks.len() <= LEAF || depth == MOST_DEPTH {
            return self.leaf(ranks);
        }
        let columns: Vec<_> = self
            .spans
            .columns
            .iter()
            .zip(&region)
            .map(|(&column, &region)| {
                let spans = ranks.iter().map(|&rank| self.spans.get(rank, column).within(region)).collect();
                (column, region, spans)
            })
            .collect();
        let growth = if ranks.len() <= FEW { GROWTH_OF_FEW } else { GROWTH };
        let Some(cut) = best_cut(&columns, growth) else { return self.leaf(ranks) };
        let number = columns.iter().position(|(column, ..)| *column == cut.column).expect("a column of the rules");
        let reaches: Vec<_> = columns[number].2.iter().map(|&span| cut.reach(span)).collect();
        let mut children: Vec<Vec<Rank>> = vec![Vec::new(); cut.children()];
        for (&rank, &(first, last)) in ranks.iter().zip(&reaches) {
            for child in &mut children[first..=last] {
                child.push(rank);
            }
        }
        let copies: usize = children.iter().map(Vec::len).sum();
        let Some(left) = self.left.checked_sub(copies.saturating_sub(ranks.len())) else { return self.leaf(ranks) };
        self.left = left;
        let base = self.nodes.len();
        self.nodes.resize(base + children.len(), Node::EMPTY);
        drop(columns);
        let mut next = 0;
        // Neighbours with equal rules share what is below them.
        for same in children.chunk_by(|one, other| one == other) {
            let mut below = region.clone();
            below[number] = cut_region(cut, region[number], next, next + same.len() - 1);
            let child = self.node(&same[0], below, depth + 1);
            self.nodes[base + next..base + next + same.len()].fill(child);
            next += same.len();
        }
        Node::cut(cut, base)
    }

    fn leaf(&mut self, ranks: &[Rank]) -> Node {
        self.longest = self.longest.max(ranks.len());
        let first = self.lists.len();
        self.lists.extend(ranks);
        Node::leaf(first, ranks.len())
    }
}

/// Returns the region of some children, as far as the bits above the cut are known.
#[expect(clippy::cast_possible_truncation, reason = "the bits of a column of 32 bits")]
fn cut_region(cut: Cut, region: Span, first: usize, last: usize) -> Span {
    let above = |value: u32| u64::from(value) >> (cut.shift + cut.bits);
    if above(region.low) != above(region.high) {
        return region;
    }
    let base = above(region.low) << cut.bits;
    let low = (base | first as u64) << cut.shift;
    let high = (((base | last as u64) + 1) << cut.shift) - 1;
    region.within(Span { low: low as u32, high: high as u32 })
}

//! Cut trees: bits of one field choose the child, until few rules are left.
//!
//! The cuts are those of HyperCuts (S. Singh and others, SIGCOMM 2003), the separate trees those of
//! EffiCuts (B. Vamanan and others, SIGCOMM 2010). A batch goes through a tree step by step:
//!
//! ```text
//! for each tree, by its best rule
//!     node of each key = root
//!     while some key is not at a leaf
//!         for each such key: node = child of the node, by bits of the key
//!     while some key has neither its rule nor the end of its leaf
//!         for each such key: compare the next rule of the leaf
//! ```
//!
//! 1. The steps of different keys do not depend on each other, so the processor overlaps their reads.
//!    A gather would do the same reads in one instruction that takes as long.
//! 2. A rule that leaves a field open is copied to all children of a cut of that field. So rules are
//!    parted first, by which of the two most varied fields they leave open. Each part is a tree that
//!    copies few rules.
//! 3. A tree whose best rule is no better than what a key has already is left out.
//! 4. Leaves have ranks only; each rule is one row, which all trees share. A row compares all fields
//!    at once.
//!
//! Copies are limited, so memory is linear in the number of rules. When the limit is reached, or when
//! no cut separates the rules, leaves stay long; [`Statistics::accesses`] says how long.

mod build;
mod cut;
mod node;
mod row;

use straightline_simd::Level;

use crate::column::{COLUMNS, Column};
use crate::dispatch::{self, Isa, Lookup};
use crate::keys::{Key, Keys, MAX_KEYS};
use crate::rule::{NONE, Rank, Rules};
use crate::structure::{Best, Dead, Statistics, Structure};
use build::Spans;
use node::Node;
use row::{KeyRow, Rows};

/// A part with fewer rules joins the tree of rules that leave both fields open.
const SMALL_PART: usize = 24;

/// A field is open to a rule that accepts more than this part of its values.
const OPEN_BITS: u32 = 10;

/// A tree.
#[derive(Clone, Debug)]
struct Tree {
    root: Node,
    nodes: Vec<Node>,
    /// The ranks of all leaves.
    lists: Vec<Rank>,
    /// The least rank in it.
    least: Rank,
    depth: usize,
    /// Rules of the longest leaf.
    longest: usize,
}

impl Tree {
    fn bytes(&self) -> usize {
        size_of_val(&*self.nodes) + size_of_val(&*self.lists)
    }
}

/// Trees of rules with rows of `W` columns.
#[derive(Clone, Debug)]
struct Trees<const W: usize> {
    trees: Vec<Tree>,
    rows: Rows<W>,
    rules: usize,
}

/// Columns of the rows of most sets.
const FEW: usize = 8;
/// Columns of the rows of larger sets. Few sets test more.
const SOME: usize = 16;
const ALL: usize = COLUMNS.next_multiple_of(8);

#[derive(Clone, Debug)]
enum Width {
    Few(Trees<FEW>),
    Some(Trees<SOME>),
    All(Trees<ALL>),
}

/// Rules as cut trees.
#[derive(Clone, Debug)]
pub struct Forest {
    width: Width,
    level: Level,
}

impl Forest {
    /// Compiles the rules.
    #[must_use]
    pub fn new(rules: &Rules, level: Level) -> Self {
        let columns = rules.columns();
        let width = if columns.len() <= FEW {
            Width::Few(Trees::new(rules, &columns))
        } else if columns.len() <= SOME {
            Width::Some(Trees::new(rules, &columns))
        } else {
            Width::All(Trees::new(rules, &columns))
        };
        Self { width, level }
    }
}

impl Structure for Forest {
    fn lookup(&self, keys: &Keys, dead: &Dead, best: &mut Best) {
        match &self.width {
            Width::Few(trees) => dispatch::run(self.level, ForestLookup { trees, keys, dead, best }),
            Width::Some(trees) => dispatch::run(self.level, ForestLookup { trees, keys, dead, best }),
            Width::All(trees) => dispatch::run(self.level, ForestLookup { trees, keys, dead, best }),
        }
    }

    fn statistics(&self) -> Statistics {
        match &self.width {
            Width::Few(trees) => trees.statistics(),
            Width::Some(trees) => trees.statistics(),
            Width::All(trees) => trees.statistics(),
        }
    }

    fn accesses(&self, key: &Key) -> usize {
        match &self.width {
            Width::Few(trees) => trees.accesses(key),
            Width::Some(trees) => trees.accesses(key),
            Width::All(trees) => trees.accesses(key),
        }
    }
}

/// Returns the two columns with the most values.
fn most_varied(rules: &Rules, columns: &[Column]) -> Vec<Column> {
    let mut all: Vec<(usize, Column)> = columns
        .iter()
        .map(|&column| {
            let mut spans: Vec<_> = rules.as_slice().iter().map(|rule| rule.span(column)).collect();
            spans.sort_unstable();
            spans.dedup();
            (spans.len(), column)
        })
        .collect();
    all.sort_by_key(|(values, _)| std::cmp::Reverse(*values));
    all.into_iter().map(|(_, column)| column).take(2).collect()
}

impl<const W: usize> Trees<W> {
    fn new(rules: &Rules, columns: &[Column]) -> Self {
        let varied = most_varied(rules, columns);
        let mut parts: [Vec<Rank>; 4] = Default::default();
        let mut usable = 0;
        for (rank, rule) in rules.ranked() {
            if columns.iter().any(|&column| rule.span(column).0 > rule.span(column).1) {
                continue;
            }
            let is_open = |column: &Column| {
                let (low, high) = rule.span(*column);
                high - low > column.greatest() >> OPEN_BITS
            };
            let part = varied.iter().fold(0, |part, column| part * 2 + usize::from(is_open(column)));
            parts[part].push(rank);
            usable += 1;
        }
        let open = (1 << varied.len()) - 1;
        for part in 0..parts.len() {
            if part != open && parts[part].len() < SMALL_PART {
                let moved = std::mem::take(&mut parts[part]);
                parts[open].extend(moved);
            }
        }
        parts[open].sort_unstable();
        let spans = Spans::new(rules, columns);
        let mut trees: Vec<_> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| build::tree(&spans, part)).collect();
        trees.sort_by_key(|tree| tree.least);
        Self { trees, rows: Rows::new(rules, columns), rules: usable }
    }

    fn statistics(&self) -> Statistics {
        // A row of 8 columns is one line.
        let row = W / 8;
        let accesses = |tree: &Tree| tree.depth + tree.longest * row + tree.longest.div_ceil(16);
        Statistics {
            rules: self.rules,
            tables: self.trees.len(),
            depth: self.trees.iter().map(|tree| tree.depth + 1).max().unwrap_or(0),
            bytes: self.trees.iter().map(Tree::bytes).sum::<usize>() + self.rows.bytes(),
            accesses: self.trees.iter().map(accesses).sum(),
        }
    }

    fn accesses(&self, key: &Key) -> usize {
        let mut reads = 0;
        let mut rows = [KeyRow([0; W])];
        self.rows.turn(&[key].into_iter().collect(), &mut rows);
        let mut best = NONE;
        for tree in &self.trees {
            if tree.least >= best {
                break;
            }
            let mut node = tree.root;
            while !node.is_leaf() {
                node = tree.nodes[node.child(key.get(Column::ALL[node.column()]))];
                reads += 1;
            }
            let (first, count) = node.list();
            let list = &tree.lists[first..first + count];
            let read = list.iter().position(|&rank| rank >= best || self.rows.accepts(rank as usize, &rows[0]));
            let found = read.and_then(|at| list.get(at)).copied().unwrap_or(NONE);
            best = best.min(found);
            let compared = read.map_or(count, |at| at + 1);
            reads += compared * (W / 8) + compared.div_ceil(16);
        }
        reads
    }
}

struct ForestLookup<'a, const W: usize> {
    trees: &'a Trees<W>,
    keys: &'a Keys,
    dead: &'a Dead,
    best: &'a mut Best,
}

impl<const W: usize> Lookup for ForestLookup<'_, W> {
    #[inline(always)]
    fn run<I: Isa>(self, _isa: I) {
        let Self { trees, keys, dead, best } = self;
        let mut rows = [KeyRow([0; W]); MAX_KEYS];
        trees.rows.turn(keys, &mut rows);
        best[..keys.len()].fill(NONE);
        let mut nodes = [Node::EMPTY; MAX_KEYS];
        for tree in &trees.trees {
            descend(tree, keys, best, &mut nodes);
            compare(tree, &trees.rows, &rows[..keys.len()], &nodes, dead, best);
        }
    }
}

/// Leads each key to its leaf. A key whose rule is better than all of the tree gets an empty leaf.
#[inline(always)]
fn descend(tree: &Tree, keys: &Keys, best: &Best, nodes: &mut [Node; MAX_KEYS]) {
    let mut waiting = [0_u8; MAX_KEYS];
    let mut count = 0;
    for at in 0..keys.len() {
        nodes[at] = if tree.least < best[at] { tree.root } else { Node::EMPTY };
        waiting[count % MAX_KEYS] = place(at);
        count += usize::from(!nodes[at].is_leaf());
    }
    while count > 0 {
        let mut left = 0;
        for next in 0..count {
            let at = waiting[next];
            let node = nodes[usize::from(at)];
            let column = Column::ALL[node.column() % COLUMNS];
            let child = tree.nodes[node.child(keys.column(column)[usize::from(at)])];
            nodes[usize::from(at)] = child;
            waiting[left] = at;
            left += usize::from(!child.is_leaf());
        }
        count = left;
    }
}

/// Compares each key with the rules of its leaf: with the first one, then with the second one, and so
/// on. No branch depends on whether a rule accepts its key.
#[inline(always)]
fn compare<const W: usize>(
    tree: &Tree,
    rules: &Rows<W>,
    rows: &[KeyRow<W>],
    nodes: &[Node; MAX_KEYS],
    dead: &Dead,
    best: &mut Best,
) {
    let mut waiting = [0_u8; MAX_KEYS];
    let mut nexts = [0_usize; MAX_KEYS];
    let mut ends = [0_usize; MAX_KEYS];
    let mut count = 0;
    for at in 0..rows.len() {
        let (first, rules) = nodes[at].list();
        nexts[at] = first;
        ends[at] = first + rules;
        waiting[count % MAX_KEYS] = place(at);
        count += usize::from(rules > 0);
    }
    while count > 0 {
        let mut left = 0;
        for next in 0..count {
            let waits = waiting[next];
            let at = usize::from(waits);
            let rank = tree.lists[nexts[at]];
            nexts[at] += 1;
            let is_better = rank < best[at];
            let mut is_found = is_better & rules.accepts(rank as usize, &rows[at]);
            if !dead.is_empty() {
                is_found &= !dead.has(rank);
            }
            best[at] = if is_found { rank } else { best[at] };
            waiting[left] = waits;
            left += usize::from(is_better & !is_found & (nexts[at] < ends[at]));
        }
        count = left;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a place in a batch")]
#[inline(always)]
fn place(at: usize) -> u8 {
    at as u8
}

const _: () = assert!(MAX_KEYS == 256);

//! A table of rules that changes while lookups run.
//!
//! ```text
//! Table (control)                      Snapshot (readers)
//!   rules by their numbers     ──▶       base:  compiled structure, shared
//!   changes since the compile            dead:  base rules that are gone
//!                                        added: list of new rules, scanned
//! ```
//!
//! A change makes a new snapshot: it copies the set of dead rules and compiles the short list of added
//! ones. The structure of all other rules is shared. A snapshot never changes, so a reader sees all of
//! a change or nothing of it. How a snapshot reaches readers is the caller's choice: an `RcuCell` of
//! the crate `packet`, for example, costs a reader one load and no wait.
//!
//! Each added rule makes lookups a little slower. [`Table::compile`] returns work for another thread,
//! whose product [`Table::adopt`] takes in; changes between the two are kept.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use straightline_simd::Level;

use crate::bits::BitVectors;
use crate::column::Column;
use crate::forest::Forest;
use crate::keys::{Key, Keys};
use crate::rule::{NONE, Rank, Rule, Rules, Test};
use crate::scan::Scan;
use crate::structure::{Best, Dead, Statistics, Structure};
use crate::workload::Random;

/// Most rules that are scanned, and not compiled to another structure.
pub const MOST_SCANNED: usize = 64;

/// Rules that are scanned in any case.
const FEW_RULES: usize = 24;

/// Most added rules. A change that exceeds it compiles all rules at once.
pub const MOST_ADDED: usize = 256;

/// Hundredths of a cycle: of a test of the list, and of a read of trees and of bit vectors. They follow from
/// the rows of `docs/benchmarks/classify.md`.
const TEST_COST: usize = 15;
const TREE_READ_COST: usize = 900;
const BITS_READ_COST: usize = 440;
/// Of bit vectors without a summary.
const FEW_BITS_READ_COST: usize = 170;

/// Reads of trees for a packet up to which many rules need no bit vectors: they would take more time.
const FEW_READS: usize = 11;

/// Most bytes of bit vectors, for each part of rules.
const MOST_BYTES: usize = 64 << 20;

/// Number of packets by which structures are compared.
const SAMPLES: usize = 64;

/// Compiles rules to the structure that is fastest for them: a list for a few rules, bit vectors for some
/// hundred and where cuts do not separate the rules, and trees for many.
#[must_use]
pub fn compile(rules: &Rules, level: Level) -> Box<dyn Structure> {
    let all = rules.as_slice();
    if all.len() <= FEW_RULES {
        return Box::new(Scan::new(rules, level));
    }
    let samples = samples(rules);
    let reads = |structure: &dyn Structure| samples.iter().map(|key| structure.accesses(key)).sum::<usize>();
    let forest = Forest::new(rules, level);
    let reads_of_forest = reads(&forest);
    let mut best: (usize, Box<dyn Structure>) = (reads_of_forest * TREE_READ_COST, Box::new(forest));
    let has_few = all.len() <= BitVectors::FEW_RULES;
    if (has_few || reads_of_forest > FEW_READS * samples.len())
        && let Some(bits) = BitVectors::new(rules, level, MOST_BYTES * BitVectors::parts(all.len()))
    {
        let cost = reads(&bits) * if has_few { FEW_BITS_READ_COST } else { BITS_READ_COST };
        if cost < best.0 {
            best = (cost, Box::new(bits));
        }
    }
    if all.len() <= MOST_SCANNED {
        let tests: usize = all.iter().map(|rule| rule.tests().len()).sum();
        if tests * TEST_COST * samples.len() < best.0 {
            return Box::new(Scan::new(rules, level));
        }
    }
    best.1
}

/// Returns keys of packets that match some of the rules. Fields that a rule leaves open have the values
/// of another rule.
fn samples(rules: &Rules) -> Vec<Key> {
    let all = rules.as_slice();
    let mut random = Random::new(1);
    let mut keys = Vec::new();
    for rule in all.iter().step_by(all.len().div_ceil(SAMPLES).max(1)) {
        let other = &all[random.place(all.len())];
        let mut key = Key::default();
        for &(column, test) in other.tests().iter().chain(rule.tests()) {
            let value = match test {
                Test::Range { low, high } => random.within(low, high.max(low)),
                Test::Masked { mask, value } => value | random.word() & !mask,
            };
            key.set(column, value);
        }
        keys.push(key);
    }
    keys
}

/// Number of a rule in its table, which no other rule ever gets. Within a priority, the rule with the
/// least number wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(u64);

/// Compiled rules, with their numbers.
#[derive(Debug)]
struct Layer {
    rules: Rules,
    /// Numbers by rank.
    ids: Vec<RuleId>,
    priorities: Vec<u32>,
    results: Vec<u32>,
    columns: Vec<Column>,
    structure: Box<dyn Structure>,
}

impl Layer {
    /// Sorts rules by rank, and compiles them.
    fn new(mut rules: Vec<(RuleId, Rule)>, compile: impl FnOnce(&Rules) -> Box<dyn Structure>) -> Self {
        rules.sort_by_key(|(id, rule)| (std::cmp::Reverse(rule.priority()), *id));
        let ids = rules.iter().map(|(id, _)| *id).collect();
        let priorities = rules.iter().map(|(_, rule)| rule.priority()).collect();
        let results = rules.iter().map(|(_, rule)| rule.result()).collect();
        let rules: Rules = rules.into_iter().map(|(_, rule)| rule).collect();
        let structure = compile(&rules);
        let columns = rules.columns();
        Self { rules, ids, priorities, results, columns, structure }
    }

    fn scanned(rules: Vec<(RuleId, Rule)>, level: Level) -> Self {
        Self::new(rules, |rules| Box::new(Scan::new(rules, level)))
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the rules that are not dead, with their numbers.
    fn live(&self, dead: &Dead) -> impl Iterator<Item = (RuleId, &Rule)> {
        let ranked = self.rules.ranked().zip(&self.ids);
        ranked.filter(|((rank, _), _)| !dead.has(*rank)).map(|((_, rule), id)| (*id, rule))
    }
}

/// The rules of a table at one moment. A clone shares its memory.
#[derive(Clone, Debug)]
pub struct Snapshot {
    base: Arc<Layer>,
    dead: Dead,
    added: Arc<Layer>,
}

impl Snapshot {
    /// Finds the best rule for each key: a rank for [`Self::rule`], or [`NONE`].
    pub fn lookup(&self, keys: &Keys, best: &mut Best) {
        self.base.structure.lookup(keys, &self.dead, best);
        if self.added.len() == 0 {
            return;
        }
        let mut added = [NONE; crate::MAX_KEYS];
        self.added.structure.lookup(keys, &Dead::default(), &mut added);
        let base_len = rank(self.base.len());
        for (best, added) in best.iter_mut().zip(added).take(keys.len()) {
            if added == NONE {
                continue;
            }
            // Added rules have greater numbers, so they lose within a priority.
            let own = self.added.priorities[added as usize];
            if *best == NONE || own > self.base.priorities[*best as usize] {
                *best = base_len + added;
            }
        }
    }

    /// Returns the rule that [`Self::lookup`] found, with its number; `None` for [`NONE`].
    #[must_use]
    pub fn rule(&self, rank: Rank) -> Option<(RuleId, &Rule)> {
        let at = usize::try_from(rank).ok()?;
        let (layer, at) = match at.checked_sub(self.base.len()) {
            None => (&self.base, at),
            Some(at) => (&self.added, at),
        };
        Some((*layer.ids.get(at)?, layer.rules.as_slice().get(at)?))
    }

    /// Returns the result of the rule that [`Self::lookup`] found; `None` for [`NONE`]. It takes less
    /// time than [`Self::rule`].
    #[inline]
    #[must_use]
    pub fn result(&self, rank: Rank) -> Option<u32> {
        let at = rank as usize;
        let base = &self.base.results;
        base.get(at).or_else(|| self.added.results.get(at - base.len())).copied()
    }

    /// Returns the columns that rules test, those of dead rules included.
    #[must_use]
    pub fn columns(&self) -> Vec<Column> {
        let mut columns = [&*self.base.columns, &*self.added.columns].concat();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Returns the sums of both parts, and the number of live rules.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let base = self.base.structure.statistics();
        let added = self.added.structure.statistics();
        // A dead rule takes a further read wherever it would have matched.
        let dead = if self.dead.is_empty() { 0 } else { self.base.len() };
        Statistics {
            rules: self.base.len() - self.dead.len() + self.added.len(),
            tables: base.tables + added.tables,
            depth: base.depth.max(added.depth),
            bytes: base.bytes + added.bytes,
            accesses: base.accesses + added.accesses + dead.min(self.dead.len()),
        }
    }
}

fn rank(at: usize) -> Rank {
    Rank::try_from(at).expect("a table has fewer than 2^32 rules")
}

/// The rules of a table, and the work to change them: control's side.
#[derive(Debug)]
pub struct Table {
    level: Level,
    snapshot: Snapshot,
    /// Ranks of the base's rules.
    places: HashMap<RuleId, Rank>,
    next: u64,
}

/// Rules that are being compiled. It can be sent to another thread.
#[derive(Clone, Debug)]
pub struct Compilation {
    rules: Vec<(RuleId, Rule)>,
    level: Level,
}

/// The product of a [`Compilation`].
#[derive(Debug)]
pub struct Compiled(Layer);

impl Compilation {
    /// Compiles the rules.
    #[must_use]
    pub fn run(self) -> Compiled {
        let Self { rules, level } = self;
        Compiled(Layer::new(rules, |rules| compile(rules, level)))
    }
}

impl Table {
    /// Creates an empty table.
    #[must_use]
    pub fn new(level: Level) -> Self {
        let empty = || Arc::new(Layer::scanned(Vec::new(), level));
        let snapshot = Snapshot { base: empty(), dead: Dead::default(), added: empty() };
        Self { level, snapshot, places: HashMap::new(), next: 0 }
    }

    /// Returns the rules as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// Returns all rules with their numbers.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, &Rule)> {
        let added = self.snapshot.added.rules.as_slice().iter();
        let added = self.snapshot.added.ids.iter().copied().zip(added);
        self.snapshot.base.live(&self.snapshot.dead).chain(added)
    }

    /// Removes and adds rules, in one step. Returns the numbers of the new ones. Numbers that the
    /// table does not have are ignored.
    ///
    /// The change takes microseconds if the table has at most [`MOST_ADDED`] added rules then. Beyond
    /// that it compiles all rules first.
    pub fn change(&mut self, removed: &[RuleId], added: impl IntoIterator<Item = Rule>) -> Vec<RuleId> {
        for rank in removed.iter().filter_map(|id| self.places.get(id)) {
            self.snapshot.dead = self.snapshot.dead.with(*rank);
        }
        let removed: HashSet<&RuleId> = removed.iter().collect();
        let kept = self.added().filter(|(id, _)| !removed.contains(id));
        let mut all: Vec<(RuleId, Rule)> = kept.collect();
        let mut new = Vec::new();
        for rule in added {
            let id = RuleId(self.next);
            self.next += 1;
            new.push(id);
            all.push((id, rule));
        }
        if all.len() > MOST_ADDED {
            let base = self.snapshot.base.live(&self.snapshot.dead).map(|(id, rule)| (id, rule.clone()));
            all.extend(base);
            self.replace(Compilation { rules: all, level: self.level }.run().0, Vec::new(), Dead::default());
        } else if !new.is_empty() || all.len() != self.snapshot.added.len() {
            self.snapshot.added = Arc::new(Layer::scanned(all, self.level));
        }
        new
    }

    /// Returns the number of changes since the rules were compiled. Each makes lookups a little slower.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.snapshot.added.len() + self.snapshot.dead.len()
    }

    /// Returns the work to compile all rules. It is worth while after changes.
    #[must_use]
    pub fn compile(&self) -> Compilation {
        Compilation { rules: self.rules().map(|(id, rule)| (id, rule.clone())).collect(), level: self.level }
    }

    /// Takes compiled rules in, in place of those of [`Self::compile`]. Later changes stay.
    pub fn adopt(&mut self, compiled: Compiled) {
        let Compiled(layer) = compiled;
        let live: HashSet<RuleId> = self.rules().map(|(id, _)| id).collect();
        let known: HashSet<RuleId> = layer.ids.iter().copied().collect();
        let gone = (0..).zip(&layer.ids).filter(|(_, id)| !live.contains(id));
        let dead = gone.fold(Dead::default(), |dead, (rank, _)| dead.with(rank));
        // A rule of the base that is not in `compiled` was compiled by a larger change meanwhile.
        let added: Vec<_> =
            self.rules().filter(|(id, _)| !known.contains(id)).map(|(id, rule)| (id, rule.clone())).collect();
        if added.len() > MOST_ADDED {
            return;
        }
        self.replace(layer, added, dead);
    }

    fn added(&self) -> impl Iterator<Item = (RuleId, Rule)> {
        let added = &self.snapshot.added;
        added.ids.iter().copied().zip(added.rules.as_slice().iter().cloned())
    }

    fn replace(&mut self, base: Layer, added: Vec<(RuleId, Rule)>, dead: Dead) {
        self.places = (0..).zip(&base.ids).map(|(rank, id)| (*id, rank)).collect();
        let added = Arc::new(Layer::scanned(added, self.level));
        self.snapshot = Snapshot { base: Arc::new(base), dead, added };
    }
}

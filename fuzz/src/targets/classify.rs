//! Fuzz target: rules, changes of a table and keys.
//!
//! Input, in bytes: rules, a byte of their number first; numbers of rules that are removed; keys. A
//! rule has a priority and tests, a test has a column, a kind and two values. [`Input::value`] makes
//! a value of a byte.
//!
//! Invariants:
//! - Each structure finds what the linear list finds, by each instruction set, with and without dead
//!   rules.
//! - No key takes more reads than the bound of the structure.
//! - A table finds the same after changes, and after it was compiled.

use crate::reached;
use straightline_classify::{
    BitVectors, Column, Dead, Forest, Key, Keys, Level, Linear, MAX_KEYS, NONE, Rule, RuleId, Rules, Scan, Structure,
    Table, lookup_level,
};

/// Most rules; more would only make a run slow.
const MOST_RULES: u8 = 96;

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    run(Input(data));
}

/// Bytes that are read from the front. Behind the last one there are zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, count: u8) -> u8 {
        self.byte() % count
    }

    /// Returns a small number, a power of two or a repeated byte.
    fn value(&mut self) -> u32 {
        match self.byte() {
            small @ 0..=15 => small.into(),
            power @ 16..=47 => 1 << (power - 16),
            byte => u32::from_ne_bytes([byte; 4]),
        }
    }

    fn column(&mut self) -> Column {
        Column::ALL[usize::from(self.byte()) % Column::ALL.len()]
    }

    fn rule(&mut self) -> Rule {
        let mut rule = Rule::new(self.below(4).into(), 0);
        for _ in 0..self.below(6) {
            let column = self.column();
            let kind = self.below(4);
            let a = self.value();
            let b = self.value();
            rule = match kind {
                0 => rule.exact(column, a),
                1 => rule.range(column, a, b),
                2 => rule.masked(column, a, b),
                _ => rule.word_prefix(column, a, b % 33),
            };
        }
        rule
    }
}

fn run(mut input: Input<'_>) {
    let rules: Vec<Rule> = (0..input.below(MOST_RULES)).map(|_| input.rule()).collect();
    let gone: Vec<usize> = (0..input.below(8)).map(|_| usize::from(input.byte())).collect();
    let mut keys = Keys::new();
    while !input.0.is_empty() {
        let mut key = Key::default();
        for _ in 0..input.below(8) {
            key.set(input.column(), input.value());
        }
        if !keys.push(&key) {
            break;
        }
    }
    structures(&rules.iter().cloned().collect(), &gone, &keys);
    tables(&rules, &gone, &keys);
}

fn structures(rules: &Rules, gone: &[usize], keys: &Keys) {
    let linear = Linear::new(rules);
    let mut all: Vec<Box<dyn Structure>> = Vec::new();
    for level in Level::supported() {
        all.push(Box::new(Scan::new(rules, level)));
        all.push(Box::new(BitVectors::new(rules, level, usize::MAX).expect("few rules")));
        all.push(Box::new(Forest::new(rules, level)));
    }
    let ranks = gone.iter().filter_map(|&at| u32::try_from(at).ok());
    for dead in [Dead::default(), ranks.fold(Dead::default(), |dead, rank| dead.with(rank))] {
        for structure in &all {
            let mut best = [NONE; MAX_KEYS];
            structure.lookup(keys, &dead, &mut best);
            for (at, &rank) in best.iter().enumerate().take(keys.len()) {
                let key = keys.key(at);
                assert_eq!(rank, linear.find(&key, &dead), "{structure:?}: {key:?}");
                assert!(structure.accesses(&key) <= structure.statistics().accesses, "{structure:?}: {key:?}");
                if rank == NONE {
                    reached("a key without a rule");
                } else if linear.find(&key, &Dead::default()) != rank {
                    reached("a rule behind a dead one");
                } else {
                    reached("a rule");
                }
            }
        }
    }
}

/// Half of the rules are compiled, the others are added.
fn tables(rules: &[Rule], gone: &[usize], keys: &Keys) {
    let (first, second) = rules.split_at(rules.len() / 2);
    let mut table = Table::new(lookup_level());
    let mut ids: Vec<RuleId> = table.change(&[], first.iter().cloned());
    table.adopt(table.compile().run());
    let pending = table.compile();
    ids.extend(table.change(&[], second.iter().cloned()));
    let removed: Vec<RuleId> = gone.iter().filter_map(|&at| ids.get(at).copied()).collect();
    table.change(&removed, []);
    let left: Vec<(RuleId, &Rule)> = ids.into_iter().zip(rules).filter(|(id, _)| !removed.contains(id)).collect();
    for is_adopted in [false, true] {
        if is_adopted {
            table.adopt(pending.clone().run());
        }
        let snapshot = table.snapshot();
        let mut best = [NONE; MAX_KEYS];
        snapshot.lookup(keys, &mut best);
        for (at, &rank) in best.iter().enumerate().take(keys.len()) {
            let key = keys.key(at);
            let matching = left.iter().filter(|(_, rule)| rule.matches(&key));
            let want = matching.min_by_key(|(id, rule)| (std::cmp::Reverse(rule.priority()), *id));
            assert_eq!(snapshot.rule(rank), want.copied(), "{key:?}");
            if want.is_some_and(|(_, rule)| second.iter().any(|other| std::ptr::eq(other, *rule))) {
                reached("a rule that was added");
            }
        }
    }
}

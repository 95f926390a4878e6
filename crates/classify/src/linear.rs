//! The linear list: the reference implementation, for tests.
//!
//! It is obviously right, and slow: it compares each key with each rule until one matches. All other
//! structures are checked against it.

use crate::keys::{Key, Keys};
use crate::rule::{NONE, Rank, Rules};
use crate::structure::{Best, Dead, Statistics, Structure};

/// Rules in a list. The oracle of all structures.
#[derive(Clone, Debug)]
pub struct Linear(Rules);

impl Linear {
    /// Creates the list.
    #[must_use]
    pub fn new(rules: &Rules) -> Self {
        Self(rules.clone())
    }

    /// Returns the least rank of a rule that matches and is not dead.
    #[must_use]
    pub fn find(&self, key: &Key, dead: &Dead) -> Rank {
        let found = self.0.ranked().find(|(rank, rule)| !dead.has(*rank) && rule.matches(key));
        found.map_or(NONE, |(rank, _)| rank)
    }
}

impl Structure for Linear {
    fn lookup(&self, keys: &Keys, dead: &Dead, best: &mut Best) {
        for (at, best) in best.iter_mut().enumerate().take(keys.len()) {
            *best = self.find(&keys.key(at), dead);
        }
    }

    fn statistics(&self) -> Statistics {
        let rules = self.0.as_slice().len();
        let tests: usize = self.0.as_slice().iter().map(|rule| rule.tests().len()).sum();
        Statistics { rules, tables: 1, depth: rules, bytes: size_of_val(self.0.as_slice()), accesses: rules + tests }
    }

    fn accesses(&self, key: &Key) -> usize {
        let rules = self.0.as_slice();
        let read = rules.iter().position(|rule| rule.matches(key)).map_or(rules.len(), |last| last + 1);
        rules[..read].iter().map(|rule| 1 + rule.tests().len()).sum()
    }
}

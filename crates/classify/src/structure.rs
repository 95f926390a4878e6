//! The interface of all structures.

use std::sync::Arc;

use crate::keys::{Key, Keys, MAX_KEYS};
use crate::rule::{NONE, Rank};

/// The best rank for each key of a batch. Values behind the last key have no meaning.
pub type Best = [Rank; MAX_KEYS];

/// Facts about a structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Rules in the structure.
    pub rules: usize,
    /// Tables that a lookup may read: lists, trees, or columns with vectors.
    pub tables: usize,
    /// Steps of the longest chain of dependent reads in one table.
    pub depth: usize,
    /// Bytes of memory, without the rules themselves.
    pub bytes: usize,
    /// Most reads of memory for one packet, in units of at most one cache line. No packet takes more.
    pub accesses: usize,
}

/// Rules that a structure was made of, and that are gone since. Lookups skip them.
///
/// A clone shares its memory until it is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dead {
    bits: Arc<[u64]>,
    count: usize,
}

impl Dead {
    /// Returns whether no rule is dead.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of dead rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the rule of a rank is dead.
    #[inline]
    #[must_use]
    pub fn has(&self, rank: Rank) -> bool {
        self.bits.get(rank as usize / 64).is_some_and(|word| word >> (rank % 64) & 1 == 1)
    }

    /// Returns the set with one more dead rule.
    #[must_use]
    pub fn with(&self, rank: Rank) -> Self {
        if self.has(rank) || rank == NONE {
            return self.clone();
        }
        let word = rank as usize / 64;
        let mut bits = self.bits.to_vec();
        bits.resize(bits.len().max(word + 1), 0);
        bits[word] |= 1 << (rank % 64);
        Self { bits: bits.into(), count: self.count + 1 }
    }
}

/// Rules, compiled for lookups.
///
/// A structure never changes. `dead` removes rules from it, and [`Table`](crate::Table) adds rules
/// beside it.
pub trait Structure: Send + Sync + std::fmt::Debug {
    /// Finds, for each key, the least rank of a rule that matches and is not dead, or [`NONE`].
    fn lookup(&self, keys: &Keys, dead: &Dead, best: &mut Best);

    /// Returns facts about the structure.
    fn statistics(&self) -> Statistics;

    /// Returns the number of reads that a lookup of this key takes without dead rules. It is at most
    /// [`Statistics::accesses`].
    fn accesses(&self, key: &Key) -> usize;
}

//! Sets of edges.

/// Number of edges in a word.
const BITS: usize = 64;

/// A set of edges of a bridge. Its size is fixed when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EdgeSet(Box<[u64]>);

/// Returns the number of words of a set of this number of edges.
pub(super) fn words(edges: usize) -> usize {
    edges.div_ceil(BITS)
}

/// Returns the word and the bit of an edge.
pub(super) fn place(edge: usize) -> (usize, u64) {
    (edge / BITS, 1 << (edge % BITS))
}

impl EdgeSet {
    /// Creates an empty set for edges below `edges`.
    pub(super) fn new(edges: usize) -> Self {
        EdgeSet(vec![0; words(edges)].into())
    }

    /// Returns the words. The caller fills them.
    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }

    /// Adds the edges of these words.
    pub(super) fn add(&mut self, words: impl IntoIterator<Item = u64>) {
        for (word, more) in self.0.iter_mut().zip(words) {
            *word |= more;
        }
    }

    /// Returns the words.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }

    /// Returns whether an edge is in the set.
    #[inline]
    pub(crate) fn contains(&self, edge: usize) -> bool {
        let (word, bit) = place(edge);
        self.0.get(word).is_some_and(|found| found & bit != 0)
    }

    /// Returns the edges, in their order.
    #[cfg(test)]
    pub(super) fn edges(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, &word)| Bits(word).map(move |bit| at * BITS + bit))
    }
}

/// Iterator over the set bits of a word.
#[cfg(test)]
struct Bits(u64);

#[cfg(test)]
impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        // The lowest bit that is set goes.
        self.0 &= self.0.checked_sub(1)?;
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_tree(edges in prop::collection::btree_set(0..200_usize, 0..80)) {
            let mut set = EdgeSet::new(200);
            prop_assert_eq!(set.words().count(), 4);
            for &edge in &edges {
                let (word, bit) = place(edge);
                set.words_mut()[word] |= bit;
            }
            prop_assert_eq!(set.edges().collect::<BTreeSet<_>>(), edges.clone());
            prop_assert!(set.edges().is_sorted());
            prop_assert!((0..300).all(|edge| set.contains(edge) == edges.contains(&edge)));
            let mut other = EdgeSet::new(200);
            other.add(set.words());
            prop_assert_eq!(other, set);
        }
    }
}

//! Search in sorted bounds by nodes of 16, one cache line each.
//!
//! The lowest level has the bounds in order. A node of a level above has 16 separators, which are the
//! first bounds of its children but the first one. So a node has 17 children, and the number of
//! separators that are not above the value says which one comes next.

use crate::dispatch::Isa;

/// Bounds of a node.
const NODE: usize = 16;

/// Children of a node.
const CHILDREN: usize = NODE + 1;

/// Most levels.
const MOST_LEVELS: usize = 4;

/// Most bounds, in four levels.
pub(super) const MOST_BOUNDS: usize = NODE * CHILDREN * CHILDREN * CHILDREN;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([u32; NODE]);

/// Sorted bounds. The place of a value is the number of bounds that are not above it.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// The levels, the highest first. The last one has the bounds.
    levels: Vec<Vec<Node>>,
    count: u32,
}

impl Search {
    /// Creates the search in sorted bounds, of which there are at most [`MOST_BOUNDS`].
    pub(super) fn new(bounds: &[u32]) -> Self {
        // The bounds of each node's whole subtree begin here.
        let mut firsts: Vec<u32> = bounds.chunks(NODE).map(|node| node[0]).collect();
        let mut levels = vec![bounds.chunks(NODE).map(node).collect::<Vec<_>>()];
        while firsts.len() > 1 {
            levels.push(firsts.chunks(CHILDREN).map(|children| node(&children[1..])).collect());
            firsts = firsts.chunks(CHILDREN).map(|children| children[0]).collect();
        }
        levels.reverse();
        Self { levels, count: u32::try_from(bounds.len()).expect("a bound or two for each rule") }
    }

    /// Finds the places of values.
    #[inline(always)]
    pub(super) fn find(&self, values: &[u32], places: &mut [u32], isa: impl Isa) {
        // A loop for each depth has no loop over levels.
        match self.levels.len() {
            1 => self.find_in::<1>(values, places, isa),
            2 => self.find_in::<2>(values, places, isa),
            3 => self.find_in::<3>(values, places, isa),
            _ => self.find_in::<MOST_LEVELS>(values, places, isa),
        }
    }

    #[inline(always)]
    fn find_in<const LEVELS: usize>(&self, values: &[u32], places: &mut [u32], isa: impl Isa) {
        let Some(levels) = self.levels.first_chunk::<LEVELS>() else { return };
        for (place, &value) in places.iter_mut().zip(values) {
            let found = levels.iter().enumerate().try_fold(0, |at: usize, (depth, level)| {
                let below = isa.not_above(&level.get(at)?.0, value) as usize;
                Some(at * if depth + 1 < LEVELS { CHILDREN } else { NODE } + below)
            });
            // The greatest value is not below the separators that fill a node up, so it may leave a level.
            // No bound is above it.
            #[expect(clippy::cast_possible_truncation, reason = "at most 17 to the fourth")]
            let found = found.map_or(self.count, |found| found as u32);
            *place = found.min(self.count);
        }
    }

    /// Returns the number of nodes that a search reads.
    pub(super) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Returns the bytes of all nodes.
    pub(super) fn bytes(&self) -> usize {
        self.levels.iter().map(|level| size_of_val(&**level)).sum()
    }
}

fn node(bounds: &[u32]) -> Node {
    let mut node = Node([u32::MAX; NODE]);
    node.0[..bounds.len()].copy_from_slice(bounds);
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Portable;

    #[test]
    fn places_are_those_of_a_sorted_list() {
        for count in [0, 1, 15, 16, 17, 18, 33, 272, 273, 289, 290, 300, 4913, 5000] {
            let mut bounds: Vec<u32> = (0..count).map(|at| at * 3 + 1).collect();
            for last in [None, Some(u32::MAX)] {
                bounds.extend(last);
                let search = Search::new(&bounds);
                let values: Vec<u32> = (0..count * 3 + 5).chain([u32::MAX - 1, u32::MAX]).collect();
                let mut places = vec![7; values.len()];
                search.find(&values, &mut places, Portable);
                for (value, place) in values.iter().zip(places) {
                    let want = bounds.partition_point(|bound| bound <= value);
                    assert_eq!(place as usize, want, "{value} in {count}");
                }
            }
        }
    }
}

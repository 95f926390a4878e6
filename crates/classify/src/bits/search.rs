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
    /// Creates the search in sorted bounds.
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
        let Some(lowest) = self.levels.last().filter(|lowest| !lowest.is_empty()) else {
            places.fill(0);
            return;
        };
        for (place, &value) in places.iter_mut().zip(values) {
            let mut at = 0;
            for pair in self.levels.windows(2) {
                // The separators that fill a node up are the greatest value, which is not above itself.
                at = (at * CHILDREN + isa.not_above(&pair[0][at].0, value) as usize).min(pair[1].len() - 1);
            }
            #[expect(clippy::cast_possible_truncation, reason = "below the number of bounds")]
            let found = (at * NODE + isa.not_above(&lowest[at].0, value) as usize) as u32;
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

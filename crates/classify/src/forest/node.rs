//! A node of a tree, in one word.

use super::cut::Cut;
use crate::column::Column;

/// A node.
///
/// | bits | cut | leaf |
/// |---|---|---|
/// | 0 to 31 | place of the first child | place of the first rule in the tree's lists |
/// | 32 to 39 | column | number of rules, |
/// | 40 to 47 | shift | 31 bits |
/// | 48 to 55 | bits, at least 1 | |
/// | 63 | 0 | 1 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(u64);

const LEAF: u64 = 1 << 63;

impl Node {
    /// A leaf without rules.
    pub(super) const EMPTY: Self = Self(LEAF);

    pub(super) fn cut(cut: Cut, base: usize) -> Self {
        let base = u32::try_from(base).expect("a tree has fewer than 2^32 nodes");
        let column = cut.column as u64;
        Self(u64::from(base) | column << 32 | u64::from(cut.shift) << 40 | u64::from(cut.bits) << 48)
    }

    pub(super) fn leaf(first: usize, count: usize) -> Self {
        let first = u32::try_from(first).expect("lists of fewer than 2^32 rules");
        let count = u32::try_from(count).expect("fewer than 2^31 rules");
        Self(LEAF | u64::from(first) | u64::from(count) << 32)
    }

    #[inline(always)]
    pub(super) fn is_leaf(self) -> bool {
        self.0 & LEAF != 0
    }

    /// Returns the column's number, of a cut.
    #[inline(always)]
    pub(super) fn column(self) -> usize {
        (self.0 >> 32 & 0xff) as usize
    }

    /// Returns the child's place for a value of the column, of a cut.
    #[expect(clippy::cast_possible_truncation, reason = "sums of 32 bits and of 8 bits")]
    #[inline(always)]
    pub(super) fn child(self, value: u32) -> usize {
        let shift = self.0 >> 40 & 31;
        let mask = (1_u64 << (self.0 >> 48 & 31)) - 1;
        (self.0 & 0xffff_ffff) as usize + (u64::from(value) >> shift & mask) as usize
    }

    /// Returns the place and the number of the rules, of a leaf.
    #[inline(always)]
    pub(super) fn list(self) -> (usize, usize) {
        ((self.0 & 0xffff_ffff) as usize, (self.0 >> 32 & 0x7fff_ffff) as usize)
    }
}

const _: () = assert!(Column::ALL.len() < 256);

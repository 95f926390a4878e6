//! Rules as rows that vectors compare with a key: `(value & mask) - low <= span` for each column.

use crate::column::Column;
use crate::keys::Keys;
use crate::rule::{Rule, Rules, Test};

/// The bounds of a rule, one for each of the columns that rules test. Other places accept all.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bounds<const W: usize> {
    low: [u32; W],
    span: [u32; W],
}

/// A key, turned into a row.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct KeyRow<const W: usize>(pub(super) [u32; W]);

/// All rules by rank.
#[derive(Clone, Debug)]
pub(super) struct Rows<const W: usize> {
    columns: Vec<Column>,
    bounds: Vec<Bounds<W>>,
    /// The tests by masks, each with the place of its column. Most rules have none.
    masked: Vec<Vec<(u8, u32, u32)>>,
}

impl<const W: usize> Rows<W> {
    /// Makes the rows. There are at most `W` columns.
    pub(super) fn new(rules: &Rules, columns: &[Column]) -> Self {
        let bounds = rules.as_slice().iter().map(|rule| Self::row(rule, columns)).collect();
        let masks_of = |rule: &Rule| {
            let place = |column: Column| columns.iter().position(|&other| other == column);
            let masks = rule.tests().iter().filter_map(|&(column, test)| match test {
                Test::Masked { mask, value } => Some((u8::try_from(place(column)?).ok()?, mask, value)),
                Test::Range { .. } => None,
            });
            masks.collect::<Vec<_>>()
        };
        let mut masked: Vec<_> = rules.as_slice().iter().map(masks_of).collect();
        if masked.iter().all(Vec::is_empty) {
            masked.clear();
        }
        Self { columns: columns.to_vec(), bounds, masked }
    }

    fn row(rule: &Rule, columns: &[Column]) -> Bounds<W> {
        let mut row = Bounds { low: [0; W], span: [u32::MAX; W] };
        for ((low, span), &column) in row.low.iter_mut().zip(&mut row.span).zip(columns) {
            let (least, greatest) = rule.span(column);
            *low = least;
            *span = if greatest == column.greatest() && least == 0 { u32::MAX } else { greatest.wrapping_sub(least) };
        }
        row
    }

    /// Turns the keys of a batch into rows.
    #[inline(always)]
    pub(super) fn turn(&self, keys: &Keys, rows: &mut [KeyRow<W>]) {
        for (at, &column) in self.columns.iter().enumerate().take(W) {
            for (row, &value) in rows.iter_mut().zip(&keys.column(column)[..keys.len()]) {
                row.0[at] = value;
            }
        }
    }

    /// Returns whether the rule of a rank accepts a key.
    #[inline(always)]
    pub(super) fn accepts(&self, rank: usize, key: &KeyRow<W>) -> bool {
        let bounds = &self.bounds[rank];
        let mut inside = true;
        for at in 0..W {
            inside &= key.0[at].wrapping_sub(bounds.low[at]) <= bounds.span[at];
        }
        if self.masked.is_empty() { inside } else { inside && self.accepts_masks(rank, key) }
    }

    fn accepts_masks(&self, rank: usize, key: &KeyRow<W>) -> bool {
        self.masked[rank].iter().all(|&(at, mask, value)| key.0[usize::from(at)] & mask == value)
    }

    /// Returns the bytes of all rows.
    pub(super) fn bytes(&self) -> usize {
        let masks: usize = self.masked.iter().map(|masks| size_of_val(&**masks)).sum();
        size_of_val(&*self.bounds) + size_of_val(&*self.masked) + masks
    }
}

//! Rows of a table for an answer of bounded size.

use std::collections::BTreeMap;

use straightline_api::Row;

/// Collects rows of a table: those that come first behind a place, at most so many.
///
/// A table adds all its rows, in any order. Only the rows of the answer are made and kept.
#[derive(Debug)]
pub struct Rows {
    after: Option<String>,
    limit: usize,
    /// The rows that come first of those added so far, by place.
    first: BTreeMap<String, Row>,
    total: u64,
    /// There are rows behind the last of `first`.
    has_more: bool,
}

impl Rows {
    /// Creates a collection of the first `limit` rows behind the place `after`; from the start if it is
    /// `None`.
    #[must_use]
    pub fn new(after: Option<String>, limit: usize) -> Self {
        Rows { after, limit, first: BTreeMap::new(), total: 0, has_more: false }
    }

    /// Creates a collection of all rows.
    #[must_use]
    pub fn all() -> Self {
        Self::new(None, usize::MAX)
    }

    /// Creates a collection that only counts rows.
    #[must_use]
    pub fn count() -> Self {
        Self::new(None, 0)
    }

    /// Adds a row of the table. Both are made only if they are needed.
    pub fn add(&mut self, place: impl FnOnce() -> String, row: impl FnOnce() -> Row) {
        self.total += 1;
        if self.limit == 0 {
            return;
        }
        let place = place();
        if self.after.as_ref().is_some_and(|after| place <= *after) {
            return;
        }
        if self.first.len() >= self.limit {
            self.has_more = true;
            if self.first.last_key_value().is_some_and(|(last, _)| *last <= place) {
                return;
            }
            self.first.pop_last();
        }
        self.first.insert(place, row());
    }

    /// Returns the number of all rows of the table.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the rows in the order of their places. The second result is the place of the last one, if
    /// there are rows behind it.
    #[must_use]
    pub fn into_page(self) -> (Vec<Row>, Option<String>) {
        let last = self.first.last_key_value().map(|(place, _)| place.clone());
        (self.first.into_values().collect(), last.filter(|_| self.has_more))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn row(number: u16) -> Row {
        Row::Node { fields: [("number".to_owned(), u64::from(number).into())].into() }
    }

    proptest! {
        #[test]
        fn pages_have_each_row_once_and_in_order(
            numbers in prop::collection::btree_set(0..500_u16, 0..60),
            limit in 1..20_usize,
            turn in 0..60_usize,
        ) {
            // The order in which a table adds its rows differs from page to page.
            let mut added: Vec<_> = numbers.iter().copied().collect();
            let mut seen = Vec::new();
            let mut after = None;
            loop {
                let turned = turn.checked_rem(added.len()).unwrap_or(0);
                added.rotate_left(turned);
                let mut rows = Rows::new(after.take(), limit);
                for &number in &added {
                    rows.add(|| format!("{number:05}"), || row(number));
                }
                prop_assert_eq!(rows.total(), added.len() as u64);
                let (page, next) = rows.into_page();
                prop_assert!(page.len() <= limit);
                seen.extend(page);
                match next {
                    Some(_) => after = next,
                    None => break,
                }
            }
            let wanted: BTreeSet<_> = numbers;
            prop_assert_eq!(seen, wanted.into_iter().map(row).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_only_counts_makes_no_row() {
        let mut rows = Rows::count();
        rows.add(|| unreachable!(), || unreachable!());
        assert_eq!((rows.total(), rows.into_page()), (1, (Vec::new(), None)));
    }
}

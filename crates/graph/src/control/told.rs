//! The news of a thing that were told already.

use std::sync::Mutex;

use straightline_packet::IgnorePoison;

/// The things that events have told, so that the next ones tell only news. A control half has it,
/// and hands it on to its successor.
#[derive(Debug)]
pub struct Told<T>(Mutex<Option<T>>);

impl<T: Default> Default for Told<T> {
    fn default() -> Self {
        Told(Mutex::new(Some(T::default())))
    }
}

impl<T> Told<T> {
    /// Finds news. `compare` gets the state that was told last, and updates it. Returns nothing if a
    /// successor has taken over.
    pub fn news<E>(&self, compare: impl FnOnce(&mut T) -> Vec<E>) -> Vec<E> {
        let mut told = self.0.lock().ignore_poison();
        told.as_mut().map_or_else(Vec::new, compare)
    }

    /// Takes over what `before` has told. From now on `before` tells nothing.
    pub fn take_over(&self, before: &Self) {
        let told = before.0.lock().ignore_poison().take();
        if told.is_some() {
            *self.0.lock().ignore_poison() = told;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_told_once_even_by_a_successor() {
        let count = |told: &Told<u64>, now: u64| {
            told.news(|told| {
                let news = (*told..now).collect();
                *told = now;
                news
            })
        };
        let before = Told::default();
        assert_eq!(count(&before, 2), [0, 1]);
        assert!(count(&before, 2).is_empty());
        let after = Told::default();
        after.take_over(&before);
        assert_eq!(count(&after, 3), [2]);
        assert!(count(&before, 9).is_empty());
        // A second time there is nothing to take over.
        after.take_over(&before);
        assert_eq!(count(&after, 4), [3]);
    }
}

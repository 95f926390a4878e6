//! The lists of a port: its free entries, and the connections of each class, in the order in which they
//! came into it. The inbound ones of each opener have lists of their own. The lock of the port protects them.

use crate::state::{CLASSES, Class};

/// The end of a list. Other links are the number of an entry plus 1.
const NIL: u32 = 0;

/// The list of each entry, and the neighbours in it.
pub(crate) struct Members {
    /// The list of each entry: its class, times the number of openers, plus the place of its opener.
    homes: Vec<u32>,
    /// The entry before, and the one behind.
    links: Vec<[u32; 2]>,
    lists: Vec<List>,
    counts: [u32; CLASSES],
    openers: u32,
    /// Entries from this one on were never used.
    fresh: u32,
}

#[derive(Clone, Copy, Default)]
struct List {
    first: u32,
    last: u32,
    count: u32,
}

const BEFORE: usize = 0;
const BEHIND: usize = 1;

impl Members {
    /// Creates the lists of entries that are free, for openers at a number of places.
    pub(crate) fn new(entries: usize, openers: u16) -> Self {
        // The allocator gives zeros, so nothing is touched that nobody uses.
        Members {
            homes: vec![0; entries],
            links: vec![[NIL; 2]; entries],
            lists: vec![List::default(); CLASSES * usize::from(openers.max(1))],
            counts: [0; CLASSES],
            openers: openers.max(1).into(),
            fresh: 0,
        }
    }

    /// Returns the place of an opener among those that are told apart.
    pub(crate) fn place_of(&self, opener: u16) -> u32 {
        u32::from(opener) % self.openers
    }

    /// Returns the number of entries that were ever used: others are free.
    pub(crate) fn used(&self) -> u32 {
        self.fresh
    }

    /// Returns the number of entries of a class.
    pub(crate) fn count(&self, class: Class) -> u32 {
        self.counts[class as usize]
    }

    /// Returns the number of entries of a class whose opener has this place.
    pub(crate) fn count_at(&self, class: Class, place: u32) -> u32 {
        self.list(class, place).count
    }

    /// Returns the oldest entry of a class whose opener has this place.
    pub(crate) fn oldest_at(&self, class: Class, place: u32) -> Option<u32> {
        self.list(class, place).first.checked_sub(1)
    }

    /// Returns a free entry. It stays in the list of free ones until it is moved.
    pub(crate) fn free(&mut self) -> Option<u32> {
        if let Some(first) = self.oldest_at(Class::Free, 0) {
            return Some(first);
        }
        let fresh = self.fresh;
        if fresh as usize >= self.homes.len() {
            return None;
        }
        self.fresh += 1;
        self.append(fresh, self.home(Class::Free, 0));
        Some(fresh)
    }

    /// Returns the entries of a class: those of one place after the other, oldest first.
    pub(crate) fn of(&self, class: Class) -> impl Iterator<Item = u32> {
        let entry = |link: u32| link.checked_sub(1);
        (0..self.openers).flat_map(move |place| {
            std::iter::successors(self.oldest_at(class, place), move |at| entry(self.links[*at as usize][BEHIND]))
        })
    }

    /// Moves an entry into a class, unless it is there already. `opener` has opened its connection.
    pub(crate) fn set(&mut self, at: u32, class: Class, opener: u16) {
        let place = if class.is_by_opener() { self.place_of(opener) } else { 0 };
        let home = self.home(class, place);
        if self.homes[at as usize] == home {
            return;
        }
        self.remove(at);
        if class == Class::Free {
            // The entry that was used last is the first to be used again: it may still be in a cache.
            self.prepend(at, home);
        } else {
            self.append(at, home);
        }
    }

    fn home(&self, class: Class, place: u32) -> u32 {
        class as u32 * self.openers + place
    }

    fn list(&self, class: Class, place: u32) -> &List {
        &self.lists[self.home(class, place) as usize]
    }

    /// Returns the list of an entry, and the count of its class, to change them.
    fn list_of(&mut self, at: u32) -> (&mut List, &mut u32) {
        let home = self.homes[at as usize];
        (&mut self.lists[home as usize], &mut self.counts[(home / self.openers) as usize])
    }

    fn append(&mut self, at: u32, home: u32) {
        self.homes[at as usize] = home;
        let (list, count) = self.list_of(at);
        let last = std::mem::replace(&mut list.last, at + 1);
        list.count += 1;
        *count += 1;
        if last == NIL {
            list.first = at + 1;
        }
        self.links[at as usize] = [last, NIL];
        if let Some(last) = last.checked_sub(1) {
            self.links[last as usize][BEHIND] = at + 1;
        }
    }

    fn prepend(&mut self, at: u32, home: u32) {
        self.homes[at as usize] = home;
        let (list, count) = self.list_of(at);
        let first = std::mem::replace(&mut list.first, at + 1);
        list.count += 1;
        *count += 1;
        if first == NIL {
            list.last = at + 1;
        }
        self.links[at as usize] = [NIL, first];
        if let Some(first) = first.checked_sub(1) {
            self.links[first as usize][BEFORE] = at + 1;
        }
    }

    fn remove(&mut self, at: u32) {
        let [before, behind] = self.links[at as usize];
        let (list, count) = self.list_of(at);
        list.count -= 1;
        *count -= 1;
        if before == NIL {
            list.first = behind;
        }
        if behind == NIL {
            list.last = before;
        }
        if let Some(before) = before.checked_sub(1) {
            self.links[before as usize][BEHIND] = behind;
        }
        if let Some(behind) = behind.checked_sub(1) {
            self.links[behind as usize][BEFORE] = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A reference with a vector for each class and opener. The place of an opener is its number
        /// modulo 2.
        #[test]
        fn agrees_with_vectors(steps in prop::collection::vec((0..8_u32, 0..CLASSES, 0..4_u16), 0..100)) {
            let mut members = Members::new(8, 2);
            for _ in 0..8 {
                let free = members.free().expect("a free entry");
                members.set(free, Class::Open, 0);
            }
            prop_assert_eq!(members.free(), None);
            members.set(7, Class::Free, 3);
            let mut lists: [[Vec<u32>; 2]; CLASSES] = Default::default();
            lists[Class::Free as usize][0] = vec![7];
            lists[Class::Open as usize][0] = (0..7).collect();
            for (at, class, opener) in steps {
                let place = if Class::ALL[class].is_by_opener() { usize::from(opener % 2) } else { 0 };
                if !lists[class][place].contains(&at) {
                    lists.iter_mut().flatten().for_each(|list| list.retain(|other| *other != at));
                    let list = &mut lists[class][place];
                    list.insert(if class == 0 { 0 } else { list.len() }, at);
                }
                members.set(at, Class::ALL[class], opener);
                for (class, lists) in Class::ALL.into_iter().zip(&lists) {
                    prop_assert_eq!(members.of(class).collect::<Vec<_>>(), lists.concat());
                    prop_assert_eq!(members.count(class) as usize, lists.concat().len());
                    for (place, list) in (0..2).zip(lists) {
                        prop_assert_eq!(members.count_at(class, place) as usize, list.len());
                        prop_assert_eq!(members.oldest_at(class, place), list.first().copied());
                    }
                }
                prop_assert_eq!(members.free(), lists[0][0].first().copied());
            }
        }
    }
}

//! The lists of a port: its free entries, and the connections of each class that may be evicted, in the
//! order in which they came into it. The lock of the port protects them.

use crate::state::{CLASSES, Class};

/// The end of a list. Other links are the number of an entry plus 1.
const NIL: u32 = 0;

/// The class of each entry, and the neighbours in the list of its class.
pub(crate) struct Members {
    classes: Vec<u8>,
    /// The entry before, and the one behind.
    links: Vec<[u32; 2]>,
    lists: [List; CLASSES],
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
    pub(crate) fn new(entries: usize) -> Self {
        // The allocator gives zeros, so nothing is touched that nobody uses.
        Members {
            classes: vec![0; entries],
            links: vec![[NIL; 2]; entries],
            lists: [List::default(); CLASSES],
            fresh: 0,
        }
    }

    /// Returns the number of entries that were ever used: others are free.
    pub(crate) fn used(&self) -> u32 {
        self.fresh
    }

    pub(crate) fn count(&self, class: Class) -> u32 {
        self.lists[class as usize].count
    }

    /// Returns a free entry. It stays in the list of free ones until it is moved.
    pub(crate) fn free(&mut self) -> Option<u32> {
        if let Some(first) = self.lists[Class::Free as usize].first.checked_sub(1) {
            return Some(first);
        }
        let fresh = self.fresh;
        if fresh as usize >= self.classes.len() {
            return None;
        }
        self.fresh += 1;
        self.append(fresh, Class::Free);
        Some(fresh)
    }

    /// Returns the entries of a class, oldest first.
    pub(crate) fn of(&self, class: Class) -> impl Iterator<Item = u32> {
        let entry = |link: u32| link.checked_sub(1);
        std::iter::successors(entry(self.lists[class as usize].first), move |at| {
            entry(self.links[*at as usize][BEHIND])
        })
    }

    /// Moves an entry into a class, unless it is there.
    pub(crate) fn set(&mut self, at: u32, class: Class) {
        if self.classes[at as usize] == class as u8 {
            return;
        }
        self.remove(at);
        if class == Class::Free {
            // The entry that was used last is the first to be used again: it may still be in a cache.
            self.prepend(at);
        } else {
            self.append(at, class);
        }
    }

    fn append(&mut self, at: u32, class: Class) {
        self.classes[at as usize] = class as u8;
        let list = &mut self.lists[class as usize];
        self.links[at as usize] = [list.last, NIL];
        match list.last.checked_sub(1) {
            Some(last) => self.links[last as usize][BEHIND] = at + 1,
            None => list.first = at + 1,
        }
        list.last = at + 1;
        list.count += 1;
    }

    fn prepend(&mut self, at: u32) {
        self.classes[at as usize] = Class::Free as u8;
        let list = &mut self.lists[Class::Free as usize];
        self.links[at as usize] = [NIL, list.first];
        match list.first.checked_sub(1) {
            Some(first) => self.links[first as usize][BEFORE] = at + 1,
            None => list.last = at + 1,
        }
        list.first = at + 1;
        list.count += 1;
    }

    fn remove(&mut self, at: u32) {
        let list = &mut self.lists[usize::from(self.classes[at as usize])];
        let [before, behind] = self.links[at as usize];
        match before.checked_sub(1) {
            Some(before) => self.links[before as usize][BEHIND] = behind,
            None => list.first = behind,
        }
        match behind.checked_sub(1) {
            Some(behind) => self.links[behind as usize][BEFORE] = before,
            None => list.last = before,
        }
        list.count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Class; CLASSES] = [
        Class::Free,
        Class::Open,
        Class::HalfOpenOutbound,
        Class::HalfOpenInbound,
        Class::ClosedOutbound,
        Class::ClosedInbound,
    ];

    proptest! {
        /// A reference with a vector for each class.
        #[test]
        fn agrees_with_vectors(steps in prop::collection::vec((0..8_u32, 0..CLASSES), 0..100)) {
            let mut members = Members::new(8);
            for _ in 0..8 {
                let free = members.free().expect("a free entry");
                members.set(free, Class::Open);
            }
            prop_assert_eq!(members.free(), None);
            members.set(7, Class::Free);
            let mut lists: [Vec<u32>; CLASSES] = Default::default();
            lists[Class::Free as usize] = vec![7];
            lists[Class::Open as usize] = (0..7).collect();
            for (at, class) in steps {
                if !lists[class].contains(&at) {
                    lists.iter_mut().for_each(|list| list.retain(|other| *other != at));
                    let place = if class == 0 { 0 } else { lists[class].len() };
                    lists[class].insert(place, at);
                }
                members.set(at, ALL[class]);
                for (class, list) in ALL.into_iter().zip(&lists) {
                    prop_assert_eq!(&members.of(class).collect::<Vec<_>>(), list);
                    prop_assert_eq!(members.count(class) as usize, list.len());
                }
                prop_assert_eq!(members.free(), lists[0].first().copied());
            }
        }
    }
}

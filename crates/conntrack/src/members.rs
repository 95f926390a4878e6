//! The lists of a port: its free entries, and the connections of each class. The inbound ones of each opener
//! have lists of their own. The lock of the port protects them.
//!
//! Most classes have a list in the order in which connections came into the class. Where the connection that
//! is idle longest is wanted, a class has a *wheel*: a list for each of the last 128 seconds. A packet moves
//! no entry. So an entry's list has the second of its latest packet, or an earlier second. The oldest list has
//! the idlest entry, behind entries that had packets since. A search moves those to their right lists.

use crate::state::{CLASSES, Class, FIRST_BY_TIME};

/// The end of a list. Other links are the number of an entry plus 1.
const NIL: u32 = 0;

/// Lists of a wheel: one for each second. UDP's streams live shorter by default.
const SECONDS: u32 = 128;

/// The list of each entry, and the neighbours in it.
pub(crate) struct Members {
    /// The list of each entry.
    homes: Vec<u32>,
    /// The entry before, and the one behind.
    links: Vec<[u32; 2]>,
    /// The first entry of each list, and the last one.
    lists: Vec<[u32; 2]>,
    /// Lists of each wheel that are not empty.
    filled: Vec<u128>,
    /// Entries of each class and place.
    counts_at: Vec<u32>,
    counts: [u32; CLASSES],
    /// Places that have entries of each class.
    places: [u32; CLASSES],
    openers: u32,
    /// Entries from this one on were never used.
    fresh: u32,
}

const BEFORE: usize = 0;
const BEHIND: usize = 1;
const FIRST: usize = 0;
const LAST: usize = 1;

/// Classes without a wheel.
const PLAIN: u32 = FIRST_BY_TIME as u32;

impl Members {
    /// Creates the lists of entries that are free, for openers at a number of places.
    pub(crate) fn new(entries: usize, openers: u16) -> Self {
        let openers = openers.max(1);
        let places = CLASSES * usize::from(openers);
        let plain = PLAIN as usize * usize::from(openers);
        let wheels = places - plain;
        // The allocator gives zeros, so nothing is touched that nobody uses.
        Members {
            homes: vec![0; entries],
            links: vec![[NIL; 2]; entries],
            lists: vec![[NIL; 2]; plain + wheels * SECONDS as usize],
            filled: vec![0; wheels],
            counts_at: vec![0; places],
            counts: [0; CLASSES],
            places: [0; CLASSES],
            openers: openers.into(),
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
        self.counts_at[(class as u32 * self.openers + place) as usize]
    }

    /// Returns the number of places that have entries of a class.
    pub(crate) fn places(&self, class: Class) -> u32 {
        self.places[class as usize]
    }

    /// Returns the class of an entry. One that was never used is free.
    pub(crate) fn class_of(&self, at: u32) -> Class {
        Class::ALL[(self.place_index(self.homes[at as usize]) / self.openers) as usize]
    }

    /// Returns the entry that came first into a class without a wheel, of those whose opener has this place.
    pub(crate) fn oldest_at(&self, class: Class, place: u32) -> Option<u32> {
        self.lists[self.home(class, place, 0) as usize][FIRST].checked_sub(1)
    }

    /// Returns an entry in the oldest list of a class with a wheel, as seen from this time.
    pub(crate) fn idlest_at(&self, class: Class, place: u32, now: u32) -> Option<u32> {
        let filled = self.filled[self.wheel(class, place)];
        // The lists are a ring: the oldest one follows the list of this second.
        let first = (second(now) + 1) % SECONDS;
        let behind = filled.rotate_right(first).trailing_zeros();
        let list = self.home(class, place, (first + behind) % SECONDS);
        self.lists[list as usize][FIRST].checked_sub(1)
    }

    /// Moves an entry of a class with a wheel to the end of the list of this time. Returns whether it was in
    /// another one.
    pub(crate) fn refile(&mut self, at: u32, time: u32) -> bool {
        let plain = PLAIN * self.openers;
        let before = self.homes[at as usize];
        let wheel = (before - plain) / SECONDS * SECONDS;
        let home = plain + wheel + second(time);
        let moves = home != before;
        if moves {
            self.remove(at);
            self.append(at, home);
        }
        moves
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
        self.append(fresh, self.home(Class::Free, 0, 0));
        Some(fresh)
    }

    /// Returns the entries of a class: those of one place after the other.
    pub(crate) fn of(&self, class: Class) -> impl Iterator<Item = u32> {
        let lists = self.home(class, 0, 0)..self.home(class, self.openers, 0);
        let behind = |at: &u32| self.links[*at as usize][BEHIND].checked_sub(1);
        lists.flat_map(move |list| std::iter::successors(self.lists[list as usize][FIRST].checked_sub(1), behind))
    }

    /// Moves an entry into a class, unless it is there already. `opener` has opened its connection, and the
    /// last packet came at this time.
    pub(crate) fn set(&mut self, at: u32, class: Class, opener: u16, time: u32) {
        let place = if class.is_by_opener() { self.place_of(opener) } else { 0 };
        let home = self.home(class, place, second(time));
        if self.place_index(self.homes[at as usize]) == class as u32 * self.openers + place {
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

    /// Returns the list of a class and place. If the class has a wheel, it is that of this second.
    fn home(&self, class: Class, place: u32, second: u32) -> u32 {
        let index = class as u32 * self.openers + place;
        let plain = PLAIN * self.openers;
        index.checked_sub(plain).map_or(index, |wheel| plain + wheel * SECONDS + second)
    }

    fn wheel(&self, class: Class, place: u32) -> usize {
        ((class as u32 - PLAIN) * self.openers + place) as usize
    }

    /// Returns the class of a list, times the number of openers, plus its place.
    fn place_index(&self, home: u32) -> u32 {
        let plain = PLAIN * self.openers;
        home.checked_sub(plain).map_or(home, |list| plain + list / SECONDS)
    }

    /// Counts an entry that comes into a list.
    fn count_in(&mut self, home: u32) {
        let index = self.place_index(home);
        let class = (index / self.openers) as usize;
        let count = &mut self.counts_at[index as usize];
        self.places[class] += u32::from(*count == 0);
        *count += 1;
        self.counts[class] += 1;
    }

    /// Counts an entry no more.
    fn count_out(&mut self, home: u32) {
        let index = self.place_index(home);
        let class = (index / self.openers) as usize;
        let count = &mut self.counts_at[index as usize];
        *count -= 1;
        self.places[class] -= u32::from(*count == 0);
        self.counts[class] -= 1;
    }

    /// Notes whether a list of a wheel is empty.
    fn note_filled(&mut self, home: u32) {
        let Some(list) = home.checked_sub(PLAIN * self.openers) else { return };
        let bit = 1 << (list % SECONDS);
        let filled = &mut self.filled[(list / SECONDS) as usize];
        *filled = if self.lists[home as usize][FIRST] == NIL { *filled & !bit } else { *filled | bit };
    }

    fn append(&mut self, at: u32, home: u32) {
        self.homes[at as usize] = home;
        self.count_in(home);
        let list = &mut self.lists[home as usize];
        let last = std::mem::replace(&mut list[LAST], at + 1);
        if last == NIL {
            list[FIRST] = at + 1;
            self.note_filled(home);
        }
        self.links[at as usize] = [last, NIL];
        if let Some(last) = last.checked_sub(1) {
            self.links[last as usize][BEHIND] = at + 1;
        }
    }

    fn prepend(&mut self, at: u32, home: u32) {
        self.homes[at as usize] = home;
        self.count_in(home);
        let list = &mut self.lists[home as usize];
        let first = std::mem::replace(&mut list[FIRST], at + 1);
        if first == NIL {
            list[LAST] = at + 1;
            self.note_filled(home);
        }
        self.links[at as usize] = [NIL, first];
        if let Some(first) = first.checked_sub(1) {
            self.links[first as usize][BEFORE] = at + 1;
        }
    }

    fn remove(&mut self, at: u32) {
        let home = self.homes[at as usize];
        let [before, behind] = self.links[at as usize];
        self.count_out(home);
        let list = &mut self.lists[home as usize];
        if before == NIL {
            list[FIRST] = behind;
        }
        if behind == NIL {
            list[LAST] = before;
        }
        if before == NIL && behind == NIL {
            self.note_filled(home);
        }
        if let Some(before) = before.checked_sub(1) {
            self.links[before as usize][BEHIND] = behind;
        }
        if let Some(behind) = behind.checked_sub(1) {
            self.links[behind as usize][BEFORE] = before;
        }
    }
}

/// Returns the list of a time in a wheel. Times are milliseconds.
fn second(time: u32) -> u32 {
    time / 1000 % SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A list of the reference: class, place, and second.
    type List = (usize, u16, u32);

    fn list_of(class: Class, opener: u16, time: u32) -> List {
        let place = if class.is_by_opener() { opener % 2 } else { 0 };
        (class as usize, place, if class as u32 >= PLAIN { second(time) } else { 0 })
    }

    proptest! {
        /// A reference with a vector for each list. The place of an opener is its number modulo 2.
        #[test]
        fn agrees_with_vectors(
            steps in prop::collection::vec(
                (0..8_u32, 0..CLASSES, 0..4_u16, 0..300_000_u32, prop::bool::weighted(0.2)), 0..100,
            ),
        ) {
            let mut members = Members::new(8, 2);
            let mut lists: std::collections::BTreeMap<List, Vec<u32>> = Default::default();
            for n in 0..8 {
                let free = members.free().expect("a free entry");
                prop_assert_eq!(free, n);
                members.set(free, Class::OpenOutbound, 0, 0);
            }
            prop_assert_eq!(members.free(), None);
            members.set(7, Class::Free, 3, 0);
            lists.insert(list_of(Class::Free, 0, 0), vec![7]);
            lists.insert(list_of(Class::OpenOutbound, 0, 0), (0..7).collect());
            for (at, class, opener, time, refiles) in steps {
                let (before, _) = lists.iter().find(|(_, list)| list.contains(&at)).expect("a list");
                let before = *before;
                let has_wheel = before.0 >= PLAIN as usize;
                if refiles && has_wheel {
                    let next = (before.0, before.1, second(time));
                    prop_assert_eq!(members.refile(at, time), next != before);
                    if next != before {
                        lists.values_mut().for_each(|list| list.retain(|other| *other != at));
                        lists.entry(next).or_default().push(at);
                    }
                } else {
                    let next = list_of(Class::ALL[class], opener, time);
                    members.set(at, Class::ALL[class], opener, time);
                    if (next.0, next.1) != (before.0, before.1) {
                        lists.values_mut().for_each(|list| list.retain(|other| *other != at));
                        let list = lists.entry(next).or_default();
                        list.insert(if class == 0 { 0 } else { list.len() }, at);
                    }
                    prop_assert_eq!(members.class_of(at), Class::ALL[class]);
                }
                for class in Class::ALL {
                    let of_class = |list: &List| list.0 == class as usize;
                    let all: Vec<_> = lists.iter().filter(|(list, _)| of_class(list)).flat_map(|(_, all)| all.clone()).collect();
                    prop_assert_eq!(members.count(class) as usize, all.len());
                    prop_assert_eq!(members.of(class).collect::<Vec<_>>(), all);
                    let has_some = |place: &u32| members.count_at(class, *place) > 0;
                    prop_assert_eq!(members.places(class) as usize, (0..2).filter(has_some).count());
                    for place in 0..2 {
                        let here = |list: &List| of_class(list) && u32::from(list.1) == place;
                        let here: Vec<_> = lists.iter().filter(|(list, all)| here(list) && !all.is_empty()).collect();
                        let count: usize = here.iter().map(|(_, all)| all.len()).sum();
                        prop_assert_eq!(members.count_at(class, place) as usize, count);
                        if (class as u32) < PLAIN {
                            let first = here.first().map(|(_, all)| all[0]);
                            prop_assert_eq!(members.oldest_at(class, place), first);
                        } else {
                            let age = |list: &List| (second(time) + SECONDS - list.2) % SECONDS;
                            let oldest = here.iter().max_by_key(|(list, _)| age(list));
                            prop_assert_eq!(members.idlest_at(class, place, time), oldest.map(|(_, all)| all[0]));
                        }
                    }
                }
            }
        }
    }
}

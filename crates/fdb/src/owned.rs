//! Entries that clients of the API have made: who owns which, and how long they stay.
//!
//! An *owner* is a name that a client chooses, such as `evpn`. A table of owned entries
//! ([`OwnedTable`]) changes by transactions: a change is checked as a whole, then applied.
//!
//! An owner that stays connected has a *lease* ([`Owners::attach`]). When its last connection ends, the
//! stale time begins. When the owner is back, its entries are unconfirmed until it sends them again.
//! Entries that are not confirmed when the stale time ends are to be removed ([`Owners::due`]). So
//! packets go on with what is known while a controller restarts, and nothing old stays for ever.
//!
//! ```text
//! epoch:      1                  2                        deadline of epoch 1
//! ──── attached ──── gone ──── attached ─────────────────────────┬──────▶
//!      add A, add B            add A (confirmed: epoch 2)         B goes
//! ```
//!
//! This knows no clock and no switch: times are milliseconds that the caller gives.

use std::collections::BTreeMap;

/// The most owners.
const MOST_OWNERS: usize = 64;

/// The most deadlines of one owner.
const MOST_DEADLINES: usize = 16;

/// An owner of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(u16);

/// All owners, and their leases.
#[derive(Debug, Default)]
pub struct Owners(Vec<OwnerState>);

#[derive(Debug)]
struct OwnerState {
    name: String,
    /// Number of connections that have the lease.
    attached: u32,
    /// Grows each time that the owner comes back.
    epoch: u32,
    /// Milliseconds that entries stay when the owner has gone.
    stale: u64,
    /// Entries up to an epoch go at a time.
    deadlines: Vec<(u32, u64)>,
}

impl Owners {
    /// Returns the owner of this name, which is not empty; `None` if it is new and there are too many.
    pub fn named(&mut self, name: &str) -> Option<OwnerId> {
        if let Some(known) = self.find(name) {
            return Some(known);
        }
        if let Some(free) = self.0.iter_mut().find(|owner| owner.name.is_empty()) {
            free.name = name.to_owned();
        } else if self.0.len() < MOST_OWNERS {
            let name = name.to_owned();
            self.0.push(OwnerState { name, attached: 0, epoch: 0, stale: 0, deadlines: Vec::new() });
        }
        self.find(name)
    }

    /// Forgets the owners that nobody uses: they have no connection, and no entry by the word of
    /// `has_entries`.
    pub fn forget_unused(&mut self, has_entries: impl Fn(OwnerId) -> bool) {
        for (owner, at) in self.0.iter_mut().zip(0..) {
            if owner.attached == 0 && !has_entries(OwnerId(at)) {
                owner.name.clear();
                owner.deadlines.clear();
            }
        }
    }

    /// Returns the owner of this name, if it is known.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<OwnerId> {
        let at = self.0.iter().position(|owner| owner.name == name)?;
        u16::try_from(at).ok().map(OwnerId)
    }

    /// Returns the name of an owner.
    #[must_use]
    pub fn name(&self, owner: OwnerId) -> &str {
        self.0.get(usize::from(owner.0)).map_or("", |owner| &owner.name)
    }

    /// Returns the mark of entries that the owner makes or confirms now.
    #[must_use]
    pub fn epoch(&self, owner: OwnerId) -> u32 {
        self.0.get(usize::from(owner.0)).map_or(0, |owner| owner.epoch)
    }

    /// Begins a connection that has the owner's lease. Entries stay for `stale` milliseconds when the last
    /// one has ended.
    pub fn attach(&mut self, owner: OwnerId, stale: u64, now: u64) {
        let Some(owner) = self.0.get_mut(usize::from(owner.0)) else { return };
        owner.stale = stale;
        if owner.attached == 0 {
            // Entries of an owner that had no lease before get the same time.
            if !owner.deadlines.iter().any(|(epoch, _)| *epoch == owner.epoch) {
                owner.deadlines.push((owner.epoch, now.saturating_add(stale)));
            }
            owner.epoch += 1;
        }
        owner.attached += 1;
    }

    /// Ends a connection.
    pub fn detach(&mut self, owner: OwnerId, now: u64) {
        let Some(owner) = self.0.get_mut(usize::from(owner.0)) else { return };
        owner.attached = owner.attached.saturating_sub(1);
        if owner.attached == 0 {
            owner.deadlines.push((owner.epoch, now.saturating_add(owner.stale)));
            if owner.deadlines.len() > MOST_DEADLINES {
                // Its entries go with those of the epoch behind it.
                owner.deadlines.remove(MOST_DEADLINES - 1);
            }
        }
    }

    /// Returns the owners whose old entries must go now, each with the latest epoch of these entries.
    pub fn due(&mut self, now: u64) -> Vec<(OwnerId, u32)> {
        let mut due = Vec::new();
        for (owner, at) in self.0.iter_mut().zip(0..) {
            let latest = owner.deadlines.iter().filter(|(_, end)| *end <= now).map(|(epoch, _)| *epoch).max();
            if let Some(latest) = latest {
                owner.deadlines.retain(|(epoch, _)| *epoch > latest);
                due.push((OwnerId(at), latest));
            }
        }
        due
    }
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRow<V> {
    /// The value.
    pub value: V,
    /// The owner.
    pub owner: OwnerId,
    /// The owner's mark when it made or confirmed the entry.
    pub epoch: u32,
}

/// The command of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedCommand {
    /// Adds entries, or changes those that the owner has.
    Add,
    /// Deletes entries. One that is not there is no error.
    Delete,
    /// Makes the entries the owner's only ones.
    Replace,
}

/// The relation of a new value to the one of the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newer {
    /// The new value is older: to add it changes nothing.
    Older,
    /// Both are equal: the entry is confirmed.
    Equal,
    /// The new value takes the place of the other one.
    Newer,
}

/// A change that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPlan<K> {
    /// Places in the list of entries that are new.
    pub add: Vec<usize>,
    /// Places in the list of entries that have another value than before.
    pub change: Vec<usize>,
    /// Places in the list of entries that are as before.
    pub confirm: Vec<usize>,
    /// Keys of entries that go.
    pub delete: Vec<K>,
    /// Number of entries that the configuration has, or that are older than the known ones.
    pub kept: usize,
}

/// The reason why a change is refused, with the place of the wrong entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedConflict {
    /// Another owner has the entry.
    Taken(usize, OwnerId),
    /// The change names the entry twice.
    Twice(usize),
    /// The table would have too many entries.
    Full(usize),
}

/// A table of entries with owners.
#[derive(Debug)]
pub struct OwnedTable<K, V>(BTreeMap<K, OwnedRow<V>>);

impl<K, V> Default for OwnedTable<K, V> {
    fn default() -> Self {
        OwnedTable(BTreeMap::new())
    }
}

impl<K: Copy + Ord, V> OwnedTable<K, V> {
    /// Returns an entry.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&OwnedRow<V>> {
        self.0.get(key)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the entries by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &OwnedRow<V>)> {
        self.0.iter()
    }

    /// Checks a change. `most` is the number of entries that the table may have; `is_fixed` says whether
    /// the configuration has an entry; `compare` compares a new value with the owner's old one.
    ///
    /// # Errors
    /// The first entry that is wrong.
    pub fn plan(
        &self,
        owner: OwnerId,
        command: OwnedCommand,
        entries: &[(K, V)],
        most: usize,
        is_fixed: impl Fn(&K) -> bool,
        compare: impl Fn(&V, &V) -> Newer,
    ) -> Result<OwnedPlan<K>, OwnedConflict> {
        let mut plan = OwnedPlan::new();
        let mut named = BTreeMap::new();
        for (at, (key, _)) in entries.iter().enumerate() {
            if named.insert(*key, at).is_some() {
                return Err(OwnedConflict::Twice(at));
            }
        }
        if command == OwnedCommand::Delete {
            let own = entries.iter().filter(|(key, _)| self.get(key).is_some_and(|row| row.owner == owner));
            plan.delete.extend(own.map(|(key, _)| *key));
            return Ok(plan);
        }
        if command == OwnedCommand::Replace {
            let gone = self.0.iter().filter(|(key, row)| row.owner == owner && !named.contains_key(*key));
            plan.delete.extend(gone.map(|(key, _)| *key));
        }
        let mut count = self.len() - plan.delete.len();
        for (at, (key, value)) in entries.iter().enumerate() {
            match self.get(key) {
                _ if is_fixed(key) => plan.kept += 1,
                Some(row) if row.owner != owner => return Err(OwnedConflict::Taken(at, row.owner)),
                Some(row) => match compare(value, &row.value) {
                    Newer::Older if command == OwnedCommand::Add => plan.kept += 1,
                    Newer::Equal => plan.confirm.push(at),
                    // A whole set holds as it is: what the owner knew before it was away is over.
                    Newer::Older | Newer::Newer => plan.change.push(at),
                },
                None if count >= most => return Err(OwnedConflict::Full(at)),
                None => {
                    plan.add.push(at);
                    count += 1;
                }
            }
        }
        Ok(plan)
    }

    /// Applies a change that was checked with the same entries. `epoch` is the owner's mark.
    pub fn apply(&mut self, owner: OwnerId, epoch: u32, plan: &OwnedPlan<K>, entries: Vec<(K, V)>) {
        for key in &plan.delete {
            self.0.remove(key);
        }
        let mut is_written = vec![false; entries.len()];
        plan.add.iter().chain(&plan.change).chain(&plan.confirm).for_each(|&at| is_written[at] = true);
        for ((key, value), _) in entries.into_iter().zip(is_written).filter(|(_, is_written)| *is_written) {
            self.0.insert(key, OwnedRow { value, owner, epoch });
        }
        // Keys that come in order leave a tree half full. Built from a list, its nodes are full.
        if plan.add.len() > self.0.len() / 2 {
            self.0 = std::mem::take(&mut self.0).into_iter().collect();
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<OwnedRow<V>> {
        self.0.remove(key)
    }

    /// Removes the entries of an owner up to an epoch. Returns their keys.
    pub fn remove_stale(&mut self, owner: OwnerId, latest: u32) -> Vec<K> {
        let is_stale = |row: &OwnedRow<V>| row.owner == owner && row.epoch <= latest;
        let stale: Vec<K> = self.0.iter().filter(|(_, row)| is_stale(row)).map(|(key, _)| *key).collect();
        stale.iter().for_each(|key| drop(self.0.remove(key)));
        stale
    }
}

impl<K> OwnedPlan<K> {
    fn new() -> Self {
        OwnedPlan { add: Vec::new(), change: Vec::new(), confirm: Vec::new(), delete: Vec::new(), kept: 0 }
    }
}

#[cfg(test)]
mod tests;

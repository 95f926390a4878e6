//! Meaning of the names in rules.

use std::collections::BTreeMap;

use crate::group::{Group, Set};
use crate::prefix::Prefix;
use crate::profile::{known_sets, known_sets_with, profiles};

/// Groups, sets, and the addresses of each group's ports. The profiles and the known sets are always
/// there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    /// Groups by their names.
    pub groups: BTreeMap<String, Group>,
    /// Sets by their names.
    pub sets: BTreeMap<String, Set>,
    /// Addresses of the ports that have a group, by its name. A group that is not here has none.
    pub members: BTreeMap<String, Vec<Prefix>>,
    /// The sets that exist in each switch, if the network has translators of its own.
    known: Vec<Set>,
}

impl Definitions {
    /// Creates the definitions of groups and sets, without members.
    #[must_use]
    pub fn new(groups: impl IntoIterator<Item = Group>, sets: impl IntoIterator<Item = Set>) -> Self {
        Self {
            groups: groups.into_iter().map(|group| (group.name.clone(), group)).collect(),
            sets: sets.into_iter().map(|set| (set.name.clone(), set)).collect(),
            members: BTreeMap::new(),
            known: Vec::new(),
        }
    }

    /// Returns the definitions for a network whose translators (NAT64) have these prefixes, too.
    #[must_use]
    pub fn with_nat64(mut self, prefixes: &[Prefix]) -> Self {
        self.known = if prefixes.is_empty() { Vec::new() } else { known_sets_with(prefixes) };
        self
    }

    /// Returns the group or profile of a name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        let profile = || profiles().iter().find(|profile| profile.name == name);
        self.groups.get(name).or_else(profile)
    }

    /// Returns the set of a name.
    #[must_use]
    pub fn set(&self, name: &str) -> Option<&Set> {
        let known = if self.known.is_empty() { known_sets() } else { &self.known };
        let known = || known.iter().find(|set| set.name == name);
        self.sets.get(name).or_else(known)
    }
}

//! Conjunctions: flows with the action `conjunction`, each a part of a condition of several clauses.
//!
//! A packet completes a conjunction if it matches a flow of each clause. Of several that it completes,
//! that of the greatest priority counts. As in OvS, the packet is then searched again with the
//! conjunction's number as `conj_id`, and without clauses.
//!
//! ```text
//! clause 1: nw_src=10.0.0.1, nw_src=10.0.0.2     combinations: nw_src=10.0.0.1,tp_dst=80
//! clause 2: tp_dst=80                                          nw_src=10.0.0.2,tp_dst=80
//! ```

use std::collections::BTreeMap;

use super::entry::FlowCount;
use super::{FlowTables, MAX_COMBINATIONS};
use crate::action::Action;
use crate::flow::Flow;
use crate::matching::Match;
use crate::parse::FlowError;

/// Identity of a conjunction. Flows of other tables or priorities do not take part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConjunctionKey {
    /// Table.
    pub table: u8,
    /// Priority of its clauses.
    pub priority: u16,
    /// Value of `conj_id`.
    pub id: u32,
    /// Number of clauses.
    pub clauses: u8,
}

/// The conditions of a conjunction's flows, by clause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clauses<'f>(Vec<Vec<&'f Match>>);

impl Flow {
    /// Returns whether the flow is a part of conjunctions. It then counts no packets.
    #[must_use]
    pub fn is_clause(&self) -> bool {
        matches!(self.actions.first(), Some(Action::Conjunction { .. }))
    }

    /// Returns the conjunctions of the flow, with the number of its clause in each, from 0.
    pub fn conjunctions(&self) -> impl Iterator<Item = (ConjunctionKey, u8)> {
        self.actions.iter().filter_map(|action| match *action {
            Action::Conjunction { id, clause, clauses } => {
                Some((ConjunctionKey { table: self.key.table, priority: self.key.priority, id, clauses }, clause))
            }
            _ => None,
        })
    }
}

impl<'f> Clauses<'f> {
    /// Adds a flow's condition to a clause.
    fn add(&mut self, condition: &'f Match, clause: u8, clauses: u8) {
        self.0.resize(usize::from(clauses).max(self.0.len()), Vec::new());
        self.0[usize::from(clause)].push(condition);
    }

    /// Returns the number of combinations. Contradictions are among them.
    fn count(&self) -> usize {
        self.0.iter().fold(1, |all: usize, clause| all.saturating_mul(clause.len()))
    }

    /// Returns the conditions of packets that complete the conjunction: a flow of each clause in each.
    /// Without a flow for some clause there is none.
    #[must_use]
    pub fn combinations(&self) -> Vec<Match> {
        if self.0.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        let mut all = vec![Match::new()];
        for clause in &self.0 {
            let with = |one: &Match| clause.iter().filter_map(|other| one.and(other)).collect::<Vec<_>>();
            all = all.iter().flat_map(with).collect();
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl<C: FlowCount> FlowTables<C> {
    /// Returns all conjunctions.
    #[must_use]
    pub fn conjunctions(&self) -> BTreeMap<ConjunctionKey, Clauses<'_>> {
        let mut all: BTreeMap<ConjunctionKey, Clauses<'_>> = BTreeMap::new();
        for entry in self.entries() {
            for (key, clause) in entry.flow.conjunctions() {
                all.entry(key).or_default().add(&entry.flow.key.condition, clause, key.clauses);
            }
        }
        all
    }

    /// Refuses conjunctions of too many combinations.
    pub(super) fn check_conjunctions(&self) -> Result<(), FlowError> {
        let counts: Vec<_> = self.conjunctions().into_iter().map(|(key, clauses)| (clauses.count(), key)).collect();
        let all = counts.iter().fold(0_usize, |all, (count, _)| all.saturating_add(*count));
        match counts.iter().max_by_key(|(count, _)| *count) {
            Some((count, ConjunctionKey { table, id, .. })) if all > MAX_COMBINATIONS => Err(FlowError::new(
                "conjunction",
                format!(
                    "makes too many combinations: conjunction {id} of table {table} has {count}, and all of the bridge \
                     may have {MAX_COMBINATIONS}; use prefixes and masks, or a table for each clause"
                ),
            )),
            _ => Ok(()),
        }
    }
}

//! All policies of a switch: each is compiled once, and shared by its ports.

use std::collections::HashMap;
use std::sync::Arc;

use straightline_classify::Level;

use crate::definitions::Definitions;
use crate::policy::{Policy, PolicyError, PortGroups};
use crate::prefix::Prefix;

/// Policies by the groups of their ports.
///
/// ```
/// use straightline_firewall::{Definitions, Group, Level, Policies, PortGroups};
///
/// let web = Group::parse("web", &["tcp 80,443 from any"], &[])?;
/// let mut policies = Policies::new(Definitions::new([web], []), Level::detect());
/// let port = PortGroups { groups: vec!["web".to_owned()], ..PortGroups::default() };
/// let first = policies.get(&port).expect("known groups");
/// let second = policies.get(&port).expect("known groups");
/// assert!(std::sync::Arc::ptr_eq(&first, &second));
/// # Ok::<(), straightline_firewall::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policies {
    definitions: Definitions,
    level: Level,
    compiled: HashMap<PortGroups, Arc<Policy>>,
}

impl Policies {
    /// Creates policies, none of which is compiled yet.
    #[must_use]
    pub fn new(definitions: Definitions, level: Level) -> Self {
        Self { definitions, level, compiled: HashMap::new() }
    }

    /// Returns the policy of a port, and compiles it if no port has had it.
    ///
    /// # Errors
    /// A group or set does not exist, or the rules are too many.
    pub fn get(&mut self, port: &PortGroups) -> Result<Arc<Policy>, PolicyError> {
        if let Some(policy) = self.compiled.get(port) {
            return Ok(Arc::clone(policy));
        }
        let policy = Arc::new(Policy::compile(port, &self.definitions, self.level)?);
        self.compiled.insert(port.clone(), Arc::clone(&policy));
        Ok(policy)
    }

    /// Returns what the names in rules mean.
    #[must_use]
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// Changes the addresses of a group's ports. Policies that name the group are compiled again when
    /// they are asked for; all others stay. Returns whether the addresses are other ones.
    pub fn set_members(&mut self, group: &str, mut members: Vec<Prefix>) -> bool {
        members.sort_unstable();
        members.dedup();
        let known = self.definitions.members.entry(group.to_owned()).or_default();
        if *known == members {
            return false;
        }
        *known = members;
        self.compiled.retain(|_, policy| !policy.groups_named().iter().any(|named| named == group));
        true
    }

    /// Changes groups, sets and members. Policies with a part that is another one are compiled again when
    /// they are asked for; all others stay.
    pub fn replace(&mut self, definitions: Definitions) {
        let old = std::mem::replace(&mut self.definitions, definitions);
        let new = &self.definitions;
        self.compiled.retain(|port, policy| {
            port.groups.iter().all(|name| old.group(name) == new.group(name))
                && policy.sets_named().iter().all(|name| old.set(name) == new.set(name))
                && policy
                    .groups_named()
                    .iter()
                    .all(|name| new.group(name).is_some() && old.members.get(name) == new.members.get(name))
        });
    }

    /// Forgets policies that nobody else holds.
    pub fn forget_unused(&mut self) {
        self.compiled.retain(|_, policy| Arc::strong_count(policy) > 1);
    }
}

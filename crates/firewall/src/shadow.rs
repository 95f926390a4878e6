//! Rules that never decide.

use crate::definitions::Definitions;
use crate::policy::{PolicyError, PolicyRule, PortGroups, sources};
use crate::rule::Direction;

/// Most rules of a direction that are compared, each with all before it.
const MOST_COMPARED: usize = 2000;

/// A rule of a group that never decides about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowedRule {
    /// The rule.
    pub rule: PolicyRule,
    /// The earlier rule that decides about all its packets. `None`: it has no packets, because its
    /// groups and sets have no addresses.
    pub by: Option<PolicyRule>,
}

/// Returns the rules of a port's groups that an earlier rule hides, and those without packets.
///
/// A rule that only several earlier ones hide together is not found. In a direction with more than 2000
/// rules, the others are not compared.
///
/// # Errors
/// A group or set does not exist.
pub fn shadowed_rules(port: &PortGroups, definitions: &Definitions) -> Result<Vec<ShadowedRule>, PolicyError> {
    let mut shadowed = Vec::new();
    for direction in Direction::BOTH {
        let sources = sources(direction, port, definitions)?;
        for (at, source) in sources.iter().enumerate().take(MOST_COMPARED) {
            let by = if source.packets.is_empty() {
                None
            } else {
                match sources[..at].iter().find(|earlier| earlier.packets.covers(&source.packets)) {
                    None => continue,
                    by => by.map(|by| by.rule.clone()),
                }
            };
            shadowed.push(ShadowedRule { rule: source.rule.clone(), by });
        }
    }
    Ok(shadowed)
}

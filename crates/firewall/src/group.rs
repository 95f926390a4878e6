//! Groups and sets.

use crate::error::RuleError;
use crate::parse::parse_rule;
use crate::pattern::Pattern;
use crate::prefix::Prefix;
use crate::rule::{Direction, Rule};

/// A group: rules for the ports that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Rules of packets to its ports.
    pub inbound: Vec<Rule>,
    /// Rules of packets from its ports.
    pub outbound: Vec<Rule>,
}

impl Group {
    /// Creates a group of the texts of its rules.
    ///
    /// # Errors
    /// A text is no rule.
    pub fn parse(name: &str, inbound: &[&str], outbound: &[&str]) -> Result<Self, RuleError> {
        let read = |direction, texts: &[&str]| -> Result<Vec<_>, _> {
            texts.iter().map(|text| parse_rule(direction, text)).collect()
        };
        Ok(Self {
            name: name.to_owned(),
            inbound: read(Direction::In, inbound)?,
            outbound: read(Direction::Out, outbound)?,
        })
    }

    /// Returns the rules of a direction.
    #[must_use]
    pub fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::In => &self.inbound,
            Direction::Out => &self.outbound,
        }
    }

    /// Returns all rules.
    pub fn all_rules(&self) -> impl Iterator<Item = &Rule> {
        self.inbound.iter().chain(&self.outbound)
    }
}

/// A named set of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub prefixes: Vec<Prefix>,
    /// Further addresses of IPv6, which have no prefix in common.
    pub patterns: Vec<Pattern>,
}

//! The policy of a port: its rules in their order, compiled.

use std::fmt;

use straightline_classify::{Dead, Keys, Level, MAX_KEYS, NONE, Rules, Structure, compile};

use crate::definitions::Definitions;
use crate::expand::{Expanded, UnknownSet};
use crate::network::{self, NetworkRule};
use crate::rule::{Action, Direction};

/// The most rules of the classifier in one direction of a policy: one for each address range of a rule's
/// peers, for each of its port ranges, and for each IP version.
pub const MAX_COMPILED: usize = 100_000;

/// Groups and rights of a port. Ports with equal values share a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortGroups {
    /// Groups and profiles, in the order in which their rules are tried.
    pub groups: Vec<String>,
    /// Whether the port may send router advertisements and answers of DHCP.
    pub trusted: bool,
    /// Whether the addresses that the port's packets claim are checked.
    pub source_check: bool,
}

impl PortGroups {
    /// Returns whether a policy can be compiled, without the work to compile it.
    ///
    /// # Errors
    /// A group or set does not exist, or the rules are too many.
    pub fn check(&self, definitions: &Definitions) -> Result<(), PolicyError> {
        for direction in Direction::BOTH {
            counted_sources(direction, self, definitions)?;
        }
        Ok(())
    }
}

/// Place of a rule in its policy. It stays the same when members of groups change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct RuleIndex(pub u32);

/// The deciding rule of each key of a batch. Values behind the last key have no meaning.
pub type Verdicts = [RuleIndex; MAX_KEYS];

/// The origin of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The network itself: it needs some packets, and forbids others.
    Network,
    /// A group or profile of this name. The rule has this number in the list of its direction, from 1.
    Group(String, usize),
    /// No rule matches.
    Default,
}

/// A rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    /// Its origin.
    pub origin: Origin,
    /// Direction of its packets.
    pub direction: Direction,
    /// Its decision.
    pub action: Action,
    /// Its name.
    pub name: Option<String>,
    /// Its packets begin no connections, and the answers to them pass.
    pub stateless: bool,
    /// Its text: that of a group's rule, or its packets in words.
    pub text: String,
    /// Whether its packets cause events.
    pub log: bool,
}

impl PolicyRule {
    /// Returns whether the rule allows its packets.
    #[must_use]
    pub fn allows(&self) -> bool {
        self.action == Action::Allow
    }

    /// Returns whether packets of the rule begin connections. Those of the network's rules pass singly, and
    /// so do those of rules with `stateless`.
    #[must_use]
    pub fn begins_connections(&self) -> bool {
        self.allows() && self.origin != Origin::Network && !self.stateless
    }

    /// Returns whether a rule of `in` with `stateless` decides in place of this one about answers to its
    /// packets. It does if no rule of `out` decides, and if one allows the answer: then it begins no
    /// connection. A rule that denies holds, and so does each one of the network.
    #[must_use]
    pub fn yields_to_stateless(&self) -> bool {
        match self.origin {
            Origin::Default => true,
            Origin::Group(..) => self.allows(),
            Origin::Network => false,
        }
    }

    /// Returns a short name for counters and drops: the rule's name, or its group, direction and number.
    #[must_use]
    pub fn label(&self) -> String {
        match (&self.name, &self.origin) {
            (Some(name), Origin::Group(group, _)) => format!("{group}:{name}"),
            (None, Origin::Group(group, number)) => format!("{group}:{}:{number}", self.direction.as_str()),
            (Some(name), _) => name.clone(),
            (None, _) => "default".to_owned(),
        }
    }
}

impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = self.direction.as_str();
        match &self.origin {
            Origin::Network => {
                write!(f, "rule {:?} of the network: {}", self.name.as_deref().unwrap_or_default(), self.text)
            }
            Origin::Group(group, number) => {
                write!(f, "rule {number} of {direction:?} in group {group:?}: {}", self.text)
            }
            Origin::Default => f.write_str(&self.text),
        }
    }
}

/// A group or set does not exist, or the rules are too many.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A port has a group that does not exist.
    #[error("group {0:?} does not exist")]
    UnknownGroup(String),
    /// A rule names a group or set that does not exist.
    #[error("rule {rule:?} of group {group:?} names {peer}, which does not exist")]
    UnknownPeer {
        /// Group of the rule.
        group: String,
        /// Text of the rule.
        rule: String,
        /// The group or set, as the rule names it.
        peer: String,
    },
    /// The rules are too many.
    #[error("groups {} have more than {MAX_COMPILED} combinations of addresses and ports", .0.join(", "))]
    TooMany(Vec<String>),
}

/// One direction.
struct Half {
    structure: Box<dyn Structure>,
    /// The policy's rule for each rank.
    indices: Vec<RuleIndex>,
    default: RuleIndex,
}

impl fmt::Debug for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.structure.statistics().fmt(f)
    }
}

/// The rules of ports with equal groups, compiled for both directions.
///
/// The first rule that matches decides. The rules of the network come first, then those of the groups
/// in their order. A packet that no rule matches is denied.
#[derive(Debug)]
pub struct Policy {
    port: PortGroups,
    rules: Vec<PolicyRule>,
    inbound: Half,
    outbound: Half,
    groups_named: Vec<String>,
    sets_named: Vec<String>,
    has_stateless: bool,
}

/// A rule of a policy, with its packets.
pub(crate) struct Source {
    pub(crate) rule: PolicyRule,
    pub(crate) packets: Expanded,
}

impl Policy {
    /// Compiles the policy of ports with these groups.
    ///
    /// # Errors
    /// A group or set does not exist, or the rules are too many.
    pub fn compile(port: &PortGroups, definitions: &Definitions, level: Level) -> Result<Self, PolicyError> {
        let mut rules = Vec::new();
        let inbound = half(Direction::In, port, definitions, level, &mut rules)?;
        let outbound = half(Direction::Out, port, definitions, level, &mut rules)?;
        let own = || port.groups.iter().filter_map(|name| definitions.group(name));
        let rules_of_groups = || own().flat_map(|group| group.all_rules());
        let mut groups_named: Vec<_> = rules_of_groups().flat_map(|rule| rule.groups()).map(str::to_owned).collect();
        let mut sets_named: Vec<_> = rules_of_groups().flat_map(|rule| rule.sets()).map(str::to_owned).collect();
        for names in [&mut groups_named, &mut sets_named] {
            names.sort_unstable();
            names.dedup();
        }
        let has_stateless = rules.iter().any(|rule| rule.stateless);
        Ok(Self { port: port.clone(), rules, inbound, outbound, groups_named, sets_named, has_stateless })
    }

    /// Finds the deciding rule of each key. The crate's documentation lists the columns.
    pub fn decide(&self, direction: Direction, keys: &Keys, verdicts: &mut Verdicts) {
        let half = match direction {
            Direction::In => &self.inbound,
            Direction::Out => &self.outbound,
        };
        let mut best = [NONE; MAX_KEYS];
        half.structure.lookup(keys, &Dead::default(), &mut best);
        for (verdict, rank) in verdicts.iter_mut().zip(best).take(keys.len()) {
            *verdict = half.indices.get(rank as usize).copied().unwrap_or(half.default);
        }
    }

    /// Returns a rule. An index of another policy gives any rule, or the last one.
    #[must_use]
    pub fn rule(&self, index: RuleIndex) -> &PolicyRule {
        let last = self.rules.len() - 1;
        &self.rules[(index.0 as usize).min(last)]
    }

    /// Returns all rules by their indices.
    #[must_use]
    pub fn rules(&self) -> &[PolicyRule] {
        &self.rules
    }

    /// Returns whether a rule has `stateless`. Then a UDP packet from the port passes if such a rule decides
    /// about the packet that it answers ([`Flow::question`](crate::Flow::question)), and the rule about the
    /// answer itself yields to it ([`PolicyRule::yields_to_stateless`]).
    #[must_use]
    pub fn has_stateless(&self) -> bool {
        self.has_stateless
    }

    /// Returns the groups of the ports.
    #[must_use]
    pub fn port(&self) -> &PortGroups {
        &self.port
    }

    /// Returns the groups whose members the rules name.
    #[must_use]
    pub fn groups_named(&self) -> &[String] {
        &self.groups_named
    }

    /// Returns the sets that the rules name.
    #[must_use]
    pub fn sets_named(&self) -> &[String] {
        &self.sets_named
    }
}

/// Returns the rules of one direction in their order, without the default.
pub(crate) fn sources(
    direction: Direction,
    port: &PortGroups,
    definitions: &Definitions,
) -> Result<Vec<Source>, PolicyError> {
    let network = match direction {
        Direction::In => network::inbound(port.trusted),
        Direction::Out => network::outbound(port.trusted, port.trusted || port.source_check),
    };
    let mut sources: Vec<_> = network.into_iter().map(|rule| of_network(direction, rule)).collect();
    for name in &port.groups {
        let group = definitions.group(name).ok_or_else(|| PolicyError::UnknownGroup(name.clone()))?;
        for (number, rule) in (1..).zip(group.rules(direction)) {
            let text = rule.to_string();
            let packets = Expanded::new(rule, definitions).map_err(|UnknownSet(peer)| PolicyError::UnknownPeer {
                group: name.clone(),
                rule: text.clone(),
                peer,
            })?;
            let rule = PolicyRule {
                origin: Origin::Group(name.clone(), number),
                direction,
                action: rule.action,
                name: rule.name.clone(),
                stateless: rule.stateless,
                text,
                log: rule.log,
            };
            sources.push(Source { rule, packets });
        }
    }
    Ok(sources)
}

/// Returns the rules of one direction, unless they are too many to compile.
fn counted_sources(
    direction: Direction,
    port: &PortGroups,
    definitions: &Definitions,
) -> Result<Vec<Source>, PolicyError> {
    let sources = sources(direction, port, definitions)?;
    let count: usize = sources.iter().map(|source| source.packets.count_rules()).sum();
    if count > MAX_COMPILED { Err(PolicyError::TooMany(port.groups.clone())) } else { Ok(sources) }
}

fn of_network(direction: Direction, rule: NetworkRule) -> Source {
    let NetworkRule { name, action, text, tests } = rule;
    let rule = PolicyRule {
        origin: Origin::Network,
        direction,
        action,
        name: Some(name.to_owned()),
        stateless: false,
        text: text.to_owned(),
        log: false,
    };
    Source { rule, packets: tests }
}

/// Compiles a direction, and appends its rules.
fn half(
    direction: Direction,
    port: &PortGroups,
    definitions: &Definitions,
    level: Level,
    rules: &mut Vec<PolicyRule>,
) -> Result<Half, PolicyError> {
    let mut columns = Vec::new();
    let mut indices = Vec::new();
    for source in counted_sources(direction, port, definitions)? {
        let index = next_index(rules);
        columns.extend(source.packets.rules(index.0));
        indices.resize(columns.len(), index);
        rules.push(source.rule);
    }
    let default = next_index(rules);
    rules.push(PolicyRule {
        origin: Origin::Default,
        direction,
        action: Action::Deny,
        name: None,
        stateless: false,
        text: format!("no rule of {:?} allows it", direction.as_str()),
        log: false,
    });
    // All rules have one priority, so ranks are places in the list.
    let columns: Rules = columns.into_iter().collect();
    Ok(Half { structure: compile(&columns, level), indices, default })
}

fn next_index(rules: &[PolicyRule]) -> RuleIndex {
    RuleIndex(u32::try_from(rules.len()).expect("a policy has fewer than 2^32 rules"))
}

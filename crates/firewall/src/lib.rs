//! Policy of security groups: which packets may begin a connection from and to a port.
//!
//! A [`Group`] has rules for packets to its ports and from them, in words such as
//! `tcp 80,443 from any`. A [`Policy`] has the rules of a port's groups in their order, compiled by the
//! classifier. The first rule that matches decides; a packet that none matches is denied.
//!
//! ```
//! use straightline_firewall::{Definitions, Flow, Group, Level, Policy, PortGroups};
//!
//! let web = Group::parse("web", &["tcp 80,443 from any"], &["udp 53 to 10.0.0.2"])?;
//! let definitions = Definitions::new([web], []);
//! let port = PortGroups { groups: vec!["web".to_owned()], ..PortGroups::default() };
//! let policy = Policy::compile(&port, &definitions, Level::detect()).expect("known groups");
//!
//! let explain = |flow: &str| {
//!     let flow: Flow = flow.parse()?;
//!     Ok::<_, straightline_firewall::RuleError>(policy.rule(policy.explain(&flow)).to_string())
//! };
//! assert_eq!(explain("tcp from 192.0.2.1 port 443")?, r#"rule 1 of "in" in group "web": tcp 80,443 from any"#);
//! assert_eq!(explain("tcp to 192.0.2.1 port 443")?, r#"no rule of "out" allows it"#);
//! # Ok::<(), straightline_firewall::RuleError>(())
//! ```
//!
//! # Keys
//! [`Policy::decide`] takes a batch of keys. Values that a packet does not have are 0. It reads these
//! columns only:
//!
//! | column | value |
//! |---|---|
//! | `EtherType` | type of the frame behind the tags of its bridge; a length (below 1536) as it is |
//! | `IpDst0` to `IpDst3` ([`REMOTE`]) | remote address: the source of packets to the port, the destination of packets from it; IPv4 in the last word |
//! | `Protocol` | IP protocol behind extension headers; 0 in frames that are neither IPv4 nor IPv6 |
//! | `SrcPort`, `DstPort` | ports of TCP, UDP and SCTP |
//! | `IcmpType`, `IcmpCode` | of ICMP and ICMPv6 |
//! | `Ttl` | time to live, or hop limit |
//! | `Reg0` ([`TRUSTED_SENDER`]) | 1 if the packet came from a port with `trusted`, else 0 |
//! | `Reg1` ([`NEEDS_RULE`]) | 1 if the packet is a message whose form needs a rule of a group, else 0 |
//!
//! # Map
//! | file | holds |
//! |---|---|
//! | `rule.rs`, `parse.rs`, `words.rs`, `tokens.rs`, `error.rs` | rules and their text |
//! | `prefix.rs`, `pattern.rs`, `ranges.rs` | prefixes and patterns; sets of addresses |
//! | `carried.rs` | IPv6 addresses that carry one of IPv4 |
//! | `group.rs`, `profile.rs`, `definitions.rs` | groups, sets and profiles, and the meaning of names |
//! | `network.rs`, `message.rs` | what a network needs, and what it forbids; the form of messages without a rule |
//! | `expand.rs` | rules as tests of columns |
//! | `policy.rs`, `policies.rs` | a compiled policy; all policies of a switch |
//! | `flow.rs`, `shadow.rs` | explanations; rules that never decide |
//!
//! The crate knows no connections and ports, and of packets only the messages that need no rule. It starts no thread, and does no I/O.
#![forbid(unsafe_code)]

mod carried;
mod definitions;
mod error;
mod expand;
mod flow;
mod group;
mod message;
mod network;
mod parse;
mod pattern;
mod policies;
mod policy;
mod prefix;
mod profile;
mod ranges;
mod rule;
mod shadow;
mod tokens;
mod words;

use straightline_classify::Column;

pub use carried::NAT64_LENGTHS;
pub use definitions::Definitions;
pub use error::RuleError;
pub use flow::Flow;
pub use group::{Group, Set};
pub use message::{MessageForm, MessageKind, MessageRole};
pub use parse::parse_rule;
pub use pattern::{Pattern, PatternError};
pub use policies::Policies;
pub use policy::{MAX_COMPILED, Origin, Policy, PolicyError, PolicyRule, PortGroups, RuleIndex, Verdicts};
pub use prefix::{Prefix, PrefixError};
pub use profile::{known_sets, known_sets_with, profiles};
pub use rule::{Action, Direction, EtherTypes, IcmpType, Peer, Ports, Rule, Service};
pub use shadow::{ShadowedRule, shadowed_rules};
pub use straightline_classify::Level;
pub use tokens::MAX_TEXT;
pub use words::is_name;

/// The columns of the remote address, first word first. IPv4 has the last one.
pub const REMOTE: [Column; 4] = expand::REMOTE;

/// The column that says whether the packet came from a port with `trusted`.
pub const TRUSTED_SENDER: Column = expand::TRUSTED_SENDER;

/// The column that says whether the packet is a message without the form of those that need no rule. Then no
/// rule of the network allows it.
pub const NEEDS_RULE: Column = expand::NEEDS_RULE;

//! Reads the security groups of a port, and its rights among them.

use toml::Spanned;

use crate::PortConfig;
use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, UNBOUNDED, Value};
use crate::sections::section::Section;

/// The most connections of a port.
const MOST_CONNECTIONS: u32 = 1_000_000;

/// The keys, as a part of those of `[port.NAME]`.
pub(crate) const KEYS: &[Key] = &[
    Key::new(
        "groups",
        Value::Texts { of: "names of groups or profiles, each at most once", min: 1, max: UNBOUNDED },
        Absent::Text("no firewall: all packets pass"),
        "Security groups of the port, in the order in which their rules are tried. Only what a rule allows passes, and \
         the answers to it. Profiles are `public`, `private` and `host-only`.",
        "[\"web\", \"private\"]",
    ),
    Key::new(
        "connections",
        Value::Integer { min: 1, max: MOST_CONNECTIONS as i64, unit: "connections" },
        Absent::Value("10000"),
        "Most connections of the port that the switch follows. Needs `groups`.",
        "20000",
    ),
    Key::new(
        "trusted",
        Value::Boolean,
        Absent::Value("false"),
        "`true`: ports with groups take router advertisements and answers of DHCP from this port.",
        "true",
    ),
    Key::new(
        "message-limit",
        Value::IntegerOr { min: 1, max: MOST_MESSAGES as i64, unit: "messages a second", word: "off" },
        Absent::Value("200"),
        "Most messages of each kind that need no rule: ARP, neighbour discovery, and IGMP with MLD. Twice as many pass at \
         once. It holds for ports with groups, and for others of the same network. Ports that are `trusted`, trunks and \
         tunnels have no such limit. A router behind a port needs more.",
        "2000",
    ),
];

/// The greatest limit of messages.
const MOST_MESSAGES: u32 = 1_000_000;

/// The groups of a port, with the places of their names.
pub(crate) struct Read {
    pub(crate) groups: Vec<String>,
    pub(crate) spans: GroupsSpans,
    pub(crate) connections: u32,
    pub(crate) trusted: bool,
    pub(crate) message_limit: Option<u32>,
}

/// The places of a port's keys for groups.
#[derive(Default)]
pub(crate) struct GroupsSpans {
    /// The place of each group.
    pub(crate) groups: Vec<Span>,
    /// The place of the list.
    pub(crate) list: Option<Span>,
    /// The place of `trusted = true`.
    pub(crate) trusted: Option<Span>,
    /// The place of `message-limit`.
    pub(crate) message_limit: Option<Span>,
    /// Whether `source-check` has an error.
    pub(crate) has_wrong_check: bool,
}

/// Reads the keys, after `source-check`.
pub(crate) fn read(section: &Section<'_>, report: &mut Findings<'_>) -> Read {
    let title = section.title();
    let texts = section.texts("groups", "groups = [\"web\"]", report);
    let is_written = texts.is_some();
    let list = texts.as_ref().map(Spanned::span);
    let mut groups = Vec::new();
    let mut spans = Vec::new();
    for text in texts.iter().flat_map(|texts| texts.get_ref()) {
        groups.push((*text.get_ref()).to_owned());
        spans.push(text.span());
    }
    if let Some(list) = &list
        && groups.is_empty()
        && !report.has_error_in(list)
    {
        let message = format!(
            "groups in {title}: none named; leave it out for a port without a firewall, or name a group or a profile, for \
             example [\"private\"]"
        );
        report.error(list, message);
    }
    let connections = section.integer("connections", 1..=MOST_CONNECTIONS, report);
    if let Some(connections) = &connections
        && !is_written
        && !section.is_wrong("groups", report)
    {
        report.error(&connections.span(), format!("connections in {title} needs groups in this section"));
    }
    let message_limit = section.integer_or("message-limit", 1..=MOST_MESSAGES, "off", report);
    let trusted = section.boolean("trusted", report).filter(|trusted| *trusted.get_ref());
    let limit_span = message_limit.as_ref().map(Spanned::span);
    Read {
        groups,
        connections: connections.map_or(PortConfig::DEFAULT_CONNECTIONS, Spanned::into_inner),
        trusted: trusted.is_some(),
        message_limit: message_limit.map_or(Some(PortConfig::DEFAULT_MESSAGE_LIMIT), Spanned::into_inner),
        spans: GroupsSpans {
            groups: spans,
            list,
            trusted: trusted.map(|trusted| trusted.span()),
            message_limit: limit_span,
            has_wrong_check: section.is_wrong("source-check", report),
        },
    }
}

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
];

/// The groups of a port, with the places of their names.
pub(crate) struct Read {
    pub(crate) groups: Vec<String>,
    pub(crate) spans: GroupsSpans,
    pub(crate) connections: u32,
    pub(crate) trusted: bool,
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
    /// Whether `source-check` has an error.
    pub(crate) has_wrong_check: bool,
}

/// Reads the three keys, after `source-check`.
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
    let trusted = section.boolean("trusted", report).filter(|trusted| *trusted.get_ref());
    Read {
        groups,
        connections: connections.map_or(PortConfig::DEFAULT_CONNECTIONS, Spanned::into_inner),
        trusted: trusted.is_some(),
        spans: GroupsSpans {
            groups: spans,
            list,
            trusted: trusted.map(|trusted| trusted.span()),
            has_wrong_check: section.is_wrong("source-check", report),
        },
    }
}

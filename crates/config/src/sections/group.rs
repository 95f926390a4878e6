//! Reads `[group.NAME]` and `[set.NAME]`.

use std::path::Path;

use straightline_firewall::{Direction, Group, Prefix, Rule, known_sets, parse_rule, profiles};

use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, UNBOUNDED, Value};
use crate::sections::flows::read_text;
use crate::sections::section::Section;
use crate::{Draft, SetConfig};

/// The keys of `[group.NAME]`.
pub(crate) const GROUP_KEYS: &[Key] = &[
    Key::new(
        "in",
        Value::Texts { of: "rules", min: 0, max: UNBOUNDED },
        Absent::Text("none"),
        "Rules for packets to ports of the group. The first that matches decides.",
        "[\"tcp 80,443 from any\", \"tcp 22 from set:office\"]",
    ),
    Key::new(
        "out",
        Value::Texts { of: "rules", min: 0, max: UNBOUNDED },
        Absent::Text("none"),
        "Rules for packets from ports of the group. The first that matches decides.",
        "[\"udp 53 to 10.0.0.2\", \"deny tcp 25 to any name no-spam log\"]",
    ),
];

/// The keys of `[set.NAME]`.
pub(crate) const SET_KEYS: &[Key] = &[
    Key::new(
        "prefixes",
        Value::Texts { of: "IP addresses or prefixes", min: 0, max: UNBOUNDED },
        Absent::Text("none"),
        "Addresses of the set, together with those of `file`. A set has at least one.",
        "[\"192.0.2.0/24\", \"2001:db8::/32\"]",
    ),
    Key::new(
        "file",
        Value::Text("path of a file"),
        Absent::Text("none"),
        "File with an IP address or a prefix in each line. A comment begins with `#`. A relative path begins at the \
         folder of the configuration file.",
        "\"office.txt\"",
    ),
];

/// The places of a group's name and of its rules.
pub(crate) struct GroupSpans {
    pub(crate) name: Span,
    pub(crate) inbound: Vec<Span>,
    pub(crate) outbound: Vec<Span>,
}

impl GroupSpans {
    /// Returns the places of the rules of a direction.
    pub(crate) fn rules(&self, direction: Direction) -> &[Span] {
        match direction {
            Direction::In => &self.inbound,
            Direction::Out => &self.outbound,
        }
    }
}

/// Reads a group.
pub(crate) fn read_group(name: &str, section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    section.only(GROUP_KEYS, report);
    if profiles().iter().any(|profile| profile.name == name) {
        let message = format!("{}: a profile has this name; choose another one", section.title());
        report.error(section.span(), message);
    }
    let (inbound, inbound_spans) = read_rules(section, Direction::In, report);
    let (outbound, outbound_spans) = read_rules(section, Direction::Out, report);
    let group = Group { name: name.to_owned(), inbound, outbound };
    let spans = GroupSpans { name: section.span().clone(), inbound: inbound_spans, outbound: outbound_spans };
    draft.groups.push((group, spans));
}

fn read_rules(section: &Section<'_>, direction: Direction, report: &mut Findings<'_>) -> (Vec<Rule>, Vec<Span>) {
    let key = direction.as_str();
    let example = format!("{key} = [\"tcp 443 {} any\"]", direction.preposition());
    let texts = section.texts(key, &example, report);
    let mut rules = Vec::new();
    let mut spans = Vec::new();
    for text in texts.iter().flat_map(|texts| texts.get_ref()) {
        match parse_rule(direction, text.get_ref()) {
            Ok(rule) => {
                rules.push(rule);
                spans.push(text.span());
            }
            Err(error) => report.error(&text.span(), format!("{key:?} of {}: {error}", section.title())),
        }
    }
    (rules, spans)
}

/// Reads a set.
pub(crate) fn read_set(name: &str, section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    section.only(SET_KEYS, report);
    let title = section.title();
    if known_sets().iter().any(|set| set.name == name) {
        report.error(section.span(), format!("{title}: each switch has a set of this name; choose another one"));
    }
    let mut set = SetConfig { name: name.to_owned(), prefixes: Vec::new(), file: None };
    let mut is_whole = true;
    let texts = section.texts("prefixes", "prefixes = [\"192.0.2.0/24\"]", report);
    for text in texts.iter().flat_map(|texts| texts.get_ref()) {
        match text.get_ref().parse() {
            Ok(prefix) => set.prefixes.push(prefix),
            Err(error) => {
                is_whole = false;
                report.error(&text.span(), format!("{:?} in prefixes of {title} {error}", text.get_ref()));
            }
        }
    }
    if let Some(file) = section.text("file", "file = \"office.txt\"", report) {
        let path = draft.folder.join(file.get_ref());
        match read_prefixes(&path) {
            Ok(prefixes) => set.prefixes.extend(prefixes),
            Err(problem) => {
                is_whole = false;
                let message = format!("file {:?} of {title}: {problem}", path.display().to_string());
                report.error(&file.span(), message);
            }
        }
        set.file = Some(path);
    }
    let has_errors = !is_whole || ["prefixes", "file"].iter().any(|key| section.is_wrong(key, report));
    if set.prefixes.is_empty() && !has_errors {
        let message = format!("{title} is empty; name addresses, for example prefixes = [\"192.0.2.0/24\"]");
        report.error(section.span(), message);
    }
    draft.sets.push((set, section.span().clone()));
}

/// Reads the prefixes of a file.
fn read_prefixes(path: &Path) -> Result<Vec<Prefix>, String> {
    let text = read_text(path, "addresses")?;
    let mut prefixes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        let shown: String = entry.chars().take(60).collect();
        prefixes.push(entry.parse().map_err(|error| format!("line {number}: {shown:?} {error}"))?);
    }
    Ok(prefixes)
}

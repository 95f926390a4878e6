//! The table agrees with the readers, and with the document.

use std::collections::{BTreeMap, BTreeSet};

use super::{explain, groups, schema};
use crate::key::Key;
use crate::sections::kind;
use crate::sections::section::ASKED;
use crate::{Config, Kinds, Machine, SINGLE_SECTIONS};

/// Returns the keys that reading this section asks for.
fn asked(text: &str) -> BTreeSet<String> {
    ASKED.take();
    let _ = Config::parse("f.toml", text, &Machine::this());
    ASKED.take()
}

#[test]
fn readers_ask_for_the_keys_of_the_table_and_no_others() {
    let mut groups = groups();
    let common: Vec<Key> = groups.remove(1).keys;
    let mut by_section: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    by_section.entry("port").or_default().extend(common.iter().map(|key| key.name));
    for group in &groups {
        by_section.entry(group.section).or_default().extend(group.keys.iter().map(|key| key.name));
    }
    for group in &groups {
        let title = if SINGLE_SECTIONS.contains(&group.section) {
            group.section.to_owned()
        } else {
            format!("{}.x", group.section)
        };
        let kind = match (group.section, group.kind) {
            (_, Some(kind)) => format!("kind = {kind:?}\n"),
            ("node", None) => "kind = \"mirror\"\n".to_owned(),
            _ => String::new(),
        };
        // Some readers stop at a list of ports that is not there.
        let ports = if ["patch", "bridge"].contains(&group.section) { "ports = [\"a\", \"b\"]\n" } else { "" };
        let asked = asked(&format!("[{title}]\n{kind}{ports}"));
        let own = group.keys.iter().chain(common.iter().filter(|_| group.section == "port"));
        for key in own {
            assert!(asked.contains(key.name), "no reader asks for {} of {title} {kind}", key.name);
        }
        for key in &asked {
            assert!(by_section[group.section].contains(&**key), "the table lacks {key} of {title} {kind}");
        }
    }
}

/// A kind whose keys all belong to other kinds too would be missed by the comparison of keys.
#[test]
fn the_document_and_the_schema_have_each_kind_of_port() {
    let document = include_str!("../../../../docs/configuration.md");
    let schema = schema(&Kinds::new());
    let sections = schema["properties"]["port"]["additionalProperties"]["oneOf"].as_array().unwrap();
    assert_eq!(sections.len(), kind::WORDS.len());
    for word in kind::WORDS {
        let is_tunnel = kind::tunnel_words().any(|tunnel| tunnel == *word);
        let start = if is_tunnel { format!("\n| `\"{word}\"`") } else { format!("\n### `kind = \"{word}\"`\n") };
        assert!(document.contains(&start), "docs/configuration.md has no {}", start.trim());
        assert!(sections.iter().any(|section| section["properties"]["kind"]["const"] == **word), "schema: {word}");
    }
}

/// Every example and default is a value that the reader takes: findings about it name no type,
/// range or word.
#[test]
fn examples_and_defaults_are_valid() {
    for group in groups() {
        for key in &group.keys {
            let mut values = vec![key.example];
            if let crate::key::Absent::Value(default) = key.default {
                values.push(default);
            }
            for value in values {
                let title = if SINGLE_SECTIONS.contains(&group.section) {
                    group.section.to_owned()
                } else {
                    format!("{}.x", group.section)
                };
                let kind = match (group.kind, key.name) {
                    (_, "kind") => String::new(),
                    (Some(kind), _) => format!("kind = {kind:?}\n"),
                    (None, _) if group.section == "port" => "kind = \"tap\"\n".to_owned(),
                    (None, _) => String::new(),
                };
                let line = format!("{} = {value}", key.name);
                let machine = Machine::with_cpus(vec![0, 1, 2, 3], vec![0, 1, 2, 3]);
                let findings = match Config::parse("f.toml", &format!("[{title}]\n{kind}{line}\n"), &machine) {
                    Ok(_) => String::new(),
                    Err(errors) => errors.to_string(),
                };
                for wrong in
                    ["out of range", "it must be", "it must hold", ": unknown;", "unknown key", "not a", "not pairs"]
                {
                    // This machine may lack a user or an instruction set.
                    assert!(!findings.contains(wrong), "{line} of {title} {kind}: {findings}");
                }
            }
        }
    }
}

/// A row of a table of keys in the document.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    section: String,
    kind: Option<String>,
    key: String,
    values: String,
    default: String,
}

/// Returns the rows of the tables that begin with `| key |`. A column `kinds` names the kinds of
/// port; else the heading above the table names the section or the kind.
fn document() -> BTreeSet<Row> {
    let text = include_str!("../../../../docs/configuration.md");
    let mut section = String::new();
    let mut kinds = vec![None];
    let mut columns = Vec::new();
    let mut rows = BTreeSet::new();
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let name = heading.trim_matches(['`', '[', ']']);
            section = name.split('.').next().unwrap_or_default().to_owned();
            kinds = vec![None];
        } else if line.starts_with("### ") {
            kinds = match quoted(line).first().and_then(|code| code.strip_prefix("kind = ")) {
                Some(kind) => vec![Some(kind.trim_matches('"').to_owned())],
                None if line == "### Tunnels" => kind::tunnel_words().map(|kind| Some(kind.to_owned())).collect(),
                None => vec![None],
            };
        }
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if !line.starts_with('|') {
            columns.clear();
        } else if cells[0] == "key" {
            columns = cells.iter().map(|cell| (*cell).to_owned()).collect();
        } else if !columns.is_empty() && cells[0].starts_with('`') {
            let cell = |name: &str| columns.iter().position(|column| column == name).map(|at| cells[at].to_owned());
            let named = cell("kinds").map(|cell| quoted(&cell).into_iter().map(Some).collect());
            for kind in named.unwrap_or_else(|| kinds.clone()) {
                rows.insert(Row {
                    section: section.clone(),
                    kind,
                    key: quoted(cells[0]).concat(),
                    values: cell("type, range").expect("a table of keys has a column for their values"),
                    default: cell("default").expect("a table of keys has a column for their defaults"),
                });
            }
        }
    }
    rows
}

#[test]
fn the_document_has_the_keys_values_and_defaults_of_the_table() {
    let mut table = BTreeSet::new();
    for group in groups() {
        for key in group.keys {
            table.insert(Row {
                section: group.section.to_owned(),
                kind: group.kind.map(str::to_owned),
                key: key.name.to_owned(),
                values: key.value.describe(),
                default: key.default.describe(),
            });
        }
    }
    let document = document();
    let missing: Vec<_> = table.difference(&document).collect();
    let other: Vec<_> = document.difference(&table).collect();
    assert!(missing.is_empty() && other.is_empty(), "not in the document: {missing:#?}\nonly there: {other:#?}");
}

#[test]
fn queries() {
    let names = |query: &str| {
        let found = explain(query).unwrap();
        found.iter().map(|found| format!("{}.{}{:?}", found.section, found.key.name, found.kinds)).collect::<Vec<_>>()
    };
    assert_eq!(names("workers"), ["switch.workers[]"]);
    assert_eq!(names("mtu"), ["port.mtu[]", "underlay.mtu[]"]);
    assert_eq!(names("port.vhost-user.mtu"), ["port.mtu[]"]);
    assert_eq!(names("[port.NAME].mtu"), ["port.mtu[]"]);
    assert_eq!(names("tap.queues"), ["port.queues[\"tap\"]"]);
    assert_eq!(names("vni"), ["port.vni[\"vxlan\", \"geneve\", \"vxlan-gpe\"]"]);
    assert_eq!(names("patch"), ["patch.ports[]", "patch.full[]"]);
    assert_eq!(names("af-packet"), ["port.interface[\"af-packet\"]", "port.queues[\"af-packet\"]"]);
    let hint = |query: &str| explain(query).unwrap_err().to_string();
    assert_eq!(hint("mtuu"), "unknown key \"mtuu\"; did you mean \"mtu\"?");
    assert_eq!(hint("cookies"), "unknown key \"cookies\"; did you mean \"cookie\" or \"copies\"?");
    assert_eq!(hint("bridge.mtu"), "unknown key \"bridge.mtu\"; it is elsewhere; try \"mtu\" alone");
    for query in ["", ".", "colour", "[]"] {
        assert!(hint(query).contains("name a section"), "{query}");
    }
}

#[test]
fn explanations_fit_80_columns() {
    for group in groups() {
        for key in group.keys {
            for explanation in explain(&format!("{}.{}", group.section, key.name)).unwrap() {
                let text = explanation.to_string();
                assert!(text.lines().all(|line| line.len() <= 80), "{text}");
                assert!(!text.contains('`'), "{text}");
            }
        }
    }
}

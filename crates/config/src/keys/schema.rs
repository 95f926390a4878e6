//! The JSON schema of configuration files, with which editors complete and check.
//!
//! The schema knows types, ranges, words and required keys. It does not know what depends on other
//! keys or on the machine: `straightline check` does.

use serde_json::{Map, Value as Json, json};

use super::super::Kinds;
use super::explain::plain;
use super::groups;
use crate::key::{Absent, Key, UNBOUNDED, Value};

/// Returns the JSON schema (draft 7) of files whose nodes are of these kinds. The keys of kinds
/// that a program adds are not known, so their sections may have any.
#[must_use]
pub fn schema(kinds: &Kinds) -> Json {
    let groups = groups();
    let keys_of = |section: &str, kind: Option<&str>| {
        let group = groups.iter().find(|group| group.section == section && group.kind == kind);
        group.map_or(&[][..], |group| &group.keys)
    };
    // One alternative for each kind: the keys of all kinds, and its own.
    let alternatives = |section: &str| -> Vec<Json> {
        let own = groups.iter().filter(|group| group.section == section);
        own.filter_map(|group| Some((group.kind?, [keys_of(section, None), &group.keys].concat())))
            .map(|(kind, keys)| section_of_kind(kind, &keys))
            .collect()
    };
    let mut nodes = alternatives("node");
    let added = kinds.names().into_iter().filter(|name| *name != "mirror");
    nodes.extend(added.map(|name| {
        json!({
            "type": "object",
            "properties": { "kind": { "const": name } },
            "required": ["kind"],
        })
    }));
    let named = |section: Json| {
        json!({
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z0-9_.-]{1,32}$" },
            "additionalProperties": section,
        })
    };
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of the switch Straightline",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "switch": object(keys_of("switch", None)),
            "port": named(json!({ "oneOf": alternatives("port") })),
            "underlay": named(object(keys_of("underlay", None))),
            "patch": named(object(keys_of("patch", None))),
            "bridge": named(object(keys_of("bridge", None))),
            "node": named(json!({ "oneOf": nodes })),
            "rate": named(object(keys_of("rate", None))),
            "group": named(object(keys_of("group", None))),
            "set": named(object(keys_of("set", None))),
            "firewall": object(keys_of("firewall", None)),
        },
    })
}

/// Returns the schema of a section of one kind.
fn section_of_kind(kind: &str, keys: &[Key]) -> Json {
    let mut section = object(keys);
    section["properties"]["kind"] = json!({ "const": kind, "description": "Kind of the section." });
    section
}

/// Returns the schema of a section with these keys and no others.
fn object(keys: &[Key]) -> Json {
    let alternatives = keys.iter().filter_map(|key| match key.default {
        Absent::InsteadOf(other) => Some((key.name, other)),
        _ => None,
    });
    let alternatives: Vec<_> = alternatives.collect();
    let is_alternative = |name| alternatives.iter().any(|(_, other)| *other == name);
    let is_required = |key: &&Key| key.default == Absent::Required && !is_alternative(key.name);
    let required: Vec<_> = keys.iter().filter(is_required).map(|key| key.name).collect();
    let properties: Map<_, _> = keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let mut section = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        section["required"] = json!(required);
    }
    let one_of = |(one, other): &(&str, &str)| json!([{ "required": [one] }, { "required": [other] }]);
    match &alternatives[..] {
        [] => {}
        [alternative] => section["oneOf"] = one_of(alternative),
        several => section["allOf"] = several.iter().map(|pair| json!({ "oneOf": one_of(pair) })).collect(),
    }
    section
}

/// Returns the schema of a value.
fn property(key: &Key) -> Json {
    let text = json!({ "type": "string" });
    let mut property = match key.value {
        Value::Integer { min, max, .. } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Value::IntegerOr { min, max, word, .. } => {
            json!({ "oneOf": [{ "type": "integer", "minimum": min, "maximum": max }, { "const": word }] })
        }
        Value::IntegerOrChoice { min, max, words, .. } => {
            json!({ "oneOf": [{ "type": "integer", "minimum": min, "maximum": max }, { "enum": words }] })
        }
        Value::IntegersOrChoices { min, max, words, .. } => {
            let one = json!({ "oneOf": [{ "type": "integer", "minimum": min, "maximum": max }, { "enum": words }] });
            json!({ "type": "array", "items": one, "minItems": 1, "uniqueItems": true })
        }
        Value::Boolean => json!({ "type": "boolean" }),
        Value::Choice(words) => json!({ "type": "string", "enum": words }),
        Value::Text(_) => text,
        Value::TextOrTexts { .. } => {
            json!({ "oneOf": [text, { "type": "array", "items": text, "minItems": 1, "maxItems": 2 }] })
        }
        Value::Choices(words) => {
            json!({ "type": "array", "items": { "type": "string", "enum": words }, "uniqueItems": true })
        }
        Value::Texts { min, max, .. } => {
            let mut list = json!({ "type": "array", "items": text });
            if min > 0 {
                list["minItems"] = json!(min);
            }
            if max != UNBOUNDED {
                list["maxItems"] = json!(max);
            }
            list
        }
        Value::Integers { .. } => {
            let number = json!({ "type": "integer", "minimum": 0 });
            json!({ "type": "array", "items": number, "minItems": 1, "uniqueItems": true })
        }
        Value::Ranges { min, max, .. } => {
            let number = json!({ "type": "integer", "minimum": min, "maximum": max });
            let range = json!({ "type": "string", "pattern": "^[0-9]+-[0-9]+$" });
            json!({ "type": "array", "items": { "oneOf": [number, range] }, "minItems": 1 })
        }
        Value::Places { key, .. } => {
            let vlan = json!({ "type": "integer", "minimum": 1, "maximum": 4094 });
            let place = json!({
                "type": "object",
                "additionalProperties": false,
                "properties": { key: text, "vlan": vlan },
                "required": [key],
            });
            let one = json!({ "oneOf": [text, place] });
            json!({ "type": "object", "additionalProperties": { "oneOf": [one, { "type": "array", "items": one }] } })
        }
        Value::Numbers { min, max, .. } => {
            let number = json!({ "type": "integer", "minimum": min, "maximum": max });
            json!({ "type": "object", "additionalProperties": number, "minProperties": 1 })
        }
        Value::Table { .. } => json!({ "type": "object", "additionalProperties": text }),
    };
    let values = plain(&key.value.describe());
    let default = plain(&key.default.describe());
    property["description"] = json!(format!(
        "{} Values: {values}. Default: {default}. Example: {} = {}",
        plain(key.meaning),
        key.name,
        key.example
    ));
    // Defaults in TOML are numbers, texts without escapes, true and false: JSON too.
    if let Absent::Value(value) = key.default
        && let Ok(value) = serde_json::from_str::<Json>(value)
    {
        property["default"] = value;
    }
    property
}

//! The schema takes correct files, and refuses files with wrong keys and types.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::super::Kinds;
use super::schema;

/// Returns whether a value fits a schema that has only the words that [`schema()`] uses.
fn fits(value: &Json, schema: &Json) -> bool {
    let Json::Object(words) = schema else { panic!("{schema} is no schema") };
    words.iter().all(|(word, says)| {
        let list = value.as_array();
        let table = value.as_object();
        let size = |items: &Vec<Json>| items.len() as u64;
        match word.as_str() {
            "$schema" | "title" | "description" | "default" => true,
            "type" => match says.as_str() {
                Some("object") => value.is_object(),
                Some("array") => value.is_array(),
                Some("string") => value.is_string(),
                Some("boolean") => value.is_boolean(),
                Some("integer") => value.is_i64(),
                _ => panic!("type {says}"),
            },
            "const" => value == says,
            "enum" => says.as_array().unwrap().contains(value),
            "minimum" => value.as_i64().is_none_or(|number| number >= says.as_i64().unwrap()),
            "maximum" => value.as_i64().is_none_or(|number| number <= says.as_i64().unwrap()),
            "minItems" => list.is_none_or(|items| size(items) >= says.as_u64().unwrap()),
            "maxItems" => list.is_none_or(|items| size(items) <= says.as_u64().unwrap()),
            "uniqueItems" => list.is_none_or(|items| (1..items.len()).all(|at| !items[..at].contains(&items[at]))),
            "items" => list.is_none_or(|items| items.iter().all(|item| fits(item, says))),
            "minProperties" => table.is_none_or(|table| table.len() as u64 >= says.as_u64().unwrap()),
            "allOf" => says.as_array().unwrap().iter().all(|schema| fits(value, schema)),
            "required" => table.is_none_or(|table| {
                says.as_array().unwrap().iter().all(|key| table.contains_key(key.as_str().unwrap()))
            }),
            "properties" => table.is_none_or(|table| {
                table.iter().all(|(key, value)| says.get(key).is_none_or(|says| fits(value, says)))
            }),
            "additionalProperties" => table.is_none_or(|table| {
                let known = schema.get("properties").and_then(Json::as_object);
                let mut others = table.iter().filter(|(key, _)| known.is_none_or(|known| !known.contains_key(*key)));
                others.all(|(_, value)| says.as_bool().unwrap_or_else(|| fits(value, says)))
            }),
            "propertyNames" => {
                assert_eq!(says, &json!({ "pattern": "^[A-Za-z0-9_.-]{1,32}$" }));
                table.is_none_or(|table| table.keys().all(|name| super::super::is_name(name)))
            }
            // Of ranges, the only texts with a pattern.
            "pattern" => {
                assert_eq!(says, "^[0-9]+-[0-9]+$");
                let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let ends = |text: &str| text.split_once('-').is_some_and(|(a, b)| is_number(a) && is_number(b));
                value.as_str().is_none_or(ends)
            }
            "oneOf" => says.as_array().unwrap().iter().filter(|schema| fits(value, schema)).count() == 1,
            other => panic!("unknown word {other}"),
        }
    })
}

fn to_json(value: &DeValue<'_>) -> Json {
    match value {
        DeValue::String(text) => json!(text),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix()).map_or(Json::Null, Json::from),
        DeValue::Boolean(truth) => json!(truth),
        DeValue::Array(items) => items.iter().map(|item| to_json(item.get_ref())).collect(),
        DeValue::Table(table) => table_to_json(table),
        // No key has such a value.
        DeValue::Float(_) | DeValue::Datetime(_) => Json::Null,
    }
}

fn table_to_json(table: &DeTable<'_>) -> Json {
    let entries = table.iter().map(|(key, value)| (key.get_ref().to_string(), to_json(value.get_ref())));
    Json::Object(entries.collect::<Map<_, _>>())
}

/// Returns whether a file fits the schema. `None`: it is not TOML.
pub(crate) fn takes(text: &str, kinds: &Kinds) -> Option<bool> {
    let table = DeTable::parse(text).ok()?;
    Some(fits(&table_to_json(table.get_ref()), &schema(kinds)))
}

#[test]
fn the_schema_takes_the_files_of_the_documents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = vec![fs::read_to_string(root.join("dist/switch.toml")).unwrap()];
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    for path in docs.chain([root.join("README.md")]) {
        let document = fs::read_to_string(path).unwrap();
        let blocks = document.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
        texts.extend(blocks);
    }
    assert!(texts.len() > 8, "only {} blocks", texts.len());
    for text in texts {
        assert_eq!(takes(&text, &Kinds::new()), Some(true), "{text}");
    }
}

#[test]
fn a_kind_that_a_program_adds_is_open() {
    let kinds = Kinds::new().with("other", |settings| straightline_nodes::Mirror::new(settings.output("to"), ""));
    let text = "[node.a]\nkind = \"other\"\nanything = 1\n";
    assert_eq!((takes(text, &kinds), takes(text, &Kinds::new())), (Some(true), Some(false)));
    let mirror = "[node.a]\nkind = \"mirror\"\nto = \"p\"\nanything = 1\n";
    assert_eq!(takes(mirror, &kinds), Some(false));
}

#[test]
fn the_shipped_schema_is_the_current_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/straightline.schema.json");
    let current = format!("{:#}\n", schema(&Kinds::new()));
    let shipped = fs::read_to_string(path).unwrap();
    assert!(shipped == current, "write it anew: straightline check --schema > dist/straightline.schema.json");
}

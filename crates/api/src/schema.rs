//! Compares the schema in `docs/` with the types, and the words of commands with the requests.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::*;

/// Returns the schema of the whole API: a definition for each type, and those of requests and answers.
fn generated() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut answers = BTreeMap::new();
    let mut streams = BTreeMap::new();
    for command in Command::ALL {
        answers.insert(command.as_str(), command.answer_schema(&mut generator));
        streams.extend(command.line_schema(&mut generator).map(|line| (command.as_str(), line)));
    }
    let request = generator.subschema_for::<Request>();
    let refusal = generator.subschema_for::<Refusal>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "API of a Straightline switch",
        "description": "Generated from the types of the crate straightline-api. A line to the switch is a request. \
            A line back is an object with \"ok\", which has the answer and \"time\", or it is a refusal.",
        "version": API_VERSION,
        "request": request,
        "refusal": refusal,
        "answers": answers,
        "streams": streams,
        "$defs": generator.take_definitions(true),
    })
}

/// Compares a file of the documentation with what it should be. If `STRAIGHTLINE_BLESS` is set, writes it.
fn check(name: &str, fresh: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let kept = std::fs::read_to_string(&path).unwrap();
    let fresh = fresh(&kept);
    if kept != fresh {
        let is_blessed = std::env::var_os("STRAIGHTLINE_BLESS").is_some();
        assert!(is_blessed, "docs/{name} is outdated: run this test with STRAIGHTLINE_BLESS=1");
        std::fs::write(&path, &fresh).unwrap();
    }
}

#[test]
fn the_schema_in_the_documentation_is_that_of_the_types() {
    check("api.schema.json", |_| serde_json::to_string_pretty(&generated()).unwrap() + "\n");
}

#[test]
fn the_table_in_the_documentation_has_each_command_with_its_right() {
    let row = |command: Command| {
        format!("| `{}` | `{}` | {} |\n", command.as_str(), command.right().as_str(), command.help())
    };
    let table: String = Command::ALL.into_iter().map(row).collect();
    check("api.md", |kept| {
        let head = "| command | right | what it does |\n|---|---|---|\n";
        let (before, rest) = kept.split_once(head).expect("a table");
        let (_, after) = rest.split_once("\n\n").expect("text after the table");
        format!("{before}{head}{table}\n{after}")
    });
}

#[test]
fn the_documentation_has_every_command_code_and_event() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let text = std::fs::read_to_string(path).unwrap();
    let schema = generated();
    let words = |path: &str, tag: &str| -> Vec<String> {
        let variants = schema.pointer(path).and_then(Value::as_array).unwrap_or_else(|| panic!("{path}"));
        let schema_of = |variant: &Value| {
            let word = if tag.is_empty() { variant.get("const") } else { variant.pointer(tag) };
            word.and_then(Value::as_str).map(str::to_owned)
        };
        variants.iter().filter_map(schema_of).collect()
    };
    let commands = words("/$defs/Request/oneOf", "/properties/cmd/const");
    assert_eq!(commands.len(), Command::ALL.len());
    for command in Command::ALL {
        assert!(commands.iter().any(|word| word == command.as_str()), "{commands:?}");
    }
    let codes = words("/$defs/ErrorCode/oneOf", "");
    let events = words("/$defs/Event/oneOf", "/properties/kind/const");
    assert!(codes.len() >= 8 && events.len() >= 14, "{codes:?} {events:?}");
    for word in commands.iter().chain(&codes).chain(&events) {
        assert!(text.contains(&format!("| `{word}` |")), "docs/api.md has no row for `{word}`");
    }
    assert!(text.contains(&format!("version {API_VERSION}")));
}

#[test]
fn a_request_is_read_as_it_was_written() {
    let port = "vm1".to_owned();
    for (request, line) in [
        (Request::Status, r#"{"cmd":"status"}"#),
        (Request::Link(LinkRequest { port, up: false }), r#"{"cmd":"link","port":"vm1","up":false}"#),
        (
            Request::Ping(PingRequest {
                underlay: "wan".to_owned(),
                address: std::net::Ipv4Addr::new(192, 0, 2, 2).into(),
                count: 4,
                interval_ms: 1000,
                timeout_ms: 1000,
            }),
            r#"{"cmd":"ping","underlay":"wan","address":"192.0.2.2","count":4,"interval_ms":1000,"timeout_ms":1000}"#,
        ),
        (Request::Events(EventsRequest { since: 3, follow: true }), r#"{"cmd":"events","since":3,"follow":true}"#),
    ] {
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        assert_eq!(Request::parse(line.as_bytes()).unwrap(), request);
    }
    let short = Request::parse(br#"{"cmd":"ping","underlay":"wan","address":"::2"}"#).unwrap();
    assert!(matches!(short, Request::Ping(PingRequest { count: 4, interval_ms: 1000, timeout_ms: 1000, .. })));
    assert!(
        Request::parse(br#"{"cmd":"ping","underlay":"wan","address":"two"}"#)
            .unwrap_err()
            .error
            .contains("an IP address")
    );
    // Fields that this version does not know are for another one.
    assert_eq!(Request::parse(br#"{"cmd":"ports","later":[1]}"#).unwrap(), Request::Ports);
    let refused = |line: &str| {
        let Refusal { error, code, culprit, .. } = Request::parse(line.as_bytes()).unwrap_err();
        (code, culprit, error)
    };
    let (code, culprit, error) = refused(r#"{"cmd":"link","port":"vm1"}"#);
    assert_eq!((code, culprit.as_deref()), (ErrorCode::BadRequest, Some("link")));
    assert!(error.contains("missing field `up`") && error.contains("it needs \"port\""), "{error}");
    assert_eq!(refused("{}").0, ErrorCode::BadRequest);
    assert_eq!(refused(r#"{"cmd":"Ports"}"#).0, ErrorCode::UnknownCommand);
}

#[test]
fn answers_of_other_versions_are_understood() {
    let event: Event = serde_json::from_str(r#"{"seq":1,"time":2.5,"kind":"later","message":"m","x":[1]}"#).unwrap();
    assert_eq!((event.kind, event.skipped), (EventKind::Other, 0));
    let refusal: Refusal = serde_json::from_str(r#"{"error":"no","code":"later"}"#).unwrap();
    assert_eq!(refusal.code, ErrorCode::Other);
    let refusal: Refusal = serde_json::from_str(r#"{"error":"no"}"#).unwrap();
    assert_eq!(refusal.code, ErrorCode::Other);
}

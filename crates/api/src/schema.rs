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
    let mut answer = |command: Command, schema: schemars::Schema| answers.insert(command.as_str(), schema);
    answer(Command::Status, generator.subschema_for::<Status>());
    answer(Command::Ports, generator.subschema_for::<Ports>());
    answer(Command::Fdb, generator.subschema_for::<Fdb>());
    answer(Command::Neighbours, generator.subschema_for::<Neighbours>());
    answer(Command::Runtime, generator.subschema_for::<Runtime>());
    answer(Command::Drops, generator.subschema_for::<Drops>());
    answer(Command::History, generator.subschema_for::<History>());
    answer(Command::Events, generator.subschema_for::<Events>());
    answer(Command::Capture, generator.subschema_for::<Capture>());
    answer(Command::Trace, generator.subschema_for::<Trace>());
    answer(Command::Ping, generator.subschema_for::<Ping>());
    answer(Command::Reload, generator.subschema_for::<Changes>());
    let (request, refusal, event) = (
        generator.subschema_for::<Request>(),
        generator.subschema_for::<Refusal>(),
        generator.subschema_for::<Event>(),
    );
    let ping = generator.subschema_for::<PingLine>();
    let trace = generator.subschema_for::<TraceLine>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "API of a Straightline switch",
        "description": "Generated from the types of the crate straightline-api. A line to the switch is a request. \
            A line back is an object with \"ok\", which has the answer and \"time\", or it is a refusal.",
        "version": API_VERSION,
        "request": request,
        "refusal": refusal,
        "answers": answers,
        "streams": { "events": event, "ping": ping, "trace": trace },
        "$defs": generator.take_definitions(true),
    })
}

/// The file is part of the documentation. If `STRAIGHTLINE_BLESS` is set, the test writes it.
#[test]
fn the_schema_in_the_documentation_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.schema.json");
    let fresh = serde_json::to_string_pretty(&generated()).unwrap() + "\n";
    if std::env::var_os("STRAIGHTLINE_BLESS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == fresh, "docs/api.schema.json is outdated: run this test with STRAIGHTLINE_BLESS=1");
}

#[test]
fn the_documentation_has_every_command_code_and_event() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let text = std::fs::read_to_string(path).unwrap();
    let schema = generated();
    let words = |path: &str, tag: &str| -> Vec<String> {
        let variants = schema.pointer(path).and_then(Value::as_array).unwrap_or_else(|| panic!("{path}"));
        let of = |variant: &Value| {
            let word = if tag.is_empty() { variant.get("const") } else { variant.pointer(tag) };
            word.and_then(Value::as_str).map(str::to_owned)
        };
        variants.iter().filter_map(of).collect()
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
        let Refusal { error, code, culprit } = Request::parse(line.as_bytes()).unwrap_err();
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

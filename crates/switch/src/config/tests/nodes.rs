//! Nodes that the program brings: what their sections become, and what each mistake is told.

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets};

use super::super::*;
use super::{Fixture, machine};

/// Keeps what it read.
#[derive(Clone)]
struct Keys;

impl Node for Keys {
    fn process(&mut self, _packets: &mut Packets<'_>, _batch: &Batch, _next: &mut Next<'_>) {}
}

fn kinds() -> Kinds {
    Kinds::new().with("other", |_| Keys).with("keys", |settings| {
        settings.integer("count", 0..=8, 4_u8);
        settings.boolean("fast", true);
        if settings.text("word", "a") == "bad" {
            settings.refuse("word", "\"bad\" is none");
        }
        Keys
    })
}

fn parse(text: &str) -> Result<Loaded, ConfigErrors> {
    Config::parse_with("f.toml", text, &machine(), &kinds())
}

fn good(text: &str) -> Config {
    parse(text).unwrap_or_else(|errors| panic!("{errors}\n\n{text}")).config
}

#[track_caller]
fn wrong(text: &str, expected: &str) {
    let errors = parse(text).expect_err(text);
    assert_eq!(errors.0.len(), 1, "{errors}");
    assert_eq!(errors.to_string().lines().next(), Some(expected), "{text}");
}

#[test]
fn a_node_is_what_its_section_says() {
    let fixture = Fixture::new();
    let text = |keys: &str| {
        let ports = fixture.port("p") + "nodes = [\"b\", \"a\"]\n" + &fixture.port("q");
        format!(
            "{ports}[patch.x]\nports = [\"p\", \"q\"]\n[node.a]\nkind = \"keys\"\n{keys}\n[node.b]\nkind = \"other\"\n"
        )
    };
    let config = good(&text("count = 0x2"));
    assert_eq!(config.ports[0].nodes, ["b", "a"]);
    assert_eq!(
        config.way(0).map(|node| node.describe()).collect::<Vec<_>>(),
        ["other", "keys, count 2, fast true, word a"]
    );
    assert_eq!(config.way(1).count(), 0);
    assert_eq!(config, good(&text("word = \"a\"\ncount = 2")), "a default that is written out is the same");
    assert_ne!(config, good(&text("")));
    let [a, b] = [(); 2].map(|()| NodeConfig::new("a", "keys", Keys));
    assert_eq!(a, a.clone());
    assert_ne!(a, b, "nobody knows");
    assert_ne!(a, config.nodes[0]);
}

#[test]
fn mistakes() {
    let keys = "[node.n]\nkind = \"keys\"\n";
    wrong("[node.n]\n", "f.toml:1: node \"n\" has no \"kind\"; add for example kind = \"other\"");
    wrong(
        "[node.n]\nkind = \"kees\"\nx = 1\n",
        "f.toml:2: kind \"kees\" in node \"n\": unknown; did you mean \"keys\"?",
    );
    wrong("[node.n]\nkind = \"?\"\n", "f.toml:2: kind \"?\" in node \"n\": unknown; known are other, keys");
    wrong(&format!("{keys}cont = 1\n"), "f.toml:3: unknown key \"cont\" in node \"n\"; did you mean \"count\"?");
    wrong(&format!("{keys}count = 9\n"), "f.toml:3: count 9 in node \"n\": out of range; it must be 0 to 8");
    wrong(
        &format!("{keys}fast = \"yes\"\n"),
        "f.toml:3: fast in node \"n\" is a string; it must be true or false, for example fast = true",
    );
    wrong(&format!("{keys}\nword = \"bad\"\n"), "f.toml:4: word in node \"n\": \"bad\" is none");
    wrong(
        "[node.\"a b\"]\nkind = \"other\"\n",
        "f.toml:1: node \"a b\": a bad name; names are 1 to 32 of A-Z a-z 0-9 _ . -",
    );
    wrong(
        "[node]\nkind = \"keys\"\n",
        "f.toml:2: \"kind\" in [node] is a string; keys stand below a name, as in [node.NAME]",
    );
    let fixture = Fixture::new();
    let port = fixture.port("p");
    wrong(
        &format!("{port}nodes = [\"n\", \"m\"]\n{keys}"),
        "f.toml:4: node \"m\" in nodes of port \"p\": no such node; nodes are n",
    );
    wrong(
        &format!("{port}nodes = [\"n\"]\n"),
        "f.toml:4: node \"n\" in nodes of port \"p\": no such node; there is no section [node.NAME]",
    );
    wrong(&format!("{port}nodes = [\"n\", \"n\"]\n{keys}"), "f.toml:4: node \"n\" in nodes of port \"p\": named twice");
}

#[test]
fn a_switch_without_nodes_says_so() {
    let errors = Config::parse("f.toml", "[node.n]\nkind = \"keys\"\n", &machine()).expect_err("there are none");
    let expected = "f.toml:2: kind \"keys\" in node \"n\": unknown; this program brings no nodes of its own";
    assert_eq!(errors.to_string().lines().next(), Some(expected));
}

#[test]
fn a_node_that_no_packet_passes_is_worth_a_warning() {
    let loaded = parse("[node.n]\nkind = \"other\"\n").expect("it is good");
    let warnings: Vec<_> = loaded.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert!(warnings.contains(&"node \"n\" is in nodes of no port; no packet will pass it"), "{warnings:?}");
}

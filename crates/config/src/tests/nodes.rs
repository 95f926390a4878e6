//! Configured nodes: the values of their sections, and the error message for each mistake.

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets};

use super::super::*;
use super::{Fixture, machine};

/// A node that does nothing.
#[derive(Clone)]
struct Keys;

impl Node for Keys {
    fn process(&mut self, _packets: &mut Packets<'_>, _batch: &Batch, _next: &mut Next<'_>) {}
}

fn kinds() -> Kinds {
    let kinds = Kinds::new().with("other", |_| Keys).with("keys", |settings| {
        settings.integer("count", 0..=8, 4_u8);
        settings.boolean("fast", true);
        if settings.text("word", "a") == "bad" {
            settings.refuse("word", "\"bad\" is none");
        }
        Keys
    });
    kinds.with("rules", |settings| {
        settings.texts("names");
        settings.tables("rules", |rule| {
            let port = rule.integer("port", 1..=65535, 1_u16);
            if rule.texts("from").is_empty() {
                rule.refuse("from", "it names nobody");
            }
            rule.tables("log", |log| log.boolean("all", false));
            if port == 443 { rule.output("to") } else { 0 }
        });
        Keys
    })
}

#[test]
fn lists_and_tables_of_rules_are_read() {
    let fixture = Fixture::new();
    let ports = fixture.port("p") + "nodes = [\"r\"]\n" + &fixture.port("q") + &fixture.port("m");
    let text = |keys: &str| format!("{ports}[patch.x]\nports = [\"p\", \"q\"]\n[node.r]\nkind = \"rules\"\n{keys}\n");
    let inline = "names = [\"a\", \"b\"]\nrules = [{ from = [\"x\"] }, { port = 443, from = [\"y\"], to = \"m\" }]";
    let sections = "names = [\"a\", \"b\"]\n\n[[node.r.rules]]\nfrom = [\"x\"]\nport = 1\n\
        [[node.r.rules]]\nport = 443\nto = \"m\"\nfrom = [\"y\"]";
    let config = good(&text(inline));
    assert_eq!(config, good(&text(sections)), "both ways to write a table mean the same");
    assert_eq!(config.nodes[0].outputs(), ["m"]);
    let described = "rules, names [\"a\", \"b\"], rules 2, rules[0].port 1, rules[0].from [\"x\"], rules[0].log 0, \
        rules[1].port 443, rules[1].from [\"y\"], rules[1].log 0, rules[1].to m";
    assert_eq!(config.nodes[0].describe(), described);
    assert_ne!(config, good(&text(&inline.replace("\"x\"", "\"z\""))));
}

#[test]
fn mistakes_in_lists_and_tables() {
    let node = "[node.n]\nkind = \"rules\"\n";
    wrong(
        &format!("{node}names = \"a\"\n"),
        "f.toml:3: names in node \"n\" is a string; it must be an array of strings, for example names = [\"one\", \"two\"]",
    );
    wrong(
        &format!("{node}rules = 7\n"),
        "f.toml:3: rules in node \"n\" is an integer; it must be an array of tables, for example rules = [{ ... }, { ... }]",
    );
    wrong(
        &format!("{node}rules = [\n  {{ from = [\"x\"] }},\n  7,\n]\n"),
        "f.toml:5: rules in node \"n\" holds an integer; it must hold tables, for example rules = [{ ... }, { ... }]",
    );
    wrong(
        &format!("{node}[[node.n.rules]]\nfrom = [\"x\"]\n[[node.n.rules]]\nform = [\"x\"]\nfrom = [\"x\"]\n"),
        "f.toml:6: unknown key \"form\" in rules 2 of node \"n\"; did you mean \"from\"?",
    );
    wrong(
        &format!("{node}rules = [\n  {{ from = [\"x\"] }},\n  {{ port = 0, from = [\"x\"] }},\n]\n"),
        "f.toml:5: port 0 in rules 2 of node \"n\": out of range; it must be 1 to 65535",
    );
    wrong(
        &format!("{node}rules = [\n  {{ from = [] }},\n]\n"),
        "f.toml:4: from in rules 1 of node \"n\": it names nobody",
    );
    wrong(
        &format!("{node}rules = [\n  {{ port = 443, from = [\"x\"] }},\n]\n"),
        "f.toml:4: rules 1 of node \"n\" has no \"to\"; add for example to = \"vm1\"",
    );
    wrong(
        &format!("{node}rules = [\n  {{ from = [\"x\"], log = [{{ oll = true }}] }},\n]\n"),
        "f.toml:4: unknown key \"oll\" in log 1 of rules 1 of node \"n\"; did you mean \"all\"?",
    );
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
        config.ingress_nodes(0).map(|node| node.describe()).collect::<Vec<_>>(),
        ["other", "keys, count 2, fast true, word a"]
    );
    assert_eq!(config.ingress_nodes(1).count(), 0);
    assert_eq!(config, good(&text("word = \"a\"\ncount = 2")), "a default that is written out is the same");
    assert_ne!(config, good(&text("")));
    let [a, b] = [(); 2].map(|()| NodeConfig::new("a", "keys", Keys));
    assert_eq!(a, a.clone());
    assert_ne!(a, b, "their settings are unknown");
    assert_ne!(a, config.nodes[0]);
}

#[test]
fn mistakes() {
    let keys = "[node.n]\nkind = \"keys\"\n";
    wrong("[node.n]\n", "f.toml:1: node \"n\" has no \"kind\"; add for example kind = \"mirror\"");
    wrong(
        "[node.n]\nkind = \"kees\"\nx = 1\n",
        "f.toml:2: kind \"kees\" in node \"n\": unknown; did you mean \"keys\"?",
    );
    wrong(
        "[node.n]\nkind = \"?\"\n",
        "f.toml:2: kind \"?\" in node \"n\": unknown; known are mirror, other, keys, rules",
    );
    wrong(&format!("{keys}cont = 1\n"), "f.toml:3: unknown key \"cont\" in node \"n\"; did you mean \"count\"?");
    wrong(&format!("{keys}count = 9\n"), "f.toml:3: count 9 in node \"n\": out of range; it must be 0 to 8");
    wrong(
        &format!("{keys}fast = \"yes\"\n"),
        "f.toml:3: fast in node \"n\" is a string; it must be true or false, for example fast = true",
    );
    wrong(&format!("{keys}\nword = \"bad\"\n"), "f.toml:4: word in node \"n\": \"bad\" is none");
    wrong(
        "[node.\"a b\"]\nkind = \"other\"\n",
        "f.toml:1: node \"a b\": not a valid name; use 1 to 32 of A-Z a-z 0-9 _ . -",
    );
    wrong(
        "[node]\nkind = \"keys\"\n",
        "f.toml:2: \"kind\" in [node] is a string; write keys below a name, as in [node.NAME]",
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
    wrong(
        &format!("{port}nodes = [\"n\", \"n\"]\n{keys}"),
        "f.toml:4: node \"n\" in nodes of port \"p\": named twice; name it once",
    );
}

#[test]
fn every_program_has_the_built_in_kinds() {
    let errors = Config::parse("f.toml", "[node.n]\nkind = \"keys\"\n", &machine()).expect_err("an unknown kind");
    let expected = "f.toml:2: kind \"keys\" in node \"n\": unknown; known are mirror";
    assert_eq!(errors.to_string().lines().next(), Some(expected));
    let own = Kinds::new().with("mirror", |_| Keys);
    let text = "[node.n]\nkind = \"mirror\"\n";
    assert!(Config::parse("f.toml", text, &machine()).is_err(), "the built-in kind needs a key");
    assert!(Config::parse_with("f.toml", text, &machine(), &own).is_ok(), "the program's kind takes its place");
}

/// Returns a file with ports `p` and `q` in a patch, and a port `mon` in none. `p` has these lists,
/// and `mon` these keys.
fn mirrored(fixture: &Fixture, lists: &str, mon: &str) -> String {
    let ports = fixture.port("p") + lists + &fixture.port("q") + &fixture.port("mon") + mon;
    format!("{ports}[patch.x]\nports = [\"p\", \"q\"]\n")
}

#[test]
fn a_mirror_names_its_port() {
    let fixture = Fixture::new();
    let text = mirrored(&fixture, "nodes = [\"m\"]\negress-nodes = [\"m\"]\n", "")
        + "[node.m]\nkind = \"mirror\"\nto = \"mon\"\n";
    let loaded = parse(&text).expect("it is good");
    assert_eq!(loaded.warnings, [], "the mirror's port is in use");
    let config = loaded.config;
    let names = |nodes: &mut dyn Iterator<Item = &NodeConfig>| nodes.map(|node| node.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&mut config.ingress_nodes(0)), ["m"]);
    assert_eq!(names(&mut config.egress_nodes(0)), ["m"]);
    assert_eq!(config.nodes[0].outputs(), ["mon"]);
    assert_eq!(config.nodes[0].describe(), "mirror, to mon");
    let other = good(&text.replace("to = \"mon\"", "to = \"mon2\"").replace("[port.mon]", "[port.mon2]"));
    assert_ne!(config.nodes[0], other.nodes[0]);
    let [one, two] = ["a", "b"].map(|to| config.nodes[0].clone().with_output(to));
    assert_ne!(one, two, "another output is another node");
}

#[test]
fn mistakes_with_mirrors() {
    let fixture = Fixture::new();
    let with =
        |lists: &str, mon: &str, node: &str| mirrored(&fixture, lists, mon) + "[node.m]\nkind = \"mirror\"\n" + node;
    let list = "nodes = [\"m\"]\n";
    let to = "to = \"mon\"\n";
    wrong(
        &with("egress-nodes = [\"n\"]\n", "", to),
        "f.toml:4: node \"n\" in egress-nodes of port \"p\": no such node; nodes are m",
    );
    wrong(
        &with("egress-nodes = [\"m\", \"m\"]\n", "", to),
        "f.toml:4: node \"m\" in egress-nodes of port \"p\": named twice; name it once",
    );
    wrong(&with(list, "", ""), "f.toml:13: node \"m\" has no \"to\"; add for example to = \"vm1\"");
    wrong(
        &with(list, "", "to = 3\n"),
        "f.toml:15: to in node \"m\" is an integer; it must be a string, for example to = \"vm1\"",
    );
    wrong(
        &with(list, "", "to = \"vm9\"\n"),
        "f.toml:15: port \"vm9\" in to of node \"m\": no such port; ports are p, q, mon",
    );
    wrong(
        &with(list, "", "to = \"\"\n"),
        "f.toml:15: port \"\" in to of node \"m\": no such port; ports are p, q, mon",
    );
    for port in ["p", "q"] {
        wrong(
            &with(list, "", &format!("to = \"{port}\"\n")),
            &format!(
                "f.toml:15: port \"{port}\" in to of node \"m\": already in patch \"x\" (line 12); name a port that is in \
                 no patch and no bridge"
            ),
        );
    }
    // The port would receive copies of itself, or of copies.
    let passes = |key: &str| {
        format!(
            "f.toml:16: port \"mon\" in to of node \"m\": this port has {key} (line 11), and a port that gets copies has no \
             nodes; remove {key}, or name another port"
        )
    };
    wrong(&with(list, "nodes = [\"m\"]\n", to), &passes("nodes"));
    wrong(&with(list, "egress-nodes = [\"m\"]\n", to), &passes("egress-nodes"));
    let second = format!("{to}[node.m2]\nkind = \"mirror\"\nto = \"mon2\"\n{}", fixture.port("mon2"));
    wrong(&with(list, "nodes = [\"m2\"]\n", &second), &passes("nodes"));
}

#[test]
fn a_node_that_no_packet_passes_is_worth_a_warning() {
    let loaded = parse("[node.n]\nkind = \"other\"\n").expect("it is good");
    let warnings: Vec<_> = loaded.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert!(
        warnings.contains(&"node \"n\" is in nodes or egress-nodes of no port; no packet will pass it"),
        "{warnings:?}"
    );
}

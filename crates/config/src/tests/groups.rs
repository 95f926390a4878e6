//! Groups, sets and `[firewall]`.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use straightline_firewall::{Definitions, Direction, Level, Policies, Policy, PortGroups, Rule, profiles};

use super::{Fixture, errors, good, one_error};
use crate::{Config, Windows};

/// Two ports of a bridge, of nine lines. `keys` belong to the first.
fn ports(fixture: &Fixture, keys: &str) -> String {
    let bridge = "[bridge.lan]\nports = [\"vm1\", \"vm2\"]\n";
    bridge.to_owned() + &fixture.ports(&["vm2", "vm1"]) + keys + "\n"
}

/// Keys of a port whose addresses are checked.
const CHECKED: &str =
    "source-check = \"mac\"\nmac = \"52:54:00:00:00:01\"\nallowed-ips = [\"10.0.0.1\", \"fd00::/64\"]\n";

fn wrong(fixture: &Fixture, keys: &str, line: usize, parts: &[&str]) {
    one_error(&ports(fixture, keys), line, parts);
}

fn warnings(text: &str) -> Vec<String> {
    good(text).warnings.iter().map(|warning| warning.to_string().lines().next().unwrap_or("").to_owned()).collect()
}

#[test]
fn groups_sets_and_their_members() {
    let fixture = Fixture::new();
    let path = fixture.path("office.txt");
    fs::write(&path, "# the office\n192.0.2.0/24 # downtown\n\n2001:db8::1\n").unwrap();
    let keys = format!(
        "{CHECKED}groups = [\"web\", \"private\"]\nconnections = 20000\ntrusted = true\n\
         [group.web]\nin = [\"tcp 443 from any\", \"tcp 22 from set:office,group:web\"]\nout = [\"udp 53 to 10.0.0.2\"]\n\
         [set.office]\nprefixes = [\"198.51.100.7\"]\nfile = \"{path}\"\n\
         [firewall]\npickup = \"60s\"\ntimeouts = {{ tcp-established = \"2h\", udp = \"5s\" }}\nwindows = \"liberal\"\n\
         nat64 = [\"2001:db8:64::/96\"]\n"
    );
    let loaded = good(&ports(&fixture, &keys));
    assert_eq!(loaded.warnings, []);
    let config = loaded.config;
    let port = &config.ports[config.port_index("vm1").unwrap()];
    assert_eq!(
        (&port.groups[..], port.connections, port.trusted),
        (&["web".into(), "private".into()][..], 20_000, true)
    );
    assert_eq!(config.groups[0].rules(Direction::In)[1].to_string(), "tcp 22 from set:office,group:web");
    assert_eq!(
        config.sets[0].prefixes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        "198.51.100.7 192.0.2.0/24 2001:db8::1"
    );
    assert_eq!(config.named_files().collect::<Vec<_>>(), [std::path::Path::new(&path)]);
    assert_eq!(config.firewall.pickup, Some(Duration::from_secs(60)));
    let timeouts = [("tcp-established", Duration::from_hours(2)), ("udp", Duration::from_secs(5))];
    assert_eq!(config.firewall.timeouts, timeouts);
    assert_eq!(config.firewall.windows, Windows::Liberal);
    assert_eq!(config.firewall.nat64.iter().map(ToString::to_string).collect::<Vec<_>>(), ["2001:db8:64::/96"]);
    let definitions = config.definitions();
    let metadata = &definitions.set("metadata").unwrap().prefixes;
    assert!(metadata.contains(&"2001:db8:64::a9fe:0/112".parse().unwrap()), "{metadata:?}");

    let mut policies = Policies::new(config.definitions(), Level::detect());
    let policy = policies.get(&port.port_groups().unwrap()).unwrap();
    for (flow, label) in [
        ("tcp from fd00::9 port 22", "web:in:2"),
        ("tcp from 10.0.0.1 port 22", "web:in:2"),
        ("tcp from 2001:db8::1 port 22", "web:in:2"),
        ("tcp from 10.0.0.2 port 22", "default"),
        ("tcp to 10.0.0.2 port 22", "private:private"),
    ] {
        assert_eq!(policy.rule(policy.explain(&flow.parse().unwrap())).label(), label, "{flow}");
    }
    let other = &config.ports[config.port_index("vm2").unwrap()];
    assert_eq!((other.port_groups(), other.connections, other.trusted), (None, 10_000, false));
}

#[test]
fn relative_paths_of_sets_begin_at_the_configuration() {
    let fixture = Fixture::new();
    fs::write(fixture.path("office.txt"), "10.0.0.0/8\n").unwrap();
    let text = ports(&fixture, "[set.office]\nfile = \"office.txt\"\n");
    let loaded = Config::parse(&fixture.path("switch.toml"), &text, &super::machine()).unwrap();
    assert_eq!(loaded.config.sets[0].prefixes.len(), 1);
}

#[test]
fn mistakes_in_rules_have_their_line_and_word() {
    let fixture = Fixture::new();
    let rule = |rule: &str, parts: &[&str]| {
        let keys =
            format!("{CHECKED}groups = [\"web\"]\n[group.web]\nin = [\n\"any from group:web\",\n\"{rule}\",\n]\n");
        wrong(&fixture, &keys, 16, parts);
    };
    rule("tpc 80", &["\"in\" of group \"web\": `tpc` is no protocol: known are any, tcp"]);
    rule("tcp 80 to any", &["`to` does not belong to rules of `in`: write `from`"]);
    rule("tcp 80 from domain:a.b", &["not possible yet"]);
    rule(
        "tcp 80 from group:db",
        &[
            "group:db in \"in\" of group \"web\": no such group; groups and profiles are web, public, private, host-only",
        ],
    );
    rule(
        "tcp 80 from set:office",
        &["set:office in \"in\" of group \"web\": no such set; sets are private, metadata, tunnelled"],
    );
    wrong(
        &fixture,
        "[group.web]\nin = 3\n",
        10,
        &["in in group \"web\" is an integer; it must be an array of strings"],
    );
    wrong(&fixture, "[group.web]\nrules = []\n", 10, &["unknown key \"rules\" in group \"web\"; keys are in, out"]);
    wrong(&fixture, "[group.private]\n", 9, &["group \"private\": a profile has this name"]);
}

#[test]
fn mistakes_in_keys_of_ports() {
    let fixture = Fixture::new();
    let key = |key: &str, parts: &[&str]| wrong(&fixture, &format!("{CHECKED}{key}\n"), 12, parts);
    key(
        "groups = [\"wbe\"]",
        &["group \"wbe\" of port \"vm1\": no such group; groups and profiles are public, private"],
    );
    key("groups = [\"public\", \"public\"]", &["named twice"]);
    key("groups = []", &["groups in port \"vm1\": none named; leave it out"]);
    key("groups = \"web\"", &["groups in port \"vm1\" is a string"]);
    key("connections = 5", &["connections in port \"vm1\" needs groups"]);
    let most = format!("{CHECKED}groups = [\"public\"]\nconnections = 0\n");
    wrong(&fixture, &most, 13, &["connections 0 in port \"vm1\": out of range; it must be 1 to 1000000"]);
    key("trusted = 1", &["it must be true or false"]);
    let unchecked = "groups = [\"web\"]\n[group.web]\nin = [\"any from group:web\"]\n";
    wrong(
        &fixture,
        unchecked,
        9,
        &[
            "group \"web\" of port \"vm1\": a rule in \"in\" of group \"web\" (line 11) names it",
            "add source-check = \"mac\"",
        ],
    );
    one_error(
        &(fixture.port("vm1") + "groups = [\"public\"]\n"),
        4,
        &["groups of port \"vm1\": it is in no patch or bridge"],
    );
    one_error(
        &(fixture.port("vm1") + "trusted = true\n"),
        4,
        &["trusted of port \"vm1\": it is in no patch or bridge"],
    );
    let underlay = "[underlay.u]\nport = \"vm1\"\naddress = [\"192.0.2.1/24\"]\n";
    one_error(
        &(fixture.port("vm1") + "groups = [\"public\"]\n" + underlay),
        4,
        &["it carries underlay \"u\"; name groups in its tunnels"],
    );
}

#[test]
fn mistakes_in_sets() {
    let fixture = Fixture::new();
    let set = |keys: &str, line: usize, parts: &[&str]| wrong(&fixture, &format!("[set.s]\n{keys}\n"), line, parts);
    set("", 9, &["set \"s\" is empty; name addresses"]);
    set("prefixes = []", 9, &["set \"s\" is empty"]);
    set("prefixes = [\"10.0.0.0/8\", \"10.0.0\"]", 10, &["\"10.0.0\" in prefixes of set \"s\" is no IP address"]);
    set("prefixes = [\"10.1.0.0/8\"]", 10, &["has bits behind its length: write 10.0.0.0/8"]);
    set("prefix = []", 10, &["did you mean \"prefixes\"?"]);
    set(&format!("file = \"{}\"", fixture.path("none")), 10, &["of set \"s\": cannot read it: No such file"]);
    let path = fixture.path("bad");
    fs::write(&path, "10.0.0.1\n10.0.0.0/x\n").unwrap();
    set(&format!("file = \"{path}\""), 10, &["of set \"s\": line 2: \"10.0.0.0/x\" has no valid length"]);
    fs::write(&path, "# nothing\n").unwrap();
    set(&format!("file = \"{path}\""), 9, &["set \"s\" is empty"]);
    wrong(&fixture, "[set.private]\nprefixes = [\"10.0.0.1\"]\n", 9, &["each switch has a set of this name"]);
}

#[test]
fn mistakes_in_settings_of_the_firewall() {
    let fixture = Fixture::new();
    let key = |key: &str, parts: &[&str]| wrong(&fixture, &format!("[firewall]\n{key}\n"), 10, parts);
    key("pickup = \"0s\"", &["pickup \"0s\" in [firewall]: too short or too long; it must be 1s to 1h"]);
    key("pickup = \"long\"", &["it must be a time in a text, such as \"90s\""]);
    key("pickup = 60", &["pickup in [firewall] is an integer; it must be a string"]);
    key(
        "timeouts = { tcp-establishd = \"1s\" }",
        &["\"tcp-establishd\" in timeouts of [firewall]: unknown; did you mean \"tcp-established\"?"],
    );
    key(
        "timeouts = { udp = \"25d\" }",
        &["udp in timeouts of [firewall]: too short or too long; it must be 1s to 24days"],
    );
    key("windows = \"loose\"", &["known are strict, liberal"]);
    key("nat64 = [\"2001:db8::/64\", \"10.0.0.0/8\"]", &["\"10.0.0.0/8\" in nat64 of [firewall] is of IPv4"]);
    key("nat64 = [\"2001:db8::/60\"]", &["has no length of a translator: use 32, 40, 48, 56, 64 or 96"]);
    key("nat64 = [\"2001:db8:0:0:100::/96\"]", &["has other values than 0 in bits 64 to 71"]);
    key("nat64 = [\"2001:db8\"]", &["\"2001:db8\" in nat64 of [firewall] is no IP address"]);
    key(&format!("nat64 = [{}]", "\"2001:db8::/32\", ".repeat(17)), &["too many prefixes: use at most 16"]);
    assert_eq!(errors("[[firewall]]\n"), ["f.toml:1: [firewall] must be a section, not an array"]);
}

#[test]
fn limits_of_messages() {
    let fixture = Fixture::new();
    let limit = |keys: &str| {
        let config = good(&ports(&fixture, keys)).config;
        let vm1 = config.port_index("vm1").unwrap();
        (config.ports[vm1].message_limit, config.judged_ports().len())
    };
    assert_eq!(limit(""), (Some(200), 0), "no port has groups");
    assert_eq!(limit("groups = [\"public\"]"), (Some(200), 2), "and the port beside it");
    assert_eq!(limit("groups = [\"public\"]\ntrusted = true"), (Some(200), 1));
    assert_eq!(limit("groups = [\"public\"]\nmessage-limit = 2000"), (Some(2000), 2));
    assert_eq!(limit("message-limit = \"off\""), (None, 0));
    wrong(&fixture, "message-limit = 0", 9, &["message-limit"]);
    wrong(&fixture, "message-limit = \"all\"", 9, &["it must be an integer or \"off\""]);
    wrong(&fixture, "message-limit = 9\ntrusted = true", 9, &["only ports of guests have a limit"]);
}

#[test]
fn warnings_about_groups() {
    let fixture = Fixture::new();
    let one = |keys: &str, line: usize, part: &str| {
        let found = warnings(&ports(&fixture, keys));
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with(&format!("f.toml:{line}: ")) && found[0].contains(part), "{}", found[0]);
    };
    one("groups = [\"public\"]", 9, "groups of port \"vm1\": without source-check, its ARP");
    one("[group.web]", 9, "group \"web\" is in groups of no port");
    one("[set.s]\nprefixes = [\"10.0.0.1\"]", 9, "set \"s\" is in no rule");
    let checked = CHECKED.replace("allowed-ips", "allowed-macs = []\n#");
    let without_addresses = format!("{checked}groups = [\"web\"]\n[group.web]\nin = [\"any from group:web\"]");
    one(&without_addresses, 13, "nothing tells the port's addresses");
    let text =
        ports(&fixture, &without_addresses).replace("[bridge.lan]", "[bridge.lan]\nneighbour-suppression = true");
    let told = text.replace("[port.vm2]", "[port.vm2]\ntrusted = true");
    let bound = text.replace("= true", "= true\nbindings = { \"10.0.0.5\" = \"52:54:00:00:00:01\" }");
    assert_eq!([text, told, bound].map(|text| warnings(&text).len()), [1, 0, 0]);
    one(
        &format!("{CHECKED}groups = [\"web\"]\n[group.web]\nin = [\"tcp from any\", \"tcp 80 from 10.0.0.0/8\"]"),
        14,
        "\"tcp 80 from 10.0.0.0/8\" in \"in\" of group \"web\" never decides: rule 1 of \"in\" in group \"web\"",
    );
    assert_eq!(warnings(&ports(&fixture, "groups = [\"public\"]\ntrusted = true")), [] as [&str; 0]);
    let stateless = |out: &str| {
        format!("{CHECKED}groups = [\"dns\"]\n[group.dns]\nin = [\"udp 53 from any stateless\"]\nout = [{out}]")
    };
    one(
        &stateless("\"tcp 443 to any\""),
        12,
        "groups of port \"vm1\": \"udp 53 from any stateless\" lets its guest send UDP from these ports to these peers",
    );
    one(&stateless("\"deny any to 10.0.0.0/8\""), 12, "unless a rule of `out` denies it");
    for allows in ["\"any to any\"", "\"deny any to 10.0.0.0/8\", \"udp to any\""] {
        assert_eq!(warnings(&ports(&fixture, &stateless(allows))), [] as [&str; 0]);
    }
}

#[test]
fn an_uplink_beside_groups_should_not_have_the_limit_of_a_guest() {
    let fixture = Fixture::new();
    let found = |vm: &str, uplink: &str| {
        let text = ports(&fixture, &format!("{CHECKED}{vm}\n[port.uplink]\nkind = \"af-packet\"\n{uplink}"));
        warnings(&text.replace("\"vm2\"]", "\"vm2\", \"uplink\"]"))
    };
    let uplink = "interface = \"eth1\"\n";
    let groups = "groups = [\"public\"]";
    let one = found(groups, uplink);
    assert!(one.len() == 1 && one[0].contains("port \"uplink\": all stations behind it share the limit"), "{one:#?}");
    let none = [] as [&str; 0];
    assert_eq!(found("", uplink), none, "no port has groups");
    for key in ["message-limit = \"off\"", "message-limit = 9", "trusted = true"] {
        assert_eq!(found(groups, &format!("{uplink}{key}")), none, "{key}");
    }
}

#[test]
fn groups_may_be_too_large() {
    let fixture = Fixture::new();
    let path = fixture.path("large");
    let lines = (0..60_000_u32).map(|n| format!("{}\n", std::net::Ipv4Addr::from_bits(2 * n)));
    fs::write(&path, lines.collect::<String>()).unwrap();
    let keys = format!(
        "{CHECKED}groups = [\"web\"]\n[group.web]\nin = [\"tcp 1,3,5 from set:s\"]\n[set.s]\nfile = \"{path}\"\n"
    );
    wrong(&fixture, &keys, 12, &["groups of port \"vm1\": groups web have more than 100000 combinations"]);
}

/// The page about groups.
const PAGE: &str = include_str!("../../../../docs/firewall.md");

#[test]
fn files_of_the_page_are_right() {
    let files = PAGE.split("```toml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    let mut count = 0;
    for file in files {
        assert_eq!(warnings(file), [] as [&str; 0], "{file}");
        count += 1;
    }
    assert_eq!(count, 2);
}

/// Returns the rows of the table with this heading: the cells, without backticks.
fn table(heading: &str) -> Vec<Vec<String>> {
    let (_, table) = PAGE.split_once(heading).unwrap_or_else(|| panic!("{heading}"));
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().replace('`', "")).collect()).collect()
}

#[test]
fn the_page_has_the_rules_of_profiles_and_of_the_network() {
    let texts = |rules: &[Rule]| match rules {
        [] => "none".to_owned(),
        // Peers have commas without a space, so this one parts rules.
        rules => rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let profiles: Vec<_> = profiles()
        .iter()
        .map(|profile| vec![profile.name.clone(), texts(&profile.inbound), texts(&profile.outbound)])
        .collect();
    assert_eq!(table("| profile | `in` | `out` |\n"), profiles);

    let names_of = |heading: &str| table(heading).into_iter().map(|row| row[0].clone()).collect::<BTreeSet<_>>();
    let mut named = BTreeSet::new();
    for trusted in [true, false] {
        let port = PortGroups { trusted, source_check: true, groups: Vec::new() };
        let policy = Policy::compile(&port, &Definitions::default(), Level::detect()).unwrap();
        named
            .extend(policy.rules().iter().filter(|rule| rule.name.is_some()).map(|rule| (rule.label(), rule.allows())));
    }
    let labels = |allows: bool| named.iter().filter(|name| name.1 == allows).map(|name| name.0.clone()).collect();
    assert_eq!(names_of("| name | direction | packets |\n"), labels(true));
    assert_eq!(names_of("| name | packets |\n"), labels(false));
}

use super::*;

const GOOD: &str = r#"
asn = 65000
router-id = "192.0.2.1"
gobgp = "unix:///run/gobgpd.sock"

[network.lan]
bridge = "lan"
tunnel = "vx0"
vni = 10010
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("evpn.toml"))
}

#[test]
fn defaults() {
    let config = parse(GOOD).expect("it is right");
    let [domain] = config.domains.as_slice() else { panic!("one domain") };
    assert_eq!((domain.vlan, domain.tag, domain.vni, domain.own), (1, 0, 10010, "192.0.2.1".parse().expect("one")));
    assert_eq!(domain.rd.to_string(), "192.0.2.1:10010");
    assert_eq!(domain.export, [Target::of_vni(65000, 10010)]);
    assert_eq!(config.limits, Limits::default());
    // Whatever AS the other host has, and of both forms.
    for target in ["65000:10010", "1:10010", "4200000000:10010"] {
        assert!(domain.import.has_any(&[target.parse().expect("a target")]), "{target}");
    }
    assert!(domain.import.has_any(&[Target::of_rfc8365(7, 10010)]));
    for target in ["65000:10011", "192.0.2.1:10010"] {
        assert!(!domain.import.has_any(&[target.parse().expect("a target")]), "{target}");
    }
}

#[test]
fn targets_by_hand() {
    let parse_with = |keys: &str| parse(&format!("{GOOD}{keys}\n"));
    let config =
        parse_with("import = [\"65001:5\", \"*:7\"]\nexport = [\"192.0.2.9:1\", \"65001:5\"]").expect("it is right");
    let domain = &config.domains[0];
    assert_eq!(domain.export.len(), 2);
    let imports = |text: &str| domain.import.has_any(&[text.parse().expect("a target")]);
    assert!(imports("65001:5") && imports("3:7") && imports("70000:7"));
    assert!(!imports("65002:5") && !imports("65000:10010"));
    let rfc = parse_with("route-targets = \"rfc8365\"").expect("it is right");
    assert_eq!(rfc.domains[0].export, [Target::of_rfc8365(65000, 10010)]);
    assert!(rfc.domains[0].import.has_any(&[Target::of_vni(65000, 10010)]));
}

#[test]
fn a_bundle() {
    let text = GOOD.replace("vni = 10010", "vlans = { 10 = 10010, 20 = 10020 }\naddress = \"2001:db8::1\"");
    let config = parse(&text).expect("it is right");
    let parts: Vec<_> = config.domains.iter().map(|domain| (domain.vlan, domain.tag, domain.vni)).collect();
    assert_eq!(parts, [(10, 10, 10010), (20, 20, 10020)]);
    assert_eq!(config.domains[0].rd, config.domains[1].rd);
    assert_eq!(config.domains[0].export, config.domains[1].export);
}

#[test]
fn mistakes_are_explained() {
    let cases = [
        (GOOD.replace("65000", "0"), "no AS"),
        (GOOD.replace("10010", "16777216"), "VNI 16777216 is out of range"),
        (GOOD.replace("10010", "0"), "VNI 0 is out of range"),
        (format!("{GOOD}vlan = 4095\n"), "VLAN 4095 is out of range"),
        (format!("{GOOD}vlans = {{ 10 = 1 }}\n"), "use `vni`"),
        (GOOD.replace("vni = 10010", "vlans = {}"), "`vlans` is empty"),
        (GOOD.replace("vni = 10010", "vlans = { x = 1 }"), "is no VLAN"),
        (GOOD.replace("vni = 10010", ""), "use `vni`"),
        (format!("{GOOD}rd = \"x\"\n"), "`rd`"),
        (format!("{GOOD}import = [\"x\"]\n"), "AS:NUMBER"),
        (format!("{GOOD}import = [\"*:x\"]\n"), "*:NUMBER"),
        (format!("{GOOD}export = []\n"), "route targets"),
        (format!("{GOOD}route-targets = \"frr\"\n"), "auto"),
        (format!("{GOOD}address = \"0.0.0.0\"\n"), "no host's address"),
        (format!("{GOOD}colour = \"red\"\n"), "unknown field"),
        (GOOD.replace("unix:///run/gobgpd.sock", "0.0.0.0:50051"), "no authentication"),
        (format!("{GOOD}[limits]\nhold = \"2days\"\n"), "at most a day"),
        (format!("{GOOD}[limits]\nport-routes = 0\n"), "at least 1"),
        (format!("{GOOD}[limits]\nduplicate-moves = 1\n"), "at least 2"),
        (format!("{GOOD}[limits]\nhost-routes = 0\n"), "at least 1"),
        (format!("{GOOD}[network.b]\nbridge = \"b\"\ntunnel = \"vx1\"\nvni = 75546\n"), "same route distinguisher"),
        (format!("{GOOD}[network.b]\nbridge = \"b\"\ntunnel = \"vx0\"\nvni = 10010\nrd = \"1:1\"\n"), "same tunnel"),
        (format!("{GOOD}[network.b]\nbridge = \"lan\"\ntunnel = \"vx1\"\nvni = 5\n"), "same bridge"),
        (
            format!("{GOOD}[network.b]\nbridge = \"b\"\ntunnel = \"vx0\"\nvni = 5\naddress = \"192.0.2.7\"\n"),
            "two addresses",
        ),
        ("asn = 1\nrouter-id = \"1.1.1.1\"\ngobgp = \"127.0.0.1:1\"\n".to_owned(), "no network"),
    ];
    for (text, wanted) in cases {
        let error = parse(&text).expect_err(&text).to_string();
        assert!(error.contains(wanted), "{wanted:?} is not in {error:?}");
    }
}

#[test]
fn gobgpd_gets_its_sessions() {
    let key = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(key.path(), "secret\n").expect("a file");
    let text = format!(
        "{GOOD}[[neighbor]]\naddress = \"192.0.2.2\"\npassword-file = {:?}\nttl-security = true\n\
         [[neighbor]]\naddress = \"2001:db8::2\"\nasn = 65001\nlocal-address = \"2001:db8::1\"\nhold-time = \"9s\"\n\
         route-reflector-client = true\ngraceful-restart = true\nmax-routes = 7\n\
         [[neighbor]]\naddress = \"192.0.2.3\"\nmax-routes = 0\n",
        key.path()
    );
    let text = parse(&text).and_then(|config| config.gobgpd()).expect("it is right");
    let read: toml::Table = text.parse().expect("TOML");
    let neighbors = read["neighbors"].as_array().expect("a list");
    assert_eq!(neighbors[0]["config"]["auth-password"].as_str(), Some("secret"));
    assert_eq!(neighbors[0]["ttl-security"]["config"]["ttl-min"].as_integer(), Some(255));
    assert_eq!(neighbors[1]["timers"]["config"]["keepalive-interval"].as_integer(), Some(3));
    assert!(neighbors[0].get("graceful-restart").is_none());
    assert_eq!(neighbors[1]["graceful-restart"]["config"]["restart-time"].as_integer(), Some(120));
    assert_eq!(neighbors[1]["ebgp-multihop"]["config"]["enabled"].as_bool(), Some(true));
    // Twice the routes that the process keeps, a number, and none.
    let limit = |at: usize| neighbors[at]["afi-safis"][0].get("prefix-limit").cloned();
    let most = |at: usize| limit(at).and_then(|limit| limit["config"]["max-prefixes"].as_integer());
    assert_eq!([0, 1, 2].map(most), [Some(400_000), Some(7), None]);
    assert_eq!(read["global"]["config"]["local-address-list"].as_array().map(Vec::len), Some(2));
    // Without neighbours, or with another version of IP, there is no session.
    let error = parse(GOOD).and_then(|config| config.gobgpd()).expect_err("no neighbour").to_string();
    assert!(error.contains("[[neighbor]]"), "{error}");
    let other = parse(&format!("{GOOD}[[neighbor]]\naddress = \"2001:db8::2\"\n")).and_then(|config| config.gobgpd());
    assert!(other.expect_err("another version").to_string().contains("local-address"));
}

/// The file of the package and the one of the guide are right.
#[test]
fn documents() {
    let packaged = include_str!("../../../../dist/evpn.toml");
    assert!(parse(packaged).and_then(|config| config.gobgpd()).is_ok());
    let guide = include_str!("../../../../docs/evpn.md");
    let without_indent = |block: &str| block.lines().map(|line| format!("{}\n", line.trim_start())).collect::<String>();
    // A block of the word `toml` alone is a file of the switch.
    let blocks = guide.split("```toml evpn\n").skip(1).filter_map(|rest| rest.split("```").next());
    let files: Vec<String> = blocks.map(without_indent).collect();
    assert_eq!(files.len(), 1);
    assert!(parse(&files[0]).and_then(|config| config.gobgpd()).is_ok(), "{}", files[0]);
    // Its reasons exist.
    let (_, reasons) = guide.split_once("## What is refused").expect("a heading");
    for line in reasons.lines().filter(|line| line.starts_with("| `")) {
        for word in line.split('|').nth(1).unwrap_or_default().split(',') {
            let word = word.trim().trim_matches('`');
            assert!(crate::machine::Refusal::ALL.iter().any(|refusal| refusal.word() == word), "{word}");
        }
    }
}

//! Tests with whole files: the values of good files, and the findings about others.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use straightline_graph::Permissions;
use straightline_packet::Level;

use super::*;
use crate::Needs;

mod consequences;
mod flows;
mod groups;
mod mistakes;
mod nodes;
mod tunnels;

/// A folder for sockets, and configuration files that use it.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Returns the section of a valid port.
    fn port(&self, name: &str) -> String {
        format!("[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{}\"\n", self.path(name))
    }

    fn ports(&self, names: &[&str]) -> String {
        names.iter().fold(String::new(), |text, name| text + &self.port(name))
    }
}

fn machine() -> Machine {
    Machine::with_cpus(vec![0, 1, 2, 3], vec![0, 1])
}

fn parse(text: &str) -> Result<Loaded, ConfigErrors> {
    Config::parse("f.toml", text, &machine())
}

fn good(text: &str) -> Loaded {
    let loaded = parse(text).unwrap_or_else(|errors| panic!("{errors}\n\n{text}"));
    assert_eq!(keys::schema_tests::takes(text, &Kinds::new()), Some(true), "the schema refuses a correct file: {text}");
    loaded
}

/// Returns the errors of `text`, without their excerpts.
fn errors(text: &str) -> Vec<String> {
    let errors = parse(text).expect_err(text).0;
    errors.iter().map(|error| error.to_string().lines().next().unwrap_or("").to_owned()).collect()
}

/// Checks that `text` has one error, at this line, with these parts.
fn one_error(text: &str, line: usize, parts: &[&str]) {
    let errors = errors(text);
    assert_eq!(errors.len(), 1, "{errors:#?}\n{text}");
    let is_of_schema = ["unknown key", "unknown section", "it must be an", "it must be true", "out of range"];
    if is_of_schema.iter().any(|part| errors[0].contains(part)) {
        assert_ne!(keys::schema_tests::takes(text, &Kinds::new()), Some(true), "the schema takes a wrong file: {text}");
    }
    assert!(errors[0].starts_with(&format!("f.toml:{line}: ")), "{}\n{text}", errors[0]);
    for part in parts {
        assert!(errors[0].contains(part), "no {part:?} in {}", errors[0]);
    }
}

#[test]
fn everything_at_once() {
    let fixture = Fixture::new();
    let mut text = format!(
        "[switch]\nworkers = [1, 0]\nidle = \"spin\"\napi = \"{}\"\ncopies = 2\nsimd = \"scalar\"\n",
        fixture.path("api")
    );
    text += &fixture.ports(&["z", "a"]);
    text += "owner = \"root\"\ngroup = \"0\"\nperms = \"640\"\nmode = \"server\"\nqueues = 127\nmtu = 9216\n";
    text += "mac = \"52:54:00:00:00:0A\"\npacked = false\noffloads = [\"csum\", \"uso\"]\n";
    text += &fixture.ports(&["m", "k"]);
    text += "[bridge.lan]\nports = [\"m\", \"k\"]\nageing = 10\nlimit = 2\n";
    text += "static = { \"02:00:00:00:00:03\" = \"m\", \"02:00:00:00:00:01\" = \"k\" }\n";
    text += "[patch.a]\nports = [\"z\", \"a\"]\nfull = \"wait\"\n";
    let loaded = good(&text);
    assert_eq!(loaded.warnings, []);
    let config = loaded.config;

    assert_eq!(config.switch.workers, [1, 0]);
    assert_eq!((config.switch.idle, config.switch.copies), (Idle::Spin, Copies::Two));
    assert_eq!((config.switch.simd, config.switch.level()), (Some(Level::Scalar), Level::Scalar));
    assert_eq!(config.switch.api, Some(fixture.path("api").into()));
    let names: Vec<_> = config.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["z", "a", "m", "k"], "the file's order");
    assert_eq!(config.ports[0], PortConfig::vhost_user("z", fixture.path("z")));
    assert_eq!(config.port_index("m"), Some(2));
    let port = &config.ports[1];
    assert_eq!((port.mtu, port.mac), (9216, Some(Mac::new([0x52, 0x54, 0, 0, 0, 10]).unwrap())));
    let expected = VhostUserConfig {
        owner: Some(0),
        group: Some(0),
        perms: 0o640,
        queues: Some(127),
        packed: false,
        offloads: Offloads { csum: true, tso: false, uso: true },
        ..VhostUserConfig::new(fixture.path("a"))
    };
    assert_eq!(port.kind, PortKind::VhostUser(expected));
    let bridge = &config.bridges[0];
    assert_eq!((bridge.name.as_str(), bridge.ageing, bridge.limit), ("lan", 10, 2));
    assert_eq!(bridge.ports, ["m", "k"]);
    let statics: Vec<_> = bridge.statics.iter().map(|entry| (entry.mac.octets()[5], entry.port.as_str())).collect();
    assert_eq!(statics, [(3, "m"), (1, "k")]);
    let patch = PatchConfig { name: "a".to_owned(), ports: ["z".to_owned(), "a".to_owned()], full: WhenFull::Wait };
    assert_eq!(config.patches, [patch]);
}

#[test]
fn defaults() {
    let fixture = Fixture::new();
    let config = good(&format!("{}[bridge.b]\nports = [\"p\"]\n", fixture.port("p"))).config;
    assert_eq!(
        config.switch,
        SwitchConfig {
            workers: vec![],
            idle: Idle::Sleep,
            api: None,
            api_group: None,
            api_perms: None,
            api_read_only: None,
            api_read_only_group: None,
            api_read_only_perms: None,
            copies: Copies::One,
            simd: None,
            copy: None,
            sandbox: SandboxConfig::default(),
            without_prefetch: false,
            turn_packets: None,
        }
    );
    assert_eq!(config.switch.level(), Level::detect());
    let port = &config.ports[0];
    assert_eq!((port.mtu, port.mac), (1500, None));
    let PortKind::VhostUser(vhost) = &port.kind else { panic!("a vhost-user port") };
    assert_eq!((vhost.owner, vhost.group, vhost.perms, vhost.queues), (None, None, 0o600, None));
    assert_eq!(vhost.offloads, Offloads { csum: true, tso: true, uso: true });
    assert_eq!((config.bridges[0].ageing, config.bridges[0].limit), (300, 4096));

    let grouped = good(&format!("{}group = \"root\"\n", fixture.port("p"))).config;
    let PortKind::VhostUser(vhost) = &grouped.ports[0].kind else { panic!("a vhost-user port") };
    assert_eq!(vhost.perms, 0o660, "a group that is named may connect");
    let patched = good(&format!("{}[patch.a]\nports = [\"p\", \"q\"]\n", fixture.ports(&["p", "q"]))).config;
    assert_eq!(patched.patches[0].full, WhenFull::Drop);
}

#[test]
fn source_checks() {
    let fixture = Fixture::new();
    let port = |keys: &str| good(&format!("{}{keys}", fixture.port("p"))).config.ports.remove(0);
    assert_eq!(port("source-check = \"off\"\n").source_check, None);
    assert_eq!(port("").source_check, None);
    let own = port("mac = \"02:00:00:00:00:01\"\nsource-check = \"mac\"\n");
    assert_eq!(own.source_check, Some(SourceCheckConfig::default()));
    let listed = port(
        "source-check = \"mac\"\nallowed-macs = [\"00:00:5e:00:01:00/40\", \"02:00:00:00:00:0A\"]\n\
         allowed-ips = [\"10.0.0.1\", \"0.0.0.0/0\", \"fd00:1::/32\"]\n",
    );
    let check = listed.source_check.expect("it is on");
    let macs: Vec<_> = check.macs.iter().map(ToString::to_string).collect();
    assert_eq!(macs, ["00:00:5e:00:01:00/40", "02:00:00:00:00:0a"]);
    let ips: Vec<_> = check.ips.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(ips, ["10.0.0.1", "0.0.0.0/0", "fd00:1::/32"]);
}

#[test]
fn other_spellings_of_toml() {
    let fixture = Fixture::new();
    let text = format!(
        "port = {{ a = {{ kind = 'vhost-user', socket = '{}', mtu = 0x5dc }} }}\npatch.x.ports = [\n  \"a\",\n  \"nope\",\n]\n",
        fixture.path("a")
    );
    one_error(&text, 4, &["port \"nope\" in patch \"x\": no such port; ports are a"]);
    let text = format!("\u{feff}{}mtu = 1_500\r\n", fixture.port("a").replace('\n', "\r\n"));
    assert_eq!(good(&text).config.ports[0].mtu, 1500);
}

#[test]
fn the_example_message() {
    let fixture = Fixture::new();
    let text = format!("{}[bridge.lan]\nports = [\"vm1\", \"vm2\", \"vm9\"]\n", fixture.ports(&["vm1", "vm2", "vm3"]));
    let expected = "\
f.toml:11: port \"vm9\" in bridge \"lan\": no such port; ports are vm1, vm2, vm3
  11 | ports = [\"vm1\", \"vm2\", \"vm9\"]
     |                        ^^^^^";
    assert_eq!(parse(&text).unwrap_err().to_string(), expected);
}

#[test]
fn all_errors_are_reported_in_the_files_order() {
    let fixture = Fixture::new();
    let text =
        format!("[patch.a]\nports = [\"p\", \"x\"]\n[switch]\nidle = 1\n{}mtu = 1\nmac = \"\"\n", fixture.port("p"));
    let lines: Vec<_> = parse(&text).unwrap_err().0.iter().map(|error| error.line.unwrap()).collect();
    assert_eq!(lines, [2, 4, 8, 9]);
}

#[test]
fn warnings() {
    let fixture = Fixture::new();
    let text = format!("{}offloads = [\"tso\", \"uso\"]\n", fixture.port("p"));
    let loaded = good(&text);
    let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("f.toml:1: port \"p\" is in no patch or bridge"), "{warnings:?}");
    assert!(warnings[1].starts_with("f.toml:4: tso and uso in port \"p\": not offered"), "{warnings:?}");
    let PortKind::VhostUser(vhost) = &loaded.config.ports[0].kind else { panic!("a vhost-user port") };
    assert_eq!(vhost.offloads, Offloads { csum: false, tso: false, uso: false });

    let names: Vec<_> = (0..100).map(|n| format!("p{n:02}")).collect();
    let many = good(&fixture.ports(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(many.warnings.len(), 9, "{:?}", many.warnings);
    let last = many.warnings[8].to_string();
    assert!(last.starts_with("f.toml:25: port \"p08\" and 91 more are in no patch or bridge either"), "{last}");

    let none = good(&format!("{}offloads = []\n", fixture.port("p")));
    assert_eq!(none.warnings.len(), 1);
    assert_eq!(good("").warnings[0].to_string(), "f.toml: no ports; add a section [port.NAME]");
}

/// Programs that read the answer ask for abilities, and compare no kinds.
#[test]
fn the_answer_about_a_port_says_what_its_kind_is_able_to_do() {
    let text = "[port.vm]\nkind = \"vhost-user\"\nsocket = \"/tmp/vm\"\nqueues = 2\n\
                [port.t]\nkind = \"tap\"\nname = \"sl0\"\npersist = false\n\
                [port.p]\nkind = \"af-packet\"\ninterface = \"eth1\"\n\
                [port.x]\nkind = \"af-xdp\"\ninterface = \"eth2\"\n";
    let ports: Vec<_> = good(text).config.ports.iter().map(PortConfig::described).collect();
    let needs = |port: &straightline_api::Port| port.capabilities_needed.join(" ");
    let [vm, tap, packet, xdp] = &ports[..] else { panic!("{ports:?}") };
    assert!(vm.has_frontend() && !vm.makes_interface && vm.interface.is_none() && needs(vm).is_empty(), "{vm:?}");
    assert_eq!((vm.mode.as_deref(), vm.queue_pairs.unwrap().offered), (Some("server"), Some(2)));
    assert!(tap.makes_interface && tap.interface.as_deref() == Some("sl0") && !tap.has_frontend(), "{tap:?}");
    assert_eq!(needs(tap), "CAP_NET_ADMIN");
    assert!(!packet.makes_interface && packet.interface.as_deref() == Some("eth1"), "{packet:?}");
    assert_eq!(needs(packet), "CAP_NET_RAW");
    assert_eq!((needs(xdp).as_str(), xdp.steal.as_deref()), ("CAP_NET_ADMIN CAP_NET_RAW CAP_BPF", Some("all")));
}

#[test]
fn warnings_about_interfaces() {
    let tap = "[port.p]\nkind = \"tap\"\nname = \"sl0\"\n";
    let warnings = |text: &str| -> Vec<String> {
        let text = format!("{text}[bridge.b]\nports = [\"p\"]\n");
        good(&text).warnings.iter().map(ToString::to_string).collect()
    };
    let addresses = warnings(tap);
    assert_eq!(addresses.len(), 1, "{addresses:?}");
    assert!(addresses[0].starts_with("f.toml:3: tap \"sl0\" in port \"p\": it is made at each start"), "{addresses:?}");
    for key in ["persist = true", "persist = false", "bridge = \"br0\""] {
        assert_eq!(warnings(&format!("{tap}{key}\n")), [""; 0], "{key}");
    }
}

#[test]
fn who_may_use_the_api() {
    let fixture = Fixture::new();
    let switch = |keys: &str| {
        let text = format!("{}[switch]\napi = \"{}\"\n{keys}", fixture.port("p"), fixture.path("api"));
        good(&text).config.switch
    };
    let settings_of = |switch: &SwitchConfig| {
        let Permissions { owner, group, .. } = switch.api_permissions();
        (owner, group, switch.api_permissions().bits())
    };
    assert_eq!(settings_of(&switch("")), (None, None, 0o600));
    assert_eq!(switch("").api_needs(), Needs::default());
    let ours = rustix::process::getegid().as_raw();
    assert_eq!(settings_of(&switch(&format!("api-group = \"{ours}\"\n"))), (None, Some(ours), 0o660));
    let other = switch(&format!("api-group = \"{}\"\napi-perms = \"0600\"\n", ours + 1));
    assert_eq!(settings_of(&other), (None, Some(ours + 1), 0o600));
    assert_eq!(other.api_needs(), Needs { has_owner: true, gives_away: true, ..Needs::default() });
    let both = switch(&format!("api-read-only = \"{}\"\n", fixture.path("ro")));
    assert_eq!((settings_of(&both), both.api_read_only_permissions().bits()), ((None, None, 0o600), 0o666));
    assert_eq!(both.api_needs(), Needs { sets_bits: true, ..Needs::default() });
    assert_eq!(both.api_sockets().count(), 2);
}

#[test]
fn who_may_ask_by_the_socket_that_only_answers() {
    let fixture = Fixture::new();
    let settings_of = |keys: &str| {
        let socket = fixture.path("ro");
        let text = format!("{}[switch]\napi-read-only = \"{socket}\"\n{keys}", fixture.port("p"));
        let switch = good(&text).config.switch;
        let Permissions { owner, group, .. } = switch.api_read_only_permissions();
        assert_eq!(owner, None);
        (group, switch.api_read_only_permissions().bits(), switch.api_needs().gives_away)
    };
    let other = rustix::process::getegid().as_raw() + 1;
    let group = format!("api-read-only-group = \"{other}\"\n");
    let api_group = "api-group = \"4321\"\n";
    assert_eq!(settings_of(""), (None, 0o666, false));
    assert_eq!(settings_of("api-read-only-perms = \"0600\"\n"), (None, 0o600, false));
    assert_eq!(settings_of(&group), (Some(other), 0o660, true));
    assert_eq!(settings_of(&format!("{group}api-read-only-perms = \"0664\"\n")), (Some(other), 0o664, true));
    assert_eq!(settings_of(api_group), (Some(4321), 0o666, true));
    assert_eq!(settings_of(&format!("{group}{api_group}")), (Some(other), 0o660, true));
}

#[test]
fn taken_sockets() {
    let fixture = Fixture::new();
    let text = format!("{}[switch]\napi = \"{}\"\n", fixture.ports(&["p", "q", "r"]), fixture.path("api"));
    let loaded = good(&text);
    assert_eq!(loaded.taken_sockets(), []);
    let _live = UnixListener::bind(fixture.path("q")).unwrap();
    drop(UnixListener::bind(fixture.path("r")).unwrap());
    fs::write(fixture.path("api"), "").unwrap();
    let taken: Vec<_> = loaded.taken_sockets().iter().map(ToString::to_string).collect();
    assert_eq!(taken.len(), 2, "a stale socket is none: {taken:?}");
    assert!(
        taken[0].starts_with(&format!("f.toml:6: socket \"{}\" of port \"q\": a running process", fixture.path("q"))),
        "{taken:?}"
    );
    assert!(taken[0].contains("^^^"), "{taken:?}");
    assert!(
        taken[1].starts_with("f.toml:11: socket") && taken[1].contains("of the API: a file that is not a socket"),
        "{taken:?}"
    );
}

#[test]
fn ports_that_connect() {
    let fixture = Fixture::new();
    let text = "[port.p]\nkind = \"vhost-user\"\nsocket = \"/none/of/it\"\nmode = \"client\"\n".to_owned();
    let loaded = good(&(text + &fixture.port("q") + "mode = \"client\"\n"));
    for (port, socket) in loaded.config.ports.iter().zip(["/none/of/it".to_owned(), fixture.path("q")]) {
        let expected = VhostUserConfig { mode: Mode::Client, ..VhostUserConfig::new(socket) };
        assert_eq!(port.kind, PortKind::VhostUser(expected), "the folder may come later");
    }
    let _live = UnixListener::bind(fixture.path("q")).unwrap();
    assert_eq!(loaded.taken_sockets(), [], "the frontend listens there");
}

#[test]
fn files_that_cannot_be_read() {
    let fixture = Fixture::new();
    let path = fixture.path("c.toml");
    let message = Config::load(Path::new(&path)).unwrap_err().to_string();
    assert!(message.starts_with(&path) && message.contains("No such file"), "{message}");
    fs::write(&path, b"[switch]\nidle = \"sp\xffn\"\n").unwrap();
    let message = Config::load(Path::new(&path)).unwrap_err().to_string();
    assert_eq!(message, format!("{path}:2: not UTF-8; a TOML file is UTF-8 text"));
    fs::write(&path, fixture.port("p")).unwrap();
    assert_eq!(Config::load(Path::new(&path)).unwrap().config.ports.len(), 1);
}

/// No text, however broken, causes a panic. An accepted text keeps the promises of `Config`.
#[test]
fn broken_files_never_panic() {
    let fixture = Fixture::new();
    let mut text = fixture.ports(&["p", "q"]);
    write!(text, "[patch.a]\nports = [\"p\", \"q\"]\n[switch]\nworkers = [0]\nidle = \"spin\"\n").unwrap();
    for position in 0..text.len() {
        let _ = parse(&text[..position]);
        for replacement in ["\n", "\"", "[", "ä", "\0", "=", "{", "99"] {
            let mut broken = text.clone();
            broken.replace_range(position..=position, replacement);
            if let Ok(loaded) = parse(&broken) {
                for patch in &loaded.config.patches {
                    assert!(patch.ports.iter().all(|port| loaded.config.port_index(port).is_some()));
                }
            }
        }
    }
}

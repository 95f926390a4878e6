use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;

use straightline_testing::wait_until;

use super::opener::{copy, has_root_and};
use super::run::{CONFIG, Running};
use super::{Finished, Fixture};

/// A correct configuration of twelve lines. Each test case appends a mistake.
const GOOD: &str = "\
[port.vm1]
kind = \"vhost-user\"
socket = \"@/vm1.sock\"

[port.vm2]
kind = \"vhost-user\"
socket = \"@/vm2.sock\"

[port.vm3]
kind = \"vhost-user\"
socket = \"@/vm3.sock\"

";

fn check(text: &str) -> Finished {
    let fixture = Fixture::new();
    fixture.write(text);
    fixture.execute(&["check", "switch.toml"])
}

/// Asserts that `check` reports exactly one mistake, at this line of `addition`.
fn mistake(addition: &str, line: usize, message: &str) {
    let done = check(&format!("{GOOD}{addition}"));
    assert_eq!(done.code, Some(1), "{addition}\n{done:?}");
    assert_eq!(done.out, "", "{addition}");
    let start = format!("error: switch.toml:{}: ", line + 12);
    let errors: Vec<_> = done.err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{addition}\n{}", done.err);
    assert!(errors[0].starts_with(&start) && errors[0].contains(message), "{start}{message}\n{}", done.err);
}

#[test]
fn a_good_file_is_ok() {
    let text = format!(
        "{GOOD}mtu = 9000\n[patch.a]\nports = [\"vm1\", \"vm2\"]\n[bridge.lan]\nports = [\"vm3\"]\n[switch]\nidle = \"spin\"\napi = \"@/api.sock\"\n"
    );
    let done = check(&text);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "ok\n", ""));
}

#[test]
fn a_warning_is_no_error() {
    let done = check(&format!("{GOOD}[patch.a]\nports = [\"vm1\", \"vm2\"]\n"));
    assert_eq!((done.code, done.out.as_str()), (Some(0), "no errors, 1 warning\n"));
    assert!(done.err.starts_with("warning: switch.toml:9: port \"vm3\" is in no patch or bridge"), "{}", done.err);
}

#[test]
fn the_message_shows_the_line() {
    let done = check(&format!("{GOOD}[bridge.lan]\nports = [\"vm1\", \"vm9\"]\n"));
    let expected = "\
error: switch.toml:14: port \"vm9\" in bridge \"lan\": no such port; ports are vm1, vm2, vm3
  14 | ports = [\"vm1\", \"vm9\"]
     |                 ^^^^^
";
    assert_eq!(done.err, expected);
}

#[test]
fn all_mistakes_are_told_at_once() {
    let done = check(&format!("{GOOD}mtu = 1\nmac = \"x\"\n[patch.a]\nports = [\"vm1\", \"vm9\"]\n[swich]\n"));
    assert_eq!(done.code, Some(1));
    let places: Vec<_> =
        done.err.lines().filter_map(|line| line.strip_prefix("error: switch.toml:")).map(|line| &line[..2]).collect();
    assert_eq!(places, ["13", "14", "16", "17"], "{}", done.err);
}

#[test]
fn mistakes_in_sections_and_keys() {
    mistake("[prot.x]\n", 1, "unknown section \"prot\"; did you mean \"port\"?");
    mistake("color = 1\n", 1, "unknown key \"color\" in port \"vm3\"; keys are kind, socket");
    mistake("sockte = \"x\"\n", 1, "did you mean \"socket\"?");
    mistake("[switch]\nworkerz = [0]\n", 2, "unknown key \"workerz\" in [switch]; did you mean \"workers\"?");
    mistake("[patch.a]\nports = [\"vm1\", \"vm2\"]\nageing = 1\n", 3, "unknown key \"ageing\" in patch \"a\"");
    mistake("[port.vm1]\n", 1, "twice");
    mistake("mtu = \n", 1, "not TOML");
    mistake("mtu = \"big\"\n", 1, "mtu in port \"vm3\" is a string; it must be an integer");
    mistake("[port.\"a b\"]\nkind = \"vhost-user\"\nsocket = \"@/s\"\n", 1, "not a valid name");
}

#[test]
fn mistakes_in_switch() {
    mistake("[switch]\nworkers = [0, 0]\n", 2, "CPU 0 in workers of [switch]: named twice");
    mistake("[switch]\nworkers = [9999]\n", 2, "CPU 9999 in workers of [switch]: this machine has no such CPU online");
    mistake("[switch]\nworkers = []\n", 2, "empty");
    mistake("[switch]\nidle = \"nap\"\n", 2, "idle \"nap\" in [switch]: unknown; known are sleep, spin");
    mistake("[switch]\ncopies = 3\n", 2, "it must be 1 to 2");
    mistake("[switch]\napi = \"@/none/api\"\n", 2, "create it first");
    mistake("[switch]\napi = \"@/vm1.sock\"\n", 2, "port \"vm1\" has it already (line 3)");
}

#[test]
fn mistakes_in_ports() {
    mistake("mtu = 67\n", 1, "out of range; it must be 68 to 9216");
    mistake("mac = \"33:33:00:00:00:01\"\n", 1, "multicast");
    mistake("mac = \"52:54\"\n", 1, "not an Ethernet address");
    mistake("mode = \"client\"\nperms = \"0660\"\n", 2, "makes no socket");
    mistake("queues = 0\n", 1, "it must be 1 to 127");
    mistake("offloads = [\"lro\"]\n", 1, "offloads are csum, tso, uso");
    mistake("offloads = [\"tso\", \"csum\", \"tso\"]\n", 1, "named twice");
    mistake("owner = \"nobody-of-this-name\"\n", 1, "no such user");
    mistake("group = \"nobody-of-this-name\"\n", 1, "no such group");
    mistake("perms = \"999\"\n", 1, "octal");
    mistake(
        "[port.x]\nkind = \"memif\"\nsocket = \"@/x\"\n",
        2,
        "kind \"memif\" in port \"x\": unknown; known are vhost-user, tap, af-packet, af-xdp",
    );
}

#[test]
fn a_mirror_is_a_node_of_every_switch() {
    let rest = "[patch.a]\nports = [\"vm1\", \"vm2\"]\n[node.m]\nkind = \"mirror\"\n";
    let listed = GOOD.replacen("\n\n", "\nnodes = [\"m\"]\negress-nodes = [\"m\"]\n\n", 1);
    let done = check(&format!("{listed}{rest}to = \"vm3\"\n"));
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "ok\n", ""));
    mistake(&format!("{rest}to = \"vm9\"\n"), 5, "port \"vm9\" in to of node \"m\": no such port; ports are vm1, vm2");
    mistake(&format!("{rest}to = \"vm2\"\n"), 5, "already in patch \"a\" (line 14)");
}

#[test]
fn mistakes_in_sockets() {
    let port = |socket: &str| format!("[port.x]\nkind = \"vhost-user\"\n{socket}\n");
    mistake(&port(""), 1, "port \"x\" has no \"socket\"");
    mistake(
        &port(&format!("socket = \"/tmp/{}\"", "x".repeat(103))),
        3,
        "108 bytes long; a socket path has at most 107",
    );
    mistake(&port("socket = \"/no/such/folder/s\""), 3, "cannot use its folder \"/no/such/folder\"");
    mistake(&port("socket = \"@/vm2.sock\""), 3, "port \"vm2\" has it already (line 7)");
    mistake(&port("socket = \"@/../\""), 3, "names no file");
}

#[test]
fn mistakes_in_patches_and_bridges() {
    mistake(
        "[patch.a]\nports = [\"vm1\", \"x\"]\n",
        2,
        "port \"x\" in patch \"a\": no such port; ports are vm1, vm2, vm3",
    );
    mistake("[patch.a]\nports = [\"vm1\"]\n", 2, "1 named; a patch joins exactly 2");
    mistake("[patch.a]\nports = [\"vm1\", \"vm2\", \"vm3\"]\n", 2, "3 named; a patch joins exactly 2");
    mistake("[patch.a]\nports = [\"vm1\", \"vm1\"]\n", 2, "named twice");
    mistake("[patch.a]\nports = [\"vm1\", \"vm2\"]\nfull = \"block\"\n", 3, "known are drop, wait");
    mistake(
        "[patch.a]\nports = [\"vm1\", \"vm2\"]\n[patch.b]\nports = [\"vm3\", \"vm2\"]\n",
        4,
        "port \"vm2\" in patch \"b\": already in patch \"a\" (line 14)",
    );
    let bridge = "[bridge.b]\nports = [\"vm1\", \"vm2\"]\n";
    mistake("[bridge.b]\nports = []\n", 2, "none named");
    mistake("[bridge.b]\n", 1, "bridge \"b\" has no \"ports\"");
    mistake(&format!("{bridge}ageing = 0\n"), 3, "it must be 1 to 1000000");
    mistake(&format!("{bridge}limit = 0\n"), 3, "it must be 1 to 1048576");
    mistake(
        &format!("{bridge}static = {{ \"02:00:00:00:00:01\" = \"vm3\" }}\n"),
        3,
        "not a port of this bridge; its ports are vm1, vm2",
    );
    mistake(&format!("{bridge}static = {{ \"ff:ff:ff:ff:ff:ff\" = \"vm1\" }}\n"), 3, "multicast");
    let twice = "static = { \"02:00:00:00:00:0a\" = \"vm1\", \"02:00:00:00:00:0A\" = \"vm2\" }\n";
    mistake(&format!("{bridge}{twice}"), 3, "has an entry already");
    let two = "static = { \"02:00:00:00:00:0a\" = \"vm1\", \"02:00:00:00:00:0b\" = \"vm2\" }\n";
    mistake(&format!("{bridge}limit = 1\n{two}"), 3, "limit 1 in bridge \"b\": less than its 2 static entries");
}

#[test]
fn sockets_that_are_taken() {
    let fixture = Fixture::new();
    fixture.write(GOOD);
    let live = UnixListener::bind(fixture.path("vm2.sock")).unwrap();
    let done = fixture.execute(&["check", "switch.toml"]);
    assert_eq!(done.code, Some(1));
    let expected = format!(
        "error: switch.toml:7: socket \"{}\" of port \"vm2\": a running process has it open",
        fixture.path("vm2.sock").display()
    );
    assert!(done.err.contains(&expected), "{}", done.err);
    // The file of a closed listener remains. It is a stale socket, which the switch replaces when
    // it starts.
    drop(live);
    // A child of another test that has just been forked may have it for a moment.
    wait_until("nobody has the socket open", || {
        let done = fixture.execute(&["check", "switch.toml"]);
        if done.code == Some(0) { Ok(()) } else { Err(done) }
    });
}

#[test]
fn files_that_cannot_be_read() {
    let fixture = Fixture::new();
    let done = fixture.execute(&["check", "none.toml"]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.starts_with("error: none.toml: cannot read it: No such file"), "{done:?}");
    fs::write(fixture.path("switch.toml"), b"\n\xff").unwrap();
    let done = fixture.execute(&["check", "switch.toml"]);
    assert_eq!(
        (done.code, done.err.as_str()),
        (Some(1), "error: switch.toml:2: not UTF-8; a TOML file is UTF-8 text\n")
    );
    assert_eq!(fixture.execute(&["check", "."]).code, Some(1));
}

#[test]
fn explains_a_key() {
    let fixture = Fixture::new();
    let explain = |query: &str| fixture.execute(&["check", "--explain", query]);
    let done = explain("bridge.ageing");
    let expected = "\
ageing in [bridge.NAME]
  type      integer
  values    1 to 1000000 seconds
  default   300
  meaning   The bridge forgets an address that sent nothing for this time.
  example   ageing = 60
";
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), expected, ""));
    let several = explain("mtu");
    let titles: Vec<_> = several.out.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')).collect();
    assert_eq!(titles, ["mtu in [port.NAME]", "mtu in [underlay.NAME]"]);
    let done = explain("agein");
    assert_eq!((done.code, done.err.as_str()), (Some(1), "error: unknown key \"agein\"; did you mean \"ageing\"?\n"));
    let json = fixture.execute(&["check", "--explain", "full", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["keys"][0]["section"], &json["keys"][0]["default"]), (&"patch".into(), &"\"drop\"".into()));
}

/// Two ports without `queues`, whose frontends could use up the process's descriptors.
#[test]
fn a_limit_that_frontends_could_use_up_is_a_warning() {
    let fixture = Fixture::new();
    for (queues, words) in [("", "set `queues` at the 2 ports without it"), ("queues = 1\n", "")] {
        let port = |name| format!("[port.{name}]\nkind = \"vhost-user\"\nsocket = \"@/{name}\"\n{queues}");
        fixture.write(&format!("{}{}[patch.a]\nports = [\"vm1\", \"vm2\"]\n", port("vm1"), port("vm2")));
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n 700; exec \"$0\" check switch.toml", env!("CARGO_BIN_EXE_straightline")]);
        let done = command.current_dir(fixture.path("")).output().unwrap();
        let out = String::from_utf8_lossy(&done.stdout);
        let err = String::from_utf8_lossy(&done.stderr);
        let expected = if words.is_empty() { "ok\n" } else { "no errors, 1 warning\n" };
        assert_eq!((done.status.code(), &*out), (Some(0), expected), "{err}");
        assert_eq!(err.contains("frontends can have the switch keep"), !words.is_empty(), "{err}");
        assert!(err.contains(words), "{err}");
    }
}

#[test]
fn a_file_or_a_key_is_needed() {
    let fixture = Fixture::new();
    for args in [&["check"][..], &["check", "f.toml", "--explain", "mtu"], &["check", "--schema", "--json"]] {
        assert_eq!(fixture.execute(args).code, Some(2), "{args:?}");
    }
}

#[test]
fn prints_the_schema() {
    let done = Fixture::new().execute(&["check", "--schema"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    assert_eq!(done.out, include_str!("../../../../dist/straightline.schema.json"));
}

/// The sockets of the switch that runs are no mistake in the file that a reload is to read, and
/// those of other processes are.
#[test]
fn a_file_is_checked_beside_the_switch_that_runs_it() {
    let fixture = Fixture::new();
    let ok = |file: &str| {
        let done = fixture.execute(&["check", file]);
        assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "ok\n", ""));
    };
    let taken = |file: &str, sockets: &[&str]| {
        let done = fixture.execute(&["check", file]);
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
        assert_eq!(done.err.matches("a running process has it open").count(), sockets.len(), "{done:?}");
        for socket in sockets {
            assert!(done.err.contains(&format!("/{socket}\" of ")), "{done:?}");
        }
    };
    let with_more =
        format!("{CONFIG}[port.vm3]\nkind = \"vhost-user\"\nsocket = \"@/vm3\"\n[bridge.b]\nports = [\"vm3\"]\n");
    // With and without an API.
    for has_api in [true, false] {
        let text = |text: &str| if has_api { text.to_owned() } else { text.replace("api = \"@/api\"\n", "") };
        fixture.write(&text(CONFIG));
        let running = Running::start(&fixture);
        ok("switch.toml");
        fixture.write(&text(&with_more));
        ok("switch.toml");
        let other = UnixListener::bind(fixture.path("vm3")).unwrap();
        taken("switch.toml", &["vm3"]);
        drop(other);
        fs::remove_file(fixture.path("vm3")).unwrap();
        // The same text in another file is meant for the same switch only if it has their API.
        fs::copy(fixture.path("switch.toml"), fixture.path("new.toml")).unwrap();
        if has_api {
            ok("new.toml");
            fixture.write(&with_more.replace("@/api", "@/other"));
            fs::rename(fixture.path("switch.toml"), fixture.path("new.toml")).unwrap();
        }
        taken("new.toml", &["vm1", "vm2"]);
        // A second switch cannot run.
        fixture.write(&text(CONFIG));
        let done = fixture.execute(&["run", "switch.toml"]);
        assert!(done.code == Some(1) && done.err.contains("a running process has it open"), "{done:?}");
        running.signal("TERM");
        assert_eq!(running.finish().code, Some(0));
    }
}

/// A user who may not ask the switch does not hear that its sockets are a mistake.
#[test]
fn a_user_who_may_not_ask_the_switch_can_check_its_file() {
    let test = "a_user_who_may_not_ask_the_switch_can_check_its_file";
    if !has_root_and(test, &["setpriv"]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let program = copy(&fixture);
    for (path, mode) in [(".", 0o755), ("switch.toml", 0o644)] {
        fs::set_permissions(fixture.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let running = Running::start(&fixture);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(program)
        .args(["check", "switch.toml"]);
    let done = Finished::new(&command.current_dir(fixture.path(".")).env_remove("RUST_LOG").output().unwrap());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("the running switch does not answer, so sockets in use are not checked: "), "{done:?}");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn the_findings_as_json() {
    let json = |text: &str| {
        let fixture = Fixture::new();
        fixture.write(text);
        let done = fixture.execute(&["check", "switch.toml", "--json"]);
        assert_eq!((done.err.as_str(), done.out.matches('\n').count()), ("", 1), "{done:?}");
        (done.code, serde_json::from_str::<serde_json::Value>(&done.out).unwrap())
    };
    let (code, found) = json(&format!("{GOOD}[patch.a]\nports = [\"vm1\", \"vm2\"]\n"));
    assert_eq!((code, &found["file"], &found["errors"]), (Some(0), &"switch.toml".into(), &serde_json::json!([])));
    assert_eq!(found["warnings"][0]["line"], 9);
    assert!(found["warnings"][0]["message"].as_str().unwrap().starts_with("port \"vm3\" is in no patch"), "{found}");
    let (code, found) = json(&format!("{GOOD}mtu = 1\n"));
    assert_eq!((code, &found["errors"][0]["line"], &found["errors"][0]["column"]), (Some(1), &13.into(), &7.into()));
}

#[test]
fn a_file_that_is_no_toml_has_few_errors() {
    let done = check(&"%%% no TOML at all = = [\n".repeat(500));
    let errors = done.err.lines().filter(|line| line.starts_with("error: ")).count();
    assert!(done.code == Some(1) && errors <= 11 && done.err.contains("more such errors"), "{}", done.err);
}

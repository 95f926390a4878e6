mod harmless;
mod traffic;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use straightline_guest::{Guest, GuestOptions};
use straightline_testing::wait_until;

use super::run::{CONFIG, Running};
use super::{Finished, Fixture, has_root, our_uid};

/// A user other than ours.
const OTHER: &str = "65534";

/// Two ports in a bridge whose MTUs differ.
const BRIDGE: &str = "\
[switch]
api = \"@/api\"
[port.vm1]
kind = \"vhost-user\"
socket = \"@/vm1\"
[port.vm2]
kind = \"vhost-user\"
socket = \"@/vm2\"
mtu = 9000
[bridge.lan]
ports = [\"vm1\", \"vm2\"]
";

/// Returns the findings of a command, and checks their form.
fn json(done: &Finished) -> Vec<serde_json::Value> {
    assert_eq!((done.err.as_str(), done.out.matches('\n').count()), ("", 1), "{done:?}");
    let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let checks = json["checks"].as_array().unwrap().clone();
    for check in &checks {
        let keys: Vec<_> = check.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["detail", "fix", "name", "result", "symptom"]);
        let result = check["result"].as_str().unwrap();
        assert!(["pass", "skip", "warn", "fail", "unknown"].contains(&result), "{check}");
        let is_whole = result == "pass" || check["detail"] != "" || check["fix"] != "";
        assert!(check["symptom"] != "" && is_whole, "{check}");
    }
    let has_failed = checks.iter().any(|check| check["result"] == "fail");
    assert_eq!(done.code, Some(i32::from(has_failed)), "{checks:#?}");
    checks
}

fn doctor(fixture: &Fixture) -> Vec<serde_json::Value> {
    json(&fixture.execute(&["doctor", "switch.toml", "--json"]))
}

/// Returns the findings of a check.
fn of<'c>(checks: &'c [serde_json::Value], name: &str) -> Vec<&'c serde_json::Value> {
    let found: Vec<_> = checks.iter().filter(|check| check["name"] == name).collect();
    assert!(!found.is_empty(), "no check {name}");
    found
}

/// Checks that a check has a finding with this result, and these texts in its symptom or detail and
/// in its fix.
fn has(checks: &[serde_json::Value], name: &str, result: &str, text: &str, fix: &str) {
    find(checks, name, result, text, fix).unwrap();
}

/// Looks for a finding, as [`has`] does. The error has all findings of that check.
fn find(checks: &[serde_json::Value], name: &str, result: &str, text: &str, fix: &str) -> Result<(), String> {
    let contains = |check: &serde_json::Value, key: &str, text: &str| check[key].as_str().unwrap().contains(text);
    let is_so = |check: &&&serde_json::Value| {
        check["result"] == result
            && (contains(check, "symptom", text) || contains(check, "detail", text))
            && contains(check, "fix", fix)
    };
    let found = of(checks, name);
    if found.iter().any(|check| is_so(&check)) {
        return Ok(());
    }
    Err(format!("{result} {text:?} {fix:?}: {found:#?}"))
}

#[test]
fn without_a_switch_and_a_file() {
    let fixture = Fixture::new();
    let checks = json(&fixture.execute(&["doctor", "--json", "--api", "none.sock"]));
    has(&checks, "api", "fail", "no switch listens on", "straightline run");
    has(&checks, "configuration", "skip", "no configuration file was named", "");
    // What no switch tells is not known.
    for name in ["links", "driver", "spinning", "descriptors", "sandbox", "next-hops", "cgroup-quota"] {
        assert!(of(&checks, name).iter().all(|check| check["result"] == "unknown"), "{checks:#?}");
    }
}

#[test]
fn the_text_fits_the_terminal_and_has_no_colours_in_a_pipe() {
    let fixture = Fixture::new();
    fixture.write(BRIDGE);
    let done = fixture.execute(&["doctor", "switch.toml"]);
    assert_eq!((done.code, done.err.as_str()), (Some(1), ""), "{done:?}");
    assert!(done.out.starts_with("FAIL     api              no switch listens on "), "{}", done.out);
    assert!(
        done.out.contains("\nWARN     bridge-mtu       bridge lan: its ports have different MTUs\n"),
        "{}",
        done.out
    );
    assert!(done.out.contains(&format!("\n{}fix: straightline run switch.toml\n", " ".repeat(26))), "{}", done.out);
    assert!(done.out.ends_with(" do not apply (--all shows them)\n") && !done.out.contains('\x1b'), "{}", done.out);
    // A path is one word, and may be longer than the line.
    let folder = fixture.path("").display().to_string();
    let is_long = |line: &&str| line.chars().count() > 80 && !line.contains(folder.trim_end_matches('/'));
    assert_eq!(done.out.lines().find(is_long), None, "{}", done.out);
}

#[test]
fn faults_of_the_configuration() {
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replace("socket = \"@/vm2\"", "socket = 5"));
    has(&doctor(&fixture), "configuration", "fail", "socket", "straightline check switch.toml");
    fixture.write(&CONFIG.replace("api = \"@/api\"\n", ""));
    // A switch of this machine may listen at the default socket.
    let checks = json(&fixture.execute(&["doctor", "switch.toml", "--json", "--api", "api"]));
    has(&checks, "api", "fail", "the configuration has no API", "add `api = \"");
}

#[test]
fn sockets_that_are_stale_or_taken() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    drop(UnixListener::bind(fixture.path("vm1")).unwrap());
    let _other = UnixListener::bind(fixture.path("vm2")).unwrap();
    fs::write(fixture.path("api"), "").unwrap();
    // A child of another test that has just been forked may have both sockets for a moment.
    let us = std::process::id();
    let checks = wait_until("only this process has a socket", || {
        let checks = doctor(&fixture);
        find(&checks, "sockets", "warn", "port vm1", "straightline run")?;
        let fix = format!("(process {us}) if it is not needed");
        find(&checks, "sockets", "fail", &format!("(process {us})"), &fix)?;
        Ok::<_, String>(checks)
    });
    has(&checks, "sockets", "fail", "is not a socket", "rm ");
}

#[test]
fn a_running_switch() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    let checks = doctor(&fixture);
    for name in ["api", "configuration", "sockets", "socket-owner", "bridge-mtu", "descriptors", "refused-calls"] {
        assert!(of(&checks, name).iter().all(|check| check["result"] == "pass"), "{:#?}", of(&checks, name));
    }
    // A port without a VM waits: `ports` has the same remedy.
    let remedy = format!("Start the VM with a vhost-user device at {}.", fixture.path("vm1").display());
    has(&checks, "links", "warn", "no frontend has connected yet", &remedy);
    let ports = fixture.execute(&["ports", "--json", "--api", "api"]).out;
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    assert_eq!((&ports["ports"][0]["cause"], &ports["ports"][0]["remedy"]), (&"no-frontend".into(), &remedy.into()));
    assert_eq!(ports["ports"][0]["joined"], serde_json::json!({"kind": "patch", "name": "a"}));
    // The API is found without a file too, and a warning is a failure with --strict.
    assert_eq!(fixture.execute(&["doctor", "--api", "api"]).code, Some(0));
    assert_eq!(fixture.execute(&["doctor", "--strict", "--api", "api"]).code, Some(1));
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn links_of_a_running_switch() {
    let fixture = Fixture::new();
    fixture.write(BRIDGE);
    let _running = Running::start(&fixture);
    assert_eq!(fixture.execute(&["link", "vm2", "down", "--api", "api"]).code, Some(0));
    // A guest without offloads.
    let options =
        GuestOptions { features: straightline_virtio::features::VIRTIO_F_VERSION_1, ..GuestOptions::default() };
    let _guest = Guest::connect(&fixture.path("vm1"), &options).unwrap();
    fixture.wait_for_link("vm1");
    let checks = doctor(&fixture);
    has(&checks, "links", "warn", "set down by the administrator", "straightline link vm2 up");
    assert!(
        of(&checks, "links").iter().all(|check| !check["symptom"].as_str().unwrap().contains("vm1")),
        "{checks:#?}"
    );
    has(&checks, "bridge-mtu", "warn", "1500: vm1, 9000: vm2", "set `mtu = 9000` in [port.vm1]");
    has(&checks, "bridge-offloads", "warn", "port vm1 does without checksums and TSO", "offloads");
    // Something removes a socket.
    fs::remove_file(fixture.path("vm2")).unwrap();
    has(&doctor(&fixture), "sockets", "fail", "port vm2", "restart the switch");
}

#[test]
fn a_client_without_a_listener() {
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replace("socket = \"@/vm1\"", "socket = \"@/vm1\"\nmode = \"client\""));
    let _running = Running::start(&fixture);
    let checks = doctor(&fixture);
    has(&checks, "sockets", "warn", "no VM listens yet", "start the VM");
    has(&checks, "links", "warn", "connecting to", "Start the VM that listens at");
}

#[test]
fn permissions_that_were_changed() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    fs::set_permissions(fixture.path("vm1"), fs::Permissions::from_mode(0o666)).unwrap();
    has(&doctor(&fixture), "socket-owner", "fail", "its mode is 0666, not 0600", "straightline reload");
}

#[test]
fn few_descriptors() {
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replace("socket = \"@/vm1\"", "socket = \"@/vm1\"\nqueues = 100"));
    let mut command = Command::new("prlimit");
    command.args(["--nofile=256:256", env!("CARGO_BIN_EXE_straightline"), "run", "switch.toml"]);
    command.current_dir(fixture.path(".")).stderr(Stdio::null());
    let _running = Running::start_as(command);
    has(&doctor(&fixture), "descriptors", "fail", "the limit (NOFILE) is 256", "LimitNOFILE");
}

#[test]
fn a_worker_that_spins() {
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replace("[switch]", "[switch]\nidle = \"spin\""));
    let _running = Running::start(&fixture);
    // A worker that is descheduled for the whole look does not spin in it.
    wait_until("the worker is seen spinning", || {
        find(&doctor(&fixture), "spinning", "warn", "worker 0 spins without traffic", "idle = \"sleep\"")
    });
}

#[test]
fn a_sandbox_with_a_part_missing() {
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replace("[switch]", "[switch]\nsandbox = [\"capabilities\", \"seccomp\"]"));
    let _running = Running::start(&fixture);
    has(&doctor(&fixture), "sandbox", "warn", "without landlock", "sandbox");
}

/// A VM of another user: a folder above the socket stops it.
#[test]
fn a_user_who_cannot_reach_the_socket() {
    let test = "a_user_who_cannot_reach_the_socket";
    if !has_root(test, "only root can be another user") {
        return;
    }
    let fixture = Fixture::new();
    let uid = name_of(OTHER);
    fixture.write(&CONFIG.replace("socket = \"@/vm1\"", &format!("socket = \"@/vm1\"\nowner = \"{uid}\"")));
    let _running = Running::start(&fixture);
    fs::set_permissions(fixture.path("."), fs::Permissions::from_mode(0o700)).unwrap();
    has(&doctor(&fixture), "socket-access", "fail", "cannot enter", "chmod a+x ");
    fs::set_permissions(fixture.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let checks = doctor(&fixture);
    let about = |check: &&&serde_json::Value| check["symptom"].as_str().unwrap().contains("port vm1");
    assert_eq!(of(&checks, "socket-access").iter().find(about), None, "{checks:#?}");
    // No other user may connect to the API.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", OTHER, "--regid", OTHER, "--clear-groups"]).arg(readable_program(&fixture));
    command.args(["doctor", "--json", "--api", "api"]).current_dir(fixture.path("."));
    let checks = json(&Finished::new(&command.output().unwrap()));
    has(&checks, "api", "fail", "this user may not connect", "sudo straightline doctor");
    assert!(of(&checks, "links").iter().all(|check| check["result"] == "unknown"), "{checks:#?}");
}

/// Another user may ask, but does not see the switch's descriptors.
#[test]
fn a_user_who_sees_less_passes_less() {
    let test = "a_user_who_sees_less_passes_less";
    if !has_root(test, "only root can be another user") {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    fs::set_permissions(fixture.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(fixture.path("api"), fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", OTHER, "--regid", OTHER, "--clear-groups"]).arg(readable_program(&fixture));
    command.args(["doctor", "--json", "--api", "api"]).current_dir(fixture.path("."));
    let checks = json(&Finished::new(&command.output().unwrap()));
    assert!(of(&checks, "api").iter().all(|check| check["result"] == "pass"), "{checks:#?}");
    has(&checks, "sockets", "unknown", "not visible to this user", "sudo straightline doctor");
}

/// Copies the program to a place that each user can read.
fn readable_program(fixture: &Fixture) -> std::path::PathBuf {
    let program = fixture.path("straightline");
    fs::copy(env!("CARGO_BIN_EXE_straightline"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

fn name_of(uid: &str) -> String {
    assert_eq!(our_uid(), 0);
    let names = fs::read_to_string(Path::new("/etc/passwd")).unwrap();
    let line = names.lines().find(|line| line.split(':').nth(2) == Some(uid)).unwrap();
    line.split(':').next().unwrap().to_owned()
}

//! Tests of the privileges to open network interfaces: what `check` and `run` say where they are
//! missing, and the opener process that keeps them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use straightline_testing::wait_until;

use super::run::Running;
use super::{Finished, Fixture, has_root, skip};

/// A user without privileges.
const NOBODY: u32 = 65534;

/// A configuration of all kinds that have an interface. The packet and AF_XDP interfaces do not
/// exist.
const CONFIG: &str = "\
[switch]
api = \"@/api\"
[port.t]
kind = \"tap\"
name = \"sl0\"
[port.p]
kind = \"af-packet\"
interface = \"none1\"
[port.x]
kind = \"af-xdp\"
interface = \"none2\"
[bridge.b]
ports = [\"t\", \"p\", \"x\"]
";

/// The masks of capabilities in /proc: none, CAP_NET_ADMIN, CAP_NET_RAW, and those of AF_XDP.
const NONE: &str = "0000000000000000";
const NET_ADMIN: &str = "0000000000001000";
const NET_RAW: &str = "0000000000002000";
const ALL: &str = "0000008000007000";

/// Returns [`CONFIG`] with only one of its ports.
fn only(port: &str) -> String {
    let start = CONFIG.find(&format!("[port.{port}]")).unwrap();
    let len = CONFIG[start + 1..].find("\n[").unwrap() + 2;
    format!("[switch]\napi = \"@/api\"\n{}[bridge.b]\nports = [\"{port}\"]\n", &CONFIG[start..start + len])
}

/// Makes a device of taps that all users may open, then runs the command. `ip netns exec` gave it
/// mounts of its own.
const WITH_TUN: &str = "mount -t tmpfs tun /dev/net && mknod -m 666 /dev/net/tun c 10 200 && exec \"$@\"";

/// Returns whether all users may open the device of taps. udev(7) sees to it, where it runs.
fn may_all_open_tun() -> bool {
    fs::metadata("/dev/net/tun").is_ok_and(|tun| tun.permissions().mode() & 0o006 == 0o006)
}

/// A network namespace for one test. It is removed at the end, with its interfaces.
pub(super) struct Namespace {
    name: String,
}

impl Namespace {
    pub(super) fn new(test: &str) -> Self {
        let name = format!("sl-{test}-{}", std::process::id());
        succeeds(Command::new("ip").args(["netns", "add", &name]));
        Self { name }
    }

    /// Returns a command that runs in the namespace.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn ip(&self, args: &str) {
        succeeds(self.command("ip").args(args.split(' ')));
    }

    /// Sets a value in /proc/sys.
    pub(super) fn sysctl(&self, path: &str, value: &str) {
        let set = format!("echo {value} > /proc/sys/{path}");
        succeeds(self.command("sh").args(["-c", &set]));
    }

    fn has_interface(&self, name: &str) -> bool {
        let mut command = self.command("ip");
        command.args(["link", "show", name]).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Returns whether `test` has root and these programs. Reports a skip if not.
pub(super) fn has_root_and(test: &str, programs: &[&str]) -> bool {
    if !has_root(test, "only root can make a network namespace and change its user") {
        return false;
    }
    let is_there = |program: &str| {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).any(|folder| folder.join(program).exists())
    };
    let missing = programs.iter().find(|program| !is_there(program));
    if let Some(program) = missing {
        skip(test, &format!("{program} is not installed"));
    }
    missing.is_none()
}

/// Returns the path of a copy of the program in the fixture's folder, which all users may execute.
pub(super) fn copy(fixture: &Fixture) -> PathBuf {
    let program = fixture.path("straightline");
    if !program.exists() {
        // Another process writes it. A test that starts a program meanwhile would inherit our
        // descriptor, and a file that is open for writing cannot be executed.
        succeeds(Command::new("install").args(["-m", "755", env!("CARGO_BIN_EXE_straightline")]).arg(&program));
    }
    program
}

/// Returns a command by a copy of the program, in the namespace and as a user without privileges
/// except for these options of setpriv(1). The fixture's folder belongs to that user.
fn as_nobody(fixture: &Fixture, namespace: &Namespace, options: &[&str], args: &[&str]) -> Command {
    let program = copy(fixture);
    std::os::unix::fs::chown(fixture.path("."), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = if may_all_open_tun() {
        namespace.command("setpriv")
    } else {
        let mut shell = namespace.command("sh");
        shell.args(["-c", WITH_TUN, "sh", "setpriv"]);
        shell
    };
    let user = format!("--reuid={NOBODY}");
    let group = format!("--regid={NOBODY}");
    command.args([&user, &group, "--clear-groups"]).args(options).arg("--").arg(program).args(args);
    command.current_dir(fixture.path(".")).env_remove("RUST_LOG");
    command
}

pub(super) fn in_namespace(fixture: &Fixture, namespace: &Namespace) -> Running {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_straightline"));
    command.args(["run", "switch.toml"]).current_dir(fixture.path(".")).env_remove("RUST_LOG").stderr(Stdio::piped());
    Running::start_as(command)
}

fn start_as_nobody(fixture: &Fixture, namespace: &Namespace, options: &[&str]) -> Running {
    let mut command = as_nobody(fixture, namespace, options, &["run", "switch.toml"]);
    command.stderr(Stdio::piped());
    Running::start_as(command)
}

/// Returns the opener's entry of `status`.
fn opener(fixture: &Fixture) -> Value {
    let privileges = &fixture.ask("status")["privileges"];
    assert_eq!(privileges[0]["process"], "switch");
    assert_eq!(privileges[1]["process"], "opener", "{privileges}");
    privileges[1].clone()
}

/// Returns a port's link and the reason why it is down.
fn link(fixture: &Fixture, port: &str) -> (String, String) {
    let ports = fixture.ask("ports");
    let found = ports["ports"].as_array().unwrap().iter().find(|found| found["name"] == port).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&found["link"]), text(&found["reason"]))
}

/// Returns a line of a process in /proc.
fn of_process(pid: u64, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
    value.unwrap_or_else(|| panic!("{field} in {status}")).to_owned()
}

/// Asserts that a process is confined and has these capabilities.
#[track_caller]
fn is_confined(pid: u64, capabilities: &str) {
    for (field, expected) in [
        ("CapPrm", capabilities),
        ("CapEff", capabilities),
        ("CapInh", NONE),
        ("CapAmb", NONE),
        ("Seccomp", "2"),
        ("NoNewPrivs", "1"),
    ] {
        assert_eq!(of_process(pid, field), expected, "{field}");
    }
}

fn signal(pid: u64, name: &str) {
    succeeds(Command::new("kill").args(["-s", name, &pid.to_string()]));
}

/// Returns whether a process runs. One that has ended and that nobody has waited for does not.
pub(super) fn runs(pid: u64) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until the link of a port is up, and checks that nothing is wrong with it.
#[track_caller]
fn comes_up(fixture: &Fixture, port: &str) {
    let found = fixture.wait_for_link(port);
    assert!(found["reason"].is_null(), "{found}");
}

#[test]
fn check_names_the_commands_that_give_the_missing_capabilities() {
    if !has_root_and("check_names_the_commands_that_give_the_missing_capabilities", &["ip", "setpriv"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("check");
    fixture.write(CONFIG);
    let run = |args: &[&str]| Finished::new(&as_nobody(&fixture, &namespace, &[], args).output().unwrap());
    let remedy = format!(
        "add `AmbientCapabilities=CAP_BPF CAP_IPC_LOCK CAP_NET_ADMIN CAP_NET_RAW` to the systemd unit, or give them to \
         the users of a group only: `sudo chgrp straightline {0} && sudo chmod 0750 {0} && sudo setcap \
         cap_bpf,cap_ipc_lock,cap_net_admin,cap_net_raw+ep {0}`",
        copy(&fixture).display()
    );
    let check = run(&["check", "switch.toml"]);
    assert_eq!(
        (check.code, check.out.as_str()),
        (Some(0), "no errors, 4 warnings\n"),
        "another user may run it: {check:?}"
    );
    let start = "warning: switch.toml:3: ports \"t\", \"p\", \"x\": opening their interfaces takes CAP_BPF";
    assert!(check.err.contains(start) && check.err.contains(&remedy), "{check:?}");

    let refused = run(&["run", "switch.toml"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.err.contains(&start.replace("warning", "error")) && refused.err.contains(&remedy), "{refused:?}");

    // A configuration without interfaces takes none.
    fixture.write("[port.p]\nkind = \"vhost-user\"\nsocket = \"@/p\"\n[bridge.b]\nports = [\"p\"]\n");
    let check = run(&["check", "switch.toml"]);
    assert_eq!((check.code, check.err.as_str()), (Some(0), ""), "{check:?}");
}

/// The hidden command serves the process that started it, and nobody else.
#[test]
fn the_opener_is_started_by_the_switch_alone() {
    let done = Fixture::new().execute(&["open-devices"]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
    assert!(done.err.contains("only `straightline run` starts this command"), "{done:?}");
    assert!(!Fixture::new().execute(&["--help"]).out.contains("open-devices"));
}

#[test]
fn each_process_has_the_privileges_that_status_shows() {
    if !has_root_and("each_process_has_the_privileges_that_status_shows", &["ip"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("status");
    for (config, mask) in [(CONFIG.to_owned(), ALL), (only("t"), NET_ADMIN), (only("p"), NET_RAW), (only("x"), ALL)] {
        fixture.write(&config);
        let running = in_namespace(&fixture, &namespace);
        let pid = opener(&fixture)["pid"].as_u64().unwrap();
        let switch = u64::from(running.id());
        is_confined(pid, mask);
        is_confined(switch, NONE);
        assert_eq!(of_process(pid, "Threads"), "1");
        let status = fixture.ask("status");
        let entry = &status["privileges"][0];
        assert_eq!((&entry["pid"], &entry["capabilities"]), (&json!(switch), &json!([])));
        for entry in status["privileges"].as_array().unwrap() {
            for field in ["seccomp", "landlock", "running"] {
                assert_eq!(entry[field], true, "{entry}");
            }
        }
        assert_eq!(status["refused_calls"], 0);
        running.signal("TERM");
        let done = running.finish();
        assert_eq!(done.code, Some(0));
        assert!(!done.err.contains("refused"), "{done:?}");
        assert!(!runs(pid), "it ends before the switch does");
    }
}

/// Without a sandbox the switch opens its interfaces itself.
#[test]
fn without_a_sandbox_there_is_no_opener() {
    if !has_root_and("without_a_sandbox_there_is_no_opener", &["ip"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("off");
    fixture.write(&only("t").replace("[switch]", "[switch]\nsandbox = []"));
    let running = in_namespace(&fixture, &namespace);
    let status = fixture.ask("status");
    let all = status["privileges"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["seccomp"]), (1, &json!(false)), "{status}");
    assert!(all[0]["capabilities"].as_array().unwrap().contains(&json!("CAP_NET_ADMIN")), "{status}");
    comes_up(&fixture, "t");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

/// A signal to the service reaches both processes. The opener ends with the switch, not before.
#[test]
fn the_opener_ends_with_the_switch() {
    if !has_root_and("the_opener_ends_with_the_switch", &["ip"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("end");
    fixture.write(&only("t"));
    for end in ["TERM", "KILL"] {
        let running = in_namespace(&fixture, &namespace);
        let pid = opener(&fixture)["pid"].as_u64().unwrap();
        comes_up(&fixture, "t");
        for name in ["TERM", "INT", "HUP"] {
            signal(pid, name);
        }
        // The signals are there before the opener makes the interface again.
        namespace.ip("link del sl0");
        wait_until("the opener makes the interface again", || namespace.has_interface("sl0"));
        comes_up(&fixture, "t");
        assert!(runs(pid) && opener(&fixture)["running"] == true);
        running.signal(end);
        running.finish();
        wait_until("the opener ends", || !runs(pid));
        wait_until("the interface is gone", || !namespace.has_interface("sl0"));
    }
}

/// The ports of an opener that was killed go on. An interface that has gone stays closed, and its
/// port says why.
#[test]
fn ports_go_on_without_the_opener() {
    if !has_root_and("ports_go_on_without_the_opener", &["ip"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("killed");
    fixture.write(&only("t"));
    let running = in_namespace(&fixture, &namespace);
    let pid = opener(&fixture)["pid"].as_u64().unwrap();
    comes_up(&fixture, "t");
    signal(pid, "KILL");
    wait_until("the opener has ended", || opener(&fixture)["running"] == false);
    fixture.wait_for_event("the end of the opener is an event", |event| {
        event["kind"] == "opener-ended" && event["pid"] == pid
    });
    assert_eq!(link(&fixture, "t"), ("up".to_owned(), String::new()));
    let text = fixture.execute(&["status", "--api", "api"]).out;
    assert!(text.contains("has ended; its interfaces stay open"), "{text}");
    namespace.ip("link del sl0");
    wait_until("the port says why its link is down", || {
        let (_, reason) = link(&fixture, "t");
        if reason.contains("the opener process has ended; restart the switch") { Ok(()) } else { Err(reason) }
    });
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

/// The opener opens the interfaces of the start again, and no others.
#[test]
fn a_reload_cannot_name_another_interface() {
    if !has_root_and("a_reload_cannot_name_another_interface", &["ip"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("reload");
    fixture.write(&only("t"));
    let running = in_namespace(&fixture, &namespace);
    let reload = || fixture.execute(&["reload", "--api", "api"]);
    let changes = || fixture.ask("ports")["ports"][0]["link_changes"].as_u64().unwrap();
    comes_up(&fixture, "t");
    let before = changes();
    for (from, to, words) in [
        ("\"sl0\"", "\"sl1\"", "interface sl1 was in no port when the switch started"),
        ("\"sl0\"", "\"sl0\"\nqueues = 2", "interface sl0 had other settings when the switch started"),
    ] {
        fixture.write(&only("t").replace(from, to));
        let done = reload();
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.err.contains(words) && done.err.contains("restart to apply"), "{done:?}");
    }
    // A change that came from a refused reload would be counted before this one.
    for (state, change) in [("down", 1), ("up", 2)] {
        assert_eq!(fixture.execute(&["link", "t", state, "--api", "api"]).code, Some(0));
        wait_until("the link changes", || link(&fixture, "t").0 == state);
        assert_eq!(changes(), before + change, "a refused reload leaves the interface alone");
    }
    assert!(!namespace.has_interface("sl1"));
    fixture.write(&only("t"));
    assert_eq!(reload().code, Some(0));
    comes_up(&fixture, "t");
    // The interface vanishes, and the opener makes it again.
    namespace.ip("link del sl0");
    wait_until("the opener makes the interface again", || namespace.has_interface("sl0"));
    comes_up(&fixture, "t");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));

    // A switch that needed no opener at its start has none later.
    let vhost_user = "[switch]\napi = \"@/api\"\n[port.p]\nkind = \"vhost-user\"\nsocket = \"@/p\"\n";
    fixture.write(&format!("{vhost_user}[bridge.b]\nports = [\"p\"]\n"));
    let running = in_namespace(&fixture, &namespace);
    fixture.write(&only("t"));
    let done = reload();
    assert!(done.err.contains("no port had an interface") && done.err.contains("restart to apply"), "{done:?}");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

/// The sandboxed switch sees the routes of the moment: a default route may move to its interface.
#[test]
fn a_reload_does_not_take_the_interface_of_the_default_route() {
    if !has_root_and("a_reload_does_not_take_the_interface_of_the_default_route", &["ip"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("route");
    for args in ["link add nic0 type veth peer name nic1", "addr add 192.0.2.1/24 dev nic0", "link set nic0 up"] {
        namespace.ip(args);
    }
    let config = only("x").replace("none2", "nic0");
    fixture.write(&config);
    let running = in_namespace(&fixture, &namespace);
    let reload = || fixture.execute(&["reload", "--api", "api"]);
    fixture.write("[switch]\napi = \"@/api\"\n");
    assert_eq!(reload().code, Some(0));
    namespace.ip("route add default via 192.0.2.2");
    fixture.write(&config);
    let done = reload();
    assert!(done.code == Some(1) && done.err.contains("`take-default-route = true`"), "{done:?}");
    fixture.write(&config.replace("\"nic0\"", "\"nic0\"\ntake-default-route = true"));
    let done = reload();
    assert_eq!(done.code, Some(0), "{done:?}");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

/// Capabilities reach an unprivileged switch by its file (setcap(8)) or by its parent (systemd's
/// AmbientCapabilities=). Only the opener keeps them.
#[test]
fn capabilities_of_a_file_and_of_a_unit_reach_the_opener() {
    if !has_root_and("capabilities_of_a_file_and_of_a_unit_reach_the_opener", &["ip", "setpriv", "setcap"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("caps");
    fixture.write(&only("t"));
    let try_it = |options: &[&str]| {
        let running = start_as_nobody(&fixture, &namespace, options);
        is_confined(u64::from(running.id()), NONE);
        is_confined(opener(&fixture)["pid"].as_u64().unwrap(), NET_ADMIN);
        comes_up(&fixture, "t");
        assert!(namespace.has_interface("sl0"));
        running.signal("TERM");
        assert_eq!(running.finish().code, Some(0));
    };
    // As systemd does it, with more than the configuration takes.
    try_it(&["--inh-caps=+net_admin,+net_raw,+bpf", "--ambient-caps=+net_admin,+net_raw,+bpf"]);
    succeeds(Command::new("setcap").arg("cap_net_admin,cap_net_raw+ep").arg(copy(&fixture)));
    try_it(&[]);

    // Every user may execute the program, so each has its capabilities. `doctor` says so.
    let program_check = || {
        let mut doctor = Command::new(copy(&fixture));
        let found = Finished::new(&doctor.args(["doctor", "--json", "--api", "none"]).output().unwrap());
        let report: Value = serde_json::from_str(&found.out).unwrap();
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == "program").unwrap().clone()
    };
    let warned = program_check();
    assert_eq!(warned["result"], "warn", "{warned}");
    assert!(warned["fix"].as_str().unwrap().contains("sudo chmod 0750"), "{warned}");
    fs::set_permissions(copy(&fixture), fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(program_check()["result"], "pass");
}

/// Each kind opens with its capabilities, within the sandbox of the opener, and passes packets
/// within that of the switch.
#[test]
fn all_kinds_work_with_their_capabilities_alone() {
    if !has_root_and("all_kinds_work_with_their_capabilities_alone", &["ip", "setpriv", "setcap"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("kinds");
    for (ours, peer) in [("none1", "peer1"), ("none2", "peer2")] {
        namespace.ip(&format!("link add {ours} type veth peer name {peer}"));
        namespace.ip(&format!("link set {ours} up"));
        namespace.ip(&format!("link set {peer} up"));
    }
    fixture.write(CONFIG);
    succeeds(Command::new("setcap").arg("cap_net_admin,cap_net_raw,cap_bpf,cap_ipc_lock+ep").arg(copy(&fixture)));
    let check = Finished::new(&as_nobody(&fixture, &namespace, &[], &["check", "switch.toml"]).output().unwrap());
    assert!(check.code == Some(0) && !check.err.contains("takes CAP"), "{check:?}");
    let running = start_as_nobody(&fixture, &namespace, &[]);
    is_confined(u64::from(running.id()), NONE);
    is_confined(opener(&fixture)["pid"].as_u64().unwrap(), ALL);
    for port in ["t", "p", "x"] {
        comes_up(&fixture, port);
    }
    namespace.ip("link set sl0 up");
    // The kernel asks whether another station has an address, by each of the interfaces. Each question
    // enters by one port, and leaves by the others.
    for interface in ["sl0", "peer1", "peer2"] {
        namespace.ip(&format!("addr add 2001:db8::1/64 dev {interface}"));
    }
    for port in ["t", "p", "x"] {
        wait_until("packets have passed in both directions", || {
            let ports = fixture.ask("ports");
            let found = ports["ports"].as_array().unwrap().iter().find(|found| found["name"] == port).unwrap();
            let queues = found["queues"].as_array().unwrap();
            let has_passed =
                |direction: &str| queues.iter().any(|queue| queue[direction]["packets"].as_u64() > Some(0));
            if has_passed("rx") && has_passed("tx") { Ok(()) } else { Err(found.clone()) }
        });
    }
    assert_eq!(fixture.ask("status")["refused_calls"], 0);
    running.signal("TERM");
    let done = running.finish();
    assert_eq!(done.code, Some(0));
    assert!(!done.err.contains("refused"), "{done:?}");
}

/// A tap that the administrator made for the switch's user takes no capability.
#[test]
fn a_tap_of_our_user_takes_no_capability() {
    if !has_root_and("a_tap_of_our_user_takes_no_capability", &["ip", "setpriv"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("owner");
    fixture.write(&only("t"));
    namespace.ip(&format!("tuntap add dev sl0 mode tap user {NOBODY} vnet_hdr"));
    namespace.ip("link set sl0 up");
    let check = Finished::new(&as_nobody(&fixture, &namespace, &[], &["check", "switch.toml"]).output().unwrap());
    assert!(check.code == Some(0) && !check.err.contains("takes CAP"), "{check:?}");
    let running = start_as_nobody(&fixture, &namespace, &[]);
    is_confined(u64::from(running.id()), NONE);
    is_confined(opener(&fixture)["pid"].as_u64().unwrap(), NONE);
    comes_up(&fixture, "t");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    assert!(namespace.has_interface("sl0"), "it is the administrator's");

    // A tap of another user.
    namespace.ip("link del sl0");
    namespace.ip("tuntap add dev sl0 mode tap user 12345 vnet_hdr");
    let check = Finished::new(&as_nobody(&fixture, &namespace, &[], &["check", "switch.toml"]).output().unwrap());
    assert!(check.err.contains("opening interface sl0 takes CAP_NET_ADMIN"), "{check:?}");
}

/// The switch uses AF_XDP sockets without capabilities, and leaves an interface as it was, however
/// it ends.
#[test]
fn af_xdp_interfaces_are_as_before_at_the_end() {
    if !has_root_and("af_xdp_interfaces_are_as_before_at_the_end", &["ip", "ethtool"]) {
        return;
    }
    let fixture = Fixture::new();
    let namespace = Namespace::new("xdp");
    namespace.ip("link add nic0 numrxqueues 4 numtxqueues 4 type veth peer name nic1");
    namespace.ip("link set nic0 up");
    namespace.ip("link set nic1 up");
    let output = |program: &str, args: &[&str]| {
        String::from_utf8(namespace.command(program).args(args).output().unwrap().stdout).unwrap()
    };
    let is_as_before = || {
        let link = output("ip", &["-d", "link", "show", "nic0"]);
        let features = output("ethtool", &["-k", "nic0"]);
        !link.contains("xdp") && link.contains("promiscuity 0") && features.contains("rx-vlan-offload: on")
    };
    assert!(is_as_before());
    let config = only("x").replace("none2", "nic0");
    for end in ["TERM", "KILL"] {
        fixture.write(&config);
        let running = in_namespace(&fixture, &namespace);
        comes_up(&fixture, "x");
        let ports = fixture.ask("ports");
        let device = &ports["ports"][0]["device"];
        assert_eq!(
            (&device["mode"], &device["zero_copy"], &device["queues"]),
            (&json!("native"), &json!(false), &json!(4))
        );
        let link = output("ip", &["-d", "link", "show", "nic0"]);
        assert!(link.contains("prog/xdp") && link.contains("promiscuity 1"), "{link}");
        assert!(output("ethtool", &["-k", "nic0"]).contains("rx-vlan-offload: off"));
        assert_eq!(fixture.ask("status")["refused_calls"], 0);
        running.signal(end);
        let done = running.finish();
        assert!(!done.err.contains("refused"), "{done:?}");
        wait_until("the interface is as before", &is_as_before);
    }
}

//! Tests of a switch that was killed with its helper processes, run as the package's service: by a
//! user of its own with the unit's capabilities.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use serde_json::Value;
use straightline_testing::wait_until;

use super::opener::{copy, has_root_and, runs};
use super::run::{CONFIG, Running};
use super::sandbox::exchange;
use super::{Finished, Fixture};

/// The service's user.
const SERVICE: u32 = 65534;

/// The user who runs VMs.
const VMS: u32 = 1;

const UNIT: &str = include_str!("../../../../dist/systemd/straightline.service");

/// A port whose socket is for the user of VMs, and one whose socket is not.
fn config() -> String {
    CONFIG.replace("[port.vm2]", &format!("owner = \"{VMS}\"\n[port.vm2]"))
}

/// Returns a command by the service's user, with the capabilities of the unit. The folder is that
/// user's.
fn as_service(fixture: &Fixture, args: &[&str]) -> Command {
    let program = copy(fixture);
    chown(fixture.path("."), Some(SERVICE), Some(SERVICE)).unwrap();
    fs::set_permissions(fixture.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let names = UNIT.lines().find_map(|line| line.strip_prefix("AmbientCapabilities=")).unwrap();
    let names: Vec<_> =
        names.split(' ').map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase())).collect();
    let names = names.join(",");
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={SERVICE}"), format!("--regid={SERVICE}"), "--clear-groups".to_owned()]);
    command.args([format!("--inh-caps={names}"), format!("--ambient-caps={names}"), "--no-new-privs".to_owned()]);
    command.arg("--").arg(program).args(args).current_dir(fixture.path(".")).env_remove("RUST_LOG");
    command
}

fn execute(fixture: &Fixture, args: &[&str]) -> Finished {
    Finished::new(&as_service(fixture, args).output().unwrap())
}

fn start(fixture: &Fixture) -> Running {
    let mut command = as_service(fixture, &["run", "switch.toml"]);
    command.stderr(Stdio::piped());
    Running::start_as(command)
}

fn status(fixture: &Fixture) -> Value {
    serde_json::from_str(&execute(fixture, &["status", "--json", "--api", "api"]).out).unwrap()
}

/// Kills all processes of the switch at once, as a service manager does.
fn kill(fixture: &Fixture, running: Running) {
    let status = status(fixture);
    let all = status["privileges"].as_array().unwrap();
    let pids: Vec<u64> = all.iter().filter_map(|process| process["pid"].as_u64()).collect();
    assert!(pids.contains(&running.id().into()) && pids.len() > 1, "{status}");
    let texts = pids.iter().map(u64::to_string);
    let killed = Command::new("kill").args(["-s", "KILL"]).args(texts).status().unwrap();
    assert!(killed.success());
    assert_eq!(running.finish().code, None);
    // The other processes have sockets too.
    wait_until("all processes have ended", || !pids.iter().any(|&pid| runs(pid)));
}

/// After a crash, the sockets of other users are there still. The switch may not connect to them,
/// and replaces them all the same.
#[test]
fn sockets_of_other_users_do_not_prevent_the_next_start() {
    if !has_root_and("sockets_of_other_users_do_not_prevent_the_next_start", &["setpriv"]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(&config());
    for _ in 0..2 {
        let running = start(&fixture);
        assert_eq!(fs::metadata(fixture.path("vm1")).unwrap().uid(), VMS);
        exchange(&fixture);
        kill(&fixture, running);
        assert!(fixture.path("vm1").exists(), "the test needs a stale socket");
        let check = execute(&fixture, &["check", "switch.toml"]);
        assert_eq!((check.code, check.out.as_str()), (Some(0), "ok\n"), "{check:?}");
    }

    // A reload takes the path of a stale socket.
    let other = config().replace("vm1", "vm3");
    fixture.write(&other);
    let running = start(&fixture);
    assert!(fixture.path("vm1").exists());
    fixture.write(&format!("{}[port.vm3]\nkind = \"vhost-user\"\nsocket = \"@/vm3\"\nowner = \"{VMS}\"\n", config()));
    let reload = execute(&fixture, &["reload", "--api", "api"]);
    assert_eq!(reload.code, Some(0), "{reload:?}");
    exchange(&fixture);
    assert_eq!(status(&fixture)["refused_calls"], 0);
    kill(&fixture, running);

    // Without owners there is no process that makes sockets, and the stale ones are replaced still.
    fixture.write(CONFIG);
    let running = start(&fixture);
    assert_eq!(fs::metadata(fixture.path("vm1")).unwrap().uid(), SERVICE);
    exchange(&fixture);
    assert_eq!(status(&fixture)["refused_calls"], 0);
    running.signal("TERM");
    let done = running.finish();
    assert!(done.code == Some(0) && !done.err.contains("refused"), "{done:?}");
}

/// A socket that another user's process listens at stays, although the switch may not connect.
#[test]
fn a_live_socket_of_another_user_is_left_alone() {
    if !has_root_and("a_live_socket_of_another_user_is_left_alone", &["setpriv"]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(&config());
    let listener = UnixListener::bind(fixture.path("vm1")).unwrap();
    chown(fixture.path("vm1"), Some(VMS), None).unwrap();
    fs::set_permissions(fixture.path("vm1"), fs::Permissions::from_mode(0o600)).unwrap();
    let inode = fs::metadata(fixture.path("vm1")).unwrap().ino();
    for command in ["check", "run"] {
        let done = execute(&fixture, &[command, "switch.toml"]);
        assert!(done.code == Some(1) && done.err.contains("a running process has it open"), "{done:?}");
    }
    // Also where a reload takes the path, in the sandbox.
    fixture.write(&config().replace("vm1", "vm3"));
    let running = start(&fixture);
    fixture.write(&format!("{}[port.vm3]\nkind = \"vhost-user\"\nsocket = \"@/vm3\"\nowner = \"{VMS}\"\n", config()));
    let reload = execute(&fixture, &["reload", "--api", "api"]);
    assert!(reload.code == Some(1) && reload.err.contains("a running process has it open"), "{reload:?}");
    assert_eq!(fs::metadata(fixture.path("vm1")).unwrap().ino(), inode);
    drop((running, listener));
}

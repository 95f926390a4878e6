use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use straightline_testing::wait_until;

use super::{Finished, Fixture, our_uid};

pub(super) const CONFIG: &str = "\
[switch]
api = \"@/api\"
[port.vm1]
kind = \"vhost-user\"
socket = \"@/vm1\"
[port.vm2]
kind = \"vhost-user\"
socket = \"@/vm2\"
[patch.a]
ports = [\"vm1\", \"vm2\"]
";

/// Running switch. It is killed if the test fails.
pub(crate) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    /// Starts the switch and waits until it is ready.
    pub(crate) fn start(fixture: &Fixture) -> Self {
        let mut command = fixture.command(&["run", "switch.toml"]);
        command.stderr(Stdio::piped());
        Self::start_as(command)
    }

    /// Starts the switch by this command and waits until it is ready. The caller sets standard
    /// error.
    pub(crate) fn start_as(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, out }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end of the switch.
    pub(crate) fn finish(mut self) -> Finished {
        let status = wait_until("the switch ends", || self.child.try_wait().unwrap());
        let mut out = String::new();
        let mut err = String::new();
        self.out.read_to_string(&mut out).unwrap();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut err).unwrap();
        }
        Finished { code: status.code(), out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ready_means_that_all_sockets_listen_and_sigterm_ends_it() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    for signal in ["TERM", "INT"] {
        let running = Running::start(&fixture);
        for socket in ["api", "vm1", "vm2"] {
            UnixStream::connect(fixture.path(socket)).unwrap();
        }
        running.signal(signal);
        let done = running.finish();
        assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
        for socket in ["api", "vm1", "vm2"] {
            assert!(!fixture.path(socket).exists(), "{socket} is left");
        }
    }
}

#[test]
fn it_answers() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    for command in ["status", "ports", "fdb", "neighbours", "runtime", "drops"] {
        for json in [&[][..], &["--json"]] {
            let done = fixture.execute(&[&[command, "--api", "api"], json].concat());
            assert_eq!(done.code, Some(0), "{done:?}");
            assert!(!done.out.is_empty());
        }
    }
    let ports: serde_json::Value =
        serde_json::from_str(&fixture.execute(&["ports", "--json", "--api", "api"]).out).unwrap();
    let names: Vec<_> = (0..2).map(|index| ports["ports"][index]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["vm1", "vm2"]);
    assert_eq!(ports["ports"][0]["link"], "down");
    for port in 0..2 {
        assert_eq!(ports["ports"][port]["joined"], serde_json::json!({"kind": "patch", "name": "a"}));
    }
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn a_bad_file_or_a_taken_socket_starts_nothing() {
    let fixture = Fixture::new();
    fixture.write(&format!("{CONFIG}full = 3\n"));
    let done = fixture.execute(&["run", "switch.toml"]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
    assert!(done.err.contains("error: switch.toml:11: full in patch \"a\" is an integer"), "{done:?}");
    assert!(!fixture.path("vm1").exists());

    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    let second = fixture.execute(&["run", "switch.toml"]);
    assert_eq!((second.code, second.out.as_str()), (Some(1), ""), "{second:?}");
    for line in [2, 5, 8] {
        assert!(second.err.contains(&format!("error: switch.toml:{line}: socket")), "{second:?}");
    }
    assert!(fixture.path("vm1").exists(), "the first one's sockets are left alone");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn a_socket_is_for_whom_the_configuration_says() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let fixture = Fixture::new();
    // An unprivileged user can give sockets only to groups that the user belongs to. Root can give
    // them to any group.
    let (owner, uid) = if our_uid() == 0 { ("owner = \"1\"\n", 1) } else { ("", our_uid()) };
    fixture.write(&CONFIG.replace("[port.vm2]", &format!("perms = \"0640\"\n{owner}[port.vm2]")));
    let running = Running::start(&fixture);
    let mode_of = |name: &str| {
        let file = std::fs::metadata(fixture.path(name)).unwrap();
        (file.permissions().mode() & 0o777, file.uid())
    };
    assert_eq!(mode_of("vm1"), (0o640, uid));
    assert_eq!(mode_of("vm2").0, 0o600);
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn the_limit_of_descriptors_is_raised_and_what_is_left_is_told() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let mut command = fixture.command(&[]);
    let program = command.get_program().to_owned();
    command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 64; exec \"$0\" run switch.toml"]).arg(program);
    command.current_dir(fixture.path(".")).env_remove("RUST_LOG").stderr(Stdio::piped());
    let running = Running::start_as(command);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|at| line.split_whitespace().nth(at).unwrap().parse::<usize>().unwrap());
    assert!(soft == hard && hard > 64, "{line}");
    let open = || std::fs::read_dir(format!("/proc/{}/fd", running.id())).unwrap().count();
    // A switch that has just started may close some. One descriptor more: the API connection of this query
    // is open when the switch answers.
    wait_until("the number of free descriptors is the limit less those that are open", || {
        let expected = soft - (open() + 1);
        let told = fixture.ask("status")["fds_free"].clone();
        if told == expected { Ok(()) } else { Err(format!("{told}, not {expected}")) }
    });
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

//! A network namespace for tests, which ends with its test.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Set in the process that runs a test inside its namespace.
const INSIDE: &str = "STRAIGHTLINE_TEST_INSIDE_NAMESPACE";

/// Runs `body` in a network namespace of its own: in a process that runs only `test`, whose full
/// name this is. Where no namespace can be made, the test is skipped and says so.
pub(super) fn run(test: &str, body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let is_root = rustix::process::geteuid().is_root();
    let kinds: &[&str] = if is_root { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(kinds).stdin(Stdio::null());
        command
    };
    let possible = unshare().args(["ip", "link"]).output().is_ok_and(|output| output.status.success());
    if !possible {
        let why = "it needs a network namespace, and the programs `unshare` and `ip`";
        let _ = writeln!(std::io::stdout(), "\nskipped {test}: {why}");
        return;
    }
    let own = std::env::current_exe().expect("the path of this program");
    let output = unshare().arg(own).args(["--exact", test, "--nocapture"]).env(INSIDE, "1").output().expect("unshare");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "no test is called {test}: {text}");
}

/// Runs `ip` with these words.
pub(super) fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

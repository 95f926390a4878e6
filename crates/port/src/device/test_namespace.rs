//! A network namespace for tests, which ends with its test.

use std::io::Write as _;
use std::process::Command;

use rustix::thread::UnshareFlags;

/// Moves this thread into a network namespace of its own. Threads and processes that it starts
/// share the namespace. Returns `false` and reports a skip if the thread may not do that.
#[must_use]
pub(crate) fn enter(test: &str) -> bool {
    #[expect(deprecated, reason = "a thread may have a network namespace of its own")]
    let entered = rustix::thread::unshare(UnshareFlags::NEWNET);
    if let Err(error) = entered {
        let _ = writeln!(std::io::stdout(), "\nskipped {test}: it needs a network namespace of its own: {error}");
        return false;
    }
    true
}

/// Runs `ip` with these words, which must succeed.
pub(crate) fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

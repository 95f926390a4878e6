//! A network namespace for tests, which ends with its test.

use std::io::Write as _;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::thread::UnshareFlags;

/// Held by the test that is in a namespace.
///
/// Only such tests start processes. A new process has copies of all descriptors until it calls
/// exec. So the descriptors that one test closes would stay open in the process of another.
static ENTERED: Mutex<()> = Mutex::new(());

/// Keeps all other tests out of namespaces of their own.
pub(crate) struct Namespace {
    _entered: MutexGuard<'static, ()>,
}

/// Moves this thread into a network namespace of its own. Threads and processes that it starts
/// share the namespace. Returns `None` and reports a skip if the thread may not do that.
#[must_use]
pub(crate) fn enter(test: &str) -> Option<Namespace> {
    let entered = ENTERED.lock().unwrap_or_else(PoisonError::into_inner);
    #[expect(deprecated, reason = "a thread may have a network namespace of its own")]
    if let Err(error) = rustix::thread::unshare(UnshareFlags::NEWNET) {
        let _ = writeln!(std::io::stdout(), "\nskipped {test}: it needs a network namespace of its own: {error}");
        return None;
    }
    Some(Namespace { _entered: entered })
}

/// Runs a program, which must succeed. Returns what it prints.
pub(crate) fn run(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap_or_default()).args(words).output().expect("the command exists");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `ip` with these words, which must succeed.
pub(crate) fn ip(words: &str) {
    run(&format!("ip {words}"));
}

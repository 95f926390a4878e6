//! Threads that have to wait in the kernel before a test goes on.

use std::fs;
use std::path::{Path, PathBuf};

use crate::wait_until;

/// A thread of this process, as the kernel shows it.
#[derive(Clone, Debug)]
pub struct KernelThread(PathBuf);

impl KernelThread {
    /// Returns the thread that calls.
    ///
    /// # Panics
    /// Panics if /proc is not there.
    #[must_use]
    pub fn current() -> Self {
        Self(Path::new("/proc").join(fs::read_link("/proc/thread-self").expect("/proc")))
    }

    /// Waits until the thread waits in the kernel: for a descriptor, a lock or a time. A thread that has no
    /// CPU does not wait there.
    ///
    /// # Panics
    /// Panics with `what` if the thread does not.
    #[track_caller]
    pub fn wait_until_blocked(&self, what: &str) {
        wait_until(what, || {
            let stat = fs::read_to_string(self.0.join("stat")).map_err(|error| error.to_string())?;
            // The name in parentheses may have any characters.
            let (_, state) = stat.rsplit_once(") ").ok_or_else(|| stat.clone())?;
            if state.starts_with('S') { Ok(()) } else { Err(stat) }
        });
    }
}

//! What the trials of an experiment have in common.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::cpus::{two_cpus, used, warning};

/// What the trials of an experiment have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The CPU of the guest, and that of the switch.
    pub cpus: [usize; 2],
    /// How long a trial runs before it is measured.
    pub warm_up: Duration,
    /// How long it is measured.
    pub time: Duration,
    /// Ends everything as soon as it is set.
    pub stop: Arc<AtomicBool>,
    /// The bound, where there is one.
    pub bound: Option<Bound>,
}

/// A build of this program that copies no packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Where it is.
    pub program: PathBuf,
    /// What it says of itself.
    pub version: String,
}

impl Settings {
    /// On the first CPU that this process may use, and one of another core; with short trials where it is to be quick.
    ///
    /// # Errors
    /// There are fewer than two.
    pub fn new(quick: bool) -> anyhow::Result<Settings> {
        let (warm_up, time) = if quick { (100, 300) } else { (300, 1000) };
        Ok(Settings {
            cpus: two_cpus()?,
            warm_up: Duration::from_millis(warm_up),
            time: Duration::from_millis(time),
            stop: Arc::default(),
            bound: None,
        })
    }

    /// The CPUs, as results have them ([`crate::results::Environment::used_cpus`]).
    #[must_use]
    pub fn used_cpus(&self) -> BTreeMap<String, String> {
        used(self.cpus)
    }

    /// What has to be known of the CPUs before any figure is believed.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        warning(self.cpus)
    }

    /// Whether it is to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Bound {
    /// This program, if it is one.
    ///
    /// # Errors
    /// It is not, or cannot be run.
    pub fn new(program: &Path) -> anyhow::Result<Bound> {
        let shown = program.display();
        let output = Command::new(program).arg("--version").output().with_context(|| format!("cannot run {shown}"))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(
            version.contains("bench-no-copies"),
            "{shown} is no bound: it copies packets, or is another program. One that copies none comes from \
             `cargo build --release -p straightline --features bench-no-copies --target-dir target/bare`"
        );
        Ok(Bound { program: program.to_owned(), version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_copies_nothing() {
        let other = Bound::new(Path::new("/bin/true")).expect_err("another program").to_string();
        assert!(other.contains("--features bench-no-copies"), "{other}");
        assert!(Bound::new(Path::new("/nonexistent/p")).expect_err("none").to_string().contains("/nonexistent/p"));
    }
}

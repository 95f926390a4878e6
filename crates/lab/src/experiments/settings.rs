//! Settings of all trials of an experiment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::machine::{two_cpus, used, warning};
use crate::rounds::Stop;
use crate::traffic::Counted;

/// Settings of all trials of an experiment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The CPU of the guest, and the CPU of the switch.
    pub cpus: [usize; 2],
    /// Duration of the traffic before the measurement.
    pub warm_up: Duration,
    /// Measured time.
    pub time: Duration,
    /// A flag that ends everything as soon as it is set.
    pub stop: Arc<AtomicBool>,
    /// The longest round trip of a line between the CPUs in a valid trial, in nanoseconds, if it
    /// matters.
    pub near_ns: Option<f64>,
    /// The bound, if there is one.
    pub bound: Option<Bound>,
    /// The packets that end each measurement in place of its time, if they do.
    pub counted: Option<Counted>,
}

/// A build of this program that copies no packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its path.
    pub program: PathBuf,
    /// Its version.
    pub version: String,
}

impl Settings {
    /// Makes settings. The guest gets the first CPU that this process may use; the switch gets a
    /// CPU of another core. Trials are short if `quick` is set.
    ///
    /// # Errors
    /// There are fewer than two CPUs.
    pub fn new(quick: bool) -> anyhow::Result<Settings> {
        let (warm_up, time) = if quick { (100, 300) } else { (300, 1000) };
        Ok(Settings {
            cpus: two_cpus()?,
            warm_up: Duration::from_millis(warm_up),
            time: Duration::from_millis(time),
            stop: Arc::default(),
            near_ns: None,
            bound: None,
            counted: None,
        })
    }

    /// Returns the CPUs in the form that results have ([`straightline_report::results::Environment::used_cpus`]).
    #[must_use]
    pub fn used_cpus(&self) -> BTreeMap<String, String> {
        used(self.cpus)
    }

    /// Returns what users must know about the CPUs before they trust results.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        warning(self.cpus)
    }
}

impl Stop for Settings {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Bound {
    /// Makes the bound, after checking that the program copies no packets.
    ///
    /// # Errors
    /// The program copies packets, or cannot be run.
    pub fn new(program: &Path) -> anyhow::Result<Bound> {
        let shown = program.display();
        let output = Command::new(program).arg("--version").output().with_context(|| format!("cannot run {shown}"))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(
            version.contains("bench-no-copies"),
            "{shown} is no bound: it copies packets, or is another program: build one with `cargo build --release -p \
             straightline --features bench-no-copies --target-dir target/bare`"
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

//! What the trials of an experiment have in common.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity};

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
    /// A build of this program that copies no packet: the bound.
    pub bound: Option<PathBuf>,
}

impl Settings {
    /// On the first two CPUs that this process may use; with short trials where it is to be quick.
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

    /// Whether it is to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The CPUs that this process may use.
pub(crate) fn usable_cpus() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot ask on which CPUs this process may run")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// One for a guest and one for a switch.
pub(crate) fn two_cpus() -> anyhow::Result<[usize; 2]> {
    two(&usable_cpus()?)
}

fn two(usable: &[usize]) -> anyhow::Result<[usize; 2]> {
    match usable {
        [first, second, ..] => Ok([*first, *second]),
        _ => anyhow::bail!(
            "two CPUs are needed, one for the switch and one for its guest, and this process may run on {} only: \
             give it two (`taskset -c 0,1`, the container's or the virtual machine's CPUs)",
            usable.first().map_or_else(|| "none".to_owned(), |cpu| format!("CPU {cpu}"))
        ),
    }
}

/// Whether a program is one of ours that copies no packet.
///
/// # Errors
/// It is not, or cannot be run.
pub fn check_bound(program: &Path) -> anyhow::Result<()> {
    let shown = program.display();
    let output = Command::new(program).arg("--version").output().with_context(|| format!("cannot run {shown}"))?;
    ensure!(
        String::from_utf8_lossy(&output.stdout).contains("bench-no-copies"),
        "{shown} is no bound: it copies packets, or is another program. One that copies none comes from \
         `cargo build --release -p straightline --features bench-no-copies --target-dir target/bare`"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_cpus_are_an_error_that_helps() {
        assert_eq!(two(&[3, 5, 7]).expect("two"), [3, 5]);
        let one = two(&[4]).expect_err("one").to_string();
        assert!(one.contains("CPU 4 only") && one.contains("taskset"), "{one}");
        assert!(two(&[]).expect_err("none").to_string().contains("none only"));
    }

    #[test]
    fn a_bound_copies_nothing() {
        let other = check_bound(Path::new("/bin/true")).expect_err("another program").to_string();
        assert!(other.contains("--features bench-no-copies"), "{other}");
        assert!(check_bound(Path::new("/nonexistent/p")).expect_err("none").to_string().contains("/nonexistent/p"));
    }
}

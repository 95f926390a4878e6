//! The kernel's side of a device port alone (`kernel_side.c`): the bound, and the other end of
//! packets: interfaces that drop them or send them back, and a source.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::lab::Lab;
use crate::measure::compile;
use crate::net::Namespace;
use crate::proc::{PATIENCE, Proc};

/// The compiled program.
pub(crate) struct KernelSide {
    program: PathBuf,
}

/// A run that measures. It has opened its interface.
pub(crate) struct KernelRun {
    proc: Proc,
}

/// The results of a run.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct KernelReport {
    /// Million packets a second.
    pub(crate) mpps: f64,
    #[serde(default)]
    pub(super) gbit_per_s: f64,
    pub(crate) packets: f64,
    /// Nanoseconds a packet of system calls (and copies to AF_XDP frames) that send.
    #[serde(default)]
    pub(super) out_ns: f64,
    /// Nanoseconds a packet of system calls that receive.
    #[serde(default)]
    pub(super) in_ns: f64,
    /// Cycles a packet of a node by reference.
    #[serde(default)]
    pub(super) node_cycles: f64,
}

/// Interfaces that drop what arrives, or send it back.
pub(super) struct OtherEnd {
    proc: Proc,
}

/// The packets that have arrived at an interface until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    nanoseconds: u64,
    packets: u64,
    bytes: u64,
}

impl Arrived {
    /// Returns million packets and gigabits a second since an earlier time.
    #[expect(clippy::cast_precision_loss, reason = "values for people")]
    pub(super) fn rates_since(self, then: Self) -> (f64, f64) {
        let time = (self.nanoseconds - then.nanoseconds).max(1) as f64;
        ((self.packets - then.packets) as f64 * 1e3 / time, (self.bytes - then.bytes) as f64 * 8.0 / time)
    }
}

impl KernelSide {
    /// Compiles the program into a folder.
    pub(crate) fn build(folder: &Path) -> Result<Self> {
        Ok(Self { program: compile(folder, "devices/kernel_side.c", "")? })
    }

    /// Starts a run on a CPU, and waits until it has opened its interface.
    pub(crate) fn open(&self, lab: &Lab, namespace: &Namespace, cpu: u32, args: &[&str]) -> Result<KernelRun> {
        let mut command = namespace.command("taskset");
        command.args(["-c", &cpu.to_string()]).arg(&self.program).args(args);
        let name = args.first().context("no command")?;
        let mut proc = Proc::start(name, command, &lab.log(name))?;
        wait_line(&mut proc, "open")?;
        Ok(KernelRun { proc })
    }

    /// Starts the other end.
    pub(super) fn other_end(&self, lab: &Lab, namespace: &Namespace, args: &[&str]) -> Result<OtherEnd> {
        let mut command: Command = namespace.command(&self.program);
        command.args(args);
        let mut proc = Proc::start("the other end", command, &lab.log("other-end"))?;
        wait_line(&mut proc, "ready")?;
        Ok(OtherEnd { proc })
    }
}

impl KernelRun {
    /// Begins the measured time.
    pub(crate) fn go(&mut self) -> Result<()> {
        self.proc.send_line("go")
    }

    /// Waits for the end of the measured time, and returns the results.
    pub(crate) fn end(mut self, time: Duration) -> Result<KernelReport> {
        let line = |text: &str| text.lines().find(|line| line.starts_with('{')).map(str::to_owned);
        let line = self.proc.wait_text_within(time + PATIENCE, "its report", 0, line);
        let line = line.with_context(|| self.proc.texts().1.trim().to_owned())?;
        serde_json::from_str(&line).with_context(|| format!("kernel_side wrote {line}"))
    }
}

impl OtherEnd {
    /// Returns what has arrived at the first interface.
    pub(super) fn arrived(&mut self) -> Result<Arrived> {
        let mark = self.proc.mark();
        self.proc.send_line("")?;
        let read = |text: &str| {
            let (line, _) = text.split_once('\n')?;
            let mut numbers = line.split(' ').flat_map(str::parse);
            Some([numbers.next()?, numbers.next()?, numbers.next()?])
        };
        let [nanoseconds, packets, bytes] = self.proc.wait_text("its counts", mark, read)?;
        Ok(Arrived { nanoseconds, packets, bytes })
    }
}

fn wait_line(proc: &mut Proc, wanted: &str) -> Result<()> {
    let find_line = |text: &str| text.lines().any(|line| line == wanted).then_some(());
    let came = proc.wait_text(&format!("its `{wanted}`"), 0, find_line);
    came.with_context(|| proc.texts().1.trim().to_owned())?;
    // The other end may be gone by then, for example because an interface does not exist.
    ensure!(proc.ended()?.is_none(), "it ended: {}", proc.texts().1.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_compiles_and_refuses_what_it_does_not_know() {
        let folder = tempfile::tempdir().expect("a folder");
        let side = KernelSide::build(folder.path()).expect("it compiles");
        for args in [&["fly"][..], &["tap-out", "a"], &["redirect", "a", "b", "c"]] {
            let status = Command::new(&side.program).args(args).output().expect("it runs").status;
            assert_eq!(status.code(), Some(2), "{args:?}");
        }
        let none = Command::new(&side.program).args(["drop", "no-such-if"]).output().expect("it runs");
        let said = String::from_utf8_lossy(&none.stderr).into_owned();
        assert!(none.status.code() == Some(1) && said.contains("no-such-if: No such device"), "{said}");
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let then = Arrived { nanoseconds: 1_000, packets: 10, bytes: 0 };
        let now = Arrived { nanoseconds: 2_001_000, packets: 4010, bytes: 250_000 };
        assert_eq!(now.rates_since(then), (2.0, 1.0));
    }
}

//! The bound: a switch that copies no packets. No configuration turns copies off, so the bound is a
//! separate build of this program, and runs as a process of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use straightline_switch::api;

use super::bench::{TrafficPath, measure, options, sockets};
use super::settings::{Bound, Settings};
use crate::guests::reflector::ReflectorOptions;
use crate::rounds::Measured;
use crate::testbed::MTU;

/// Time limit for the process to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);

/// Measures as [`super::bench()`], with `PROGRAM run` as the switch. Returned packets are not
/// compared with sent ones, because the bound does not copy their bytes.
///
/// # Errors
/// The trial is not valid.
pub(super) fn bench(
    settings: &Settings,
    traffic: TrafficPath,
    bound: &Bound,
    choose: impl FnOnce(&mut ReflectorOptions),
) -> anyhow::Result<Measured> {
    let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
    let sockets = sockets(folder.path());
    let file = folder.path().join("switch.toml");
    let socket = folder.path().join("api");
    let text = configuration(settings.cpus[1], &socket, &sockets[..traffic.ports()]);
    fs::write(&file, text).context("cannot write a configuration")?;
    let _running = Running::start(&bound.program, &file)?;
    let mut options = options(settings, traffic, &sockets);
    choose(&mut options);
    options.verify = false;
    let measured = measure(traffic, &options, &sockets, &|| Ok(api::ask(&socket)?))?;
    Ok(Measured { peer: Some(("bound", bound.version.clone())), ..measured })
}

/// Returns the configuration of [`crate::testbed::patched`] as text, for another program.
fn configuration(cpu: usize, api: &Path, sockets: &[PathBuf]) -> String {
    let mut text = format!("[switch]\nworkers = [{cpu}]\nidle = \"spin\"\napi = {api:?}\n");
    for (at, socket) in sockets.iter().enumerate() {
        text += &format!("[port.p{at}]\nkind = \"vhost-user\"\nsocket = {socket:?}\nmtu = {MTU}\n");
        if at % 2 == 1 {
            text += &format!("[patch.patch{at}]\nports = [\"p{}\", \"p{at}\"]\n", at - 1);
        }
    }
    text
}

/// A running process. Dropping this value ends the process.
struct Running(Child);

impl Running {
    fn start(program: &Path, config: &Path) -> anyhow::Result<Running> {
        let mut command = Command::new(program);
        let command = command.arg("run").arg(config).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running(command.spawn().with_context(|| format!("cannot run {}", program.display()))?);
        let output = running.0.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(
            line == "ready\n",
            "{} did not print `ready` with the configuration {}",
            program.display(),
            config.display()
        );
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // An error means that the process has ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let end = Instant::now() + PATIENCE;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! Running programs, and where the workspace lies.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The workspace's folder.
pub(crate) fn root() -> Result<PathBuf> {
    // `cargo run` sets it; the program is not meant to be run in another way.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").context("run it as `cargo xtask`")?;
    Ok(Path::new(&xtask).parent().context("xtask lies in the workspace")?.to_owned())
}

/// Where cargo builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root.join(set.unwrap_or_else(|| "target".into()))
}

/// The cargo that runs us.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Says what it runs, runs it, and tells whether it succeeded.
pub(crate) fn passes(command: &mut Command) -> Result<bool> {
    say(command);
    let status = command.stdin(Stdio::null()).status();
    Ok(status.with_context(|| format!("cannot start {command:?}"))?.success())
}

/// The same, where failure is an error.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    if !passes(command)? {
        bail!("{} failed", words(command));
    }
    Ok(())
}

/// Runs a command, and shows those lines of its standard output of which `shown` says so.
pub(crate) fn passes_shown(command: &mut Command, mut shown: impl FnMut(&str) -> bool) -> Result<bool> {
    say(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let lines = BufReader::new(child.stdout.take().context("standard output")?).split(b'\n');
    for line in lines {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if shown(&line) {
            println!("{line}");
        }
    }
    Ok(child.wait()?.success())
}

/// What a command writes; an error where it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{} failed: {}", words(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn say(command: &Command) {
    println!("+ {}", words(command));
}

fn words(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let mut words = vec![program.to_string_lossy()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy()));
    words.join(" ")
}

//! Programs that xtask runs, and the folders of the workspace.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::times;

/// Returns the folder of the workspace.
pub(crate) fn root() -> Result<PathBuf> {
    // `cargo run` sets the variable; there is no other supported way to run the program.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set: run this program as `cargo xtask`")?;
    Ok(Path::new(&xtask).parent().context("the folder of xtask has no parent")?.to_owned())
}

/// Returns the folder in which cargo builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root.join(set.unwrap_or_else(|| "target".into()))
}

/// Returns a command for the cargo that started this program.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Returns such a command that lints the crates of the workspace while it builds them. Clippy's driver
/// is the compiler with more lints, so the lints need no pass of their own. Any warning is an error.
pub(crate) fn linting_cargo(root: &Path) -> Command {
    let mut command = cargo(root);
    // The form in which `cargo clippy` hands its arguments to the driver.
    let arguments = ["-D", "warnings", ""].join("__CLIPPY_HACKERY__");
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").env("CLIPPY_ARGS", arguments);
    command
}

/// Returns a command for a program that takes only the time that no other one wants.
fn idle(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program);
    command
}

/// Returns such a command for cargo.
pub(crate) fn idle_cargo(root: &Path) -> Command {
    let mut command = idle(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Prints a command, runs it, and returns whether it succeeded.
pub(crate) fn passes(command: &mut Command) -> Result<bool> {
    say(command);
    let began = Instant::now();
    let status = command.stdin(Stdio::null()).status();
    times::note_step(began, words(command));
    Ok(status.with_context(|| format!("cannot start {command:?}"))?.success())
}

/// Prints and runs a command whose failure is an error.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    if !passes(command)? {
        bail!("{} failed", words(command));
    }
    Ok(())
}

/// Prints and runs a command. Prints what `shown` makes of each line of its standard output, if
/// anything.
pub(crate) fn passes_shown(
    command: &mut Command,
    mut shown: impl for<'a> FnMut(&'a str) -> Option<&'a str>,
) -> Result<bool> {
    say(command);
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let lines = BufReader::new(child.stdout.take().context("standard output")?).split(b'\n');
    for line in lines {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(line) = shown(&line) {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    times::note_step(began, words(command));
    Ok(status.success())
}

/// Returns a command's standard output, or an error if it fails.
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

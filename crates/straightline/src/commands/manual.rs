//! `straightline completions SHELL`, and `straightline man FOLDER` for packages.

mod keys;

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::cli::Cli;
use crate::{complete, output};

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&name).with_context(|| format!("nothing is known about {name}"))?;
    let mut text = Vec::new();
    completer.write_registration(complete::VARIABLE, "straightline", "straightline", "straightline", &mut text)?;
    output::answer(&String::from_utf8(text).context("clap_complete wrote something else than UTF-8")?)
}

/// Writes a manual page for each command, and one of the configuration file, into `folder`.
pub(crate) fn man(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let cannot_write = || format!("cannot write to {}", folder.display());
    clap_mangen::generate_to(Cli::command(), folder).with_context(cannot_write)?;
    fs::write(folder.join("straightline.toml.5"), keys::page()).with_context(cannot_write)
}

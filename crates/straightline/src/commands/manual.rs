//! `straightline completions SHELL`, and `straightline man FOLDER` for packages.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "straightline", &mut text);
    output::answer(&String::from_utf8(text).context("clap_complete wrote something else than UTF-8")?)
}

/// Writes a manual page for each command into `folder`.
pub(crate) fn man(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(|| format!("cannot write to {}", folder.display()))
}

//! Programs in C that are compiled at run time, for the machine that measures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::proc;

/// Compiles `source`, a file of this crate, for this machine. The program is in `folder`, with the
/// name of the file. `flags` follow the source.
pub(crate) fn compile(folder: &Path, source: &str, flags: &str) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(source);
    let name = source.file_stem().context("the source has no name")?;
    let program = folder.join(name);
    // Another run may execute the program now.
    let new = folder.join(format!("{}-{}", name.display(), std::process::id()));
    let mut compile = Command::new("cc");
    // The last `-march` option takes effect. The flags of DPDK have one for the oldest machine that
    // DPDK supports.
    compile.args(["-O3", "-Wall", "-Wextra", "-o"]).arg(&new).arg(source).args(flags.split_whitespace());
    output_of(compile.arg("-march=native"))?;
    fs::rename(&new, &program)?;
    Ok(program)
}

/// Runs a short command that must succeed, and returns its standard output.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    output_within(command, Duration::from_secs(60))
}

/// Runs a command that loads or builds something.
pub(crate) fn long_output_of(command: &mut Command) -> Result<String> {
    output_within(command, Duration::from_secs(3600))
}

fn output_within(command: &mut Command, limit: Duration) -> Result<String> {
    let (code, out, err) = proc::run_within(limit, command)?;
    if code != Some(0) {
        bail!("{command:?} ended with {code:?}: {}{}", out.trim(), err.trim());
    }
    Ok(out)
}

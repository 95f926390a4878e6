//! `straightline check CONFIG`

use std::path::Path;

use straightline_switch::config::{Config, Diagnostic, Kinds, Loaded};

use crate::output::{self, Reported};

/// Prints `ok`, or every error in the file.
pub(crate) fn execute(path: &Path, kinds: &Kinds) -> anyhow::Result<()> {
    let loaded = load(path, kinds)?;
    // Another user may run the switch, or a service with capabilities.
    if let Some(missing) = loaded.missing_privileges() {
        output::message("warning", &missing);
    }
    output::answer("ok\n")
}

/// Loads the configuration file `path` for a switch of this process. Prints its errors and
/// warnings. Missing privileges are an error.
pub(crate) fn load_to_run(path: &Path, kinds: &Kinds) -> anyhow::Result<Config> {
    let loaded = load(path, kinds)?;
    match loaded.missing_privileges() {
        Some(missing) => Err(report(&[missing])),
        None => Ok(loaded.config),
    }
}

fn load(path: &Path, kinds: &Kinds) -> anyhow::Result<Loaded> {
    let loaded = Config::load_with(path, kinds).map_err(|errors| report(&errors.0))?;
    for warning in &loaded.warnings {
        output::message("warning", warning);
    }
    if cfg!(feature = "bench-no-copies") {
        output::message("warning", &format_args!("this is straightline {}", straightline_switch::VERSION));
    }
    let taken = loaded.taken_sockets();
    if !taken.is_empty() {
        return Err(report(&taken));
    }
    Ok(loaded)
}

fn report(errors: &[Diagnostic]) -> anyhow::Error {
    for error in errors {
        output::message("error", error);
    }
    Reported.into()
}

//! `straightline check CONFIG`

use std::path::Path;

use straightline_switch::config::{Config, Diagnostic, Kinds};

use crate::output::{self, Reported};

/// Prints `ok`, or every error in the file.
pub(crate) fn execute(path: &Path, kinds: &Kinds) -> anyhow::Result<()> {
    load(path, kinds)?;
    output::answer("ok\n")
}

/// Loads the configuration file `path`. Prints its errors and warnings.
pub(crate) fn load(path: &Path, kinds: &Kinds) -> anyhow::Result<Config> {
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
    Ok(loaded.config)
}

fn report(errors: &[Diagnostic]) -> anyhow::Error {
    for error in errors {
        output::message("error", error);
    }
    Reported.into()
}

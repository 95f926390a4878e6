//! `straightline check CONFIG`, `straightline check --explain KEY`, `straightline check --schema`

use std::path::Path;

use straightline_switch::config::{Config, Diagnostic, Explanation, Kinds, Loaded};
use straightline_switch::descriptor_shortage;

use super::running::Running;
use crate::cli::Check;
use crate::output::{self, Reported};

/// Checks a file, explains keys, or prints the schema.
pub(crate) fn execute(args: &Check, kinds: &Kinds) -> anyhow::Result<()> {
    if args.schema {
        let schema = straightline_switch::config::schema(kinds);
        return output::answer(&format!("{schema:#}\n"));
    }
    match (&args.explain, &args.config) {
        (Some(query), _) => explain(query, args.json),
        (None, Some(path)) => check(path, kinds),
        (None, None) => anyhow::bail!("name a configuration file"),
    }
}

/// Prints the keys that `query` names.
fn explain(query: &str, json: bool) -> anyhow::Result<()> {
    let found = straightline_switch::config::explain(query)?;
    if json {
        let keys: Vec<_> = found.iter().map(Explanation::to_json).collect();
        return output::answer(&format!("{}\n", serde_json::json!({ "keys": keys })));
    }
    let texts: Vec<_> = found.iter().map(Explanation::to_string).collect();
    output::answer(&texts.join("\n"))
}

/// Prints `ok`, or every error in the file.
fn check(path: &Path, kinds: &Kinds) -> anyhow::Result<()> {
    let loaded = load(path, kinds)?;
    // The file may be meant for the switch that runs, which has its sockets already.
    let running = Running::new(path, &loaded.config);
    are_free(&loaded.taken_sockets_unless(|socket| running.listens_at(socket)))?;
    // Another user may run the switch, or a service with capabilities.
    if let Some(missing) = loaded.missing_privileges() {
        output::message("warning", &missing);
    }
    if let Some(shortage) = descriptor_shortage(&loaded.config) {
        output::message("warning", &shortage);
    }
    output::answer("ok\n")
}

/// Loads the configuration file `path` for a switch of this process. Prints its errors and
/// warnings. Missing privileges are an error.
pub(crate) fn load_to_run(path: &Path, kinds: &Kinds) -> anyhow::Result<Loaded> {
    let loaded = load(path, kinds)?;
    are_free(&loaded.taken_sockets())?;
    match loaded.missing_privileges() {
        Some(missing) => Err(report(&[missing])),
        None => Ok(loaded),
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
    Ok(loaded)
}

fn are_free(taken: &[Diagnostic]) -> anyhow::Result<()> {
    if taken.is_empty() { Ok(()) } else { Err(report(taken)) }
}

fn report(errors: &[Diagnostic]) -> anyhow::Error {
    for error in errors {
        output::message("error", error);
    }
    Reported.into()
}

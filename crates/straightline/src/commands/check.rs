//! `straightline check CONFIG`, `straightline check --explain KEY`, `straightline check --schema`

use std::iter;
use std::path::Path;

use straightline_config::{Config, Diagnostic, Explanation, Interfaces, Kinds, Loaded, NumaNodes};
use straightline_switch::{descriptor_shortage, flow_accesses};

use super::running::Running;
use crate::cli::Check;
use crate::output::{self, Reported};

/// Checks a file, explains keys, or prints the schema.
pub(crate) fn execute(args: &Check, kinds: &Kinds) -> anyhow::Result<()> {
    if args.schema {
        let schema = straightline_config::schema(kinds);
        return output::answer(&format!("{schema:#}\n"));
    }
    match (&args.explain, &args.config) {
        (Some(query), _) => explain(query, args.json),
        (None, Some(path)) if args.json => check_json(path, kinds),
        (None, Some(path)) => check(path, kinds),
        (None, None) => anyhow::bail!("name a configuration file"),
    }
}

/// Prints the keys that `query` names.
fn explain(query: &str, json: bool) -> anyhow::Result<()> {
    let found = straightline_config::explain(query)?;
    if json {
        let keys: Vec<_> = found.iter().map(Explanation::to_json).collect();
        return output::answer(&format!("{}\n", serde_json::json!({ "keys": keys })));
    }
    let texts: Vec<_> = found.iter().map(Explanation::to_string).collect();
    output::answer(&texts.join("\n"))
}

/// Prints `ok`, or every error and warning about the file, and the bounds of flow tables. On a machine with
/// several NUMA nodes it also prints where workers and interfaces are.
fn check(path: &Path, kinds: &Kinds) -> anyhow::Result<()> {
    let found = find(path, kinds);
    for warning in &found.warnings {
        output::message("warning", warning);
    }
    if !found.errors.is_empty() {
        return Err(report(&found.errors));
    }
    let verdict = match found.warnings.len() {
        0 => "ok".to_owned(),
        1 => "no errors, 1 warning".to_owned(),
        count => format!("no errors, {count} warnings"),
    };
    let bound = |(bridge, accesses): (String, usize)| {
        format!("bridge {bridge:?}: the search in a flow table takes at most {accesses} reads of memory")
    };
    let bounds = found.flow_accesses.into_iter().map(bound);
    let lines: Vec<_> = iter::once(verdict).chain(bounds).chain(found.places).map(|line| line + "\n").collect();
    output::answer(&lines.concat())
}

/// Prints the findings as one line of JSON.
fn check_json(path: &Path, kinds: &Kinds) -> anyhow::Result<()> {
    let found = find(path, kinds);
    let list = |findings: &[Diagnostic]| -> Vec<_> {
        let to_json = |finding: &Diagnostic| {
            let Diagnostic { line, column, message, .. } = finding;
            serde_json::json!({ "line": line, "column": column, "message": message })
        };
        findings.iter().map(to_json).collect()
    };
    let errors = list(&found.errors);
    let warnings = list(&found.warnings);
    let file = path.display().to_string();
    let flow_accesses: serde_json::Map<_, _> =
        found.flow_accesses.into_iter().map(|(bridge, accesses)| (bridge, accesses.into())).collect();
    let answer = serde_json::json!({
        "file": file, "errors": errors, "warnings": warnings, "flow_accesses": flow_accesses, "places": found.places,
    });
    output::answer(&format!("{answer}\n"))?;
    if found.errors.is_empty() { Ok(()) } else { Err(Reported.into()) }
}

/// The findings about a file, on this machine and beside the switch that runs.
#[derive(Default)]
struct Found {
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    /// Where workers and interfaces are, on a machine with several NUMA nodes.
    places: Vec<String>,
    /// The bound of a search in the flow tables of each bridge with flows.
    flow_accesses: Vec<(String, usize)>,
}

fn find(path: &Path, kinds: &Kinds) -> Found {
    let loaded = match Config::load_with(path, kinds) {
        Ok(loaded) => loaded,
        Err(errors) => return Found { errors: errors.0, ..Found::default() },
    };
    // The file may be meant for the switch that runs, which has its sockets already.
    let running = Running::new(path, &loaded.config);
    let mut errors = loaded.taken_sockets_unless(|socket| running.listens_at(socket));
    let here = loaded.on_machine(&Interfaces::of_this_machine(), &Config::default());
    errors.extend(here.errors);
    let mut warnings = loaded.warnings.clone();
    warnings.extend(here.warnings);
    // Another user may run the switch, or a service with capabilities.
    warnings.extend(loaded.missing_privileges());
    let of_file = |shortage| Diagnostic::of_file(&path.display().to_string(), shortage);
    warnings.extend(descriptor_shortage(&loaded.config).map(of_file));
    let places = NumaNodes::of_this_machine().describe(&loaded.config);
    let flow_accesses = flow_accesses(&loaded.config);
    Found { errors, warnings, places, flow_accesses }
}

/// Loads the configuration file `path` for a switch of this process. Prints its errors and
/// warnings. Missing privileges are an error.
pub(crate) fn load_to_run(path: &Path, kinds: &Kinds) -> anyhow::Result<Loaded> {
    let loaded = load(path, kinds)?;
    let here = loaded.on_machine(&Interfaces::of_this_machine(), &Config::default());
    for warning in &here.warnings {
        output::message("warning", warning);
    }
    let mut errors = loaded.taken_sockets();
    errors.extend(here.errors);
    if !errors.is_empty() {
        return Err(report(&errors));
    }
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

fn report(errors: &[Diagnostic]) -> anyhow::Error {
    for error in errors {
        output::message("error", error);
    }
    Reported.into()
}

//! `straightline lab compare`

use std::path::{Path, PathBuf};

use clap::Args;
use straightline_lab::folder;
use straightline_report::results::{Comparison, Environment, Results};

use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Folder A: a folder of results, or a folder with several of them, as `lab exp --all` writes
    /// it
    #[arg(value_name = "A")]
    pub(crate) first: PathBuf,
    /// Folder B: the results to compare with A
    #[arg(value_name = "B")]
    pub(crate) second: PathBuf,
    /// Metric to compare, such as `mpps`; may be repeated; default: all
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Vec<String>,
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn execute(args: &Compare) -> anyhow::Result<()> {
    let first = folder::read(&args.first)?;
    let second = folder::read(&args.second)?;
    let comparison = Comparison::new(&first, &second, &args.metric);
    if args.json {
        output::answer(&format!("{}\n", serde_json::to_string(&comparison)?))?;
    } else {
        let title = |name: &str, folder: &Path, results: &Results| {
            let Environment { program, commit, taken, command, .. } = &results.environment;
            let commit = commit.as_ref().map_or_else(String::new, |commit| format!(", commit {commit}"));
            format!("{name}: {}, {taken}, straightline {program}{commit}\n   {}\n", folder.display(), command.join(" "))
        };
        let titles = [title("A", &args.first, &first), title("B", &args.second, &second)];
        output::answer(&format!("{}{comparison}", titles.concat()))?;
    }
    comparison.check(&first, &second, &args.metric)
}

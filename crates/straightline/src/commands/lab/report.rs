//! `straightline lab report`

use std::path::PathBuf;

use clap::Args;
use straightline_lab::report;

use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// A folder of results, as the other commands of the laboratory write them; or one of such folders, as `lab exp --all` does
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Writes the report into this folder; default: into DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

pub(crate) fn execute(args: &Report) -> anyhow::Result<()> {
    for path in report::of_folder(&args.dir, args.out.as_deref())? {
        output::answer(&format!("{}\n", path.display()))?;
    }
    Ok(())
}

//! `straightline lab report`

use std::path::PathBuf;

use clap::Args;
use straightline_lab::folder;

use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Folder of results, as the other lab commands write it, or a folder with several of them, as
    /// `lab exp --all` writes it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Folder for the report; default: DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Folder for the plots as SVG files, one for each scenario; default: none are written
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
}

pub(crate) fn execute(args: &Report) -> anyhow::Result<()> {
    for path in folder::write_report(&args.dir, args.out.as_deref(), args.plots.as_deref())? {
        output::answer(&format!("{}\n", path.display()))?;
    }
    Ok(())
}

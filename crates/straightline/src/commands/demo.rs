//! `straightline demo`

use straightline_lab::scenarios::demo::{self, DemoOptions};

use crate::cli::Demo;
use crate::output;

/// Runs the demo. With `--json`, the last line is the result.
pub(crate) fn execute(args: &Demo) -> anyhow::Result<()> {
    let summary = demo::run(DemoOptions { secs: args.secs, host: args.host, tunnel: args.tunnel, json: args.json })?;
    if args.json {
        output::answer(&format!("{}\n", serde_json::to_string(&summary)?))?;
    }
    Ok(())
}

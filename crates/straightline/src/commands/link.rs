//! `straightline link PORT up|down`

use straightline_api as api;

use crate::cli::{Link, LinkState};

/// Sets the link. Prints nothing on success.
pub(crate) fn execute(args: &Link) -> anyhow::Result<()> {
    api::set_link(&args.api, &args.port, args.state == LinkState::Up)?;
    Ok(())
}

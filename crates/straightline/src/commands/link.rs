//! `straightline link PORT up|down`

use straightline_switch::api;

use crate::cli::{Link, LinkState};

/// Prints nothing where it succeeds.
pub(crate) fn execute(args: &Link) -> anyhow::Result<()> {
    api::set_link(&args.api, &args.port, args.state == LinkState::Up)?;
    Ok(())
}

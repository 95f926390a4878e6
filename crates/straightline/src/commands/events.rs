//! `straightline events`

use std::io::BufRead;

use anyhow::{Context, bail};
use straightline_api::{self as api, EventsRequest, Request, table};

use crate::cli::Events;
use crate::output;

pub(crate) fn execute(args: &Events) -> anyhow::Result<()> {
    let request = Request::Events(EventsRequest { since: args.since, follow: args.follow });
    if args.follow {
        return follow(args, &request);
    }
    let json = api::send(&args.api, &request)?;
    if args.json {
        return output::answer(&format!("{json}\n"));
    }
    let events: api::Events = serde_json::from_str(&json).context("the answer of the switch has no events")?;
    output::answer(&table::events(&events))
}

/// Prints each event when it comes. JSON is passed on as the switch sent it.
fn follow(args: &Events, request: &Request) -> anyhow::Result<()> {
    let mut stream = api::stream(&args.api, request)?;
    let mut line = String::new();
    while stream.read_line(&mut line).context("cannot read from the switch")? > 0 {
        if !args.json {
            line = table::event(&serde_json::from_str(&line).context("the switch sent something that is no event")?);
        }
        if !output::part(&line)? {
            return Ok(());
        }
        line.clear();
    }
    bail!("the switch on {} has ended", args.api.display())
}

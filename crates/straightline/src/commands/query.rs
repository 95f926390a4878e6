//! The commands that ask the running switch and print its answer, as the API's table declares them.

use anyhow::Context;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde::de::DeserializeOwned;
use straightline_api::{self as api, Command, Request, table};

use crate::cli::{Asking, Ports};
use crate::{complete, output};

/// One of these commands with its arguments.
#[derive(Debug)]
pub(crate) struct Query {
    request: Request,
    asking: Asking,
}

/// Asks the running switch and prints its answer.
pub(crate) fn execute(query: &Query) -> anyhow::Result<()> {
    let Query { request, asking } = query;
    let json = match request {
        Request::Reload(_) => api::send_long(&asking.api, request, |waited| {
            output::message("note", &format_args!("the switch is still at work after {} s", waited.as_secs()));
        })?,
        _ => api::send(&asking.api, request)?,
    };
    let text = request.command().text().context("the command prints nothing")?;
    print(asking, &json, text)
}

/// Shows all ports, or those that have been named.
pub(crate) fn ports(args: &Ports) -> anyhow::Result<()> {
    let Ports { names, short, asking } = args;
    let mut json = api::request(&asking.api, Command::Ports)?;
    if !names.is_empty() {
        json = api::select_ports(&json, names)?;
    }
    let render = if *short { table::ports_short } else { table::ports };
    print(asking, &json, |json| Ok(render(&serde_json::from_str(json)?)))
}

/// Asks for an answer page by page. `request` makes the request for the page behind a place, or for the
/// first one. `take` takes a page, and returns the place behind which the next one begins, or `None` at
/// the end.
pub(super) fn pages<A: DeserializeOwned>(
    asking: &Asking,
    request: impl Fn(Option<String>) -> Request,
    mut take: impl FnMut(A) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let json = api::send(&asking.api, &request(after))?;
        let page = serde_json::from_str(&json).context("the switch's answer has another form")?;
        after = take(page)?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Prints an answer. JSON is passed on as the switch sent it, so that fields of a newer switch are
/// kept.
pub(super) fn print(
    asking: &Asking,
    json: &str,
    text: impl Fn(&str) -> serde_json::Result<String>,
) -> anyhow::Result<()> {
    if asking.json {
        return output::answer(&format!("{json}\n"));
    }
    let text = text(json)
        .map_err(|error| api::RequestError::InvalidAnswer { path: asking.api.clone(), why: error.to_string() })?;
    output::answer(&text)
}

impl Subcommand for Query {
    fn augment_subcommands(program: clap::Command) -> clap::Command {
        let lines = Command::ALL.into_iter().filter_map(Command::command_line);
        lines.fold(program, |program, line| program.subcommand(Asking::augment_args(line.mut_args(complete_value))))
    }

    fn augment_subcommands_for_update(program: clap::Command) -> clap::Command {
        Self::augment_subcommands(program)
    }

    fn has_subcommand(name: &str) -> bool {
        name.parse::<Command>().is_ok_and(|command| command.command_line().is_some())
    }
}

impl FromArgMatches for Query {
    fn from_arg_matches(given: &ArgMatches) -> Result<Self, clap::Error> {
        let known = given.subcommand().and_then(|(word, given)| Some((word.parse::<Command>().ok()?, given)));
        let (command, given) = known.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingSubcommand))?;
        Ok(Self { request: command.request_from(given)?, asking: Asking::from_arg_matches(given)? })
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(given)?;
        Ok(())
    }
}

/// Lets shells complete an argument, by the name of its value.
fn complete_value(argument: clap::Arg) -> clap::Arg {
    let completer = match argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str()) {
        Some("PORT") => ArgValueCompleter::new(complete::ports),
        Some("BRIDGE") => ArgValueCompleter::new(complete::bridges),
        Some("UNDERLAY") => ArgValueCompleter::new(complete::underlays),
        _ => return argument,
    };
    argument.add(completer)
}

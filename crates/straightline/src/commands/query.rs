//! `straightline status|ports|fdb|neighbours|runtime|drops|reload`

use straightline_api::{self as api, Answer, Command, table};

use crate::cli::{Ports, Query};
use crate::output;

pub(crate) fn status(args: &Query) -> anyhow::Result<()> {
    show(args, table::status)
}

/// Shows all ports, or those that have been named.
pub(crate) fn ports(args: &Ports) -> anyhow::Result<()> {
    let Ports { names, short, query } = args;
    let mut json = api::request(&query.api, Command::Ports)?;
    if !names.is_empty() {
        json = api::select_ports(&json, names)?;
    }
    if query.json {
        return output::answer(&format!("{json}\n"));
    }
    let ports = serde_json::from_str(&json)?;
    output::answer(&if *short { table::ports_short(&ports) } else { table::ports(&ports) })
}

pub(crate) fn fdb(args: &Query) -> anyhow::Result<()> {
    show(args, table::fdb)
}

pub(crate) fn neighbours(args: &Query) -> anyhow::Result<()> {
    show(args, table::neighbours)
}

pub(crate) fn runtime(args: &Query) -> anyhow::Result<()> {
    show(args, table::runtime)
}

pub(crate) fn drops(args: &Query) -> anyhow::Result<()> {
    show(args, table::drops)
}

pub(crate) fn reload(args: &Query) -> anyhow::Result<()> {
    show(args, table::changes)
}

/// Prints an answer. JSON is passed on as the switch sent it, so that fields of a newer switch are
/// kept.
fn show<A: Answer>(args: &Query, render: fn(&A) -> String) -> anyhow::Result<()> {
    if args.json {
        let json = api::request(&args.api, A::COMMAND)?;
        output::answer(&format!("{json}\n"))
    } else {
        output::answer(&render(&api::ask(&args.api)?))
    }
}

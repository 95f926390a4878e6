//! The arguments.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use straightline_switch::api::DEFAULT_PATH;

use crate::commands::lab::Lab;

/// A user-space switch for virtual machines
#[derive(Debug, Parser)]
#[command(name = "straightline", version = straightline_switch::VERSION, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Two embedded guests and traffic between them through the switch; needs no root and no file
    Demo(Demo),
    /// Runs the switch in the foreground; prints `ready` once all its sockets listen
    Run(Config),
    /// Checks a configuration; prints `ok`, or every error with its line
    Check(Config),
    /// Makes a running switch read its configuration file again (as SIGHUP does) and shows what changed
    Reload(Query),
    /// Takes a port's link down, or lets it be up again
    Link(Link),
    /// Adds a port to a bridge of a running switch, for as long as this runs: a backend program as QEMU wants it
    Port(Port),
    /// Shows the switch as a whole: version, uptime, instruction set
    Status(Query),
    /// Shows the ports: link, features, rings, counters, drops
    Ports(Query),
    /// Shows the addresses that the bridges know
    Fdb(Query),
    /// Shows where the workers' time went, by node
    Runtime(Query),
    /// Shows what was dropped, and why
    Drops(Query),
    /// Measures switches
    #[command(subcommand)]
    Lab(Lab),
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How long it runs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(crate) secs: u64,
    /// Ends with one line of JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    /// The configuration file
    #[arg(value_name = "CONFIG")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Link {
    /// The port
    #[arg(value_name = "PORT")]
    pub(crate) port: String,
    /// What its link is to be
    #[arg(value_name = "up|down")]
    pub(crate) state: LinkState,
    /// The socket of the switch's API
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkState {
    Up,
    Down,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["socket_path", "fd", "print_capabilities"]))]
pub(crate) struct Port {
    /// Listens there for the frontend; the file is ours, for our user alone
    #[arg(long, value_name = "PATH", requires = "join")]
    pub(crate) socket_path: Option<PathBuf>,
    /// A socket that we were started with: one that listens, or one that is connected to the frontend
    #[arg(long, value_name = "N", requires = "join")]
    pub(crate) fd: Option<i32>,
    /// The bridge that the port joins
    #[arg(long, value_name = "BRIDGE")]
    pub(crate) join: Option<String>,
    /// The port's name; default: port- and our process's number
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Prints what kind of backend this is, as JSON, and ends
    #[arg(long)]
    pub(crate) print_capabilities: bool,
    /// The socket of the switch's API
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Query {
    /// Prints the answer as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The socket of the switch's API
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}

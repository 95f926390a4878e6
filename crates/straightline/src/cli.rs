//! Command-line arguments.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use straightline_switch::api::DEFAULT_PATH;

use crate::commands::lab::Lab;

/// User-space vhost-user switch for virtual machines
#[derive(Debug, Parser)]
#[command(name = "straightline", version = straightline_switch::VERSION, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  straightline demo                 Try the switch: needs no root and no configuration
  straightline check switch.toml    Check a configuration file
  straightline run switch.toml      Run the switch
  straightline ports                Show the ports of the running switch

Exit status: 0 success, 1 failure with a message, 2 wrong usage")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send traffic between two embedded guests through the switch (needs no root and no file)
    Demo(Demo),
    /// Run the switch in the foreground and print `ready` once all sockets listen
    #[command(after_help = RUN_HELP)]
    Run(Config),
    /// Check a configuration file and print `ok`, or every error with its line
    Check(Config),
    /// Make the running switch read its configuration file again, as SIGHUP does, and show the
    /// changes
    Reload(Query),
    /// Set a port's link down, or let it come up again
    #[command(after_help = "Example:\n  straightline link vm1 down")]
    Link(Link),
    /// Add a port to a bridge of the running switch until this command ends (a QEMU backend
    /// program)
    #[command(after_help = PORT_HELP)]
    Port(Port),
    /// Show the whole switch: version, uptime, instruction set
    Status(Query),
    /// Show the ports: link, features, rings, counters, drops
    Ports(Query),
    /// Show the addresses that the bridges have learned or were given
    Fdb(Query),
    /// Show how the workers spent their time, by node
    Runtime(Query),
    /// Show the dropped packets by reason
    Drops(Query),
    /// Measure this switch and other vhost-user switches
    #[command(subcommand)]
    Lab(Lab),
    /// Open network interfaces for the switch that started this process
    #[command(hide = true)]
    OpenDevices,
}

const RUN_HELP: &str = "\
SIGTERM and SIGINT stop the switch. SIGHUP reloads the configuration file.
The environment variable RUST_LOG sets the log filter; the default is warn,straightline=info.";

const PORT_HELP: &str = "\
Examples:
  straightline port --socket-path /run/vm7.sock --join lan --name vm7
  straightline port --fd 3 --join lan

The port is removed when this command ends: on SIGTERM or SIGINT, or when a connection passed by
--fd is closed.";

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Duration in seconds, 1 to 86400
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(crate) secs: u64,
    /// Join two network namespaces of this machine by taps, instead of two guests. Needs root, or a
    /// system that lets users make namespaces
    #[arg(long)]
    pub(crate) host: bool,
    /// Print the result as one line of JSON at the end, instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    /// Configuration file
    #[arg(value_name = "CONFIG")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Link {
    /// Name of the port
    #[arg(value_name = "PORT")]
    pub(crate) port: String,
    /// State of the link
    #[arg(value_name = "up|down")]
    pub(crate) state: LinkState,
    /// API socket of the running switch
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
    /// Create this socket and wait there for the frontend; only this user may connect
    #[arg(long, value_name = "PATH", requires = "join")]
    pub(crate) socket_path: Option<PathBuf>,
    /// Inherited file descriptor of a Unix socket that listens or is connected to the frontend
    #[arg(long, value_name = "N", requires = "join")]
    pub(crate) fd: Option<i32>,
    /// Bridge to which the port is added
    #[arg(long, value_name = "BRIDGE")]
    pub(crate) join: Option<String>,
    /// Name of the port [default: port-PID, with the process ID of this command]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print the capabilities of this backend program as JSON and exit
    #[arg(long)]
    pub(crate) print_capabilities: bool,
    /// API socket of the running switch
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Query {
    /// Print the answer as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// API socket of the running switch
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

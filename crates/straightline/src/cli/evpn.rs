//! Arguments of `straightline evpn`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use straightline_evpn::DEFAULT_SOCKET;

pub(crate) const HELP: &str = "\
Examples:
  straightline evpn --config /etc/straightline/evpn.toml     Run, until SIGTERM or SIGINT
  straightline evpn check --config evpn.toml                 Check the file
  straightline evpn generate --config evpn.toml -o gobgpd.toml
  straightline evpn status
  straightline evpn routes --json

It needs no privileges: run it as a user who may connect to the API of the switch and to GoBGP.";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Evpn {
    #[command(subcommand)]
    pub(crate) command: Option<EvpnCommand>,
    /// Configuration file
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EvpnCommand {
    /// Check a configuration file and print `ok`
    Check {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Write a configuration for gobgpd, with the neighbours of the file and their keys
    Generate {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// File to write, readable by its owner only; default: standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show sessions, networks and what was refused
    Status(EvpnAsking),
    /// Show the routes that are sent and received
    Routes(EvpnAsking),
}

#[derive(Debug, Args)]
pub(crate) struct EvpnAsking {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Socket of the running `straightline evpn`
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_SOCKET)]
    pub(crate) socket: PathBuf,
}

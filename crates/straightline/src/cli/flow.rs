//! Arguments of `straightline flow`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;

use super::Asking;
use crate::complete;

#[derive(Debug, Subcommand)]
pub(crate) enum Flow {
    /// Add flows; one with the same table, priority and match is replaced
    Add(FlowChange),
    /// Change the actions of all flows that a match covers; with --strict of the one that equals it
    Mod(FlowChange),
    /// Delete all flows that a match covers; with --strict the one that equals it; without a match all
    Del(FlowChange),
    /// Make the flows of a file the bridge's flows, in place of those of other commands
    Replace(FlowFile),
    /// Print the flows as `ovs-ofctl dump-flows` does
    Dump(FlowDump),
    /// Print the flows that a packet would match in each table, and the actions on it
    Trace {
        #[command(flatten)]
        at: At,
        /// Packet, as a match; fields that it does not name are 0
        #[arg(value_name = "PACKET")]
        packet: String,
    },
    /// Show and change the meters that flows use
    #[command(subcommand)]
    Meter(FlowMeter),
}

#[derive(Debug, Args)]
pub(crate) struct FlowChange {
    #[command(flatten)]
    pub(crate) at: At,
    /// Flows in the words of `ovs-ofctl`; `-` reads them from standard input
    #[arg(value_name = "FLOW")]
    pub(crate) flows: Vec<String>,
    /// File with a flow in each line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Mean only the flow with the same priority and match
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FlowFile {
    #[command(flatten)]
    pub(crate) at: At,
    /// File with a flow in each line; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FlowDump {
    #[command(flatten)]
    pub(crate) at: At,
    /// Show only flows that this match covers
    #[arg(value_name = "MATCH", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
    /// Leave out counters and ages
    #[arg(long)]
    pub(crate) no_stats: bool,
    /// Print names of ports; the default on a terminal
    #[arg(long, conflicts_with = "no_names")]
    pub(crate) names: bool,
    /// Print numbers of ports; the default elsewhere
    #[arg(long)]
    pub(crate) no_names: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowMeter {
    /// Add a meter
    Add {
        #[command(flatten)]
        at: At,
        /// Meter in the words of `ovs-ofctl`
        #[arg(value_name = "METER")]
        meter: String,
    },
    /// Change a meter
    Mod {
        #[command(flatten)]
        at: At,
        /// Meter in the words of `ovs-ofctl`
        #[arg(value_name = "METER")]
        meter: String,
    },
    /// Delete a meter that no flow uses
    Del {
        #[command(flatten)]
        at: At,
        /// Number of the meter, such as `meter=1`
        #[arg(value_name = "METER")]
        meter: String,
    },
    /// Print the meters as `ovs-ofctl dump-meters` does
    Dump {
        #[command(flatten)]
        at: At,
    },
    /// Print what each meter has let pass and dropped, in the words of `ovs-ofctl meter-stats`
    Stats {
        #[command(flatten)]
        at: At,
    },
}

// No doc comment: clap would show it as the text of each of these commands.
// Arguments of all commands about the flows of a bridge.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// Name of the bridge
    #[arg(value_name = "BRIDGE", add = ArgValueCompleter::new(complete::bridges))]
    pub(crate) bridge: String,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

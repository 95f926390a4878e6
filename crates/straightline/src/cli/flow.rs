//! Arguments of `straightline flow`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Asking;

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
        /// Name of the bridge
        #[arg(value_name = "BRIDGE")]
        bridge: String,
        /// Packet, as a match; fields that it does not name are 0
        #[arg(value_name = "PACKET")]
        packet: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Show and change the meters that flows use
    #[command(subcommand)]
    Meter(FlowMeter),
}

#[derive(Debug, Args)]
pub(crate) struct FlowChange {
    /// Name of the bridge
    #[arg(value_name = "BRIDGE")]
    pub(crate) bridge: String,
    /// Flows in the words of `ovs-ofctl`; `-` reads them from standard input
    #[arg(value_name = "FLOW")]
    pub(crate) flows: Vec<String>,
    /// File with a flow in each line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Mean only the flow with the same priority and match
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Debug, Args)]
pub(crate) struct FlowFile {
    /// Name of the bridge
    #[arg(value_name = "BRIDGE")]
    pub(crate) bridge: String,
    /// File with a flow in each line; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Debug, Args)]
pub(crate) struct FlowDump {
    /// Name of the bridge
    #[arg(value_name = "BRIDGE")]
    pub(crate) bridge: String,
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
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowMeter {
    /// Add a meter
    Add {
        /// Name of the bridge
        #[arg(value_name = "BRIDGE")]
        bridge: String,
        /// Meter in the words of `ovs-ofctl`
        #[arg(value_name = "METER")]
        meter: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Change a meter
    Mod {
        /// Name of the bridge
        #[arg(value_name = "BRIDGE")]
        bridge: String,
        /// Meter in the words of `ovs-ofctl`
        #[arg(value_name = "METER")]
        meter: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Delete a meter that no flow uses
    Del {
        /// Name of the bridge
        #[arg(value_name = "BRIDGE")]
        bridge: String,
        /// Number of the meter, such as `meter=1`
        #[arg(value_name = "METER")]
        meter: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Print the meters as `ovs-ofctl dump-meters` does
    Dump {
        /// Name of the bridge
        #[arg(value_name = "BRIDGE")]
        bridge: String,
        #[command(flatten)]
        asking: Asking,
    },
}

//! Arguments of `straightline remote` and `straightline station`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use super::Asking;
use crate::complete;

pub(super) const REMOTE_HELP: &str = "\
The tunnel has `remotes` in the file, a list that may be empty. Remotes stay until they are deleted or
the switch ends; a reload keeps them.

Examples:
  straightline remote add vx0 192.0.2.2 192.0.2.3
  straightline remote list vx0
  straightline remote del vx0 192.0.2.3";

pub(super) const STATION_HELP: &str = "\
The switch neither ages nor moves such a station. A station behind a tunnel with `remotes` names its
remote. With --file, each line is a JSON object with the fields of the API's request `change-stations`.

Examples:
  straightline station add lan 02:00:00:00:00:02 --port vx0 --remote 192.0.2.2 --ip 10.0.0.2
  straightline station list lan
  straightline station del lan 02:00:00:00:00:02
  straightline station replace lan --file stations.json";

/// The owner of entries.
#[derive(Debug, Args)]
pub(crate) struct Owner {
    /// Name of the owner of the entries
    #[arg(long, value_name = "NAME", default_value = "cli")]
    pub(crate) owner: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Remote {
    /// Add remotes to a tunnel: all of them or none
    Add {
        /// Name of the tunnel's port
        #[arg(value_name = "TUNNEL", add = ArgValueCompleter::new(complete::ports))]
        tunnel: String,
        /// Address of another end
        #[arg(value_name = "ADDRESS", required = true)]
        remotes: Vec<IpAddr>,
        #[command(flatten)]
        owner: Owner,
        #[command(flatten)]
        asking: Asking,
    },
    /// Delete remotes of a tunnel, with the stations behind them
    Del {
        /// Name of the tunnel's port
        #[arg(value_name = "TUNNEL", add = ArgValueCompleter::new(complete::ports))]
        tunnel: String,
        /// Address of another end
        #[arg(value_name = "ADDRESS", required = true)]
        remotes: Vec<IpAddr>,
        #[command(flatten)]
        owner: Owner,
        #[command(flatten)]
        asking: Asking,
    },
    /// Make these the owner's only remotes of a tunnel
    Replace {
        /// Name of the tunnel's port
        #[arg(value_name = "TUNNEL", add = ArgValueCompleter::new(complete::ports))]
        tunnel: String,
        /// Address of another end
        #[arg(value_name = "ADDRESS")]
        remotes: Vec<IpAddr>,
        #[command(flatten)]
        owner: Owner,
        #[command(flatten)]
        asking: Asking,
    },
    /// Show the remotes of a tunnel, with their owners
    List {
        /// Name of the tunnel's port
        #[arg(value_name = "TUNNEL", add = ArgValueCompleter::new(complete::ports))]
        tunnel: String,
        #[command(flatten)]
        asking: Asking,
    },
}

/// A station.
#[derive(Debug, Args)]
pub(crate) struct StationEntry {
    /// MAC address of the station
    #[arg(value_name = "MAC", value_hint = ValueHint::Other)]
    pub(crate) mac: String,
    /// VLAN of the station
    #[arg(long, value_name = "VLAN", default_value_t = 1)]
    pub(crate) vlan: u16,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Station {
    /// Add or change a station of a bridge
    Add {
        /// Name of the bridge
        #[arg(value_name = "BRIDGE", add = ArgValueCompleter::new(complete::bridges))]
        bridge: String,
        #[command(flatten)]
        station: StationEntry,
        /// Port behind which it is
        #[arg(long, value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
        port: String,
        /// Remote behind which it is, if the port is a tunnel with `remotes`
        #[arg(long, value_name = "ADDRESS")]
        remote: Option<IpAddr>,
        /// IP address of the station
        #[arg(long = "ip", value_name = "ADDRESS")]
        ips: Vec<IpAddr>,
        /// Number of the entry; one with a lower number changes nothing
        #[arg(long, value_name = "N", default_value_t = 0)]
        sequence: u32,
        #[command(flatten)]
        owner: Owner,
        #[command(flatten)]
        asking: Asking,
    },
    /// Delete a station of a bridge
    Del {
        /// Name of the bridge
        #[arg(value_name = "BRIDGE", add = ArgValueCompleter::new(complete::bridges))]
        bridge: String,
        #[command(flatten)]
        station: StationEntry,
        #[command(flatten)]
        owner: Owner,
        #[command(flatten)]
        asking: Asking,
    },
    /// Make the stations of a file the owner's only ones in a bridge
    Replace {
        /// Name of the bridge
        #[arg(value_name = "BRIDGE", add = ArgValueCompleter::new(complete::bridges))]
        bridge: String,
        /// File with a JSON object in each line; - for standard input
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        owner: Owner,
        #[command(flatten)]
        asking: Asking,
    },
    /// Show the stations that clients have added to a bridge, with their owners
    List {
        /// Name of the bridge
        #[arg(value_name = "BRIDGE", add = ArgValueCompleter::new(complete::bridges))]
        bridge: String,
        #[command(flatten)]
        asking: Asking,
    },
}

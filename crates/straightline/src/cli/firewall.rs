//! Arguments of `straightline firewall`.

use clap::{Subcommand, ValueHint};

use super::Asking;

#[derive(Debug, Subcommand)]
pub(crate) enum Firewall {
    /// Print the rules of groups that decide about a packet, at each port that it would pass
    Explain {
        /// Name of the port
        #[arg(value_name = "PORT")]
        port: String,
        /// First packet of a connection, such as "tcp to 192.0.2.1 port 443"
        #[arg(value_name = "PACKET", value_hint = ValueHint::Other)]
        packet: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Print all groups with their rules, and the ports that have them: owners are the file or a client
    List {
        #[command(flatten)]
        asking: Asking,
    },
    /// Print the prefixes of sets, and the addresses of groups
    Sets {
        /// Name of a set, or group:NAME; default: all
        #[arg(value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        asking: Asking,
    },
    /// Set the groups of a port that has none in the file, until the switch ends
    Set {
        /// Name of the port
        #[arg(value_name = "PORT")]
        port: String,
        /// Names of groups or profiles, in the order in which their rules are tried; none opens the port
        #[arg(value_name = "GROUP")]
        groups: Vec<String>,
        #[command(flatten)]
        asking: Asking,
    },
    /// Add or change a group that is not in the file, until the switch ends
    Group {
        /// Name of the group
        #[arg(value_name = "NAME")]
        name: String,
        /// Rule for packets to its ports, such as "tcp 443 from any"
        #[arg(long = "in", value_name = "RULE")]
        inbound: Vec<String>,
        /// Rule for packets from its ports, such as "udp 53 to 10.0.0.3"
        #[arg(long = "out", value_name = "RULE")]
        outbound: Vec<String>,
        /// Delete the group, which no port may have
        #[arg(long, conflicts_with_all = ["inbound", "outbound"])]
        delete: bool,
        #[command(flatten)]
        asking: Asking,
    },
}

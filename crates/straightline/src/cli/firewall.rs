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
}

//! The arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use straightline_lab::poller::Sizes;
use straightline_switch::api::DEFAULT_PATH;

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

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// An embedded guest sends packets in a circle through two ports of any vhost-user switch, or floods them
    Loop(Box<Loop>),
}

#[derive(Debug, Args)]
pub(crate) struct Loop {
    /// Where a backend listens; two of them, between which the switch hands on packets
    #[arg(long, value_name = "SOCKET", required = true)]
    pub(crate) backend: Vec<PathBuf>,
    /// What the guest does: `loop` sends what it receives by the other port, `flood` sends without pause and drops
    #[arg(long, value_name = "loop|flood", default_value = "loop")]
    pub(crate) load: LoadKind,
    /// The layout of the rings
    #[arg(long, value_name = "split|packed", default_value = "split")]
    pub(crate) ring: RingKind,
    /// Whether buffers that can be merged are negotiated
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub(crate) mrg: OnOff,
    /// Negotiates that buffers are used in order
    #[arg(long)]
    pub(crate) in_order: bool,
    /// Entries in each ring
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) queue_size: u16,
    /// Bytes in each buffer; default: what the frames need, at least 2048
    #[arg(long, value_name = "N")]
    pub(crate) buffer_len: Option<u32>,
    /// Bytes of the virtio-net header behind the beginning of a cache line; with 52 the frame begins on one
    #[arg(long, value_name = "N", default_value_t = 52)]
    pub(crate) header_offset: u32,
    /// Frame lengths without Ethernet checksum: `64`, `64,1518`, with weights `64:7,570:4`, or `imix`; default: 64, with
    /// --segments 65214
    #[arg(long, visible_alias = "sizes", value_name = "SIZES")]
    pub(crate) size: Option<Sizes>,
    /// What mixed lengths are drawn by
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Sends TCP segments that the switch may pass or cut: checksum and segmentation are negotiated both ways
    #[arg(long)]
    pub(crate) segments: bool,
    /// Bursts of 32 packets sent into each port at first; default: 16, or as many as a ring holds
    #[arg(long, value_name = "N")]
    pub(crate) bursts: Option<u16>,
    /// Runs on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// Takes its memory from huge pages of 2 MiB
    #[arg(long)]
    pub(crate) hugepages: bool,
    /// Does not compare what comes back with what was sent: for switches that copy nothing
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Seconds before it is measured
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(crate) warm_up: Duration,
    /// Seconds that it is measured
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub(crate) secs: Duration,
    /// Prints one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Loop {
    /// Both backends. Where there are not two it is wrong usage, and ends the program.
    pub(crate) fn backends(&self) -> [PathBuf; 2] {
        <[PathBuf; 2]>::try_from(self.backend.clone()).unwrap_or_else(|given| {
            let why = format!("--backend is needed twice, once for each port of the guest, not {} times", given.len());
            Cli::command().error(ErrorKind::WrongNumberOfValues, why).exit()
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadKind {
    Loop,
    Flood,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingKind {
    Split,
    Packed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let secs = text.parse::<f64>().ok().filter(|secs| (0.0..=86400.0).contains(secs));
    secs.map(Duration::from_secs_f64).ok_or_else(|| "0 to 86400 seconds".to_owned())
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
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}

//! Command-line arguments.

mod evpn;
mod firewall;
mod flow;
mod networks;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use clap_complete::engine::ArgValueCompleter;
pub(crate) use evpn::{Evpn, EvpnAsking, EvpnCommand};
pub(crate) use firewall::Firewall;
pub(crate) use flow::{At, Flow, FlowChange, FlowDump, FlowFile, FlowMeter};
pub(crate) use networks::{Remote, Station, StationEntry};
use straightline_api::{Command as Api, DEFAULT_PATH};
use straightline_capture::{Filter, SNAPLEN};
#[cfg(feature = "lab")]
use straightline_lab::testbed::tunnel::Encapsulation;
use straightline_top::{Column, Sort};

#[cfg(feature = "lab")]
use crate::commands::lab::Lab;
use crate::commands::query::Query;
use crate::complete;

/// User-space vhost-user switch for virtual machines
#[derive(Debug, Parser)]
#[command(name = "straightline", version = straightline_switch::VERSION, arg_required_else_help = true)]
#[command(after_help = format!("Examples:\n{DEMO}{EXAMPLES}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[cfg(feature = "lab")]
    /// Send traffic between two embedded guests through the switch (needs no root and no file)
    Demo(Demo),
    /// Run the switch in the foreground and print `ready` once all sockets listen
    #[command(after_help = RUN_HELP)]
    Run(Config),
    /// Check a configuration file and print `ok`, or every error with its line
    #[command(after_help = CHECK_HELP)]
    Check(Check),
    /// Write a commented configuration for this machine: VMs, isolated CPUs, interfaces, bridges
    Init(Init),
    #[command(about = Api::Ports.help(), after_help = PORTS_HELP)]
    Ports(Ports),
    #[command(about = Api::Runtime.help(), after_help = RUNTIME_HELP)]
    Runtime(Runtime),
    #[command(flatten)]
    Query(Query),
    #[command(about = Api::Port.help(), after_help = PORT_HELP)]
    Port(Port),
    /// Find what is wrong with the switch, its VMs and this machine, and how to fix it
    #[command(after_help = DOCTOR_HELP)]
    Doctor(Doctor),
    /// Write what a bug report needs into one file: doctor, configuration, answers, events, system
    #[command(after_help = BUGREPORT_HELP)]
    Bugreport(Bugreport),
    /// Show live rates, drops, the workers' time and nodes of the running switch
    #[command(after_help = TOP_HELP)]
    Top(Top),
    /// Print the completions for a shell
    #[command(
        after_help = "Example:\n  straightline completions bash > /usr/share/bash-completion/completions/straightline"
    )]
    Completions {
        /// Shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Write a manual page for each command
    #[command(hide = true)]
    Man {
        /// Folder of the pages
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Serve metrics, JSON and a live page of the running switch over HTTP
    #[command(after_help = WEB_HELP)]
    Web(Web),
    /// Join bridges of many hosts: stations to and from GoBGP (BGP EVPN)
    #[command(after_help = evpn::HELP)]
    Evpn(Evpn),
    #[command(about = Api::Events.help(), after_help = EVENTS_HELP)]
    Events(Events),
    #[command(about = Api::Capture.help(), after_help = CAPTURE_HELP)]
    Capture(Capture),
    #[command(about = Api::Trace.help(), after_help = TRACE_HELP)]
    Trace(Trace),
    #[command(about = Api::Ping.help(), after_help = PING_HELP)]
    Ping(Ping),
    /// Show what the groups of ports let pass, and set groups
    #[command(subcommand, after_help = FIREWALL_HELP)]
    Firewall(Firewall),
    /// Show and change the flow tables of a bridge, in the words of `ovs-ofctl`
    #[command(subcommand, after_help = FLOW_HELP)]
    Flow(Flow),
    /// Show and change the remotes that clients have added to a tunnel
    #[command(subcommand, after_help = networks::REMOTE_HELP)]
    Remote(Remote),
    /// Show and change the stations that clients have added to a bridge
    #[command(subcommand, after_help = networks::STATION_HELP)]
    Station(Station),
    #[cfg(feature = "lab")]
    /// Measure this switch and other vhost-user switches
    #[command(subcommand)]
    Lab(Lab),
    /// Open network interfaces for the switch that started this process
    #[command(hide = true)]
    OpenDevices,
    /// Make sockets for the switch that started this process
    #[command(hide = true)]
    MakeSockets,
}

const PRINT_CAPABILITIES: &str = "--print-capabilities";

const DEMO: &str = if cfg!(feature = "lab") {
    "  straightline demo                 Try the switch: needs no root and no configuration\n"
} else {
    ""
};

const EXAMPLES: &str = "  straightline check switch.toml    Check a configuration file
  straightline run switch.toml      Run the switch
  straightline ports                Show the ports of the running switch

Exit status: 0 success, 1 failure with a message, 2 wrong usage";

const RUN_HELP: &str = "\
SIGTERM and SIGINT stop the switch. SIGHUP reloads the configuration file.
The environment variable RUST_LOG sets the log filter; the default is warn,straightline=info.";

const EVENTS_HELP: &str = "\
Examples:
  straightline events                       Show the events that the switch has kept
  straightline events --follow              Show these and each further one
  straightline events --follow --since 120  Continue after event 120

The switch keeps its last 4096 events, at most 1 MiB. `--follow` ends with status 1 when the switch
ends.";

const RUNTIME_HELP: &str = "\
Without options, the numbers are those since the start, or since the last --clear.

  turns    rounds of a worker over its inputs, empty ones included
  sleeps   times that a worker found nothing to do and waited for a kick
  most     the largest number of packets in one call of the node

Examples:
  straightline runtime --interval 5
  straightline runtime --clear";

const PORTS_HELP: &str = "\
Examples:
  straightline ports                 All that is known of each port
  straightline ports vm1 vm2         The same for these ports
  straightline ports --short         A line for each port
  straightline ports vm1 --json      One line of JSON for scripts";

const DOCTOR_HELP: &str = "\
Examples:
  straightline doctor                Examine the running switch
  sudo straightline doctor           Examine the processes of other users too
  straightline doctor switch.toml    Examine a configuration too, before or after the start

Exit status: 0 no check fails, 1 a check fails (with --strict: or warns), 2 wrong usage";

const BUGREPORT_HELP: &str = "\
Examples:
  sudo straightline bugreport             Report the switch of the package
  straightline bugreport switch.toml --output -

The report is text. Values of cookies are left out. Look through it before you send it: it has
addresses, names and paths.";

const CHECK_HELP: &str = "\
Examples:
  straightline check switch.toml
  straightline check --explain mtu
  straightline check --explain port.tap.name
  straightline check --explain bridge";

const PORT_HELP: &str = "\
Examples:
  straightline port --socket-path /run/vm7.sock --join lan --name vm7
  straightline port --fd 3 --join lan

The port is removed when this command ends: on SIGTERM or SIGINT, or when a connection passed by
--fd is closed.";

const FIREWALL_HELP: &str = "\
Examples:
  straightline firewall explain vm1 'tcp to 192.0.2.1 port 443'
  straightline firewall explain vm1 'icmp echo-request from 10.0.0.9'
  straightline firewall group web --in 'tcp 80,443 from any' --out 'udp 53 to 10.0.0.3'
  straightline firewall set vm1 web private";

const FLOW_HELP: &str = "\
Examples:
  straightline flow add lan 'priority=100,in_port=vm1,tcp,tp_dst=25,actions=drop'
  straightline flow replace lan lan.flows
  straightline flow del lan 'cookie=0x5/-1'
  straightline flow dump lan tcp
  straightline flow trace lan 'in_port=vm1,tcp,nw_dst=10.0.0.1,tp_dst=25'
  straightline flow meter add lan 'meter=1,kbps,band=type=drop,rate=1000'";

const WEB_HELP: &str = "\
Examples:
  straightline web                                     The page is http://127.0.0.1:9797/
  straightline web --listen 192.0.2.1:9797 --allow-host switch1.example

The metrics are at /metrics, the JSON is at /api/status, ports, fdb, neighbours, runtime and drops.
SIGTERM and SIGINT stop the server. It needs no privileges: run it as a user who may connect to the
API socket.";

const TOP_HELP: &str = "\
Examples:
  straightline top                          A screen; ? shows the keys, q ends it
  straightline top --batch                  One table after one second
  straightline top --json --count 10        Ten lines of JSON
  straightline top --sort rx-pps --columns port,link,rx-pps,drops

rx counts the packets that the switch receives from a port, tx those that it delivers to it.";

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print one table after one interval, and end
    #[arg(long)]
    pub(crate) batch: bool,
    /// Number of intervals to show [default: 1 with --batch, else no end]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Seconds between two samples, 0.1 to 3600
    #[arg(long, value_name = "S", default_value = "1", value_parser = interval)]
    pub(crate) interval: f64,
    /// Print one line of JSON for each interval
    #[arg(long)]
    pub(crate) json: bool,
    /// Order of the ports
    #[arg(long, value_name = "COLUMN", default_value = "worst", value_parser = names::<Sort>(&Sort::ALL.map(Sort::name)))]
    pub(crate) sort: Sort,
    /// Columns of the table of ports, separated by commas [default: all that fit]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Column>(&Column::ALL.map(Column::name)))]
    pub(crate) columns: Vec<Column>,
    /// API socket of the running switch
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "use a number of seconds from 0.1 to 3600".to_owned())
}

/// Reads a time in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=1e8).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "use a number of seconds from 0.1 to 100000000".to_owned())
}

/// Reads a size in bytes: a number with or without K, M or G.
fn size(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes >= 1024).ok_or_else(|| "use a size of at least 1K, such as 500K, 100M or 2G".to_owned())
}

/// Returns a parser that takes one of these names, and lets shells complete it.
fn names<T: FromStr<Err = String> + Clone + Send + Sync + 'static>(
    names: &[&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}

#[derive(Debug, Args)]
pub(crate) struct Web {
    /// Address and port to listen on; port 0 is a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9797")]
    pub(crate) listen: SocketAddr,
    /// Name or address by which clients may call the server; may be repeated. Other machines need
    /// it: a request for another host is refused
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// API socket of the running switch
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
    /// Serve metrics of the `straightline evpn` that answers at this socket, too
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, default_missing_value = straightline_evpn::DEFAULT_SOCKET)]
    pub(crate) evpn: Option<PathBuf>,
}

const CAPTURE_HELP: &str = "\
Examples:
  straightline capture vm1 -w vm1.pcapng
  straightline capture vm1 vm2 --filter 'arp or tcp port 80' | tshark -r -
  straightline capture vm1 --dropped -w drops.pcapng
  straightline capture vm1 -w vm1.pcapng --seconds 60
  straightline capture vm1 -w vm1.pcapng --rotate-size 100M --files 5

Filters are made of these conditions, with `and`, `or`, `not` and parentheses:
  arp, ip, ip6, icmp, icmp6, tcp, udp, sctp, gre       a protocol
  ip host 10.0.0.1, src net 10.0.0.0/8                 an address; also ip6, arp, dst
  tcp port 80, udp dst portrange 5000-5010             a port; also src
  ether host 52:54:00:00:00:01, ether proto 0x88cc     a MAC address, a type
  vlan, vlan 7, broadcast, multicast                   tags, destinations
  less 100, greater 1000                               a length in bytes

A capture delays no packet. Packets that come too fast to be written are counted as missed.";

#[derive(Debug, Args)]
pub(crate) struct Capture {
    /// Names of the ports
    #[arg(value_name = "PORT", required = true, add = ArgValueCompleter::new(complete::ports))]
    pub(crate) ports: Vec<String>,
    /// Write to this file, or to standard output for `-` [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Packets that ports receive (in), deliver (out), or both [default: both; none with --dropped]
    #[arg(long, value_name = "in|out|both")]
    pub(crate) direction: Option<CaptureDirection>,
    /// Dropped packets that the ports count, for any reason or for this one (see `straightline drops`)
    #[arg(long, value_name = "REASON", num_args = 0..=1, require_equals = true, default_missing_value = "", add = ArgValueCompleter::new(complete::reasons))]
    pub(crate) dropped: Option<String>,
    /// Only packets that this expression selects
    #[arg(short, long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<Filter>,
    /// Most bytes of a packet to keep
    #[arg(long, value_name = "BYTES", default_value_t = SNAPLEN, value_parser = clap::value_parser!(u32).range(1..=i64::from(SNAPLEN)))]
    pub(crate) snaplen: u32,
    /// End after this number of packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after this number of seconds
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Begin another file, FILE_00002 and so on, when a file has this size in bytes; K, M and G are
    /// powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "write")]
    pub(crate) rotate_size: Option<u64>,
    /// Keep the newest N files, and remove older ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "rotate_size")]
    pub(crate) files: Option<u32>,
    /// API socket of the running switch
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

const TRACE_HELP: &str = "\
Examples:
  straightline trace vm1
  straightline trace vm1 vm2 --filter 'arp or icmp' --count 5
  straightline trace vm1 --limit-time 5
  straightline trace vm1 --json | jq .dropped

`straightline capture --help` lists the conditions of filters.";

#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Names of the ports; packets that they receive are followed
    #[arg(value_name = "PORT", required = true, add = ArgValueCompleter::new(complete::ports))]
    pub(crate) ports: Vec<String>,
    /// End after this number of packets
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
    /// End after this number of seconds, with the packets that came until then
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) limit_time: Option<Duration>,
    /// Only packets that this expression selects
    #[arg(short, long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<Filter>,
    /// Print a JSON object for each packet
    #[arg(long)]
    pub(crate) json: bool,
    /// API socket of the running switch
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

const PING_HELP: &str = "\
Examples:
  straightline ping wan 192.0.2.2
  straightline ping wan 2001:db8::2 --count 10 --interval 0.2

The exit status is 1 if nothing answered.";

#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// Name of the underlay that sends the echo requests
    #[arg(value_name = "UNDERLAY", add = ArgValueCompleter::new(complete::underlays))]
    pub(crate) underlay: String,
    /// IP address to ping
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: IpAddr,
    /// Number of echo requests
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
    /// Seconds from one request to the next, 0.01 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = milliseconds)]
    pub(crate) interval: u32,
    /// Seconds that a reply may take, 0.01 to 3600
    #[arg(short = 'W', long, value_name = "SECONDS", default_value = "1", value_parser = milliseconds)]
    pub(crate) timeout: u32,
    /// Print a JSON object for each request
    #[arg(long)]
    pub(crate) json: bool,
    /// API socket of the running switch
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

/// Reads a time in seconds. Returns milliseconds.
fn milliseconds(text: &str) -> Result<u32, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    let time = seconds.map(Duration::from_secs_f64).and_then(|time| u32::try_from(time.as_millis()).ok());
    time.ok_or_else(|| "use a number of seconds from 0.01 to 3600".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureDirection {
    In,
    Out,
    Both,
}

#[cfg(feature = "lab")]
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Duration in seconds, 1 to 86400
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(crate) secs: u64,
    /// Join two network namespaces of this machine by taps, instead of two guests. Needs root, or a
    /// system that lets users make namespaces
    #[arg(long)]
    pub(crate) host: bool,
    /// Join the two guests by a tunnel of this kind, over a wire between two underlays: l2tpv3,
    /// vxlan, geneve, gre, l2tpv3-udp, nvgre, vxlan-gpe, gtpu or mpls-udp
    #[arg(long, value_name = "KIND", conflicts_with = "host")]
    pub(crate) tunnel: Option<Encapsulation>,
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
#[command(group = ArgGroup::new("subject").required(true).args(["config", "explain", "schema"]))]
pub(crate) struct Check {
    /// Configuration file
    #[arg(value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Explain a key: its type, values and default, its meaning, and an example. A section or a
    /// kind explains all its keys
    #[arg(long, value_name = "KEY", add = ArgValueCompleter::new(complete::keys))]
    pub(crate) explain: Option<String>,
    /// Print the JSON schema of configuration files, with which editors complete and check
    #[arg(long)]
    pub(crate) schema: bool,
    /// Print the findings or the explanation as one line of JSON
    #[arg(long, conflicts_with = "schema")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// File to write; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "switch.toml")]
    pub(crate) output: PathBuf,
    /// Write to standard output
    #[arg(long, conflicts_with_all = ["output", "force"])]
    pub(crate) stdout: bool,
    /// Overwrite a file that exists
    #[arg(long)]
    pub(crate) force: bool,
}

/// Returns the arguments that are parsed: all of them, except beside `port --print-capabilities`.
/// That option ignores all others, even those that are unknown or wrong.
pub(crate) fn arguments(mut given: Vec<OsString>) -> Vec<OsString> {
    let is_port = given.get(1).is_some_and(|command| command == "port");
    // Cites vhost-user-conventions-8.
    if is_port && given[2..].iter().any(|argument| argument == PRINT_CAPABILITIES) {
        given.truncate(2);
        given.push(PRINT_CAPABILITIES.into());
    }
    given
}

#[derive(Debug, Args)]
// Cites vhost-user-conventions-5.
#[command(group = ArgGroup::new("what").required(true).args(["socket_path", "fd", "print_capabilities"]))]
pub(crate) struct Port {
    /// Create this socket and wait there for the frontend; only this user may connect
    #[arg(long, value_name = "PATH", requires = "join")]
    pub(crate) socket_path: Option<PathBuf>,
    /// Inherited file descriptor of a Unix socket that listens or is connected to the frontend
    #[arg(long, value_name = "N", requires = "join")]
    pub(crate) fd: Option<i32>,
    /// Bridge to which the port is added
    #[arg(long, value_name = "BRIDGE", add = ArgValueCompleter::new(complete::bridges))]
    pub(crate) join: Option<String>,
    /// Name of the port [default: port-PID, with the process ID of this command]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Groups of the port, whose rules are in force before its first packet
    #[arg(long, value_name = "GROUP", value_delimiter = ',', requires = "join")]
    pub(crate) groups: Vec<String>,
    /// Print the capabilities of this backend program as JSON and exit; ignores all other options
    #[arg(long)]
    pub(crate) print_capabilities: bool,
    /// API socket of the running switch
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Configuration file
    #[arg(value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Print the findings as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Show also the checks that do not apply
    #[arg(long, conflicts_with = "json")]
    pub(crate) all: bool,
    /// Exit with 1 if a check warns
    #[arg(long)]
    pub(crate) strict: bool,
    /// API socket of the running switch [default: `api` in CONFIG, else
    /// /run/straightline/api.sock]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) api: Option<PathBuf>,
    /// Socket of a running `straightline evpn`
    #[arg(long, value_name = "SOCKET", default_value = straightline_evpn::DEFAULT_SOCKET)]
    pub(crate) evpn: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Bugreport {
    /// Configuration file [default: /etc/straightline/switch.toml if it exists]
    #[arg(value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// File to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "straightline-bugreport.txt")]
    pub(crate) output: PathBuf,
    /// API socket of the running switch [default: `api` in CONFIG, else
    /// /run/straightline/api.sock]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) api: Option<PathBuf>,
}

// No doc comment: clap would show it as the text of each of these commands.
// Arguments of all commands that ask the running switch and print its answer.
#[derive(Debug, Args)]
pub(crate) struct Asking {
    /// Print the answer as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// API socket of the running switch
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Runtime {
    /// Show what happened in the next S seconds, 0.1 to 3600, with the rates of all packets
    #[arg(long, value_name = "S", value_parser = interval)]
    pub(crate) interval: Option<f64>,
    /// Count from now on, and show nothing. Metrics, `top` and the page go on as they were
    #[arg(long, conflicts_with_all = ["interval", "json"])]
    pub(crate) clear: bool,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Debug, Args)]
pub(crate) struct Ports {
    /// Names of the ports [default: all ports]
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::ports))]
    pub(crate) names: Vec<String>,
    /// Show a line for each port: link, packets, drops, reason
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) short: bool,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Wait for further events, until this command is stopped
    #[arg(long)]
    pub(crate) follow: bool,
    /// Show only events with higher numbers than this one
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) since: u64,
    /// Print the answer as one line of JSON; with `--follow` each event as a line of its own
    #[arg(long)]
    pub(crate) json: bool,
    /// API socket of the running switch
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_PATH)]
    pub(crate) api: PathBuf,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!([size("1k"), size("5000"), size("100M"), size("2G")], [1 << 10, 5000, 100 << 20, 2 << 30].map(Ok));
        for wrong in ["", "K", "1023", "-1K", "1.5M", "5T", "99999999999999G", "1é"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "nan", "inf", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_command_has_a_text_of_its_own() {
        let mut texts = BTreeSet::new();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let text = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!text.is_empty() && texts.insert(text.clone()), "{}: {text:?}", command.get_name());
        }
    }
}

//! Commands, one per file. They load, call the libraries and print; the logic is in the libraries.

mod bugreport;
mod capture;
mod check;
#[cfg(feature = "lab")]
mod demo;
mod doctor;
mod events;
mod evpn;
mod firewall;
mod flow;
mod init;
#[cfg(feature = "lab")]
pub(crate) mod lab;
mod make_sockets;
mod manual;
mod networks;
mod open_devices;
mod ping;
mod port;
pub(crate) mod query;
mod run;
mod running;
mod runtime;
mod top;
mod trace;
mod web;

use straightline_config::Kinds;

use crate::cli::Command;

/// Executes a command.
pub(crate) fn execute(command: Command, kinds: &Kinds) -> anyhow::Result<()> {
    match command {
        #[cfg(feature = "lab")]
        Command::Demo(args) => demo::execute(&args),
        Command::Run(args) => run::execute(&args.config, kinds),
        Command::Check(args) => check::execute(&args, kinds),
        Command::Init(args) => init::execute(&args),
        Command::Capture(args) => capture::execute(&args),
        Command::Trace(args) => trace::execute(&args),
        Command::Ping(args) => ping::execute(&args),
        Command::Firewall(firewall) => firewall::execute(&firewall),
        Command::Flow(flow) => flow::execute(&flow),
        Command::Remote(remote) => networks::remote(&remote),
        Command::Station(station) => networks::station(&station),
        Command::Port(args) => port::execute(&args),
        Command::Query(args) => query::execute(&args),
        Command::Ports(args) => query::ports(&args),
        Command::Runtime(args) => runtime::execute(&args),
        Command::Doctor(args) => doctor::execute(&args, kinds),
        Command::Bugreport(args) => bugreport::execute(&args, kinds),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { folder } => manual::man(&folder),
        Command::Top(args) => top::execute(args),
        Command::Web(args) => web::execute(args),
        Command::Evpn(args) => evpn::execute(&args),
        Command::Events(args) => events::execute(&args),
        #[cfg(feature = "lab")]
        Command::Lab(lab) => lab::execute(&lab),
        Command::OpenDevices => open_devices::execute(),
        Command::MakeSockets => make_sockets::execute(),
    }
}

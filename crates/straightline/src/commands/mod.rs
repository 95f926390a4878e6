//! Commands, one per file. They load, call the libraries and print; the logic is in the libraries.

mod check;
mod demo;
pub(crate) mod lab;
mod link;
mod open_devices;
mod port;
mod query;
mod run;

use straightline_switch::config::Kinds;

use crate::cli::Command;

/// Executes a command.
pub(crate) fn execute(command: Command, kinds: &Kinds) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => demo::execute(&args),
        Command::Run(args) => run::execute(&args.config, kinds),
        Command::Check(args) => check::execute(&args.config, kinds),
        Command::Reload(args) => query::reload(&args),
        Command::Link(args) => link::execute(&args),
        Command::Port(args) => port::execute(&args),
        Command::Status(args) => query::status(&args),
        Command::Ports(args) => query::ports(&args),
        Command::Fdb(args) => query::fdb(&args),
        Command::Runtime(args) => query::runtime(&args),
        Command::Drops(args) => query::drops(&args),
        Command::Lab(lab) => lab::execute(&lab),
        Command::OpenDevices => open_devices::execute(),
    }
}

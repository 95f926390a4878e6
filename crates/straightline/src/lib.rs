//! The command line of Straightline, as a library: a program that brings nodes of its own is the switch with them in it.
//!
//! Standard output carries answers, standard error messages and logs. Exit 0: done; 1: it failed,
//! with a message; 2: wrong usage. `examples/macswap` is such a program.

mod cli;
mod commands;
mod output;

use std::process::ExitCode;

use clap::Parser;
use straightline_switch::config::Kinds;

/// All of the command line, for the arguments of this process; configurations may have nodes of these kinds.
#[must_use]
pub fn main(kinds: &Kinds) -> ExitCode {
    // Wrong usage ends here, with exit code 2.
    let cli = cli::Cli::parse();
    match commands::execute(cli.command, kinds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}

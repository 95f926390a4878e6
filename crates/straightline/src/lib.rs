//! Command line of Straightline, as a library. A program that adds nodes of its own calls it with
//! their kinds, and becomes the switch with these nodes. `examples/macswap` is such a program.
//!
//! This crate contains no logic: it parses arguments, calls the libraries and prints their answers.
//!
//! Answers go to standard output, messages and logs to standard error. The exit code is 0 for
//! success, 1 for a failure with a message, and 2 for wrong usage.
//!
//! ```no_run
//! use straightline_config::Kinds;
//!
//! fn main() -> std::process::ExitCode {
//!     // No kinds of nodes but the switch's own.
//!     straightline::main(&Kinds::new())
//! }
//! ```

mod cli;
mod commands;
mod complete;
mod help;
mod log_format;
mod output;
mod service_manager;

use std::process::ExitCode;

use clap::FromArgMatches;
use clap_complete::env::CompleteEnv;
use straightline_config::Kinds;

/// The guide for authors of nodes, whose code is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/nodes.md")]
pub struct NodesGuide;

/// Runs the command line with the arguments of this process. Configurations may use nodes of these
/// `kinds`.
#[must_use]
pub fn main(kinds: &Kinds) -> ExitCode {
    // A shell that asks for completions gets them, and the process ends.
    CompleteEnv::with_factory(help::command).var(complete::VARIABLE).completer("straightline").complete();
    // On wrong usage this call exits with code 2.
    let given = help::command().get_matches_from(cli::arguments(std::env::args_os().collect()));
    let cli = cli::Cli::from_arg_matches(&given).unwrap_or_else(|error| error.format(&mut help::command()).exit());
    match commands::execute(cli.command, kinds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}

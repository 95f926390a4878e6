//! The command line of Straightline.
//!
//! Standard output carries answers, standard error messages and logs. Exit 0: done; 1: it failed,
//! with a message; 2: wrong usage.

mod cli;
mod commands;
mod output;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Wrong usage ends here, with exit code 2.
    let cli = cli::Cli::parse();
    match commands::execute(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}

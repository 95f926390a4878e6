//! The command line of Straightline, with the built-in kinds of node only.

use std::process::ExitCode;

use straightline_config::Kinds;

fn main() -> ExitCode {
    straightline::main(&Kinds::new())
}

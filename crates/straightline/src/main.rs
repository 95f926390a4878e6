//! The command line of Straightline, with no nodes but the switch's own.

use std::process::ExitCode;

use straightline_switch::config::Kinds;

fn main() -> ExitCode {
    straightline::main(&Kinds::new())
}

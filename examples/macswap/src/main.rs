//! The switch with an additional kind of node.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use macswap::MacSwap;
use straightline_switch::config::Kinds;

fn main() -> ExitCode {
    let kinds = Kinds::new().with("macswap", |keys| MacSwap { prefetch: keys.integer("prefetch", 0..=8, 4) });
    straightline::main(&kinds)
}

//! The request `link`.

use serde::{Deserialize, Serialize};

use super::Done;

/// The arguments of the request `link`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "command-line", derive(clap::Args))]
#[cfg_attr(feature = "command-line", command(after_help = "Example:\n  straightline link vm1 down"))]
pub struct LinkRequest {
    /// The port's name.
    #[cfg_attr(feature = "command-line", arg(value_name = "PORT", help = "Name of the port"))]
    pub port: String,
    /// False sets the link down; true allows it to be up again.
    #[cfg_attr(feature = "command-line", arg(value_name = "up|down", help = "State of the link"))]
    #[cfg_attr(feature = "command-line", arg(action = clap::ArgAction::Set, value_parser = link_state()))]
    pub up: bool,
}

/// Returns a parser that takes `up` or `down`.
#[cfg(feature = "command-line")]
fn link_state() -> impl clap::builder::TypedValueParser<Value = bool> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(["up", "down"]).map(|state| state == "up")
}

/// Renders the answer to a change: nothing is to be said about it.
#[must_use]
pub(super) fn text(_: &Done) -> String {
    String::new()
}

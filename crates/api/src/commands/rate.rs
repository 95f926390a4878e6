//! The request `rate`.

use serde::{Deserialize, Serialize};

/// The arguments of the request `rate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "command-line", derive(clap::Args))]
#[cfg_attr(
    feature = "command-line",
    command(
        after_help = "Examples:\n  straightline rate vm1 in \"100 Mbit/s\"\n  straightline rate vm1 out \"1 Gbit/s\" \"100k packet/s\" --burst \"1 MB\"\n  straightline rate vm1 in off"
    )
)]
pub struct RateRequest {
    /// The port's name.
    #[cfg_attr(feature = "command-line", arg(value_name = "PORT", help = "Name of the port"))]
    pub port: String,
    /// `in`: from the port; `out`: to the port.
    #[cfg_attr(feature = "command-line", arg(value_name = "in|out", help = "Direction: from or to the port"))]
    #[cfg_attr(feature = "command-line", arg(value_parser = ["in", "out"]))]
    pub direction: String,
    /// A rate of bits, of packets, or both; or `off`.
    #[cfg_attr(feature = "command-line", arg(value_name = "RATE", required = true, num_args = 1..=2))]
    #[cfg_attr(feature = "command-line", arg(help = "Rate, such as \"1 Gbit/s\" or \"100k packet/s\"; or off"))]
    pub rate: Vec<String>,
    /// Bursts of bytes, of packets, or both. Without them they follow from the rate.
    #[serde(default)]
    #[cfg_attr(feature = "command-line", arg(long, value_name = "BURST", num_args = 1..=2))]
    #[cfg_attr(
        feature = "command-line",
        arg(help = "Most that passes at once, such as \"512 KiB\" or \"200 packet\"")
    )]
    pub burst: Vec<String>,
}

/// The answer to `rate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RateSet {
    /// The port.
    pub port: String,
    /// The key of the limit: `rate-in` or `rate-out`.
    pub key: String,
    /// The rate before; empty for no limit.
    pub before: String,
    /// The rate now.
    pub now: String,
    /// True if the port is one of the file: the next reload sets the rate that the file has.
    pub until_reload: bool,
}

/// Renders the answer to `rate`.
#[must_use]
pub(super) fn text(set: &RateSet) -> String {
    let RateSet { port, key, before, now, until_reload } = set;
    let shown = |rate: &str| if rate.is_empty() { "no limit".to_owned() } else { rate.to_owned() };
    let how_long = if *until_reload { "\nThe file wins at the next reload.\n" } else { "\n" };
    format!("{port}: {key} is {} now, it was {}{how_long}", shown(now), shown(before))
}

//! The request `bindings`.

use serde::{Deserialize, Serialize};

use super::networks::MOST_ROWS;
use crate::layout::Grid;

/// The arguments of the request `bindings`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "command-line", derive(clap::Args))]
#[cfg_attr(
    feature = "command-line",
    command(after_help = "Examples:\n  straightline bindings\n  straightline bindings lan --json")
)]
pub struct BindingsRequest {
    /// The bridge; without it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "command-line", arg(value_name = "BRIDGE", help = "Name of the bridge; default: all"))]
    pub bridge: Option<String>,
    /// Only bindings behind this place are of interest: `next` of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "command-line", arg(long, value_name = "PLACE", help = "Show those behind this place"))]
    pub after: Option<String>,
    /// The most bindings of the answer.
    #[serde(default = "BindingsRequest::default_limit")]
    #[cfg_attr(feature = "command-line", arg(long, value_name = "N", default_value_t = 1000))]
    #[cfg_attr(feature = "command-line", arg(help = "Most bindings to show"))]
    pub limit: u32,
}

impl BindingsRequest {
    /// The most bindings of an answer, whatever the request asks for.
    pub const MOST: u32 = MOST_ROWS;

    fn default_limit() -> u32 {
        1000
    }
}

/// An IP address that belongs to a MAC address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Binding {
    /// The bridge.
    pub bridge: String,
    /// The VLAN.
    pub vlan: u16,
    /// The IP address.
    pub ip: String,
    /// The MAC address.
    pub mac: String,
    /// The port behind which it is.
    pub port: String,
    /// `static`: the file has it; `checked`: seen from a port with `allowed-ips`; `dhcp`: a server has said
    /// so; `owner`: a client has added it.
    pub source: String,
    /// The owner, if a client has added it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Seconds since it was last seen; 0 for one of the file or of an owner.
    pub age_s: f64,
    /// True: the station is asked whether it still has the address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probed: bool,
}

/// The answer to `bindings`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bindings {
    /// The bindings by bridge, VLAN and address.
    pub bindings: Vec<Binding>,
    /// The number of all bindings that the request means.
    pub total: u64,
    /// The place of the last binding, if there are more: the next request has it as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Renders the answer to `bindings`.
#[must_use]
pub(super) fn text(answer: &Bindings) -> String {
    if answer.bindings.is_empty() {
        return "no bindings\n".to_owned();
    }
    let mut grid = Grid::new(&["<bridge", ">vlan", "<IP address", "<address", "<port", "<source", ">age"]);
    for binding in &answer.bindings {
        let Binding { bridge, vlan, ip, mac, port, source, owner, age_s, probed } = binding;
        let source = owner.as_ref().map_or_else(|| source.clone(), |owner| format!("{source} {owner}"));
        let age = if ["static", "owner"].iter().any(|fixed| source.starts_with(fixed)) {
            String::new()
        } else {
            format!("{age_s:.0} s{}", if *probed { ", asked" } else { "" })
        };
        grid.row([bridge.clone(), vlan.to_string(), ip.clone(), mac.clone(), port.clone(), source, age]);
    }
    grid.render("")
}

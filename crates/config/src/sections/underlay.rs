//! Reads `[underlay.NAME]`.

use std::net::IpAddr;

use straightline_underlay::PathMtuErrors;
use toml::Spanned;
use toml::de::DeValue;

use crate::address::{parse_address, parse_ip};
use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, Value};
use crate::sections::section::Section;
use crate::{Draft, Mac, UnderlayConfig};

/// The maximum number of addresses. Each received packet may be compared with all of them.
const MAX_ADDRESSES: usize = 16;

/// The keys of `[underlay.NAME]`.
pub(crate) const KEYS: &[Key] = &[
    Key::new(
        "port",
        Value::Text("port name"),
        Absent::Required,
        "The port, of any kind but a tunnel. It is in no patch, bridge or mirror, and has no `nodes`, \
         `egress-nodes`, `dscp`, `expedited` and `source-check`. With `vlan`, it may be a trunk of a bridge that does not use this VLAN.",
        "\"nic0\"",
    ),
    Key::new(
        "address",
        Value::Texts { of: "IP addresses with prefix", min: 1, max: MAX_ADDRESSES },
        Absent::Required,
        "The switch's addresses.",
        "[\"192.0.2.1/24\", \"2001:db8::1/64\"]",
    ),
    Key::new(
        "gateway",
        Value::Texts { of: "IP addresses, one for each IP version", min: 0, max: 2 },
        Absent::Text("none"),
        "Routers to other networks. They are in networks of `address`.",
        "[\"192.0.2.254\"]",
    ),
    Key::new(
        "vlan",
        Value::integer(1, 4094),
        Absent::Text("none"),
        "VLAN of all packets. Packets with another tag, or without one, are not for the underlay.",
        "100",
    ),
    Key::new(
        "mtu",
        Value::Integer { min: 576, max: 9216, unit: "bytes" },
        Absent::Text("that of the port"),
        "Longest IP packet that the network carries, at most the port's `mtu`. With an IPv6 address it is at least \
         1280.",
        "9000",
    ),
    Key::new(
        "path-mtu",
        Value::IntegerOr { min: 576, max: 9216, unit: "bytes", word: "off" },
        Absent::Text("what leaves 1280 bytes inside each tunnel"),
        "Least MTU of a path that the switch believes when a router tells one by ICMP. `\"off\"`: it believes none. \
         Anybody can forge these errors.",
        "1400",
    ),
    Key::new(
        "mac",
        Value::Text("unicast MAC address"),
        Absent::Text("by kind of the port"),
        "The switch's MAC address in this network. The default on `af-xdp` and `af-packet` is the address of the \
         interface. On other kinds it is made from the machine's id, the name and the first address.",
        "\"52:54:00:00:00:01\"",
    ),
    Key::new(
        "neighbours",
        Value::Table { of: "IP and MAC addresses" },
        Absent::Text("none"),
        "Next hops whose MAC addresses are fixed.",
        "{ \"192.0.2.2\" = \"52:54:00:00:00:02\" }",
    ),
];

/// The places in the file that later checks point at.
pub(crate) struct UnderlaySpans {
    pub(crate) name: Span,
    pub(crate) port: Span,
    /// The place of the list of addresses, or of the section.
    pub(crate) address: Span,
    /// The place of the list of gateways, if there is one.
    pub(crate) gateway: Option<Span>,
    /// The place of each address.
    pub(crate) addresses: Vec<Span>,
    /// The place of each gateway.
    pub(crate) gateways: Vec<Span>,
    /// The place of `vlan`.
    pub(crate) vlan: Option<Span>,
    /// The place of `mtu`. `None`: the MTU is that of the port.
    pub(crate) mtu: Option<Span>,
    /// The place of `path-mtu`.
    pub(crate) path_mtu: Option<Span>,
    /// The place of each static neighbour.
    pub(crate) neighbours: Vec<Span>,
}

pub(crate) fn read(name: &str, section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    section.only(KEYS, report);
    let port = section.required_text("port", "port = \"nic0\"", report);
    let example = "address = [\"192.0.2.1/24\", \"2001:db8::1/64\"]";
    if section.get("address").is_none() {
        section.missing("address", example, report);
    }
    let (addresses, address_spans) =
        read_list(section, "address", example, parse_address, |address| address.ip, report);
    if let Some(value) = section.get("address") {
        let written = value.get_ref().as_array().map_or(1, |array| array.len());
        if written == 0 || written > MAX_ADDRESSES {
            let message = format!(
                "address in {}: {written} addresses; an underlay has 1 to {MAX_ADDRESSES}, for example {example}",
                section.title()
            );
            report.error(&value.span(), message);
        }
    }
    let example = "gateway = [\"192.0.2.254\"]";
    let (gateways, gateway_spans) = read_list(section, "gateway", example, parse_ip, |gateway| *gateway, report);
    let vlan = section.integer("vlan", 1..=4094, report).map(Spanned::into_inner);
    let mtu = section.integer("mtu", 576..=9216, report);
    let path_mtu = section.integer_or("path-mtu", 576..=9216, "off", report);
    let mac = section.mac("mac", report).map(Spanned::into_inner);
    let (neighbours, neighbour_spans) = read_neighbours(section, report);
    let spans = UnderlaySpans {
        name: section.span().clone(),
        port: section.place("port", report).unwrap_or(section.span().clone()),
        address: section.place("address", report).unwrap_or(section.span().clone()),
        gateway: section.place("gateway", report),
        addresses: address_spans,
        gateways: gateway_spans,
        vlan: section.place("vlan", report),
        mtu: section.place("mtu", report),
        path_mtu: path_mtu.as_ref().map(Spanned::span),
        neighbours: neighbour_spans,
    };
    let underlay = UnderlayConfig {
        name: name.to_owned(),
        port: port.map_or_else(String::new, |port| (*port.get_ref()).to_owned()),
        addresses,
        gateways,
        vlan,
        mtu: mtu.map_or(0, Spanned::into_inner),
        mac,
        neighbours,
        path_mtu: match path_mtu.map(Spanned::into_inner) {
            None => PathMtuErrors::UsableInside,
            Some(Some(mtu)) => PathMtuErrors::Least(mtu),
            Some(None) => PathMtuErrors::Off,
        },
    };
    draft.underlays.push((underlay, spans));
}

/// Reads a list of values with an address each, and the place of each value.
fn read_list<T>(
    section: &Section<'_>,
    key: &str,
    example: &str,
    parse: fn(&str) -> Result<T, String>,
    ip: fn(&T) -> IpAddr,
    report: &mut Findings<'_>,
) -> (Vec<T>, Vec<Span>) {
    let mut values = Vec::new();
    let mut spans = Vec::new();
    for text in section.texts(key, example, report).map_or_else(Vec::new, Spanned::into_inner) {
        let why = match parse(text.get_ref()) {
            Ok(value) if values.iter().any(|other| ip(other) == ip(&value)) => "named twice; name it once".to_owned(),
            Ok(value) => {
                values.push(value);
                spans.push(text.span());
                continue;
            }
            Err(why) => why,
        };
        report.error(&text.span(), format!("{:?} in {key} of {}: {why}", text.get_ref(), section.title()));
    }
    (values, spans)
}

/// Reads the MAC addresses of next hops that are fixed.
fn read_neighbours(section: &Section<'_>, report: &mut Findings<'_>) -> (Vec<(IpAddr, Mac)>, Vec<Span>) {
    let (mut neighbours, mut spans): (Vec<(IpAddr, Mac)>, Vec<Span>) = Default::default();
    let example = "neighbours = { \"192.0.2.2\" = \"52:54:00:00:00:02\" }";
    for (key, value) in section.table("neighbours", example, report) {
        let text = key.get_ref().as_ref();
        let title = section.title();
        let ip = match parse_ip(text) {
            Ok(ip) => ip,
            Err(why) => {
                report.error(&key.span(), format!("neighbour {text:?} of {title}: {why}"));
                continue;
            }
        };
        let DeValue::String(mac) = value.get_ref() else {
            let message =
                format!("neighbour {text:?} of {title}: its value must be a MAC address, for example {example}");
            report.error(&value.span(), message);
            continue;
        };
        match mac.parse::<Mac>() {
            Ok(_) if neighbours.iter().any(|(known, _)| *known == ip) => {
                let message =
                    format!("neighbour {text:?} of {title}: this address has a MAC address already; remove one");
                report.error(&key.span(), message);
            }
            Ok(mac) => {
                neighbours.push((ip, mac));
                spans.push(key.span());
            }
            Err(why) => report.error(&value.span(), format!("neighbour {text:?} of {title}: {mac:?} is {why}")),
        }
    }
    (neighbours, spans)
}

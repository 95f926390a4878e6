//! Reads the sections that join ports: `[patch.NAME]` and `[bridge.NAME]`.

use straightline_wire::VlanId;
use toml::Spanned;
use toml::de::DeValue;

use crate::address::parse_ip;
use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, UNBOUNDED, Value};
use crate::sections::flows;
use crate::sections::section::Section;
use crate::{BridgeConfig, Draft, Mac, PatchConfig, StaticBinding, StaticEntry, WhenFull};

/// A patch or bridge as later checks see it: its title, and the name and place of each port.
pub(crate) struct Network {
    pub(crate) title: String,
    pub(crate) ports: Vec<(String, Span)>,
    /// The place of the list of ports.
    pub(crate) list: Span,
    /// The place of `full = "wait"`.
    pub(crate) waits: Option<Span>,
}

/// The maximum limit of addresses. An entry takes a few dozen bytes, so a million entries fit into
/// memory. No network needs more.
pub(crate) const MAX_ADDRESSES: u32 = 1 << 20;

/// The keys of `[patch.NAME]`.
pub(crate) const PATCH_KEYS: &[Key] = &[
    Key::new(
        "ports",
        Value::Texts { of: "port names", min: 2, max: 2 },
        Absent::Required,
        "The ports. A port is in one patch or bridge only.",
        "[\"vm1\", \"vm2\"]",
    ),
    Key::new(
        "full",
        Value::Choice(&["drop", "wait"]),
        Absent::Value("\"drop\""),
        "What happens to a packet whose destination has no free buffers. `\"drop\"`: it is dropped and counted. \
         `\"wait\"`: it stays in the source's ring; both ports must be of kind `vhost-user`.",
        "\"wait\"",
    ),
];

/// Most connections that the flows of a bridge may follow.
const MOST_FLOW_CONNECTIONS: u32 = 16_000_000;

/// The keys of `[bridge.NAME]`.
pub(crate) const BRIDGE_KEYS: &[Key] = &[
    Key::new(
        "ports",
        Value::Texts { of: "port names", min: 1, max: UNBOUNDED },
        Absent::Required,
        "The ports. A port is in one patch or bridge only.",
        "[\"vm1\", \"vm2\", \"vm3\"]",
    ),
    Key::new(
        "ageing",
        Value::Integer { min: 1, max: 1_000_000, unit: "seconds" },
        Absent::Value("300"),
        "The bridge forgets an address that sent nothing for this time.",
        "60",
    ),
    Key::new(
        "limit",
        Value::Integer { min: 1, max: MAX_ADDRESSES as i64, unit: "addresses" },
        Absent::Value("4096"),
        "Size of the address table, static entries included.",
        "65536",
    ),
    Key::new(
        "api-stations",
        Value::Integer { min: 0, max: MAX_ADDRESSES as i64, unit: "addresses" },
        Absent::Value("4096"),
        "Most addresses that clients of the API may add, such as a controller of many hosts. They have places of their \
         own: learned addresses do not take them.",
        "100000",
    ),
    Key::new(
        "loop-protection",
        Value::Boolean,
        Absent::Value("true"),
        "`true`: an address that moves between ports again and again (more than 10 times in 10 s) stays at one port, and \
         its frames from others drop. An event names both ports.",
        "false",
    ),
    Key::new(
        "static",
        Value::Places { of: "MAC addresses and port names", key: "port" },
        Absent::Text("none"),
        "Addresses that are known from the start and never forgotten. Each port must be one of the bridge's. On a trunk, \
         the value names the VLAN, too: `{ port = \"nic0\", vlan = 10 }`, or a list of these.",
        "{ \"02:00:00:00:00:03\" = \"vm3\" }",
    ),
    Key::new(
        "snooping",
        Value::Boolean,
        Absent::Value("false"),
        "`true`: packets to a multicast group go only to the ports that listen to it, as IGMP and MLD tell.",
        "true",
    ),
    Key::new(
        "neighbour-suppression",
        Value::Boolean,
        Absent::Value("false"),
        "`true`: the bridge learns which MAC address has an IP address, from ports with `allowed-ips` and from DHCP. It \
         answers questions for these (ARP, neighbour discovery) itself instead of flooding them.",
        "true",
    ),
    Key::new(
        "bindings",
        Value::Places { of: "IP and MAC addresses", key: "mac" },
        Absent::Text("none"),
        "IP addresses whose MAC addresses are known from the start, at most 4096. In a VLAN: `{ mac = \
         \"02:00:00:00:00:05\", vlan = 10 }`, or a list of these. Needs `neighbour-suppression`.",
        "{ \"10.0.0.5\" = \"02:00:00:00:00:05\" }",
    ),
    flows::FLOWS,
    flows::FLOWS_FILE,
    flows::METERS,
    Key::new(
        "connections",
        Value::Integer { min: 1, max: MOST_FLOW_CONNECTIONS as i64, unit: "connections" },
        Absent::Value("65536"),
        "Most connections that flows with `ct` follow. Each port of the bridge has an equal part.",
        "1000000",
    ),
];

pub(crate) fn read_patch(name: &str, section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    section.only(PATCH_KEYS, report);
    let full = section.choice("full", &[("drop", WhenFull::Drop), ("wait", WhenFull::Wait)], report);
    let example = "ports = [\"vm1\", \"vm2\"]";
    let Some(ports) = read_ports(section, example, report, draft) else {
        return;
    };
    if let (Some(full), Some(network)) = (&full, draft.networks.last_mut()) {
        network.waits = (*full.get_ref() == WhenFull::Wait).then(|| full.span());
    }
    let full = full.map_or_else(WhenFull::default, Spanned::into_inner);
    if ports.written != 2 {
        let message = format!(
            "ports of {}: {} named; a patch joins exactly 2, for example {example}",
            section.title(),
            ports.written
        );
        report.error(&ports.span, message);
    }
    if let Ok(ports) = <[String; 2]>::try_from(ports.names) {
        draft.patches.push(PatchConfig { name: name.to_owned(), ports, full });
    }
}

pub(crate) fn read_bridge(name: &str, section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    section.only(BRIDGE_KEYS, report);
    let example = "ports = [\"vm1\", \"vm2\", \"vm3\"]";
    let ports = read_ports(section, example, report, draft);
    if let Some(ports) = &ports
        && ports.written == 0
    {
        let message =
            format!("ports of {}: none named; a bridge has at least one, for example {example}", section.title());
        report.error(&ports.span, message);
    }
    // IEEE 802.1Q-2018, table 8-6, allows 10 to 1 000 000 seconds. Less is useful in a laboratory.
    let ageing =
        section.integer("ageing", 1..=1_000_000, report).map_or(BridgeConfig::DEFAULT_AGEING, Spanned::into_inner);
    let limit = section.integer("limit", 1..=MAX_ADDRESSES, report);
    let api_stations = section.integer("api-stations", 0..=MAX_ADDRESSES, report);
    let api_stations = api_stations.map_or(BridgeConfig::DEFAULT_API_STATIONS, Spanned::into_inner);
    let loop_protection = section.boolean("loop-protection", report).is_none_or(Spanned::into_inner);
    let snooping = section.boolean("snooping", report).is_some_and(Spanned::into_inner);
    let connections = section.integer("connections", 1..=MOST_FLOW_CONNECTIONS, report);
    let connections = connections.map_or(BridgeConfig::DEFAULT_CONNECTIONS, Spanned::into_inner);
    let (statics, static_spans) = read_statics(section, report);
    let neighbour_suppression = section.boolean("neighbour-suppression", report).is_some_and(Spanned::into_inner);
    let bindings = read_bindings(section, neighbour_suppression, report);
    let most = limit.as_ref().map_or(BridgeConfig::DEFAULT_LIMIT, |limit| *limit.get_ref());
    if u32::try_from(statics.len()).map_or(true, |count| count > most) {
        let span = limit.as_ref().map_or(section.span().clone(), Spanned::span);
        let count = statics.len();
        let message = format!(
            "limit {most} in {}: less than its {count} static entries; it must be at least {count}",
            section.title()
        );
        report.error(&span, message);
    }
    // Without ports, each name in a flow would be a further mistake.
    let ports = ports.map(|ports| ports.names).unwrap_or_default();
    let flows = if ports.is_empty() { None } else { flows::read(section, &ports, &draft.folder, report) };
    let bridge = BridgeConfig {
        name: name.to_owned(),
        ports,
        ageing,
        limit: most,
        api_stations,
        loop_protection,
        statics,
        snooping,
        neighbour_suppression,
        bindings,
        flows,
        connections,
    };
    draft.bridges.push((bridge, static_spans));
}

/// The most bindings of a bridge in the file.
const MAX_BINDINGS: usize = 4096;

/// Reads `bindings`: IP addresses, each with its MAC address.
fn read_bindings(section: &Section<'_>, is_used: bool, report: &mut Findings<'_>) -> Vec<StaticBinding> {
    let mut bindings: Vec<StaticBinding> = Vec::new();
    let example = "bindings = { \"10.0.0.5\" = \"02:00:00:00:00:05\" }";
    let title = section.title();
    let table = section.table("bindings", example, report);
    if let Some(value) = section.get("bindings") {
        if !is_used {
            let message = format!("bindings in {title}: without effect; set neighbour-suppression = true");
            report.error(&value.span(), message);
        } else if table.len() > MAX_BINDINGS {
            let message = format!("bindings in {title}: {} entries; at most {MAX_BINDINGS}", table.len());
            report.error(&value.span(), message);
        }
    }
    for (key, value) in table {
        let text = key.get_ref().as_ref();
        let ip = match parse_ip(text) {
            Ok(ip) => ip,
            Err(why) => {
                report.error(&key.span(), format!("binding {text:?} in {title}: {why}"));
                continue;
            }
        };
        let places = match value.get_ref() {
            DeValue::Array(places) => places.iter().collect(),
            _ => vec![value],
        };
        for place in places {
            let title = format!("binding {text:?} in {title}");
            let Some((mac, vlan)) = read_place(place, "mac") else {
                report.error(&place.span(), format!("{title}: its value must be a MAC address, for example {example}"));
                continue;
            };
            match mac.parse::<Mac>() {
                Err(why) => report.error(&place.span(), format!("{title}: {mac:?} is {why}")),
                Ok(_) if bindings.iter().any(|known| known.ip == ip && known.vlan == vlan) => {
                    report.error(&place.span(), format!("{title}: named twice in this VLAN; name it once"));
                }
                Ok(mac) => bindings.push(StaticBinding { ip, mac, vlan }),
            }
        }
    }
    bindings
}

/// The key `ports` of a patch or bridge.
struct Ports {
    /// The elements that are texts.
    names: Vec<String>,
    /// The number of elements.
    written: usize,
    /// The place of the value.
    span: Span,
}

/// Reads `ports`, and adds them to the draft's networks.
fn read_ports(section: &Section<'_>, example: &str, report: &mut Findings<'_>, draft: &mut Draft) -> Option<Ports> {
    let Some(value) = section.get("ports") else {
        section.missing("ports", example, report);
        return None;
    };
    let ports = section.texts("ports", example, report)?;
    let pairs = ports.get_ref().iter();
    let pairs: Vec<_> = pairs.map(|port| ((*port.get_ref()).to_owned(), port.span())).collect();
    let names = pairs.iter().map(|(name, _)| name.clone()).collect();
    draft.networks.push(Network { title: section.title().to_owned(), ports: pairs, list: ports.span(), waits: None });
    Some(Ports { names, written: value.get_ref().as_array().map_or(0, |array| array.len()), span: ports.span() })
}

/// Reads the place of a static entry: the name of a port or the address of a remote, or a table with it
/// under `key` and with a VLAN.
pub(crate) fn read_place(value: &Spanned<DeValue<'_>>, key: &str) -> Option<(String, Option<VlanId>)> {
    let table = match value.get_ref() {
        DeValue::String(place) => return Some((place.as_ref().to_owned(), None)),
        DeValue::Table(table) => table,
        _ => return None,
    };
    let is_known = |(known, _): (&Spanned<_>, _)| [key, "vlan"].contains(&AsRef::<str>::as_ref(known.get_ref()));
    if !table.iter().all(is_known) {
        return None;
    }
    let place = table.get(key)?.get_ref().as_str()?.to_owned();
    let Some(vlan) = table.get("vlan") else { return Some((place, None)) };
    let DeValue::Integer(digits) = vlan.get_ref() else { return None };
    let vid = u16::from_str_radix(digits.as_str(), digits.radix()).ok()?;
    Some((place, Some(VlanId::new(vid)?)))
}

fn read_statics(section: &Section<'_>, report: &mut Findings<'_>) -> (Vec<StaticEntry>, Vec<Span>) {
    let (mut entries, mut spans): (Vec<StaticEntry>, Vec<Span>) = Default::default();
    let example = "static = { \"02:00:00:00:00:03\" = \"vm3\" }";
    for (key, port) in section.table("static", example, report) {
        let text = key.get_ref().as_ref();
        let title = section.title();
        let mac = match text.parse::<Mac>() {
            Ok(mac) => mac,
            Err(why) => {
                report.error(&key.span(), format!("static entry {text:?} in {title}: {why}"));
                continue;
            }
        };
        if entries.iter().any(|entry| entry.mac == mac) {
            report.error(
                &key.span(),
                format!("static entry {text:?} in {title}: this address has an entry already; remove one of them"),
            );
            continue;
        }
        let places = match port.get_ref() {
            DeValue::Array(places) => places.iter().collect(),
            _ => vec![port],
        };
        for place in places {
            let Some((port, vlan)) = read_place(place, "port") else {
                let message = format!(
                    "static entry {text:?} in {title}: its value must be a port's name, for example {example}, or name a                      VLAN, too: {{ port = \"nic0\", vlan = 10 }}, or be a list of these"
                );
                report.error(&place.span(), message);
                continue;
            };
            if entries.iter().any(|entry| entry.mac == mac && entry.vlan == vlan) {
                let message = format!("static entry {text:?} in {title}: this VLAN is named twice; name it once");
                report.error(&place.span(), message);
                continue;
            }
            entries.push(StaticEntry { mac, port, vlan });
            spans.push(place.span());
        }
    }
    (entries, spans)
}

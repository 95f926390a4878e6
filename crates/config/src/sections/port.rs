//! Reads `[port.NAME]`: the keys that ports of all kinds have.

use straightline_wire::FrameLimit;

use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, UNBOUNDED, Value};
use crate::sections::bridge_port;
use crate::sections::dscp;
use crate::sections::kind;
use crate::sections::port_groups::{self, GroupsSpans};
use crate::sections::rate;
use crate::sections::section::Section;
use crate::sections::source_check;
use crate::{Draft, PortConfig, PortKind};

/// The keys that ports of all kinds have.
pub(crate) const KEYS: &[Key] = &[
    Key::new("kind", Value::Choice(kind::WORDS), Absent::Required, "Kind of the port.", "\"vhost-user\""),
    Key::new(
        "mtu",
        Value::Integer { min: 68, max: 9216, unit: "bytes" },
        Absent::Text("1500; for a tunnel what fits its underlay"),
        "Longest packet, without its Ethernet header. Longer packets are dropped, except unsegmented ones that both \
         sides negotiated. A tap gets this MTU. For another interface, the smaller of both MTUs counts.",
        "9000",
    ),
    Key::new(
        "mac",
        Value::Text("unicast MAC address"),
        Absent::Text("by kind"),
        "MAC address behind the port. vhost-user: the address that the guest is told. tap: the address of the \
         interface. A tunnel that carries IP: the address that it answers with.",
        "\"52:54:00:00:00:01\"",
    ),
    Key::new(
        "nodes",
        Value::Texts { of: "node names, each at most once", min: 0, max: UNBOUNDED },
        Absent::Text("none"),
        "Nodes that packets from this port pass, in this order, before its patch or bridge.",
        "[\"watch\"]",
    ),
    Key::new(
        "egress-nodes",
        Value::Texts { of: "node names, each at most once", min: 0, max: UNBOUNDED },
        Absent::Text("none"),
        "Nodes that packets to this port pass, in this order, after the patch or bridge and before delivery. They may \
         change packets: other ports do not see it.",
        "[\"watch\"]",
    ),
    Key::new(
        "source-check",
        Value::Choice(&["off", "mac"]),
        Absent::Value("\"off\""),
        "`\"mac\"`: drops packets that claim a MAC address other than `mac` and `allowed-macs`. It checks the source \
         address, ARP and IPv6 neighbour discovery. It needs one of the two keys.",
        "\"mac\"",
    ),
    Key::new(
        "allowed-macs",
        Value::Texts { of: "MAC addresses or prefixes of 8 to 48 bits", min: 0, max: 256 },
        Absent::Text("none"),
        "Further MAC addresses that the guest may claim. Needed for VRRP, for bonding, and for a MAC address that the \
         guest sets itself. Needs `source-check = \"mac\"`.",
        "[\"00:00:5e:00:01:00/40\"]",
    ),
    Key::new(
        "share",
        Value::Integer { min: 1, max: 10, unit: "parts" },
        Absent::Text("1"),
        "The port's part of its worker's time in relation to other ports, while all of them always have packets. For a \
         tunnel, that of the port that carries it counts.",
        "2",
    ),
    Key::new(
        "allowed-ips",
        Value::Texts { of: "IP addresses or prefixes", min: 1, max: 256 },
        Absent::Text("all"),
        "Drops packets that claim other IP addresses. Some addresses are always allowed, such as `0.0.0.0`. Needs \
         `source-check = \"mac\"`.",
        "[\"10.0.0.5\", \"fd00::/64\"]",
    ),
];

/// The places in the file that later checks point at.
pub(crate) struct PortSpans {
    pub(crate) name: Span,
    pub(crate) mac: Option<Span>,
    pub(crate) mtu: Option<Span>,
    /// The place of each node in `nodes`.
    pub(crate) nodes: Vec<Span>,
    /// The place of each node in `egress-nodes`.
    pub(crate) egress_nodes: Vec<Span>,
    /// The place of `source-check`.
    pub(crate) source_check: Option<Span>,
    /// The place of `dscp`.
    pub(crate) dscp: Option<Span>,
    /// The place of `expedited`.
    pub(crate) expedited: Option<Span>,
    /// The place of `trunk`.
    pub(crate) trunk: Option<Span>,
    /// The place of `native-vlan`.
    pub(crate) native_vlan: Option<Span>,
    /// The first key that only a bridge heeds.
    pub(crate) bridge_key: Option<(&'static str, Span)>,
    /// The sections `[rate.NAME]` that the port names.
    pub(crate) rates: Vec<(String, Span)>,
    pub(crate) groups: GroupsSpans,
}

/// Returns the keys that ports of all kinds have, with those of bridges, classes of service, rates and
/// groups.
pub(crate) fn keys() -> Vec<Key> {
    [KEYS, bridge_port::KEYS, dscp::KEYS, rate::KEYS, port_groups::KEYS].concat()
}

pub(crate) fn read(name: &str, section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    let kind = kind::read(section, &keys(), report, draft);
    let mtu = section
        .integer("mtu", PortConfig::MIN_MTU..=9216, report)
        .map_or(PortConfig::DEFAULT_MTU, toml::Spanned::into_inner);
    let mac = section.mac("mac", report);
    let mac_span = mac.as_ref().map(toml::Spanned::span);
    let mac = mac.map(toml::Spanned::into_inner);
    let source_check = source_check::read(section, report);
    let (nodes, node_spans) = read_nodes(section, "nodes", report);
    let (egress_nodes, egress_spans) = read_nodes(section, "egress-nodes", report);
    let bridge_port::Read { rules, move_limit, first } = bridge_port::read(section, &kind, report);
    let kind_moves = matches!(kind, PortKind::VhostUser(_)).then_some(PortConfig::DEFAULT_MOVE_LIMIT);
    let dscp::Read { dscp, expedited } = dscp::read(section, report);
    let frame = FrameLimit::new(mtu).bytes().into();
    let rate::Read { rate_in, rate_out, names } = rate::read(section, kind.can_wait(), frame, report);
    let share = read_share(section, &kind, report);
    let port_groups::Read { groups, spans: groups_spans, connections, trusted, message_limit } =
        port_groups::read(section, report);
    let name_span = section.span().clone();
    let spans = PortSpans {
        name: name_span,
        mac: mac_span,
        mtu: section.place("mtu", report),
        nodes: node_spans,
        egress_nodes: egress_spans,
        source_check: section.get("source-check").map(toml::Spanned::span),
        dscp: section.place("dscp", report),
        expedited: section.place("expedited", report),
        trunk: section.place("trunk", report),
        native_vlan: section.place("native-vlan", report),
        bridge_key: first,
        rates: names,
        groups: groups_spans,
    };
    let name = name.to_owned();
    let port = PortConfig {
        name,
        kind,
        mtu,
        mac,
        nodes,
        egress_nodes,
        source_check,
        rules,
        move_limit: move_limit.or(kind_moves),
        share,
        dscp,
        expedited,
        rate_in,
        rate_out,
        groups,
        connections,
        trusted,
        message_limit,
    };
    draft.ports.push((port, spans));
}

/// Reads the port's share of its worker's time.
fn read_share(section: &Section<'_>, kind: &PortKind, report: &mut Findings<'_>) -> u8 {
    let Some(share) = section.integer("share", 1..=10, report) else { return 1 };
    if let Some(tunnel) = kind.as_tunnel() {
        let message = format!(
            "share in a tunnel: it has that of its carrier; set share in the port of underlay {:?}",
            tunnel.underlay
        );
        report.error(&share.span(), message);
    }
    share.into_inner()
}

/// Reads a list of nodes, with the place of each name.
fn read_nodes(section: &Section<'_>, key: &str, report: &mut Findings<'_>) -> (Vec<String>, Vec<Span>) {
    let example = format!("{key} = [\"a\"]");
    let nodes = section.texts(key, &example, report).map_or_else(Vec::new, toml::Spanned::into_inner);
    nodes.iter().map(|node| ((*node.get_ref()).to_owned(), node.span())).unzip()
}

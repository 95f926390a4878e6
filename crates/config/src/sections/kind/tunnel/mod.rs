//! The kinds of tunnel: the keys that they share. Each kind has a file for its own keys.

mod geneve;
mod gre;
mod gtpu;
mod l2tpv3;
mod mpls_udp;
mod networks;
mod nvgre;
mod vxlan;
mod vxlan_gpe;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use az::SaturatingAs;
use straightline_nodes::VlanRole;
use straightline_underlay::{Network, TunnelConfig, TunnelKind};
use straightline_wire::{MacAddr, VlanId, VlanSet};
use toml::Spanned;
use toml::de::DeValue;

use super::{KindSettings, PortKind, Reader};
use crate::address::parse_ip;
use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, Value};
use crate::sections::network::{MAX_ADDRESSES, read_place};
use crate::sections::section::Section;
use crate::{Draft, Mac, PortConfig};

/// The keys that all tunnels have.
const SHARED: &[Key] = &[
    Key::new(
        "underlay",
        Value::Text("name of an underlay"),
        Absent::Required,
        "The underlay that carries the packets.",
        "\"wan\"",
    ),
    Key::new(
        "remote",
        Value::Text("IP address"),
        Absent::Required,
        "The other end. It is in a network of the underlay, or behind a gateway. Kinds with several remotes may have \
         `remotes` instead.",
        "\"192.0.2.2\"",
    ),
    Key::new(
        "local",
        Value::Text("IP address"),
        Absent::Text("the underlay's address in the remote's network, else its first of that IP version"),
        "Our end: an address of the underlay.",
        "\"192.0.2.1\"",
    ),
];
/// The keys of kinds with several remotes.
const SEVERAL: &[Key] = &[
    Key::new(
        "remotes",
        Value::Texts { of: "IP addresses of one version", min: 0, max: MAX_REMOTES },
        Absent::InsteadOf("remote"),
        "Instead of `remote`: several other ends. Packets for unknown stations go to all of them. Clients of the API may \
         add more, so the list may be empty.",
        "[\"192.0.2.2\", \"192.0.2.3\"]",
    ),
    Key::new(
        "static",
        Value::Places { of: "MAC and IP addresses", key: "remote" },
        Absent::Text("none"),
        "Stations behind a remote that are known from the start, at most 4096. With `vnis`, the value names the VLAN, \
         too: `{ remote = \"192.0.2.3\", vlan = 10 }`, or a list of these.",
        "{ \"02:00:00:00:00:03\" = \"192.0.2.3\" }",
    ),
    Key::new(
        "limit",
        Value::Integer { min: 1, max: MAX_ADDRESSES as i64, unit: "addresses" },
        Absent::Value("4096"),
        "Size of the table of stations behind several remotes, static entries included. Half of it is divided among \
         the remotes.",
        "65536",
    ),
];
/// The key of kinds in UDP whose source port is free.
const SOURCE_PORT: &[Key] = &[Key::new(
    "source-port",
    Value::integer(1, 65535),
    Absent::Text("by the flow, from 49152 on"),
    "Fixed source port. Without it, routers and NICs can tell flows apart.",
    "50000",
)];
/// The keys of kinds that travel in UDP.
const UDP: &[Key] = &[
    Key::new(
        "zero-checksum",
        Value::Boolean,
        Absent::Value("false"),
        "`true`: accepts packets without outer checksum over IPv6 as well (RFC 6935). Over IPv4 they are always \
         accepted.",
        "true",
    ),
    VERIFY,
];
/// The key that turns the check of outer checksums off.
const VERIFY: Key = Key::new(
    "verify",
    Value::Boolean,
    Absent::Value("true"),
    "`false`: checksums of received outer packets are not verified.",
    "false",
);
/// The key that makes a tunnel carry IP.
const IP: Key = Key::new(
    "ip",
    Value::Boolean,
    Absent::Value("false"),
    "`true`: the tunnel carries IP packets, without Ethernet headers.",
    "true",
);

/// Bytes of a VLAN tag.
const VLAN_TAG: u16 = 4;
/// The most remotes of one tunnel: a packet for an unknown station is sent to each of them.
const MAX_REMOTES: usize = 64;
/// The most networks of one tunnel, counted for each remote.
const MAX_NETWORKS: usize = 65_536;
/// The most static entries of one tunnel.
const MAX_STATICS: usize = 4096;

/// The functions that read a kind's keys, by the word for the kind in a file.
pub(super) const READERS: &[(&str, Reader)] = &[
    ("l2tpv3", Reader { keys: &[SHARED, l2tpv3::KEYS, UDP], refused: &["source-port"], read: l2tpv3::read }),
    (
        "vxlan",
        Reader {
            keys: &[SHARED, vxlan::KEYS, networks::KEYS, SEVERAL, SOURCE_PORT, UDP],
            refused: &[],
            read: vxlan::read,
        },
    ),
    (
        "geneve",
        Reader {
            keys: &[SHARED, geneve::KEYS, networks::KEYS, SEVERAL, SOURCE_PORT, UDP],
            refused: &[],
            read: geneve::read,
        },
    ),
    ("gre", Reader { keys: &[SHARED, gre::KEYS], refused: &[], read: gre::read }),
    ("nvgre", Reader { keys: &[SHARED, nvgre::KEYS], refused: &[], read: nvgre::read }),
    (
        "vxlan-gpe",
        Reader {
            keys: &[SHARED, vxlan_gpe::KEYS, networks::KEYS, SEVERAL, SOURCE_PORT, UDP],
            refused: &[],
            read: vxlan_gpe::read,
        },
    ),
    ("gtpu", Reader { keys: &[SHARED, gtpu::KEYS, SOURCE_PORT, UDP], refused: &[], read: gtpu::read }),
    ("mpls-udp", Reader { keys: &[SHARED, mpls_udp::KEYS, SOURCE_PORT, UDP], refused: &[], read: mpls_udp::read }),
];

/// The keys that only tunnels have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelSettings {
    /// The name of the underlay.
    pub underlay: String,
    /// The encapsulation with its keys. If there are several networks, it has the identifier of the first.
    pub kind: TunnelKind,
    /// The networks in the order of their VLANs. Empty if `kind` names the only network.
    pub networks: Vec<Network>,
    /// True if frames with a VLAN tag inside are dropped.
    pub drops_tags: bool,
    /// Our address, one of the underlay's.
    pub local: IpAddr,
    /// The addresses of the other ends; at least one unless `takes_remotes`.
    pub remotes: Vec<IpAddr>,
    /// True if clients of the API may add remotes (`remotes`).
    pub takes_remotes: bool,
    /// Inner stations that are known from the start, each with its remote.
    pub statics: Vec<RemoteStatic>,
    /// The most inner stations that are known, static ones included.
    pub limit: u32,
    /// The fixed source port (UDP). `None`: by the flow's hash.
    pub source_port: Option<u16>,
    /// True if outer checksums of received packets are verified.
    pub verify: bool,
    /// True if packets without outer checksum are accepted over IPv6 as well.
    pub zero_checksum: bool,
}

/// An inner station that is known from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteStatic {
    /// Its address.
    pub mac: Mac,
    /// The remote behind which it is.
    pub remote: IpAddr,
    /// The VLAN of its network, if the tunnel has several.
    pub vlan: Option<VlanId>,
}

/// A tunnel as later checks see it, with the places that they point at.
pub(crate) struct TunnelSite {
    /// The port's index in the draft.
    pub(crate) port: usize,
    pub(crate) underlay: Span,
    /// The place of `local`. `None`: the underlay's address of the remote's IP version.
    pub(crate) local: Option<Span>,
    /// The place of the key `local`, even if its value is wrong.
    pub(crate) local_key: Option<Span>,
    /// The place of `remote` or `remotes`, or of the section.
    pub(crate) remote: Span,
    /// The place of each remote.
    pub(crate) remotes: Vec<Span>,
    /// The place of each static entry's remote.
    pub(crate) statics: Vec<Span>,
    /// The place of the key that tells tunnels of one remote apart.
    pub(crate) key: Span,
    /// The place of each network's identifier.
    pub(crate) networks: Vec<Span>,
    /// The place of `mtu`. `None`: the MTU is what fits the underlay.
    pub(crate) mtu: Option<Span>,
}

impl TunnelSettings {
    /// Returns the settings of the tunnel of this port, as the tunnel itself has them. `face` is
    /// its MAC address if it carries IP.
    pub fn config(&self, port: &PortConfig, face: MacAddr) -> TunnelConfig {
        let mac = |mac: Mac| MacAddr(mac.octets());
        TunnelConfig {
            name: port.name.clone(),
            kind: self.kind.clone(),
            networks: self.networks.clone(),
            drops_tags: self.drops_tags,
            local: self.local,
            remotes: self.remotes.clone(),
            stations: self
                .statics
                .iter()
                .map(|station| (station.vlan.unwrap_or(VlanId::DEFAULT), mac(station.mac), station.remote))
                .collect(),
            limit: self.limit.saturating_as::<usize>(),
            mtu: port.mtu,
            verify: self.verify,
            zero_checksum: self.zero_checksum,
            source_port: self.source_port,
            mac: self.kind.carries_ip().then(|| port.mac.map_or(face, mac)),
        }
    }
}

impl TunnelSettings {
    /// Returns the VLANs of the networks, if there are several.
    pub(crate) fn vlans(&self) -> VlanSet {
        self.networks.iter().map(|network| network.vlan).collect()
    }

    /// Returns the network identifiers, in the order of the networks.
    pub(crate) fn vnis(&self) -> Vec<u32> {
        if self.networks.is_empty() {
            return self.kind.vni().into_iter().collect();
        }
        self.networks.iter().map(|network| network.vni).collect()
    }

    /// Returns the bytes of the longest inner IP packet of `port`, this tunnel's, in outer IP packets of
    /// at most `mtu` bytes. Frames of a trunk have a tag inside.
    pub(crate) fn mtu_inside(&self, port: &PortConfig, mtu: u16) -> u16 {
        let is_trunk = port.rules.vlans.as_ref().is_some_and(|vlans| matches!(vlans.role, VlanRole::Trunk { .. }));
        let tag = if is_trunk { VLAN_TAG } else { 0 };
        self.kind.mtu_inside(mtu, self.local.is_ipv6()).saturating_sub(tag)
    }
}

impl KindSettings for TunnelSettings {
    fn word(&self) -> &'static str {
        self.kind.as_str()
    }

    /// Returns 0: the underlay's port does everything.
    fn queues(&self) -> usize {
        0
    }

    fn differs(&self, new: &Self) -> Vec<String> {
        let Self {
            underlay,
            kind,
            networks,
            drops_tags,
            local,
            remotes,
            takes_remotes,
            statics,
            limit,
            source_port,
            verify,
            zero_checksum,
        } = self;
        let mut differences = Vec::new();
        super::note(&mut differences, "underlay", underlay, &new.underlay);
        super::note(&mut differences, "local", *local, new.local);
        // The networks have the identifiers, and a section may go from one to the other.
        let has_networks = !networks.is_empty() || !new.networks.is_empty();
        let forget_vni = |kind: &TunnelKind| if has_networks { kind.with_vni(0) } else { kind.clone() };
        if forget_vni(kind) != forget_vni(&new.kind) {
            let old = kind.as_str();
            let new = new.kind.as_str();
            differences.push(if old == new { format!("keys of {old}") } else { format!("kind {old} is now {new}") });
        }
        for (key, differs) in [
            ("vnis", *networks != new.networks),
            ("inner-tags", *drops_tags != new.drops_tags),
            ("remotes", *remotes != new.remotes || *takes_remotes != new.takes_remotes),
            ("static", *statics != new.statics),
            ("limit", *limit != new.limit),
            ("source-port", *source_port != new.source_port),
            ("verify", *verify != new.verify),
            ("zero-checksum", *zero_checksum != new.zero_checksum),
        ] {
            if differs {
                differences.push(format!("{key} has changed"));
            }
        }
        differences
    }
}

/// Reads the keys of a tunnel. `read_kind` reads those of its kind, whose packets go to a remote of
/// the given address; `key` is the one that tells tunnels of one remote apart.
fn read(
    section: &Section<'_>,
    key: &str,
    report: &mut Findings<'_>,
    draft: &mut Draft,
    read_kind: impl FnOnce(&Section<'_>, Option<IpAddr>, &mut Findings<'_>) -> TunnelKind,
) -> PortKind {
    let underlay = section.required_text("underlay", "underlay = \"wan\"", report);
    let place = |key: &str| section.get(key).map(Spanned::span);
    let (remotes, remote_spans) = read_remotes(section, report);
    let local = section.text("local", "local = \"192.0.2.1\"", report);
    let local = local.and_then(|text| parse(section, "local", &text, report));
    let mut kind = read_kind(section, remotes.first().copied(), report);
    let has_vni = kind.vni().is_some();
    let (networks, network_spans) = if has_vni { networks::read(section, report) } else { Default::default() };
    if let Some(first) = networks.first() {
        kind = kind.with_vni(first.vni);
    }
    let drops_tags = has_vni && networks::read_drops_tags(section, !networks.is_empty(), report);
    check_size(section, networks.len() * remotes.len(), report);
    let (statics, static_spans) = read_statics(section, &networks, report);
    let limit = read_limit(section, statics.len(), report);
    let source_port = section.integer("source-port", 1..=u16::MAX, report).map(Spanned::into_inner);
    let verify = section.boolean("verify", report).is_none_or(Spanned::into_inner);
    let zero_checksum = section.boolean("zero-checksum", report).is_some_and(Spanned::into_inner);
    let remote = section.place("remotes", report).or_else(|| section.place("remote", report));
    draft.tunnels.push(TunnelSite {
        port: draft.ports.len(),
        underlay: underlay.as_ref().map_or(section.span().clone(), Spanned::span),
        local: local.and(place("local")),
        local_key: section.place("local", report),
        remote: remote.unwrap_or(section.span().clone()),
        remotes: remote_spans,
        statics: static_spans,
        key: section.place("vnis", report).or_else(|| section.place(key, report)).unwrap_or(section.span().clone()),
        networks: network_spans,
        mtu: place("mtu"),
    });
    let unspecified = match remotes.first() {
        Some(IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    PortKind::Tunnel(TunnelSettings {
        underlay: underlay.map_or_else(String::new, |underlay| (*underlay.get_ref()).to_owned()),
        kind,
        networks,
        drops_tags,
        // The underlay's section may come later in the file.
        local: local.unwrap_or(unspecified),
        remotes,
        takes_remotes: section.get("remotes").is_some(),
        statics,
        limit,
        source_port,
        verify,
        zero_checksum,
    })
}

fn parse(section: &Section<'_>, key: &str, text: &Spanned<&str>, report: &mut Findings<'_>) -> Option<IpAddr> {
    let ip = parse_ip(text.get_ref());
    if let Err(why) = &ip {
        report.error(&text.span(), format!("{key} {:?} in {}: {why}", text.get_ref(), section.title()));
    }
    ip.ok()
}

/// Reads `remote` or `remotes`, with the place of each address.
fn read_remotes(section: &Section<'_>, report: &mut Findings<'_>) -> (Vec<IpAddr>, Vec<Span>) {
    let title = section.title();
    let example = "remotes = [\"192.0.2.2\", \"192.0.2.3\"]";
    let mut found: Vec<(IpAddr, Span)> = Vec::new();
    match (section.get("remote"), section.get("remotes")) {
        (None, None) => section.missing("remote", "remote = \"192.0.2.2\"", report),
        (Some(_), Some(remotes)) => {
            let message = format!("remotes in {title}: it has remote as well; name all remotes in remotes");
            report.error(&remotes.span(), message);
        }
        (Some(_), None) => {
            let text = section.text("remote", "remote = \"192.0.2.2\"", report);
            found.extend(text.and_then(|text| Some((parse(section, "remote", &text, report)?, text.span()))));
        }
        (None, Some(value)) => {
            let texts = section.texts("remotes", example, report).map_or_else(Vec::new, Spanned::into_inner);
            let count = value.get_ref().as_array().map_or(1, |array| array.len());
            if count > MAX_REMOTES {
                let message =
                    format!("remotes in {title}: {count} addresses; name at most {MAX_REMOTES}, for example {example}");
                report.error(&value.span(), message);
            }
            for text in texts {
                let Some(ip) = parse(section, "remotes", &text, report) else { continue };
                if found.iter().any(|(other, _)| *other == ip) {
                    report.error(&text.span(), format!("remote {ip} in {title}: named twice; name it once"));
                } else if found.first().is_some_and(|(first, _)| first.is_ipv4() != ip.is_ipv4()) {
                    let message = format!(
                        "remote {ip} in {title}: the others are of the other IP version; use one tunnel for each version"
                    );
                    report.error(&text.span(), message);
                } else {
                    found.push((ip, text.span()));
                }
            }
        }
    }
    found.into_iter().unzip()
}

/// Reads `limit`: the size of the table of stations, of which `statics` are fixed.
fn read_limit(section: &Section<'_>, statics: usize, report: &mut Findings<'_>) -> u32 {
    let limit = section.integer("limit", 1..=MAX_ADDRESSES, report);
    let most = limit.as_ref().map_or(TunnelConfig::DEFAULT_LIMIT, |limit| *limit.get_ref());
    if u32::try_from(statics).map_or(true, |count| count > most) {
        let span = limit.as_ref().map_or(section.span().clone(), Spanned::span);
        let message = format!(
            "limit {most} in {}: less than its {statics} static entries; it must be at least {statics}",
            section.title()
        );
        report.error(&span, message);
    }
    most
}

/// Checks the number of networks, counted for each remote. Each has headers of its own.
fn check_size(section: &Section<'_>, size: usize, report: &mut Findings<'_>) {
    if let Some(value) = section.get("vnis").filter(|_| size > MAX_NETWORKS) {
        let message = format!(
            "vnis in {}: the networks, counted for each remote, are {size}; at most {MAX_NETWORKS}: divide them among \
             several ports",
            section.title()
        );
        report.error(&value.span(), message);
    }
}

/// Reads `static`: inner stations, each with its remote, and with its VLAN if there are several
/// networks.
fn read_statics(
    section: &Section<'_>,
    networks: &[Network],
    report: &mut Findings<'_>,
) -> (Vec<RemoteStatic>, Vec<Span>) {
    let (mut entries, mut spans): (Vec<RemoteStatic>, Vec<Span>) = Default::default();
    let example = if networks.is_empty() {
        "static = { \"02:00:00:00:00:03\" = \"192.0.2.3\" }"
    } else {
        "static = { \"02:00:00:00:00:03\" = { remote = \"192.0.2.3\", vlan = 10 } }"
    };
    let table = section.table("static", example, report);
    if let Some(value) = section.get("static").filter(|_| table.len() > MAX_STATICS) {
        let message = format!("static in {}: {} entries; at most {MAX_STATICS}", section.title(), table.len());
        report.error(&value.span(), message);
    }
    for (key, value) in table {
        let text = key.get_ref().as_ref();
        let title = section.title();
        let mac = match text.parse::<Mac>() {
            Ok(mac) if entries.iter().any(|entry| entry.mac == mac) => {
                let message =
                    format!("static entry {text:?} in {title}: this address has an entry already; remove one");
                report.error(&key.span(), message);
                continue;
            }
            Ok(mac) => mac,
            Err(why) => {
                report.error(&key.span(), format!("static entry {text:?} in {title}: {why}"));
                continue;
            }
        };
        let places = match value.get_ref() {
            DeValue::Array(places) => places.iter().collect(),
            _ => vec![value],
        };
        for place in places {
            let title = format!("static entry {text:?} in {title}");
            let Some((remote, vlan)) = read_place(place, "remote") else {
                let message = format!("{title}: its value must be a remote's address, for example {example}");
                report.error(&place.span(), message);
                continue;
            };
            let why = match vlan {
                None if !networks.is_empty() => {
                    Some(format!("the port has vnis; name the VLAN, for example {example}"))
                }
                Some(_) if networks.is_empty() => Some("the port has no vnis; remove vlan".to_owned()),
                Some(vlan) if networks.iter().all(|network| network.vlan != vlan) => {
                    Some(format!("VLAN {vlan} is not in vnis of the port"))
                }
                _ if entries.iter().any(|entry| entry.mac == mac && entry.vlan == vlan) => {
                    Some("this VLAN is named twice; name it once".to_owned())
                }
                _ => None,
            };
            match (why, parse_ip(&remote)) {
                (Some(why), _) => report.error(&place.span(), format!("{title}: {why}")),
                (None, Err(why)) => report.error(&place.span(), format!("{title}: {remote:?} is {why}")),
                (None, Ok(remote)) => {
                    entries.push(RemoteStatic { mac, remote, vlan });
                    spans.push(place.span());
                }
            }
        }
    }
    (entries, spans)
}

/// Reads a number that the file must have.
fn required<T>(section: &Section<'_>, key: &str, range: std::ops::RangeInclusive<T>, report: &mut Findings<'_>) -> T
where
    T: TryFrom<i64> + PartialOrd + std::fmt::Display + Copy,
{
    let first = *range.start();
    if section.get(key).is_none() {
        section.missing(key, &format!("{key} = {}", *range.start()), report);
    }
    section.integer(key, range, report).map_or(first, Spanned::into_inner)
}

/// Reads bytes in hexadecimal digits.
fn bytes(section: &Section<'_>, key: &str, example: &str, report: &mut Findings<'_>) -> Option<Spanned<Vec<u8>>> {
    let text = section.text(key, &format!("{key} = {example:?}"), report)?;
    let digits = text.get_ref().as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    match bytes.filter(|_| rest.is_empty()) {
        Some(bytes) => Some(Spanned::new(text.span(), bytes)),
        None => {
            let message = format!(
                "{key} {:?} in {}: not pairs of hexadecimal digits; write for example {example:?}",
                text.get_ref(),
                section.title()
            );
            report.error(&text.span(), message);
            None
        }
    }
}

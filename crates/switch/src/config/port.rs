//! Reads `[port.NAME]`.

use std::path::PathBuf;

use super::diagnostic::{Report, Span};
use super::section::{self, Section};
use super::source_check;
use super::users::{self, Id};
use super::{Draft, DraftSocket, Mac, Mode, Offloads, PortConfig, PortKind, VhostUserConfig, socket_path};

/// The keys of a vhost-user port.
const KEYS: &[&str] = &[
    "kind",
    "socket",
    "owner",
    "group",
    "perms",
    "mode",
    "queues",
    "mtu",
    "mac",
    "packed",
    "offloads",
    "nodes",
    "source-check",
    "allowed-macs",
    "allowed-ips",
];

/// Where later checks point at.
pub(super) struct PortSpans {
    pub(super) name: Span,
    pub(super) mac: Option<Span>,
    /// Of each node.
    pub(super) nodes: Vec<Span>,
}

pub(super) fn read(name: &str, section: &Section<'_>, report: &mut Report<'_>, draft: &mut Draft) {
    let kinds = [("vhost-user", ())];
    if section.get("kind").is_none() {
        section.missing("kind", "kind = \"vhost-user\"", report);
    }
    // The kinds differ in their keys, so those of an unknown kind cannot be judged.
    if section.choice("kind", &kinds, report).is_some() || section.get("kind").is_none() {
        section.only(KEYS, report);
    }
    let mtu = section.integer("mtu", 68..=9216, report).map_or(PortConfig::DEFAULT_MTU, toml::Spanned::into_inner);
    let mac = section.text("mac", "mac = \"52:54:00:00:00:01\"", report);
    let mac_span = mac.as_ref().map(toml::Spanned::span);
    let mac = mac.and_then(|text| match text.get_ref().parse::<Mac>() {
        Ok(mac) => Some(mac),
        Err(why) => {
            report.error(&text.span(), format!("mac {:?} in {}: {why}", text.get_ref(), section.title()));
            None
        }
    });
    let source_check = source_check::read(section, report);
    let modes = [("server", Mode::Server), ("client", Mode::Client)];
    let mode = section.choice("mode", &modes, report).map_or(Mode::Server, toml::Spanned::into_inner);
    let socket = read_socket(section, mode, report, draft);
    let owner = read_id(section, "owner", users::user, report);
    let group = read_id(section, "group", users::group, report);
    if mode == Mode::Client {
        refuse_permissions(section, report);
    }
    let perms = read_perms(section, report).unwrap_or_else(|| VhostUserConfig::default_perms(group));
    let offloads = read_offloads(section, report);
    let packed = section.boolean("packed", report).is_none_or(toml::Spanned::into_inner);
    // vhost-user has eight bits for a ring's index where it sends a descriptor for it ("SET_VRING_KICK").
    let queues = section.integer("queues", 1..=127, report).map(toml::Spanned::into_inner);
    let nodes = section.texts("nodes", "nodes = [\"a\"]", report).map_or_else(Vec::new, toml::Spanned::into_inner);
    let (node_spans, nodes) = nodes.iter().map(|node| (node.span(), (*node.get_ref()).to_owned())).unzip();
    let kind = PortKind::VhostUser(VhostUserConfig { socket, mode, owner, group, perms, queues, packed, offloads });
    let spans = PortSpans { name: section.span().clone(), mac: mac_span, nodes: node_spans };
    draft.ports.push((PortConfig { name: name.to_owned(), kind, mtu, mac, nodes, source_check }, spans));
}

/// Who may connect is for whoever listens to say.
fn refuse_permissions(section: &Section<'_>, report: &mut Report<'_>) {
    for key in ["owner", "group", "perms"] {
        if let Some(value) = section.get(key) {
            let message = format!(
                "{key} in {}: a port of mode \"client\" makes no socket; leave it out, and let the VM's end say who may \
                 connect",
                section.title()
            );
            report.error(&value.span(), message);
        }
    }
}

fn read_socket(section: &Section<'_>, mode: Mode, report: &mut Report<'_>, draft: &mut Draft) -> PathBuf {
    let example = "socket = \"/run/straightline/vm1.sock\"";
    if section.get("socket").is_none() {
        section.missing("socket", example, report);
    }
    let Some(socket) = section.text("socket", example, report) else {
        return PathBuf::new();
    };
    let path = PathBuf::from(socket.get_ref());
    let owner = section.title().to_owned();
    let ours = mode == Mode::Server;
    // Whoever listens makes its folder too, perhaps later.
    let checked = if ours { socket_path::check(&path) } else { socket_path::check_name(&path) };
    if let Err(why) = checked {
        report.error(&socket.span(), format!("socket {:?} of {owner}: {why}", socket.get_ref()));
    }
    draft.sockets.push(DraftSocket { owner, path: path.clone(), ours, span: socket.span() });
    path
}

fn read_id(
    section: &Section<'_>,
    key: &str,
    find: fn(&str) -> std::io::Result<Id>,
    report: &mut Report<'_>,
) -> Option<u32> {
    let name = section.text(key, &format!("{key} = \"libvirt-qemu\""), report)?;
    let what = if key == "owner" { "user" } else { "group" };
    let why = match find(name.get_ref()) {
        Ok(Id::Found(id)) => return Some(id),
        Ok(Id::Unknown) => format!("this machine has no such {what}"),
        Err(error) => format!("cannot look it up: {error}"),
    };
    report.error(&name.span(), format!("{key} {:?} in {}: {why}", name.get_ref(), section.title()));
    None
}

fn read_perms(section: &Section<'_>, report: &mut Report<'_>) -> Option<u32> {
    let perms = section.text("perms", "perms = \"0660\"", report)?;
    let text = *perms.get_ref();
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let bits = if octal { u32::from_str_radix(text, 8).ok() } else { None };
    match bits.filter(|bits| *bits <= 0o777) {
        Some(bits) => Some(bits),
        None => {
            let message = format!(
                "perms {text:?} in {}: not permission bits; write them in octal, for example \"0660\"",
                section.title()
            );
            report.error(&perms.span(), message);
            None
        }
    }
}

fn read_offloads(section: &Section<'_>, report: &mut Report<'_>) -> Offloads {
    let Some(named) = section.texts("offloads", "offloads = [\"csum\", \"tso\"]", report) else {
        return Offloads::default();
    };
    let mut offloads = Offloads { csum: false, tso: false, uso: false };
    for name in named.get_ref() {
        let word = *name.get_ref();
        let flag = match word {
            "csum" => &mut offloads.csum,
            "tso" => &mut offloads.tso,
            "uso" => &mut offloads.uso,
            _ => {
                let hint = section::hint(word, &["csum", "tso", "uso"], "offloads");
                report.error(&name.span(), format!("offload {word:?} in {}: unknown; {hint}", section.title()));
                continue;
            }
        };
        if std::mem::replace(flag, true) {
            report.error(&name.span(), format!("offload {word:?} in {}: named twice", section.title()));
        }
    }
    // virtio 1.2, 5.1.3.1: the segmentation features require the checksum feature.
    if !offloads.csum && (offloads.tso || offloads.uso) {
        let needy: Vec<_> = named.get_ref().iter().map(|name| *name.get_ref()).filter(|name| *name != "csum").collect();
        let message = format!(
            "{} in {}: not offered, because segmentation needs \"csum\" too",
            needy.join(" and "),
            section.title()
        );
        report.warn(&named.span(), message);
        offloads = Offloads { csum: false, tso: false, uso: false };
    }
    offloads
}

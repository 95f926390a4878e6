//! Reads `[port.NAME]`: the keys that ports of all kinds have.

use super::diagnostic::{Findings, Span};
use super::section::Section;
use super::source_check;
use super::{Draft, Mac, PortConfig, kind};

/// The keys that ports of all kinds have, beside `kind`.
const COMMON_KEYS: &[&str] = &["mtu", "mac", "nodes", "egress-nodes", "source-check", "allowed-macs", "allowed-ips"];

/// The places in the file that later checks point at.
pub(super) struct PortSpans {
    pub(super) name: Span,
    pub(super) mac: Option<Span>,
    /// The place of each node in `nodes`.
    pub(super) nodes: Vec<Span>,
    /// The place of each node in `egress-nodes`.
    pub(super) egress_nodes: Vec<Span>,
}

pub(super) fn read(name: &str, section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    let kind = kind::read(section, COMMON_KEYS, report, draft);
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
    let (nodes, node_spans) = read_nodes(section, "nodes", report);
    let (egress_nodes, egress_spans) = read_nodes(section, "egress-nodes", report);
    let name_span = section.span().clone();
    let spans = PortSpans { name: name_span, mac: mac_span, nodes: node_spans, egress_nodes: egress_spans };
    let port = PortConfig { name: name.to_owned(), kind, mtu, mac, nodes, egress_nodes, source_check };
    draft.ports.push((port, spans));
}

/// Reads a list of nodes, with the place of each name.
fn read_nodes(section: &Section<'_>, key: &str, report: &mut Findings<'_>) -> (Vec<String>, Vec<Span>) {
    let example = format!("{key} = [\"a\"]");
    let nodes = section.texts(key, &example, report).map_or_else(Vec::new, toml::Spanned::into_inner);
    nodes.iter().map(|node| ((*node.get_ref()).to_owned(), node.span())).unzip()
}

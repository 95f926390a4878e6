//! Reads `[port.NAME]`: the keys that ports of all kinds have.

use super::diagnostic::{Report, Span};
use super::section::Section;
use super::source_check;
use super::{Draft, Mac, PortConfig, kind};

/// The keys that ports of all kinds have, beside `kind`.
const COMMON_KEYS: &[&str] = &["mtu", "mac", "nodes", "source-check", "allowed-macs", "allowed-ips"];

/// The places in the file that later checks point at.
pub(super) struct PortSpans {
    pub(super) name: Span,
    pub(super) mac: Option<Span>,
    /// The span of each node.
    pub(super) nodes: Vec<Span>,
}

pub(super) fn read(name: &str, section: &Section<'_>, report: &mut Report<'_>, draft: &mut Draft) {
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
    let nodes = section.texts("nodes", "nodes = [\"a\"]", report).map_or_else(Vec::new, toml::Spanned::into_inner);
    let (node_spans, nodes) = nodes.iter().map(|node| (node.span(), (*node.get_ref()).to_owned())).unzip();
    let spans = PortSpans { name: section.span().clone(), mac: mac_span, nodes: node_spans };
    draft.ports.push((PortConfig { name: name.to_owned(), kind, mtu, mac, nodes, source_check }, spans));
}

//! `kind = "mpls-udp"` (RFC 7510).

use straightline_underlay::TunnelKind;
use toml::Spanned;

use super::required;
use crate::Draft;
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::kind::PortKind;
use crate::sections::section::Section;

/// The keys that only this kind has.
pub(super) const KEYS: &[Key] = &[
    Key::new(
        "label",
        Value::integer(*LABELS.start() as i64, *LABELS.end() as i64),
        Absent::Required,
        "Label of packets from the remote. It tells tunnels to one remote apart.",
        "1000",
    ),
    Key::new(
        "peer-label",
        Value::integer(*LABELS.start() as i64, *LABELS.end() as i64),
        Absent::Text("`label`"),
        "Label of packets to the remote.",
        "1001",
    ),
];
/// The labels: 20 bits, of which the first 16 values have special meanings (RFC 3032, 2.1).
const LABELS: std::ops::RangeInclusive<u32> = 16..=0xf_ffff;

/// Reads the keys of a tunnel of MPLS in UDP.
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    super::read(section, "label", report, draft, |section, _, report| {
        let label = required(section, "label", LABELS, report);
        let peer_label = section.integer("peer-label", LABELS, report).map_or(label, Spanned::into_inner);
        TunnelKind::MplsUdp { label, peer_label }
    })
}

//! `kind = "gtpu"` (3GPP TS 29.281).

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
        "teid",
        Value::integer(1, 4_294_967_295),
        Absent::Required,
        "Identifier of packets from the remote. It tells tunnels to one remote apart.",
        "7",
    ),
    Key::new(
        "peer-teid",
        Value::integer(1, 4_294_967_295),
        Absent::Text("`teid`"),
        "Identifier of packets to the remote.",
        "8",
    ),
];

/// Reads the keys of a GTP-U tunnel.
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    super::read(section, "teid", report, draft, |section, _, report| {
        // TS 29.281, 5.1: signalling messages have the identifier 0.
        let teid = required(section, "teid", 1..=u32::MAX, report);
        let peer_teid = section.integer("peer-teid", 1..=u32::MAX, report).map_or(teid, Spanned::into_inner);
        TunnelKind::Gtpu { teid, peer_teid }
    })
}

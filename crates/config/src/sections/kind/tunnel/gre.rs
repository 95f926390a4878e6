//! `kind = "gre"` (RFC 2784, RFC 2890).

use straightline_underlay::TunnelKind;
use toml::Spanned;

use super::{IP, VERIFY};
use crate::Draft;
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::kind::PortKind;
use crate::sections::section::Section;

/// The keys that only this kind has.
pub(super) const KEYS: &[Key] = &[
    Key::new(
        "key",
        Value::integer(0, 4_294_967_295),
        Absent::Text("none"),
        "Key of packets in both directions. It tells tunnels to one remote apart.",
        "7",
    ),
    Key::new("checksum", Value::Boolean, Absent::Value("false"), "`true`: sends a checksum.", "true"),
    IP,
    VERIFY,
];

/// Reads the keys of a GRE tunnel.
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    super::read(section, "key", report, draft, |section, _, report| TunnelKind::Gre {
        key: section.integer("key", 0..=u32::MAX, report).map(Spanned::into_inner),
        checksum: section.boolean("checksum", report).is_some_and(Spanned::into_inner),
        ip: section.boolean("ip", report).is_some_and(Spanned::into_inner),
    })
}

//! `kind = "vxlan"` (RFC 7348).

use straightline_underlay::TunnelKind;

use super::networks::read_vni;
use crate::Draft;
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::kind::PortKind;
use crate::sections::section::Section;

/// The keys that only this kind has.
pub(super) const KEYS: &[Key] = &[VNI];
/// The network identifier.
pub(super) const VNI: Key = Key::new(
    "vni",
    Value::integer(0, MAX_VNI as i64),
    Absent::Required,
    "Network identifier. It tells tunnels to one remote apart.",
    "100",
);
/// The largest network identifier: it has 24 bits.
pub(super) const MAX_VNI: u32 = 0xff_ffff;

/// Reads the keys of a VXLAN tunnel.
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    super::read(section, "vni", report, draft, |section, _, report| TunnelKind::Vxlan {
        vni: read_vni(section, report),
    })
}

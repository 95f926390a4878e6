//! `kind = "nvgre"` (RFC 7637).

use straightline_underlay::TunnelKind;

use super::required;
use crate::Draft;
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::kind::PortKind;
use crate::sections::section::Section;

/// The keys that only this kind has.
pub(super) const KEYS: &[Key] = &[Key::new(
    "vsid",
    Value::integer(4096, 16_777_214),
    Absent::Required,
    "Network identifier. It tells tunnels to one remote apart.",
    "5000",
)];

/// Reads the keys of an NVGRE tunnel.
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    super::read(section, "vsid", report, draft, |section, _, report| TunnelKind::Nvgre {
        // RFC 7637, 3.2: the first 4096 and the last value are reserved.
        vsid: required(section, "vsid", 0x1000..=0xff_fffe, report),
    })
}

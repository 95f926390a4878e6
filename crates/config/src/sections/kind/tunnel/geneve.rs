//! `kind = "geneve"` (RFC 8926).

use straightline_underlay::TunnelKind;

use super::bytes;
use super::networks::read_vni;
use super::vxlan::VNI;
use crate::Draft;
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::kind::PortKind;
use crate::sections::section::Section;

/// The keys that only this kind has.
pub(super) const KEYS: &[Key] = &[
    VNI,
    Key::new(
        "options",
        Value::Text("at most 36 bytes in hexadecimal digits"),
        Absent::Text("none"),
        "Options to send with each packet.",
        "\"0102010100000007\"",
    ),
];
const MAX_OPTIONS: usize = TunnelKind::MAX_OPTIONS;

/// Reads the keys of a Geneve tunnel.
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    super::read(section, "vni", report, draft, |section, _, report| TunnelKind::Geneve {
        vni: read_vni(section, report),
        options: read_options(section, report),
    })
}

/// Reads the options that packets are sent with.
fn read_options(section: &Section<'_>, report: &mut Findings<'_>) -> Vec<u8> {
    let Some(options) = bytes(section, "options", "0102010100000007", report) else { return Vec::new() };
    let len = options.get_ref().len();
    let why = if len > MAX_OPTIONS {
        format!("{len} bytes; at most {MAX_OPTIONS} fit in front of a packet")
    } else if !are_whole(options.get_ref()) {
        "not whole options; each has 4 bytes, then the data whose length in words the last 5 bits of these 4 bytes tell"
            .to_owned()
    } else {
        return options.into_inner();
    };
    report.error(&options.span(), format!("options in {}: {why}", section.title()));
    Vec::new()
}

/// Returns whether the bytes are options from end to end (RFC 8926, 3.5).
fn are_whole(mut options: &[u8]) -> bool {
    while let Some((&[_, _, _, words], rest)) = options.split_first_chunk::<4>() {
        let Some(rest) = rest.get(usize::from(words & 0x1f) * 4..) else { return false };
        options = rest;
    }
    options.is_empty()
}

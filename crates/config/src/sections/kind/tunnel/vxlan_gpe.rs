//! `kind = "vxlan-gpe"` (draft-ietf-nvo3-vxlan-gpe).

use straightline_underlay::TunnelKind;
use toml::Spanned;

use super::IP;
use super::networks::{read_vni, refuse_with_ip};
use super::vxlan::VNI;
use crate::Draft;
use crate::diagnostic::Findings;
use crate::key::Key;
use crate::sections::kind::PortKind;
use crate::sections::section::Section;

/// The keys that only this kind has.
pub(super) const KEYS: &[Key] = &[VNI, IP];

/// Reads the keys of a VXLAN-GPE tunnel.
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    super::read(section, "vni", report, draft, |section, _, report| {
        let ip = section.boolean("ip", report).is_some_and(Spanned::into_inner);
        if ip {
            refuse_with_ip(section, report);
        }
        TunnelKind::VxlanGpe { vni: read_vni(section, report), ip }
    })
}

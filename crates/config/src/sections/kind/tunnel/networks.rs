//! The networks of a tunnel that has several, and what it does with tags inside.

use straightline_underlay::Network;
use straightline_wire::VlanId;
use toml::Spanned;
use toml::de::DeValue;

use super::vxlan::MAX_VNI;
use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, Value};
use crate::sections::section::Section;

/// The keys of kinds with a network identifier.
pub(super) const KEYS: &[Key] = &[
    Key::new(
        "vnis",
        Value::Numbers { of: "VLANs, each with a network identifier", min: 0, max: MAX_VNI as i64 },
        Absent::InsteadOf("vni"),
        "Instead of `vni`: several networks, each with the VLAN of its frames in the bridge. The port is in these VLANs \
         only, and its frames have no tag for them.",
        "{ 10 = 10010, 20 = 10020 }",
    ),
    Key::new(
        "inner-tags",
        Value::Choice(&["keep", "drop"]),
        Absent::Text("`\"keep\"`; with `vnis` `\"drop\"`"),
        "What happens to frames with a VLAN tag inside the tunnel, in both directions. `\"keep\"`: they pass. \
         `\"drop\"`: they drop as `vlan-not-allowed`, except priority tags (VID 0), as RFC 7348, 6.1 says.",
        "\"drop\"",
    ),
];

const EXAMPLE: &str = "vnis = { 10 = 10010, 20 = 10020 }";

/// Reads `vnis`, in the order of VLANs, with the place of each value.
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>) -> (Vec<Network>, Vec<Span>) {
    let mut found: Vec<(Network, Span)> = Vec::new();
    let title = section.title();
    let Some(value) = section.get("vnis") else { return Default::default() };
    let table = section.table("vnis", EXAMPLE, report);
    if value.get_ref().as_table().is_some() && table.is_empty() {
        let message = format!("vnis in {title}: no network named, so all frames would drop; for example {EXAMPLE}");
        report.error(&value.span(), message);
    }
    for (key, value) in table {
        let text = key.get_ref().as_ref();
        let Some(vlan) = text.parse().ok().and_then(VlanId::new) else {
            let most = VlanId::MAX;
            let message =
                format!("{text:?} in vnis of {title}: it must be a VLAN from 1 to {most}, for example {EXAMPLE}");
            report.error(&key.span(), message);
            continue;
        };
        let DeValue::Integer(digits) = value.get_ref() else {
            let message = format!(
                "VLAN {text} in vnis of {title}: its value must be a network identifier, for example {EXAMPLE}"
            );
            report.error(&value.span(), message);
            continue;
        };
        let vni = u32::from_str_radix(digits.as_str(), digits.radix()).ok().filter(|vni| *vni <= MAX_VNI);
        let Some(vni) = vni else {
            let message = format!(
                "network identifier {} of VLAN {text} in vnis of {title}: out of range; use 0 to {MAX_VNI}",
                digits.as_str()
            );
            report.error(&value.span(), message);
            continue;
        };
        if found.iter().any(|(other, _)| other.vlan == vlan) {
            report.error(&key.span(), format!("VLAN {vlan} in vnis of {title}: named twice; name it once"));
        } else if let Some((other, _)) = found.iter().find(|(other, _)| other.vni == vni) {
            let message = format!(
                "network identifier {vni} of VLAN {vlan} in vnis of {title}: VLAN {} has it already; give each VLAN its own",
                other.vlan
            );
            report.error(&value.span(), message);
        } else {
            found.push((Network { vlan, vni }, value.span()));
        }
    }
    found.sort_by_key(|(network, _)| network.vlan.get());
    found.into_iter().unzip()
}

/// Reads `vni`. A section that has `vnis` has none.
pub(super) fn read_vni(section: &Section<'_>, report: &mut Findings<'_>) -> u32 {
    match (section.get("vni"), section.place("vnis", report)) {
        (Some(_), Some(_)) => {
            if let Some(vnis) = section.get("vnis") {
                let message = format!(
                    "vnis in {}: it has vni as well; name all networks in vnis, each with its VLAN",
                    section.title()
                );
                report.error(&vnis.span(), message);
            }
            0
        }
        (None, Some(_)) => 0,
        (_, None) => super::required(section, "vni", 0..=MAX_VNI, report),
    }
}

/// Reads `inner-tags`: whether frames with tags drop. A tunnel of one network keeps them by default, as
/// a wire does.
pub(super) fn read_drops_tags(section: &Section<'_>, has_networks: bool, report: &mut Findings<'_>) -> bool {
    let drops = section.choice("inner-tags", &[("keep", false), ("drop", true)], report);
    if let Some(drops) = drops.as_ref().filter(|drops| *drops.get_ref())
        && section.get("trunk").is_some()
    {
        let message = format!(
            "inner-tags = \"drop\" in {}: the port has trunk, so all of its frames have a tag inside; remove one of them, \
             or name the VLANs in vnis",
            section.title()
        );
        report.error(&drops.span(), message);
    }
    drops.map_or(has_networks, Spanned::into_inner)
}

/// Reports keys that have no effect on a tunnel of IP packets.
pub(super) fn refuse_with_ip(section: &Section<'_>, report: &mut Findings<'_>) {
    for key in KEYS {
        if let Some(value) = section.get(key.name) {
            let message = format!(
                "{} in {}: with ip = true the tunnel carries no Ethernet frames, and so no VLANs; remove one of both",
                key.name,
                section.title()
            );
            report.error(&value.span(), message);
        }
    }
}

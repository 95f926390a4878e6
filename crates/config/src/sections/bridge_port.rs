//! Reads the keys of a port that only a bridge heeds: its VLANs, and what it may do to others.

use straightline_nodes::{MacLimit, NativeVlan, PortRules, PortVlans, StormLimits, VlanRole};
use straightline_wire::{EtherType, VlanId, VlanSet};
use toml::Spanned;
use toml::de::DeValue;

use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, Value};
use crate::sections::kind::{PortKind, TunnelSettings};
use crate::sections::network::MAX_ADDRESSES;
use crate::sections::section::Section;

/// The largest VLAN.
const MOST_VLAN: u16 = VlanId::MAX.get();

/// The keys, as a part of those of `[port.NAME]`.
pub(crate) const KEYS: &[Key] = &[
    Key::new(
        "vlan",
        Value::integer(1, MOST_VLAN as i64),
        Absent::Text("1, if another port of the bridge has VLANs"),
        "Access port: its frames have no tag, and are in this VLAN. Frames with a tag drop as `vlan-not-allowed`, except \
         priority tags (VID 0).",
        "10",
    ),
    Key::new(
        "trunk",
        Value::Ranges { of: "VLANs", min: 1, max: MOST_VLAN as i64 },
        Absent::Text("none"),
        "Trunk: its frames have a tag, and are in these VLANs. Frames of other VLANs drop as `vlan-not-allowed`.",
        "[10, 20, \"100-199\"]",
    ),
    Key::new(
        "native-vlan",
        Value::integer(1, MOST_VLAN as i64),
        Absent::Text("none"),
        "VLAN of frames without a tag on a trunk. Without it they drop as `vlan-not-allowed`. Needs `trunk`.",
        "1",
    ),
    Key::new(
        "native",
        Value::Choice(&["untagged", "tagged"]),
        Absent::Value("\"untagged\""),
        "`\"tagged\"`: frames of the native VLAN leave with a tag, too. Needs `native-vlan`.",
        "\"tagged\"",
    ),
    Key::new(
        "nested-tags",
        Value::Boolean,
        Absent::Value("false"),
        "`true`: frames that leave without a tag, in the native VLAN, may begin with one of the other kind than `tag`. \
         The next switch must not take it for a VLAN. Otherwise they drop as `nested-tag`. Needs `native-vlan`.",
        "true",
    ),
    Key::new(
        "qinq",
        Value::integer(1, MOST_VLAN as i64),
        Absent::Text("none"),
        "Customer port: all its frames, with their own tags or without, travel in this VLAN of the provider.",
        "100",
    ),
    Key::new(
        "tag",
        Value::Choice(&["802.1Q", "802.1ad"]),
        Absent::Value("\"802.1Q\""),
        "Kind of a trunk's tags. `\"802.1ad\"`: those of a provider, around tags of customers. Needs `trunk`.",
        "\"802.1ad\"",
    ),
    Key::new(
        "priority",
        Value::integer(0, 7),
        Absent::Value("0"),
        "Priority of frames that come in without a tag: that of the tag they get on a trunk. Needs `vlan`, `qinq`, \
         `native-vlan`, or `vnis` of a tunnel.",
        "5",
    ),
    Key::new(
        "isolated",
        Value::Boolean,
        Absent::Value("false"),
        "`true`: the port exchanges frames only with ports that are not isolated.",
        "true",
    ),
    Key::new(
        "learning",
        Value::Boolean,
        Absent::Value("true"),
        "`false`: the bridge learns no addresses from this port. Frames for its stations are flooded, unless `static` \
         of the bridge names them.",
        "false",
    ),
    Key::new(
        "unknown-unicast",
        Value::Boolean,
        Absent::Value("true"),
        "`false`: frames for addresses that the bridge does not know are not flooded to this port.",
        "false",
    ),
    Key::new(
        "mac-limit",
        Value::Integer { min: 1, max: MAX_ADDRESSES as i64, unit: "addresses" },
        Absent::Text("its share of the bridge's table"),
        "Most addresses that are learned from this port.",
        "4",
    ),
    Key::new(
        "mac-limit-action",
        Value::Choice(&["refuse", "drop"]),
        Absent::Value("\"refuse\""),
        "What happens to frames of further addresses. `\"refuse\"`: they pass, but their address is not learned. \
         `\"drop\"`: they drop as `mac-limit`. Needs `mac-limit`.",
        "\"drop\"",
    ),
    Key::new(
        "move-limit",
        Value::Integer { min: 1, max: MAX_ADDRESSES as i64, unit: "addresses" },
        Absent::Text("100 for `vhost-user`, any number for other kinds"),
        "Most addresses that move to this port in a second. Further ones stay where they were, so a guest cannot take \
         those of others at will.",
        "10",
    ),
    Key::new(
        "storm",
        Value::Table { of: "rates such as `\"1k/s\"` for `broadcast`, `multicast` and `unknown`" },
        Absent::Text("no limits"),
        "Most frames from this port that are flooded in a second: those for all, for groups, and for addresses that \
         nobody knows. A tenth of them passes at once after a pause, at least 8, and a GSO packet counts as its segments. \
         Further ones drop as `storm`, those of the flow actions `flood` and `all`, too.",
        "{ broadcast = \"1k/s\", unknown = \"500/s\" }",
    ),
];

/// The rules of a port, with the first key that needs a bridge.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) rules: PortRules,
    /// The most addresses that move to the port in a second.
    pub(crate) move_limit: Option<u32>,
    pub(crate) first: Option<(&'static str, Span)>,
}

/// Reads the rules of a port of this kind.
pub(crate) fn read(section: &Section<'_>, kind: &PortKind, report: &mut Findings<'_>) -> Read {
    let networks = kind.as_tunnel().and_then(networks);
    let vnis = networks.as_ref().and_then(|_| Some(("vnis", section.get("vnis")?.span())));

    let default = PortRules::default();
    let truth = |key, otherwise: bool, report: &mut Findings<'_>| {
        section.boolean(key, report).map_or(otherwise, Spanned::into_inner)
    };
    let rules = PortRules {
        vlans: read_vlans(section, networks, report),
        isolated: truth("isolated", default.isolated, report),
        learns: truth("learning", default.learns, report),
        takes_unknown: truth("unknown-unicast", default.takes_unknown, report),
        mac_limit: read_mac_limit(section, report),
        storm: read_storm(section, report),
    };
    let first = KEYS.iter().find_map(|key| Some((key.name, section.get(key.name)?.span()))).or(vnis);
    let move_limit = section.integer("move-limit", 1..=MAX_ADDRESSES, report).map(Spanned::into_inner);
    Read { rules, move_limit, first }
}

/// Returns the part in VLANs of a tunnel with several networks.
fn networks(tunnel: &TunnelSettings) -> Option<VlanRole> {
    let vlans = Box::new(tunnel.vlans());
    (!vlans.is_empty()).then_some(VlanRole::Networks { vlans, keeps_tags: !tunnel.drops_tags })
}

fn read_vlans(section: &Section<'_>, networks: Option<VlanRole>, report: &mut Findings<'_>) -> Option<PortVlans> {
    let vlan = |key, report: &mut Findings<'_>| {
        section.integer(key, 1..=MOST_VLAN, report).and_then(|number| VlanId::new(number.into_inner()))
    };
    let access = vlan("vlan", report);
    let customer = vlan("qinq", report);
    let native = vlan("native-vlan", report);
    let trunk = read_trunk(section, report);
    let tags = [("untagged", false), ("tagged", true)];
    let is_tagged = section.choice("native", &tags, report).is_some_and(Spanned::into_inner);
    let has_nested_tags = section.boolean("nested-tags", report).is_some_and(Spanned::into_inner);
    let tpids = [("802.1Q", EtherType::VLAN), ("802.1ad", EtherType::SERVICE_VLAN)];
    let tpid = section.choice("tag", &tpids, report).map_or(EtherType::VLAN, Spanned::into_inner);
    let priority = section.integer("priority", 0..=7, report).map_or(0, Spanned::into_inner);

    let mut roles: Vec<_> = ["vlan", "trunk", "qinq"].into_iter().filter(|key| section.get(key).is_some()).collect();
    roles.extend(networks.is_some().then_some("vnis"));
    if let [first, second, ..] = roles[..]
        && let Some(value) = section.get(second)
    {
        let message = format!(
            "{second} in {}: the port has {first}, too; a port has one of vlan, trunk{} and qinq",
            section.title(),
            if networks.is_some() { ", vnis" } else { "" }
        );
        report.error(&value.span(), message);
        return None;
    }
    needs(section, "native-vlan", &["trunk"], report);
    needs(section, "native", &["native-vlan"], report);
    needs(section, "nested-tags", &["native-vlan"], report);
    if is_tagged
        && has_nested_tags
        && let Some(value) = section.get("nested-tags")
    {
        let message =
            format!("nested-tags in {} has no effect with native = \"tagged\"; remove one of them", section.title());
        report.error(&value.span(), message);
    }
    needs(section, "tag", &["trunk"], report);
    needs(section, "priority", &["vlan", "qinq", "native-vlan", "vnis"], report);

    let role = match (access, customer, trunk, networks) {
        (Some(id), ..) => VlanRole::Access(id),
        (_, Some(id), ..) => VlanRole::Customer(id),
        (_, _, Some(mut vlans), _) => {
            let native = native.map(|id| NativeVlan { id, is_tagged, has_nested_tags });
            vlans.extend(native.map(|native| native.id));
            VlanRole::Trunk { tpid, vlans: Box::new(vlans), native }
        }
        (_, _, _, Some(role)) => role,
        _ => return None,
    };
    Some(PortVlans { role, priority })
}

/// Reports a key that has no effect without one of others.
fn needs(section: &Section<'_>, key: &str, others: &[&str], report: &mut Findings<'_>) {
    let is_there = |other: &&str| section.get(other).is_some() || section.has_misspelled(other, report);
    if let Some(value) = section.get(key)
        && !others.iter().any(is_there)
    {
        let others = others.join(", ");
        report.error(&value.span(), format!("{key} in {} needs {others} in this section", section.title()));
    }
}

/// Reads the list of a trunk's VLANs: numbers, and ranges in texts.
fn read_trunk(section: &Section<'_>, report: &mut Findings<'_>) -> Option<VlanSet> {
    const EXAMPLE: &str = "trunk = [10, \"100-199\"]";
    let value = section.get("trunk")?;
    let title = section.title();
    let DeValue::Array(array) = value.get_ref() else {
        let message = format!("trunk in {title}: it must be a list of VLANs, for example {EXAMPLE}");
        report.error(&value.span(), message);
        return None;
    };
    let mut vlans = VlanSet::EMPTY;
    let mut is_whole = true;
    for element in array.iter() {
        let range = match element.get_ref() {
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix()).ok().map(|id| (id, id)),
            DeValue::String(text) => text.split_once('-').and_then(|(first, last)| {
                let number = |text: &str| text.trim().parse::<i64>().ok();
                Some((number(first)?, number(last)?))
            }),
            _ => None,
        };
        let valid = range.filter(|(first, last)| 1 <= *first && first <= last && *last <= MOST_VLAN.into());
        let Some((first, last)) = valid else {
            let message = format!(
                "an element of trunk in {title}: it must be a VLAN from 1 to {MOST_VLAN}, or a range in a text; write for \
                 example {EXAMPLE}"
            );
            report.error(&element.span(), message);
            is_whole = false;
            continue;
        };
        let ids = (first..=last).filter_map(|id| VlanId::new(u16::try_from(id).ok()?));
        let mut twice = None;
        ids.for_each(|id| twice = twice.or((!vlans.insert(id)).then_some(id)));
        if let Some(id) = twice {
            let message = format!("trunk in {title}: VLAN {id} is named twice; name it once");
            report.error(&element.span(), message);
            is_whole = false;
        }
    }
    if array.is_empty() {
        let message = format!("trunk in {title}: no VLAN named, so all frames would drop; for example {EXAMPLE}");
        report.error(&value.span(), message);
    }
    (is_whole && !vlans.is_empty()).then_some(vlans)
}

fn read_mac_limit(section: &Section<'_>, report: &mut Findings<'_>) -> Option<MacLimit> {
    let drops = section.choice("mac-limit-action", &[("refuse", false), ("drop", true)], report);
    needs(section, "mac-limit-action", &["mac-limit"], report);
    let most = section.integer("mac-limit", 1..=MAX_ADDRESSES, report)?;
    if section.get("learning").is_some_and(|value| value.get_ref().as_bool() == Some(false)) {
        let message =
            format!("mac-limit in {} has no effect with learning = false; remove one of them", section.title());
        report.error(&most.span(), message);
    }
    Some(MacLimit { most: most.into_inner(), drops: drops.is_some_and(Spanned::into_inner) })
}

fn read_storm(section: &Section<'_>, report: &mut Findings<'_>) -> StormLimits {
    const EXAMPLE: &str = "storm = { broadcast = \"1k/s\" }";
    let mut limits = StormLimits::default();
    for (key, value) in section.table("storm", EXAMPLE, report) {
        let title = section.title();
        let limit = match key.get_ref().as_ref() {
            "broadcast" => &mut limits.broadcast,
            "multicast" => &mut limits.multicast,
            "unknown" => &mut limits.unknown,
            other => {
                let message =
                    format!("{other:?} in storm of {title}: unknown; known are broadcast, multicast and unknown");
                report.error(&key.span(), message);
                continue;
            }
        };
        *limit = value.get_ref().as_str().and_then(parse_rate);
        if limit.is_none() {
            let message = format!(
                "{} in storm of {title}: it must be a number of frames a second in a text, such as \"500/s\", \"1k/s\" or \
                 \"2M/s\"",
                key.get_ref()
            );
            report.error(&value.span(), message);
        }
    }
    limits
}

/// Reads a rate such as `"1k/s"`: events in a second.
fn parse_rate(text: &str) -> Option<u32> {
    let number = text.trim().strip_suffix("/s")?;
    let (digits, factor) = match number.strip_suffix(['k', 'M']) {
        Some(digits) => (digits, if number.ends_with('k') { 1000 } else { 1_000_000 }),
        None => (number, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u32>().ok().filter(|_| is_number)?.checked_mul(factor).filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests {
    use super::parse_rate;

    #[test]
    fn rates_have_a_unit() {
        let rates = ["500/s", "1k/s", "2M/s", "0/s", "k/s", "1", "+1/s", "1G/s", "5000M/s"].map(parse_rate);
        assert_eq!(rates, [Some(500), Some(1000), Some(2_000_000), None, None, None, None, None, None]);
    }
}

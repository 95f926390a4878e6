//! Reads the classes of service of a port.

use straightline_wire::{Dscp, DscpSet};
use toml::Spanned;
use toml::de::DeValue;

use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::section::Section;

/// The names of code points.
const NAMES: [&str; Dscp::NAMES.len()] = {
    let mut names = [""; Dscp::NAMES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Dscp::NAMES[at].0;
        at += 1;
    }
    names
};

/// The keys of ports, as a part of those of `[port.NAME]`.
pub(crate) const KEYS: &[Key] = &[
    Key::new(
        "dscp",
        Value::IntegerOrChoice { min: 0, max: Dscp::MAX as i64, words: &NAMES, of: "name such as `\"af21\"`" },
        Absent::Text("packets stay as they are"),
        "Class of service that IPv4 and IPv6 packets from the port get, before its `nodes`. Their ECN bits stay.",
        "\"af21\"",
    ),
    Key::new(
        "expedited",
        Value::IntegersOrChoices { min: 0, max: Dscp::MAX as i64, words: &NAMES, of: "names such as `\"ef\"`" },
        Absent::Text("none"),
        "Classes of service whose packets pass before others at the port. They do where `rate-in` or `rate-out` \
         drops, and where the guest of a vhost-user port has few free buffers.",
        "[\"ef\", \"cs6\"]",
    ),
];

/// The classes of service in a port's section.
pub(crate) struct Read {
    pub(crate) dscp: Option<Dscp>,
    pub(crate) expedited: DscpSet,
}

/// Reads the classes of service of a port.
pub(crate) fn read(section: &Section<'_>, report: &mut Findings<'_>) -> Read {
    Read { dscp: read_dscp(section, report), expedited: read_expedited(section, report).unwrap_or_default() }
}

fn read_dscp(section: &Section<'_>, report: &mut Findings<'_>) -> Option<Dscp> {
    let value = section.get("dscp")?;
    match value.get_ref() {
        DeValue::Integer(_) => {
            let number = section.integer("dscp", 0..=Dscp::MAX, report)?;
            Dscp::new(number.into_inner())
        }
        DeValue::String(_) => {
            let names = Dscp::NAMES.map(|(name, number)| (name, Dscp::new(number)));
            section.choice("dscp", &names, report).and_then(Spanned::into_inner)
        }
        other => section.wrong_type("dscp", value, other, "an integer or a name", "dscp = \"af21\"", report),
    }
}

fn read_expedited(section: &Section<'_>, report: &mut Findings<'_>) -> Option<DscpSet> {
    const EXAMPLE: &str = "expedited = [\"ef\", 35]";
    let value = section.get("expedited")?;
    let title = section.title();
    let array = match value.get_ref() {
        DeValue::Array(array) => array,
        other => return section.wrong_type("expedited", value, other, "a list of names and integers", EXAMPLE, report),
    };
    let mut classes = DscpSet::default();
    for element in array.iter() {
        let dscp = match element.get_ref() {
            DeValue::Integer(digits) => u8::from_str_radix(digits.as_str(), digits.radix()).ok().and_then(Dscp::new),
            DeValue::String(name) => name.parse().ok(),
            _ => None,
        };
        let Some(dscp) = dscp else {
            let message = format!(
                "an element of expedited in {title}: it must be 0 to {}, or one of {}; write for example {EXAMPLE}",
                Dscp::MAX,
                NAMES.join(", ")
            );
            report.error(&element.span(), message);
            continue;
        };
        if !classes.insert(dscp) {
            let message = format!("expedited in {title}: class {dscp} is named twice; name it once");
            report.error(&element.span(), message);
        }
    }
    if array.is_empty() {
        let message = format!("expedited in {title}: no class named; remove the key, or write for example {EXAMPLE}");
        report.error(&value.span(), message);
    }
    Some(classes)
}

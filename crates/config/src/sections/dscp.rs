//! Reads `dscp` of a port.

use straightline_wire::Dscp;
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
pub(crate) const KEYS: &[Key] = &[Key::new(
    "dscp",
    Value::IntegerOrChoice { min: 0, max: Dscp::MAX as i64, words: &NAMES, of: "name such as `\"af21\"`" },
    Absent::Text("packets stay as they are"),
    "Class of service that IPv4 and IPv6 packets from the port get, before its `nodes`. Their ECN bits stay.",
    "\"af21\"",
)];

/// Reads the class of service of a port.
pub(crate) fn read(section: &Section<'_>, report: &mut Findings<'_>) -> Option<Dscp> {
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

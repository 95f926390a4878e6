//! The environment of samples: hardware and software.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::statistics::Looks;

/// The format of result folders. Its number changes whenever a program would misread a folder of
/// the old format.
pub const FORMAT: u32 = 1;

/// The environment of samples. Two folders with different environments may differ in their results
/// for that reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// The format: [`FORMAT`].
    pub format: u32,
    /// The version of this program, with a warning if the build copies no packets.
    pub program: String,
    /// The commit from which this program was built, with `-dirty` if files differed. `None` if
    /// unknown, and for builds that are not optimized.
    #[serde(default)]
    pub commit: Option<String>,
    /// The looks at the samples at which the run could end for a comparison.
    #[serde(default)]
    pub looks: Looks,
    /// The time of the first sample, in UTC: `2026-11-21T12:00:00Z`.
    pub taken: String,
    /// The command line.
    pub command: Vec<String>,
    /// The CPU's name.
    pub cpu: String,
    /// The CPU's features, with Linux's names.
    pub flags: Vec<String>,
    /// The CPU's microcode, if it is known. (Virtual machines may hide it.)
    pub microcode: Option<String>,
    /// CPUs that are online, in Linux's form: `0-3`.
    pub cpus: String,
    /// True if CPUs share cores.
    pub smt: Option<String>,
    /// The CPUs that were used, if known: `generator` = `0`, `switch` = `1`.
    #[serde(default)]
    pub used_cpus: BTreeMap<String, String>,
    /// Caches of the first CPU: `L1 Data` = `32K`.
    pub caches: BTreeMap<String, String>,
    /// Linux's version.
    pub kernel: String,
    /// The governor of the CPU's frequency; `None` if there is none.
    pub governor: Option<String>,
    /// The setting of transparent huge pages.
    pub transparent_huge_pages: Option<String>,
    /// Reserved huge pages, by size: `2048kB` = `512`.
    pub huge_pages: BTreeMap<String, String>,
    /// The widest instruction set that our copy kernels use on this machine.
    pub simd: String,
    /// Negotiated features, by peer.
    pub features: BTreeMap<String, Vec<String>>,
    /// Versions of other programs that took part: `testpmd` = `DPDK 22.11.7`.
    pub peers: BTreeMap<String, String>,
}

/// A difference between two environments, in one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name.
    pub field: String,
    /// The first environment's value. Of a list or a table, only the part that the second does not
    /// have.
    pub first: String,
    /// The second environment's value. Of a list or a table, only the part that the first does not
    /// have.
    pub second: String,
}

impl Environment {
    /// Returns each field's name, with the value as text. An entry of a table has the names of
    /// table and entry: `caches.L1 Data`.
    pub(crate) fn facts(&self) -> Vec<[String; 2]> {
        let mut facts = Vec::new();
        for (field, value) in self.fields() {
            match value {
                Value::Object(table) => {
                    facts.extend(table.iter().map(|(key, value)| [format!("{field}.{key}"), plain(value)]));
                }
                value => facts.push([field, plain(&value)]),
            }
        }
        facts
    }

    fn fields(&self) -> serde_json::Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        }
    }

    /// Returns the fields that differ, except for the time and the command.
    pub fn differences(&self, other: &Environment) -> Vec<Difference> {
        let ours = self.fields();
        let theirs = other.fields();
        let mut differences = Vec::new();
        for (field, first) in &ours {
            let second = &theirs[field];
            if first != second && field != "taken" && field != "command" {
                let (first, second) = (beyond(first, second), beyond(second, first));
                differences.push(Difference { field: field.clone(), first, second });
            }
        }
        differences
    }
}

/// Returns the part of a value that the other value does not have, as text.
fn beyond(value: &Value, other: &Value) -> String {
    match (value, other) {
        (Value::Array(list), Value::Array(others)) => {
            list.iter().filter(|item| !others.contains(item)).map(plain).collect::<Vec<_>>().join(" ")
        }
        (Value::Object(table), Value::Object(others)) => {
            let own = table.iter().filter(|&(key, value)| others.get(key) != Some(value));
            own.map(|(key, value)| format!("{key} = {}", plain(value))).collect::<Vec<_>>().join(", ")
        }
        _ => plain(value),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(" "),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_with_what_each_has_alone() {
        let flags = |flags: &[&str]| flags.iter().map(|&flag| flag.to_owned()).collect();
        let one = Environment { flags: flags(&["sse2", "avx2"]), kernel: "6.1".into(), ..Environment::default() };
        let other = Environment {
            flags: flags(&["sse2", "avx512f", "vaes"]),
            governor: Some("powersave".into()),
            peers: BTreeMap::from([("testpmd".into(), "22.11".into())]),
            taken: "later".into(),
            command: vec!["lab".into()],
            ..one.clone()
        };
        let found = one.differences(&other);
        let found: Vec<_> = found.iter().map(|d| (d.field.as_str(), d.first.as_str(), d.second.as_str())).collect();
        assert!(found.contains(&("flags", "avx2", "avx512f vaes")), "{found:?}");
        assert!(found.contains(&("governor", "none", "powersave")), "{found:?}");
        assert!(found.contains(&("peers", "", "testpmd = 22.11")), "{found:?}");
        assert_eq!((found.len(), one.differences(&one).len()), (3, 0));
    }
}

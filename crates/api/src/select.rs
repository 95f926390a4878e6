//! The ports that a user names, and the names that a wrong one may mean.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A name that no port has.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// No port has this name.
    #[error("no such port {name:?}; {}", known(.name, .ports))]
    UnknownPort {
        /// The name.
        name: String,
        /// The names of all ports.
        ports: Vec<String>,
    },
    /// The answer is not an answer to `ports`.
    #[error("the switch's answer has another form: {0}")]
    InvalidAnswer(#[from] serde_json::Error),
}

/// Returns an answer to `ports`, as JSON on one line, with the named ports only. They stay in the
/// switch's order, with all their fields as the switch sent them.
///
/// # Errors
/// No port has one of these names, or the answer is not one to `ports`.
pub fn select_ports(answer: &str, names: &[String]) -> Result<String, SelectError> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let mut fields: BTreeMap<&str, &RawValue> = serde_json::from_str(answer)?;
    let all: Vec<&RawValue> = fields.get("ports").map_or(Ok(Vec::new()), |ports| serde_json::from_str(ports.get()))?;
    let mut ports = Vec::new();
    for port in all {
        let Named { name } = serde_json::from_str(port.get())?;
        ports.push((name, port));
    }
    if let Some(name) = names.iter().find(|name| ports.iter().all(|(known, _)| known != *name)) {
        let ports = ports.into_iter().map(|(name, _)| name).collect();
        return Err(SelectError::UnknownPort { name: name.clone(), ports });
    }
    let selected: Vec<&RawValue> =
        ports.iter().filter(|(name, _)| names.contains(name)).map(|(_, port)| *port).collect();
    let selected = serde_json::value::to_raw_value(&selected)?;
    fields.insert("ports", &selected);
    Ok(serde_json::to_string(&fields)?)
}

/// Returns the names that exist, in words.
fn known(name: &str, ports: &[String]) -> String {
    match ports {
        [] => "the switch has no ports".to_owned(),
        ports => format!("ports are {}", nearest_first(name, ports.iter().map(String::as_str))),
    }
}

/// Returns the names in a list, those first that `name` probably misspells.
#[must_use]
pub fn nearest_first<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<_> = names.collect();
    names.sort_by_cached_key(|known| distance(name, known));
    names.join(", ")
}

/// Returns the minimum number of edits that turn `a` into `b`. An edit inserts, removes or replaces
/// a character, or swaps it with the next one. This is the optimal string alignment, by the
/// textbook recurrence over rows.
#[must_use]
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i];
        for j in 1..=b.len() {
            let replaced = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("socket", "socket", 0),
            ("sokcet", "socket", 1),
            ("sockt", "socket", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn named_ports_keep_their_fields() {
        let answer =
            r#"{"time":1.50,"ports":[{"name":"vm1","new":1e3},{"name":"vm2"},{"name":"tap0","new":[ 2 ]}],"more":{}}"#;
        let select = |names: &[&str]| select_ports(answer, &names.iter().map(ToString::to_string).collect::<Vec<_>>());
        let json = select(&["tap0", "vm1", "vm1"]).unwrap();
        assert_eq!(json, r#"{"more":{},"ports":[{"name":"vm1","new":1e3},{"name":"tap0","new":[ 2 ]}],"time":1.50}"#);
        let error = select(&["vm1", "tpa0"]).unwrap_err().to_string();
        assert_eq!(error, "no such port \"tpa0\"; ports are tap0, vm1, vm2");
        assert!(matches!(select_ports("{\"ports\":[7]}", &["vm1".to_owned()]), Err(SelectError::InvalidAnswer(_))));
        let error = select_ports("{\"ports\":[]}", &["vm1".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "no such port \"vm1\"; the switch has no ports");
    }
}

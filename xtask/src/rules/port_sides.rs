//! The rule for the vhost-user port: its control side may import its data side, but not the other
//! way round.
//!
//! The data side is the code that workers run; the control side is the code of the port's own
//! thread.

use std::collections::BTreeMap;

use crate::source;

/// Folder of the data side.
const DATA_SIDE: &str = "crates/port/src/vhost_user/data/";

/// Module of the control side.
const CONTROL_SIDE: &str = "control";

/// Returns the files of the data side whose code mentions the control side. Comments may mention
/// it.
pub(super) fn check(sources: &BTreeMap<String, String>) -> Vec<String> {
    let data = sources.iter().filter(|(path, _)| path.starts_with(DATA_SIDE));
    let found = data.filter_map(|(path, text)| Some((path, *source::lines_with_word(text, CONTROL_SIDE).first()?)));
    let violation = |(path, line)| {
        format!(
            "{path}:{line}: `{CONTROL_SIDE}` in a file of the data side, which must not import the control side: move \
             what both need beside the two folders"
        )
    };
    found.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_side_knows_nothing_of_control() {
        let path = |file: &str| format!("{DATA_SIDE}{file}");
        let sources: BTreeMap<String, String> = [
            (path("a.rs"), "// Control publishes it.\nuse super::link::Link;"),
            (path("b.rs"), "use super::link::Link;\nuse crate::vhost_user::control::calls;"),
            ("crates/port/src/vhost_user/mod.rs".to_owned(), "mod control;"),
        ]
        .map(|(path, text)| (path, text.to_owned()))
        .into();
        let found = check(&sources);
        assert!(found.len() == 1 && found[0].starts_with(&path("b.rs:2: ")), "{found:?}");
    }
}

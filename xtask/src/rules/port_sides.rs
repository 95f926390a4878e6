//! The data side of the vhost-user port does not know its control side.

use std::collections::BTreeMap;

use crate::source;

/// The folder of the files that a worker runs.
const DATA_SIDE: &str = "crates/port/src/vhost_user/data/";

/// The module of the port's own thread.
const CONTROL_SIDE: &str = "control";

/// Finds files of the data side that name the control side in code. Comments may name it.
pub(super) fn control_in_data(sources: &BTreeMap<String, String>) -> Vec<String> {
    let data = sources.iter().filter(|(path, _)| path.starts_with(DATA_SIDE));
    let found = data.filter_map(|(path, text)| Some((path, *source::lines_with_word(text, CONTROL_SIDE).first()?)));
    found
        .map(|(path, line)| {
            format!(
                "{path}:{line}: the data side names `{CONTROL_SIDE}`: control imports data, never the other way; \
                 move what both sides need beside the two folders"
            )
        })
        .collect()
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
        let found = control_in_data(&sources);
        assert!(found.len() == 1 && found[0].starts_with(&path("b.rs:2: ")), "{found:?}");
    }
}

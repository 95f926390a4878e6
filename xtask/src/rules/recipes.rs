//! The rule for recipes: each path that CONTRIBUTING.md or ARCHITECTURE.md names exists.
//!
//! A path may be short: it continues another one, as the documents say. So it must be the end of a
//! path of the repository. Files that recipes make, as examples, are listed in [`EXAMPLES`].

use std::collections::BTreeSet;

/// Files and folders that recipes make. If there is one some day, its recipe needs another example.
const EXAMPLES: [&str; 8] = [
    "api/src/commands/uptime.rs",
    "config/src/sections/kind/memif.rs",
    "config/src/sections/kind/tunnel/etherip.rs",
    "nodes/src/connections.rs",
    "nodes/src/vlan.rs",
    "port/src/memif",
    "underlay/src/kind/etherip.rs",
    "wire/src/etherip.rs",
];

/// Returns the violations in one document. `tracked` are the files of the repository.
pub(super) fn check(path: &str, text: &str, tracked: &BTreeSet<String>) -> Vec<String> {
    if !["ARCHITECTURE.md", "CONTRIBUTING.md"].contains(&path) {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for named in line.split('`').skip(1).step_by(2).filter(|named| is_path(named)) {
            if !exists(named, tracked) {
                violations.push(format!("{path}:{}: there is no {named}: name the file that has it now", at + 1));
            }
        }
    }
    violations
}

/// Returns whether a piece of code is a path: a file with an extension that the repository has, or
/// something with slashes in it.
fn is_path(code: &str) -> bool {
    let is_plain = code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
    let ends = [".rs", ".md", ".toml", ".patch"].iter().any(|end| code.ends_with(end));
    is_plain && (ends || code.contains('/')) && !code.starts_with('/') && !code.starts_with('.')
}

fn exists(named: &str, tracked: &BTreeSet<String>) -> bool {
    // The documents say which path this word stands for.
    let named = named.strip_prefix("data/").map_or_else(|| named.to_owned(), |rest| format!("vhost_user/data/{rest}"));
    let named = named.trim_end_matches('/');
    let has = |end: &str| {
        tracked.iter().any(|file| {
            let mut paths = file.match_indices('/').map(|(at, _)| &file[..at]).chain([file.as_str()]);
            paths.any(|path| path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/')))
        })
    };
    has(named) || EXAMPLES.contains(&named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_names_what_there_is() {
        let tracked = ["crates/wire/src/vxlan.rs", "crates/wire/Cargo.toml", "docs/api.md"].map(str::to_owned).into();
        let found = |text: &str| check("CONTRIBUTING.md", text, &tracked).len();
        assert_eq!(found("Copy `wire/src/vxlan.rs` or `vxlan.rs`, and say so in `docs/` and `Cargo.toml`."), 0);
        assert_eq!(found("Write `wire/src/etherip.rs`, run `cargo test`, and call `a/b()`."), 0, "a file to be made");
        assert_eq!(found("\nSee `gone.rs` and `wire/old/vxlan.rs`."), 2);
        assert_eq!(check("README.md", "`gone.rs`", &tracked), [""; 0]);
    }
}

//! The rule for kinds of port: programs that read the API's answers ask what a port is able to do, and
//! not which kind it is. Then a further kind changes none of them.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::source;

/// The schema of configuration files, which has the kinds. A test of `config` keeps it current.
pub(super) const SCHEMA: &str = "dist/straightline.schema.json";

/// The folders of the code that asks. The page of `web` is no Rust, and shows the kind only.
const ASKING: [&str; 6] = [
    "crates/api/src/",
    "crates/doctor/src/",
    "crates/straightline/src/",
    "crates/switch/src/",
    "crates/top/src/",
    "crates/web/src/",
];

/// Returns the words for the kinds of port.
pub(super) fn words(schema: &str) -> Result<Vec<String>> {
    let schema: Value = serde_json::from_str(schema).with_context(|| format!("cannot parse {SCHEMA}"))?;
    let sections = schema["properties"]["port"]["additionalProperties"]["oneOf"].as_array();
    let words = sections.into_iter().flatten().filter_map(|section| section["properties"]["kind"]["const"].as_str());
    let words: Vec<_> = words.map(str::to_owned).collect();
    anyhow::ensure!(!words.is_empty(), "{SCHEMA} has no kinds of port");
    Ok(words)
}

/// Returns the places at which a source names a kind. Tests may name kinds.
pub(super) fn check(path: &str, source: &str, words: &[String]) -> Vec<String> {
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    if !ASKING.iter().any(|folder| path.starts_with(folder)) || is_test(path) {
        return Vec::new();
    }
    let tests = source::test_items(&source::code_only(source));
    let literals = source::literals(source).into_iter();
    let named = literals.filter(|(at, literal)| {
        let text = literal.trim_matches('"');
        words.iter().any(|word| word == text) && !tests.iter().any(|item| item.contains(at))
    });
    let violation = |(at, literal): (usize, &str)| {
        let line = 1 + source[..at].matches('\n').count();
        format!(
            "{path}:{line}: {literal} names a kind of port: ask what the port is able to do, by a field of the API's \
             answer that `KindSettings::describe` fills in"
        )
    };
    named.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_in_tests_and_comments_only() {
        let words = ["tap".to_owned(), "vhost-user".to_owned()];
        let source = "// A \"tap\".\nfn f(kind: &str) -> bool {\n    kind == \"tap\" || kind.len() == 3\n}\n\n\
                      #[cfg(test)]\nmod tests {\n    fn f() { g(\"tap\") }\n}\nconst A: &str = \"vhost-user\";\n\
                      const B: &str = \"taps\";\n";
        let found = check("crates/doctor/src/a.rs", source, &words);
        assert!(found.len() == 2 && found[0].starts_with("crates/doctor/src/a.rs:3: \"tap\""), "{found:?}");
        assert!(found[1].starts_with("crates/doctor/src/a.rs:10: \"vhost-user\""), "{found:?}");
        for elsewhere in
            ["crates/config/src/a.rs", "crates/doctor/src/checks/tests/a.rs", "crates/api/src/text_tests.rs"]
        {
            assert!(check(elsewhere, source, &words).is_empty(), "{elsewhere}");
        }
    }

    #[test]
    fn the_words_are_those_of_the_schema() {
        let section = |kind: &str| format!("{{\"properties\": {{\"kind\": {{\"const\": \"{kind}\"}}}}}}");
        let schema = |sections: &str| {
            format!("{{\"properties\": {{\"port\": {{\"additionalProperties\": {{\"oneOf\": [{sections}]}}}}}}}}")
        };
        assert_eq!(words(&schema(&format!("{}, {}", section("tap"), section("gre")))).unwrap(), ["tap", "gre"]);
        assert!(words(&schema("")).is_err() && words("").is_err());
    }
}

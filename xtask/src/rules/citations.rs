//! The rule for citations: the sentences of each specification have ids of their own, a citation
//! names one of them, and nothing cites a sentence that is waived.

use std::collections::BTreeMap;

use crate::citations::{Citation, Specification, citations};

/// Returns the violations in the specifications, which are named by their paths, and in the
/// sources.
pub(super) fn check(
    specifications: &BTreeMap<String, Specification>,
    sources: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut violations = Vec::new();
    // By id: the path of the specification, and whether the sentence is waived.
    let mut known: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
    for (path, specification) in specifications {
        let prefix = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".toml");
        for sentence in &specification.sentences {
            let id = sentence.id.as_str();
            if !id.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-')) || id.contains([' ', ',']) {
                violations.push(format!("{path}: \"{id}\" is no id of this file: use {prefix}-SECTION-NUMBER"));
            }
            if let Some((other, _)) = known.insert(id, (path, sentence.waived.is_some())) {
                violations.push(format!("{path}: {id} is in {other} too: give each sentence an id of its own"));
            }
        }
    }
    for Citation { place, id, .. } in sources.iter().flat_map(|(path, source)| citations(path, source)) {
        match known.get(id.as_str()) {
            Some((_, false)) => {}
            Some((path, true)) => {
                violations.push(format!("{place}: {id} is waived in {path}: remove the waiver or the citation"));
            }
            None => violations.push(format!(
                "{place}: no sentence in docs/citations has the id \"{id}\": write `// Cites ID, ID.` with ids of there"
            )),
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specification(ids: &[(&str, bool)]) -> Specification {
        let sentence = |&(id, is_waived): &(&str, bool)| {
            let waived = if is_waived { "waived = \"Not ours.\"\n" } else { "" };
            format!("[[sentence]]\nid = \"{id}\"\nsection = \"1\"\nsays = \"So.\"\n{waived}")
        };
        let sentences: String = ids.iter().map(sentence).collect();
        toml::from_str(&format!("name = \"N\"\nsource = \"S\"\n{sentences}")).expect("a specification")
    }

    fn found(ids: &[(&str, bool)], source: &str) -> Vec<String> {
        let specifications = BTreeMap::from([("docs/citations/ring.toml".to_owned(), specification(ids))]);
        check(&specifications, &BTreeMap::from([("crates/a.rs".to_owned(), source.to_owned())]))
    }

    #[test]
    fn a_citation_names_a_sentence_that_there_is() {
        let ids = [("ring-1.2-1", false), ("ring-1.2-2", false), ("ring-1.2-3", true)];
        let good = "// Cites ring-1.2-1, ring-1.2-2.\nfn f() {} // Cites ring-1.2-2.\n/// Cites ring-9-9.\nfn g() {}\n\
                    const A: &str = \"// Cites ring-9-9.\";\n";
        assert_eq!(found(&ids, good), [""; 0]);
        for (bad, word) in [
            ("fn f() {}\n// Cites ring-1.2-9.", "crates/a.rs:2: no sentence"),
            ("// Cites ring-1.2-1 ring-1.2-2.", "no sentence"),
            ("// Cites the specification.", "no sentence"),
            ("// Cites ring-1.2-3.", "is waived"),
        ] {
            let found = found(&ids, bad);
            assert!(found.len() == 1 && found[0].contains(word), "{bad}: {found:?}");
        }
    }

    #[test]
    fn ids_are_unique_and_begin_with_the_name_of_their_file() {
        for ids in [
            [("ring-1-1", false), ("ring-1-1", false)],
            [("ring-1-1", false), ("rings-1-2", false)],
            [("ring-1-1", false), ("ring-1 2", false)],
        ] {
            assert_eq!(found(&ids, "").len(), 1, "{ids:?}");
        }
    }
}

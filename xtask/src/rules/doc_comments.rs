//! The rule for doc comments: they begin with a noun phrase or a verb, not with "What", "Who" or
//! "Whoever".

use crate::source;

/// Words that begin a clause in place of a noun.
const WORDS: [&str; 3] = ["what", "who", "whoever"];

/// Returns the violations in one source file. Only the first line of a block of doc comments
/// counts.
pub(super) fn check(path: &str, source: &str) -> Vec<String> {
    let blocks = source::doc_blocks(source).into_iter();
    let judged = blocks.filter_map(|(line, text)| {
        let word = first_word(&text);
        WORDS.iter().any(|bad| word.eq_ignore_ascii_case(bad)).then(|| {
            format!(
                "{path}:{line}: a doc comment begins with \"{word}\": begin with a noun phrase or a third-person verb \
                 (\"Returns the number of free descriptors.\")"
            )
        })
    });
    judged.collect()
}

/// Returns the first word, without marks of emphasis or links before it.
fn first_word(text: &str) -> &str {
    let text = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_in_place_of_a_noun_is_a_violation() {
        for text in [
            "/// What is free.\nfn f() {}",
            "//! Who reads this.",
            "    /// Whoever asks\n    /// later.\n    fn f() {}",
            "/// *What* it costs.\nfn f() {}",
            "///\n/// what's left.\nfn f() {}",
        ] {
            assert_eq!(check("a.rs", text).len(), 1, "{text}");
        }
        let two = "//! A list.\n\n/// What.\nstruct A;\n\n/// Good.\n/// Who else.\nstruct B;\n/// Who.\nstruct C;";
        let found = check("a.rs", two);
        assert!(found.len() == 2 && found[0].starts_with("a.rs:3: ") && found[1].starts_with("a.rs:9: "), "{found:?}");
        assert!(found[0].contains("\"What\""), "{found:?}");
    }

    #[test]
    fn nouns_verbs_and_ordinary_comments_are_none() {
        for text in [
            "/// Returns what is free.\nfn f() {}",
            "//! The list.\n//! What is in it.",
            "/// Whole packets.\nfn f() {}",
            "// What follows is clear.\nfn f() {}",
            "//// What a line.\nfn f() {}",
            "const TEXT: &str = \"\n/// What a string.\n\";",
            "///\nfn f() {}",
        ] {
            assert_eq!(check("a.rs", text), [""; 0], "{text}");
        }
    }
}

//! Leaves secrets out of a text: the values of keys such as `cookie`.
//!
//! The text may be a file that is no TOML, or lines of it within messages. So the keys are looked
//! for by their names, also in comments.

/// The ends of names of keys whose values are secrets.
const NAMES: [&str; 4] = ["cookie", "secret", "password", "private-key"];

/// Written instead of a secret.
const LEFT_OUT: &str = "(left out)";

/// Returns the text without the secrets.
pub(super) fn without(text: &str) -> String {
    let mut rest = text;
    let mut safe = String::with_capacity(text.len());
    while let Some(at) = value(rest) {
        safe.push_str(&rest[..at]);
        safe.push_str(LEFT_OUT);
        rest = &rest[at + value_len(&rest[at..])..];
    }
    safe + rest
}

/// Returns where the value of the first such key begins.
fn value(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let names = NAMES.iter().filter_map(|name| Some((from + text[from..].find(name)?, name.len())));
        let (at, len) = names.min()?;
        from = at + len;
        let after_name = &text[from..];
        // The key may be quoted, in TOML and in JSON.
        let after_name = after_name.strip_prefix(['"', '\'']).unwrap_or(after_name);
        let after_sign = after_name.trim_start_matches([' ', '\t']).strip_prefix(['=', ':']);
        let value = after_sign.map(|after| after.trim_start_matches([' ', '\t']));
        if let Some(value) = value.filter(|value| !value.is_empty() && !value.starts_with('\n')) {
            return Some(text.len() - value.len());
        }
    }
}

/// Returns the number of bytes of the value at the beginning of `text`.
fn value_len(text: &str) -> usize {
    for quote in ["\"\"\"", "'''", "\"", "'"] {
        if let Some(inside) = text.strip_prefix(quote) {
            // A string that does not end hides the rest.
            return inside.find(quote).map_or(text.len(), |end| end + 2 * quote.len());
        }
    }
    if text.starts_with(['[', '{']) {
        return text.find([']', '}']).map_or(text.len(), |end| end + 1);
    }
    text.find([',', '}', ']', '#', '\n', ' ']).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_secret_keys_are_left_out() {
        for (text, safe) in [
            ("cookie = \"0011\"\nmtu = 9000", "cookie = (left out)\nmtu = 9000"),
            ("peer-cookie='0011' # old", "peer-cookie=(left out) # old"),
            ("# cookie = 0011\nvni = 5", "# cookie = (left out)\nvni = 5"),
            ("{ cookie = \"a\", previous-cookie = \"b\" }", "{ cookie = (left out), previous-cookie = (left out) }"),
            ("\"cookie\" = \"\"\"\n00\n\"\"\"\nvni = 5", "\"cookie\" = (left out)\nvni = 5"),
            ("{\"cookie\":\"0011\",\"vni\":5}", "{\"cookie\":(left out),\"vni\":5}"),
            ("private-key = [1,\n2]\nvni = 5", "private-key = (left out)\nvni = 5"),
            ("password = \"no end\nvni = 5", "password = (left out)"),
        ] {
            assert_eq!(without(text), safe);
        }
    }

    #[test]
    fn all_else_stays() {
        for text in
            ["", "cookie", "tunnel-cookie 7", "a packet with another cookie drops", "cookie =\nvni = 5", "é cookie"]
        {
            assert_eq!(without(text), text);
        }
    }
}

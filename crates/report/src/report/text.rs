//! Text in pages and pictures: escaped, measured, shortened.

use crate::statistics::number;

/// Escapes text for HTML, SVG and their attributes. Characters that XML cannot contain become
/// replacement characters, and line breaks become spaces.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            // XML 1.0, production [2] `Char`, lists the characters that XML can contain. Characters
            // that change the direction of the following text are replaced too.
            '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{fffe}'
            | '\u{ffff}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}');
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns the greatest width of a text at this font size. No font is available here, and the
/// reader's font is unknown. So the widths are those of DejaVu Sans, the widest of the usual fonts.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | 'I' | '|' | '.' | ',' | ':' | ';' | '\'' | '`' | ' ' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' | '\\' | '"' | '!' => 0.46,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' | '–' | 'µ' | '×' => 1.0,
        'A'..='Z' | '+' | '<' | '=' | '>' | '^' | '~' | '#' | '&' => 0.84,
        ' '..='~' => 0.65,
        '\u{a0}'..='\u{2fff}' => 1.1,
        _ => 1.5,
    }
}

/// Shortens a text to the available space, with a mark in its middle: names usually differ at their
/// start or at their end.
pub(super) fn fit(text: &str, size: f64, space: f64) -> String {
    if width(text, size) <= space {
        return text.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    let mut kept = chars.len();
    loop {
        kept = kept.saturating_sub(1);
        let head = kept.div_ceil(2);
        let tail = kept / 2;
        let short: String = chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - tail..]).collect();
        if kept == 0 || width(&short, size) <= space {
            return short;
        }
    }
}

/// Formats a time in a suitable unit.
pub(super) fn nanoseconds(ns: u64) -> String {
    let time = ns as f64;
    let (value, unit) = match ns {
        0..1_000 => (time, "ns"),
        1_000..1_000_000 => (time / 1e3, "µs"),
        1_000_000..1_000_000_000 => (time / 1e6, "ms"),
        _ => (time / 1e9, "s"),
    };
    let digits = number(value);
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{digits} {unit}")
}

/// Returns a name as the name of a file, without its ending: letters, digits and hyphens.
pub(super) fn file_name(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let safe: String = safe.trim_matches('-').chars().take(60).collect();
    if safe.is_empty() { "plot".to_owned() } else { safe }
}

/// Formats `1 trial`, `2 trials`.
pub(super) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escape("a<b>&\"c\"'\u{1}\u{ffff}\u{202e}\n"),
            "a&lt;b&gt;&amp;&quot;c&quot;&#39;\u{fffd}\u{fffd}\u{fffd} "
        );
    }

    #[test]
    fn a_text_too_long_keeps_both_its_ends() {
        assert_eq!(fit("straightline", 10.0, 500.0), "straightline");
        let short = fit("straightline-with-copies", 10.0, 80.0);
        assert!(short.starts_with('s') && short.ends_with("s") && short.contains('…'), "{short}");
        assert!(width(&short, 10.0) <= 80.0);
        assert_eq!(fit("anything", 10.0, 0.0), "…");
    }

    #[test]
    fn a_file_name_stays_in_its_folder() {
        let names = ["header-align", "../../etc/passwd", "A b.c", "", "\u{e9}\u{202e}"].map(file_name);
        assert_eq!(names, ["header-align", "etc-passwd", "a-b-c", "plot", "plot"]);
    }

    #[test]
    fn times_have_a_suitable_unit() {
        let times: Vec<String> = [0, 999, 1_000, 2_500, 1_000_000, 12_340_000_000].map(nanoseconds).into();
        assert_eq!(times, ["0 ns", "999 ns", "1 µs", "2.5 µs", "1 ms", "12.34 s"]);
    }
}

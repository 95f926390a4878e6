//! The manual page `straightline.toml(5)`: the keys of a configuration file.

use roff::{Inline, Roff, bold, italic, roman};
use serde_json::Value;
use straightline_config::{Explanation, explain_all};

/// A configuration that works.
const EXAMPLE: &str = "\
[switch]
api = \"/run/straightline/api.sock\"

[port.vm1]
kind = \"vhost-user\"
socket = \"/run/straightline/vm1.sock\"

[port.tap0]
kind = \"tap\"
name = \"sl0\"

[bridge.lan]
ports = [\"vm1\", \"tap0\"]";

/// Returns the page.
pub(super) fn page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["straightline.toml", "5", "", &format!("straightline {}", straightline_switch::VERSION)]);
    page.control("SH", ["NAME"]);
    page.text([roman("straightline.toml - configuration of the switch straightline")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("The file is TOML. "),
        bold("straightline check"),
        roman(" checks it, "),
        bold("straightline run"),
        roman(" runs it, and "),
        bold("straightline reload"),
        roman(" reads it again. The package's unit runs "),
        italic("/etc/straightline/switch.toml"),
        roman(". The sections and keys follow."),
    ]);
    let keys: Vec<Value> = explain_all().iter().map(Explanation::to_json).collect();
    for of_section in keys.chunk_by(|a, b| a["section"] == b["section"]) {
        let section = text(&of_section[0], "section");
        let title = if section == "switch" { "[switch]".to_owned() } else { format!("[{section}.NAME]") };
        page.control("SH", [title.as_str()]);
        of_section.iter().for_each(|key| entry(&mut page, key));
    }
    page.control("SH", ["EXAMPLE"]);
    page.control("nf", []);
    page.text([roman(EXAMPLE)]);
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    let others = ["straightline(1)", "straightline-check(1)", "straightline-run(1)"];
    page.text([roman(others.join(", "))]);
    page.to_roff()
}

/// Adds a key.
fn entry(page: &mut Roff, key: &Value) {
    let kinds: Vec<_> = key["kinds"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let of_kinds = if kinds.is_empty() { String::new() } else { format!(" (kind {})", kinds.join(", ")) };
    page.control("TP", []);
    page.text([bold(text(key, "key")), roman(of_kinds)]);
    page.text([roman(text(key, "meaning"))]);
    let facts = format!("{}: {}. Default: {}. Example: ", text(key, "type"), text(key, "values"), text(key, "default"));
    let facts: [Inline; 2] = [roman(facts), bold(text(key, "example"))];
    page.control("br", []);
    page.text(facts);
}

fn text<'v>(key: &'v Value, field: &str) -> &'v str {
    key[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use straightline_config::{Config, Kinds, Machine};

    use super::*;

    #[test]
    fn the_page_has_every_section_once_and_every_key() {
        let page = page();
        for section in ["[switch]", "[port.NAME]", "[bridge.NAME]", "[underlay.NAME]"] {
            assert_eq!(page.matches(&format!(".SH {section}\n")).count(), 1, "{section}: {page}");
        }
        for key in explain_all().iter().map(Explanation::to_json) {
            let name = text(&key, "key").replace('-', "\\-");
            assert!(page.contains(&format!("\\fB{name}\\fR")), "{name}: {page}");
        }
    }

    #[test]
    fn the_example_works() {
        let example = EXAMPLE.replace("/run/straightline", "/tmp");
        Config::parse_with("example.toml", &example, &Machine::this(), &Kinds::new()).expect("a configuration");
    }
}

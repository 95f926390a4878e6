//! The import rules: each crate has a layer, and imports crates of lower layers only.

use toml::{Table, Value};

/// The layer of each crate. A crate imports crates of lower layers only.
const LAYERS: [(&str, u8); 27] = [
    ("simd", 0),
    // The library for C: no crate of the workspace imports it.
    ("simd-c", 1),
    ("wire", 0),
    // It takes samples and returns text; it knows nothing of packets.
    ("report", 0),
    // Clients of a switch import it without the switch.
    ("api", 2),
    ("packet", 1),
    // Usable by itself: it knows neither packets nor the switch.
    ("classify", 2),
    // Facts of packets come as arguments, and so does the time.
    ("conntrack", 2),
    ("fdb", 2),
    // Text and tables of control: it knows no packets.
    ("flow", 3),
    // Text and policy of control: it knows no packets.
    ("firewall", 3),
    ("virtio", 2),
    ("graph", 3),
    ("port", 4),
    // Processes of their own, which know a switch by its API only.
    ("top", 5),
    ("evpn", 5),
    // They ask a switch, and the process of EVPN.
    ("doctor", 6),
    ("web", 6),
    // The driver half: it knows no switch.
    ("guest", 5),
    ("nodes", 4),
    ("underlay", 4),
    ("capture", 5),
    ("config", 5),
    ("switch", 6),
    ("lab", 6),
    ("straightline", 7),
    // Any crate may import it for its tests.
    (TESTING, 7),
];

/// The crate with what tests share. Other crates import it as a dev-dependency only, whatever their
/// layer: Cargo builds it after the crates that it imports, and before their tests.
const TESTING: &str = "testing";

/// Allowed imports within one layer, as (importer, imported): the lab uses the switch like any
/// other program.
const SAME_LAYER: [(&str, &str); 1] = [("lab", "switch")];

/// Crates with a single permitted importer, as (imported, importer): only the command line imports
/// the lab.
const ONLY_FOR: [(&str, &str); 1] = [("lab", "straightline")];

/// Packages without a layer, each with the crates that it may import. They use the project from
/// outside, as its users do. There are two exceptions. The end-to-end tests run two libraries against
/// third-party programs: the embedded guest, the writer of captures, and the client of GoBGP with its
/// routes; they share frames with the tests of crates. Examples show the libraries to people who embed them.
pub(super) const FROM_OUTSIDE: [(&str, &[&str]); 3] = [
    ("examples/macswap", &["graph", "guest", "packet", "straightline", "switch", TESTING, "virtio"]),
    ("tests/peers", &["capture", "evpn", "guest", "lab", "report", TESTING, "virtio", "wire"]),
    ("xtask", &[]),
];

/// Returns the violations of the import rules in one crate's manifest.
pub(super) fn imports(name: &str, manifest: &Table) -> Vec<String> {
    let Some(own) = layer(name) else {
        return vec![format!("crates/{name} has no layer: give it one in xtask/src/rules/layers.rs (LAYERS)")];
    };
    let mut violations = Vec::new();
    for (imported, for_tests) in our_dependencies(manifest) {
        if imported == TESTING {
            if !for_tests {
                violations.push(format!("crates/{name} imports {TESTING}: only [dev-dependencies] may name it"));
            }
            continue;
        }
        let Some(other) = layer(&imported) else {
            violations.push(format!("crates/{name} imports {imported}, which has no layer (LAYERS)"));
            continue;
        };
        let same = other == own && (for_tests || SAME_LAYER.contains(&(name, imported.as_str())));
        if other >= own && !same {
            violations.push(format!(
                "crates/{name} (layer {own}) imports {imported} (layer {other}): a crate imports lower layers only; \
                 move the shared code down, or pass it in as an argument"
            ));
        }
        if let Some((_, only)) = ONLY_FOR.iter().find(|(what, only)| *what == imported && *only != name) {
            violations.push(format!("crates/{name} imports {imported}: only crates/{only} may import it"));
        }
    }
    violations
}

/// Returns the violations in the manifest of a package without a layer, which may import only the
/// `allowed` crates.
pub(super) fn from_outside(dir: &str, allowed: &[&str], manifest: &Table) -> Vec<String> {
    let ours = our_dependencies(manifest).into_iter().filter(|(imported, _)| !allowed.contains(&imported.as_str()));
    let violation = |(imported, _)| {
        format!(
            "{dir} imports {imported}: it uses the project from outside; call the program, or allow the import in \
             xtask/src/rules/layers.rs (FROM_OUTSIDE)"
        )
    };
    ours.map(violation).collect()
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

/// Returns our own crates among the dependencies, without `straightline-`. The flag is true for
/// crates that only tests use.
fn our_dependencies(manifest: &Table) -> Vec<(String, bool)> {
    let kinds = [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)];
    let mut tables = vec![manifest];
    // [target.'cfg(...)'.dependencies]
    let targets = manifest.get("target").and_then(Value::as_table);
    tables.extend(targets.into_iter().flat_map(Table::values).filter_map(Value::as_table));
    let mut ours = Vec::new();
    for table in tables {
        for (kind, for_tests) in kinds {
            for (key, value) in table.get(kind).and_then(Value::as_table).into_iter().flatten() {
                // A dependency may be renamed; the rules apply to the package.
                let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
                if package == "straightline" {
                    ours.push((package.to_owned(), for_tests));
                } else if let Some(name) = package.strip_prefix("straightline-") {
                    ours.push((name.to_owned(), for_tests));
                }
            }
        }
    }
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, manifest: &str) -> Vec<String> {
        imports(name, &manifest.parse().expect("a manifest"))
    }

    #[test]
    fn imports_point_downward() {
        let down = "[dependencies]\nstraightline-packet.workspace = true\nanyhow = '1'";
        assert_eq!(checked("port", down), [""; 0]);
        let up = checked("simd", down);
        assert!(up[0].contains("simd (layer 0) imports packet (layer 1)"), "{up:?}");
        let same = "[dependencies]\nstraightline-wire = {}";
        assert_eq!(checked("simd", same).len(), 1);
        assert_eq!(checked("simd", &same.replace("dep", "dev-dep")), [""; 0]);
        assert_eq!(checked("lab", "[dependencies]\nstraightline-switch = {}"), [""; 0]);
        assert_eq!(checked("switch", "[dependencies]\nstraightline-lab = {}").len(), 2);
        assert_eq!(checked("straightline", "[dependencies]\nstraightline-lab = {}"), [""; 0]);
    }

    #[test]
    fn only_tests_import_what_is_for_tests() {
        assert_eq!(checked("packet", "[dev-dependencies]\nstraightline-testing = {}"), [""; 0]);
        for kind in ["dependencies", "build-dependencies"] {
            let found = checked("straightline", &format!("[{kind}]\nstraightline-testing = {{}}"));
            assert!(found[0].contains("only [dev-dependencies]"), "{found:?}");
            assert_eq!(found.len(), 1);
        }
        assert_eq!(checked("testing", "[dependencies]\nstraightline-switch = {}"), [""; 0]);
    }

    #[test]
    fn no_import_hides() {
        let hidden = "[target.'cfg(unix)'.dependencies]\nx = { package = 'straightline-nodes' }";
        assert_eq!(checked("graph", hidden).len(), 1);
        assert_eq!(checked("graph", "[build-dependencies]\nstraightline-nodes = {}").len(), 1);
        assert_eq!(checked("graph", "[dev-dependencies]\nstraightline-switch = {}").len(), 1);
        assert!(checked("cellar", "")[0].contains("no layer"));
        assert!(checked("graph", "[dependencies]\nstraightline-cellar = {}")[0].contains("no layer"));
        let peers = "[dependencies]\nstraightline-wire = {}\nstraightline-lab = {}".parse().expect("a manifest");
        assert_eq!(from_outside("tests/peers", &["lab"], &peers).len(), 1);
        assert_eq!(from_outside("xtask", &[], &peers).len(), 2);
    }
}

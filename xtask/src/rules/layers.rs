//! The import rules: crates are floors and import only downward.

use toml::{Table, Value};

/// Each crate's floor. A crate imports crates of lower floors only.
const FLOORS: [(&str, u8); 11] = [
    ("simd", 0),
    // For C: nobody here imports it.
    ("simd-c", 1),
    ("wire", 0),
    ("packet", 1),
    ("virtio", 2),
    ("port", 3),
    ("graph", 4),
    ("nodes", 5),
    ("switch", 6),
    ("lab", 6),
    ("straightline", 7),
];

/// Importer and imported on one floor: the lab is a user of the switch like any other.
const SAME_FLOOR: [(&str, &str); 1] = [("lab", "switch")];

/// Only the command line may import the lab.
const ONLY_FOR: [(&str, &str); 1] = [("lab", "straightline")];

/// What has no floor works on the project from outside; but the guest in the box is tried with strangers as a library.
/// And an example shows what the libraries are to whoever embeds them.
pub(super) const FROM_OUTSIDE: [(&str, &[&str]); 3] = [
    ("examples/macswap", &["graph", "lab", "packet", "straightline", "switch", "virtio"]),
    ("tests/peers", &["lab", "virtio"]),
    ("xtask", &[]),
];

/// Faults of one crate's imports.
pub(super) fn imports(name: &str, manifest: &Table) -> Vec<String> {
    let Some(own) = floor(name) else {
        return vec![format!("crates/{name} has no floor: give it one in xtask/src/rules/layers.rs (FLOORS)")];
    };
    let mut faults = Vec::new();
    for (imported, for_tests) in our_dependencies(manifest) {
        let Some(other) = floor(&imported) else {
            faults.push(format!("crates/{name} imports {imported}, which has no floor (FLOORS)"));
            continue;
        };
        let same = other == own && (for_tests || SAME_FLOOR.contains(&(name, imported.as_str())));
        if other >= own && !same {
            faults.push(format!(
                "crates/{name} (floor {own}) imports {imported} (floor {other}): a crate imports lower floors only; \
                 move what is shared down, or hand it in as an argument"
            ));
        }
        if let Some((_, only)) = ONLY_FOR.iter().find(|(what, only)| *what == imported && *only != name) {
            faults.push(format!("crates/{name} imports {imported}: only {only} may"));
        }
    }
    faults
}

pub(super) fn no_floors(dir: &str, allowed: &[&str], manifest: &Table) -> Vec<String> {
    let ours = our_dependencies(manifest).into_iter().filter(|(imported, _)| !allowed.contains(&imported.as_str()));
    ours.map(|(imported, _)| format!("{dir} imports {imported}: it works on the project from outside")).collect()
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

/// Our own crates among the dependencies (without `straightline-`), and whether only for tests.
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
                // A dependency may be renamed: the package's name counts.
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
        assert!(up[0].contains("simd (floor 0) imports packet (floor 1)"), "{up:?}");
        let same = "[dependencies]\nstraightline-wire = {}";
        assert_eq!(checked("simd", same).len(), 1);
        assert_eq!(checked("simd", &same.replace("dep", "dev-dep")), [""; 0]);
        assert_eq!(checked("lab", "[dependencies]\nstraightline-switch = {}"), [""; 0]);
        assert_eq!(checked("switch", "[dependencies]\nstraightline-lab = {}").len(), 2);
        assert_eq!(checked("straightline", "[dependencies]\nstraightline-lab = {}"), [""; 0]);
    }

    #[test]
    fn no_import_hides() {
        let hidden = "[target.'cfg(unix)'.dependencies]\nx = { package = 'straightline-nodes' }";
        assert_eq!(checked("graph", hidden).len(), 1);
        assert_eq!(checked("graph", "[build-dependencies]\nstraightline-nodes = {}").len(), 1);
        assert_eq!(checked("graph", "[dev-dependencies]\nstraightline-switch = {}").len(), 1);
        assert!(checked("cellar", "")[0].contains("no floor"));
        assert!(checked("graph", "[dependencies]\nstraightline-cellar = {}")[0].contains("no floor"));
        let peers = "[dependencies]\nstraightline-wire = {}\nstraightline-lab = {}".parse().expect("a manifest");
        assert_eq!(no_floors("tests/peers", &["lab"], &peers).len(), 1);
        assert_eq!(no_floors("xtask", &[], &peers).len(), 2);
    }
}

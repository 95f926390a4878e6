//! The house rules: crates are floors and import only downward; `unsafe` stands only in files named here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::source;

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
const FROM_OUTSIDE: [(&str, &[&str]); 3] = [
    ("examples/macswap", &["graph", "lab", "packet", "straightline", "switch", "virtio"]),
    ("tests/peers", &["lab", "virtio"]),
    ("xtask", &[]),
];

/// Crates whose `lib.rs` must say `#![forbid(unsafe_code)]`.
const FORBID_UNSAFE: [&str; 2] = ["nodes", "wire"];

/// The only files in which the word `unsafe` may stand. Each is a small room with a sign on its door: a safe
/// interface outside, a proof at each use inside. Keep the list short and sorted.
const UNSAFE_FILES: &[&str] = &[
    "crates/graph/src/clock.rs",
    "crates/lab/tests/no_alloc.rs",
    "crates/packet/src/double.rs",
    "crates/packet/src/segment.rs",
    "crates/packet/src/turn/mod.rs",
    "crates/packet/src/turn/rcu.rs",
    "crates/packet/tests/no_alloc.rs",
    "crates/packet/tests/turn/memory.rs",
    "crates/port/src/signal.rs",
    "crates/port/src/vhost_user/control/peer.rs",
    "crates/simd-c/src/lib.rs",
    "crates/simd/benches/common/dirty.rs",
    "crates/simd/benches/common/mod.rs",
    "crates/simd/benches/common/peers.rs",
    "crates/simd/benches/kernels.rs",
    "crates/simd/benches/ratios.rs",
    "crates/simd/src/arch/aarch64.rs",
    "crates/simd/src/arch/word.rs",
    "crates/simd/src/arch/x86_64.rs",
    "crates/simd/src/generic.rs",
    "crates/simd/src/generic/tests.rs",
    "crates/simd/src/kernel.rs",
    "crates/simd/src/level.rs",
    "crates/simd/src/prefetch.rs",
    "crates/simd/src/run.rs",
    "crates/simd/src/vector.rs",
    "crates/simd/tests/common/mod.rs",
    "crates/simd/tests/reference.rs",
    "crates/simd/tests/shared.rs",
    "crates/switch/src/config/users.rs",
    "crates/switch/src/sandbox/refusal.rs",
    "crates/switch/tests/sandbox.rs",
    "crates/virtio/src/memory/area.rs",
    "crates/virtio/src/memory/fault.rs",
    "crates/virtio/src/memory/log.rs",
    "crates/virtio/src/memory/mod.rs",
    "crates/virtio/src/memory/region.rs",
    "crates/virtio/src/net_header/tests.rs",
    "crates/virtio/tests/memory_sigbus.rs",
    "tests/hostile/tests/rig/once_packets.rs",
];

/// Every broken rule, in words that say what would be right.
pub(crate) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for dir in folders(&root.join("crates"))? {
        let name = file_name(&dir);
        let manifest = read_manifest(&dir)?;
        faults.extend(imports(&name, &manifest));
        if FORBID_UNSAFE.contains(&name.as_str()) {
            let path = dir.join("src/lib.rs");
            let source = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
            faults.extend(forbids_unsafe(&name, &source));
        }
    }
    for (dir, allowed) in FROM_OUTSIDE {
        faults.extend(no_floors(dir, allowed, &read_manifest(&root.join(dir))?));
    }
    for dir in folders(&root.join("examples"))? {
        let name = format!("examples/{}", file_name(&dir));
        if !FROM_OUTSIDE.iter().any(|(known, _)| *known == name) {
            faults.push(format!("{name} has no rule: say in xtask/src/house.rs (FROM_OUTSIDE) what it imports"));
        }
    }
    let mut sources = BTreeMap::new();
    for dir in ["crates", "examples", "tests", "xtask"] {
        rust_files(root, &root.join(dir), &mut sources)?;
    }
    faults.extend(unsafe_elsewhere(&sources, UNSAFE_FILES));
    Ok(faults)
}

/// Faults of one crate's imports.
fn imports(name: &str, manifest: &Table) -> Vec<String> {
    let Some(own) = floor(name) else {
        return vec![format!("crates/{name} has no floor: give it one in xtask/src/house.rs (FLOORS)")];
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

fn no_floors(dir: &str, allowed: &[&str], manifest: &Table) -> Vec<String> {
    let ours = our_dependencies(manifest).into_iter().filter(|(imported, _)| !allowed.contains(&imported.as_str()));
    ours.map(|(imported, _)| format!("{dir} imports {imported}: it works on the project from outside")).collect()
}

fn forbids_unsafe(name: &str, source: &str) -> Option<String> {
    let code: String = source::code_only(source).chars().filter(|c| !c.is_whitespace()).collect();
    let mut forbidden = code.split("#![forbid(").skip(1).filter_map(|rest| rest.split(')').next());
    let says = forbidden.any(|list| list.split(',').any(|lint| lint == "unsafe_code"));
    (!says).then(|| format!("crates/{name}/src/lib.rs lacks `#![forbid(unsafe_code)]`: floor rules want it there"))
}

fn unsafe_elsewhere(sources: &BTreeMap<String, String>, allowed: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in sources {
        let lines = source::lines_with_word(text, "unsafe");
        let listed = allowed.contains(&path.as_str());
        if let (Some(line), false) = (lines.first(), listed) {
            faults.push(format!(
                "{path}:{line}: `unsafe` in a file that is not listed: write it without, use a safe interface of \
                 a listed file, or list the file in xtask/src/house.rs (UNSAFE_FILES)"
            ));
        } else if lines.is_empty() && listed {
            faults.push(format!("{path} holds no `unsafe`: take it off the list in xtask/src/house.rs"));
        }
    }
    for path in allowed.iter().filter(|path| !sources.contains_key(**path)) {
        faults.push(format!("{path} does not exist: take it off the list in xtask/src/house.rs"));
    }
    if !allowed.is_sorted() {
        faults.push("the list UNSAFE_FILES in xtask/src/house.rs is not sorted".to_owned());
    }
    faults
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

fn read_manifest(dir: &Path) -> Result<Table> {
    let path = dir.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| format!("{}", path.display()))
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Every Rust source below `dir`, by its path from `root`.
fn rust_files(root: &Path, dir: &Path, found: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            if file_name(&path) != "target" {
                rust_files(root, &path, found)?;
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let name = path.strip_prefix(root)?.display().to_string();
            found.insert(name, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_is_in_order() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let faults = faults(root).expect("the workspace can be read");
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    }

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

    #[test]
    fn forbidding_is_said_in_code() {
        assert_eq!(forbids_unsafe("wire", "//! Doc\n#![forbid(missing_docs, unsafe_code)]\n"), None);
        assert!(forbids_unsafe("wire", "// #![forbid(unsafe_code)]").is_some());
        assert!(forbids_unsafe("wire", "#![deny(unsafe_code)]").is_some());
    }

    #[test]
    fn unsafe_stands_where_it_is_listed() {
        let sources: BTreeMap<String, String> =
            [("a.rs", "unsafe {}"), ("b.rs", "fn f() {}\nunsafe fn g() {}"), ("c.rs", "// unsafe")]
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .into();
        assert_eq!(unsafe_elsewhere(&sources, &["a.rs", "b.rs"]), [""; 0]);
        let found = unsafe_elsewhere(&sources, &["a.rs"]);
        assert!(found.len() == 1 && found[0].starts_with("b.rs:2: "), "{found:?}");
        assert_eq!(unsafe_elsewhere(&sources, &["a.rs", "b.rs", "c.rs"]).len(), 1);
        assert_eq!(unsafe_elsewhere(&sources, &["a.rs", "b.rs", "gone.rs"]).len(), 1);
        assert_eq!(unsafe_elsewhere(&sources, &["b.rs", "a.rs"]).len(), 1);
    }
}

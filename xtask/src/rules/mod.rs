//! The house rules: crates are floors and import only downward; `unsafe` stands only in files named here.

mod layers;
mod unsafe_code;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::Table;

use layers::{FROM_OUTSIDE, imports, no_floors};
use unsafe_code::{FORBID_UNSAFE, UNSAFE_FILES, forbids_unsafe, unsafe_elsewhere};

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
            faults.push(format!("{name} has no rule: say in xtask/src/rules/layers.rs (FROM_OUTSIDE) what it imports"));
        }
    }
    let mut sources = BTreeMap::new();
    for dir in ["crates", "examples", "tests", "xtask"] {
        rust_files(root, &root.join(dir), &mut sources)?;
    }
    faults.extend(unsafe_elsewhere(&sources, UNSAFE_FILES));
    Ok(faults)
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
}

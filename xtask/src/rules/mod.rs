//! The workspace rules: crates import lower layers only; `unsafe` stands only in listed files.

mod layers;
mod unsafe_code;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::Table;

use layers::{FROM_OUTSIDE, from_outside, imports};
use unsafe_code::{FORBID_UNSAFE, UNSAFE_FILES, forbids_unsafe, unsafe_elsewhere};

/// Returns all violations, each with a remedy.
pub(crate) fn violations(root: &Path) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    for dir in folders(&root.join("crates"))? {
        let name = file_name(&dir);
        let manifest = read_manifest(&dir)?;
        violations.extend(imports(&name, &manifest));
        if FORBID_UNSAFE.contains(&name.as_str()) {
            let path = dir.join("src/lib.rs");
            let source = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
            violations.extend(forbids_unsafe(&name, &source));
        }
    }
    for (dir, allowed) in FROM_OUTSIDE {
        violations.extend(from_outside(dir, allowed, &read_manifest(&root.join(dir))?));
    }
    for dir in folders(&root.join("examples"))? {
        let name = format!("examples/{}", file_name(&dir));
        if !FROM_OUTSIDE.iter().any(|(known, _)| *known == name) {
            violations.push(format!(
                "{name} has no import rule: list its imports in xtask/src/rules/layers.rs (FROM_OUTSIDE)"
            ));
        }
    }
    let mut sources = BTreeMap::new();
    for dir in ["crates", "examples", "tests", "xtask"] {
        rust_files(root, &root.join(dir), &mut sources)?;
    }
    violations.extend(unsafe_elsewhere(&sources, UNSAFE_FILES));
    Ok(violations)
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
    fn the_workspace_obeys_its_rules() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let violations = violations(root).expect("the workspace can be read");
        assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    }
}

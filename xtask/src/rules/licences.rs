//! The rule for licences: every crate that we build with may be used under one of [`ALLOWED`].

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use crate::run;

/// Licences that ask for a notice, and leave the rest of a program alone.
const ALLOWED: [&str; 9] =
    ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "MIT", "Unicode-3.0", "Unlicense", "Zlib"];

/// Crates that only tests use, each with its licence.
const IN_TESTS: [(&str, &str); 1] = [("cbindgen", "MPL-2.0")];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

/// Returns cargo's description of all crates that the workspace is built with.
pub(super) fn metadata(root: &Path) -> Result<String> {
    let of_linux = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    run::output(run::cargo(root).args(["metadata", "--format-version", "1", "--locked"]).args(of_linux))
}

/// Returns the violations in a description that [`metadata`] returned.
pub(super) fn check(metadata: &str) -> Result<Vec<String>> {
    let metadata: Metadata = serde_json::from_str(metadata).context("cannot read the answer of cargo metadata")?;
    Ok(metadata.packages.iter().filter_map(|package| refuse(package).map(|why| said(package, &why))).collect())
}

fn said(package: &Package, why: &str) -> String {
    format!(
        "{} {}: {why}: take another crate, or add the licence to xtask/src/rules/licences.rs",
        package.name, package.version
    )
}

/// Returns why a crate may not be used.
fn refuse(package: &Package) -> Option<String> {
    let Some(text) = package.license.as_deref() else { return Some("it names no licence".to_owned()) };
    if IN_TESTS.contains(&(package.name.as_str(), text)) {
        return None;
    }
    // `MIT/Apache-2.0` is how licences were written before 2017.
    let Ok(expression) = Expression::parse_mode(text, ParseMode::LAX) else {
        return Some(format!("its licence {text:?} is no SPDX expression"));
    };
    let is_allowed = |licence: &spdx::LicenseReq| licence.license.id().is_some_and(|id| ALLOWED.contains(&id.name));
    (!expression.evaluate(is_allowed)).then(|| format!("its licence {text:?} is not allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(name: &str, license: Option<&str>) -> bool {
        let package =
            Package { name: name.to_owned(), version: "1.0.0".to_owned(), license: license.map(str::to_owned) };
        refuse(&package).is_some()
    }

    #[test]
    fn a_crate_has_a_licence_that_we_may_choose() {
        for good in ["MIT", "MIT/Apache-2.0", "MIT OR LGPL-2.1-or-later", "(MIT OR GPL-3.0-only) AND Unicode-3.0"] {
            assert!(!is_refused("a", Some(good)), "{good}");
        }
        for bad in ["GPL-3.0-only", "MIT AND LGPL-2.1-or-later", "MPL-2.0", "no licence", ""] {
            assert!(is_refused("a", Some(bad)), "{bad}");
        }
        assert!(is_refused("a", None));
        assert!(!is_refused("cbindgen", Some("MPL-2.0")));
    }

    #[test]
    fn what_cargo_says_is_read() {
        let said = r#"{"packages": [{"name": "a", "version": "1.2.3", "license": "GPL-2.0-only", "other": 1}]}"#;
        let found = check(said).expect("a description");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a 1.2.3: its licence \"GPL-2.0-only\""), "{found:?}");
    }
}

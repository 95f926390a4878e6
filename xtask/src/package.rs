//! Packages: `cargo xtask deb` and `cargo xtask tarball`.
//!
//! Manual pages and completions come from the program itself. `crates/straightline/Cargo.toml` lists
//! the files of the Debian package (`package.metadata.deb`).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

/// Version of cargo-deb that builds the package.
const CARGO_DEB: &str = "3.8.0";

/// Shells, each with the file of its completions.
const SHELLS: [(&str, &str); 3] =
    [("bash", "straightline.bash"), ("zsh", "_straightline"), ("fish", "straightline.fish")];

/// Files of the tarball that are not made: their path in the repository, and in the tarball.
const FILES: [(&str, &str); 10] = [
    ("dist/INSTALL", "INSTALL"),
    ("dist/switch.toml", "etc/straightline/switch.toml"),
    ("dist/evpn.toml", "share/straightline/evpn.toml"),
    ("dist/straightline.schema.json", "share/straightline/straightline.schema.json"),
    ("dist/straightline-port", "libexec/straightline-port"),
    ("dist/50-straightline-net.json", "share/qemu/vhost-user/50-straightline-net.json"),
    ("dist/systemd/straightline.service", "lib/systemd/system/straightline.service"),
    ("dist/systemd/straightline-web.service", "lib/systemd/system/straightline-web.service"),
    ("dist/systemd/straightline-evpn.service", "lib/systemd/system/straightline-evpn.service"),
    ("dist/systemd/straightline-gobgpd.service", "lib/systemd/system/straightline-gobgpd.service"),
];

/// Documents of all packages, beside those in `docs`. They keep their places, so that their links
/// lead to each other.
const DOCUMENTS: [&str; 11] = [
    "README.md",
    "SECURITY.md",
    "ARCHITECTURE.md",
    "BENCHMARKING.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "examples/macswap/README.md",
    "dist/grafana/straightline.json",
    "dist/prometheus/straightline.rules.yml",
];

/// Builds a package, and returns its path.
pub(crate) type Builder = fn() -> Result<PathBuf>;

/// Returns the builder of the package that a command names.
pub(crate) fn builder(command: &str) -> Option<Builder> {
    match command {
        "deb" => Some(deb),
        "tarball" => Some(tarball),
        _ => None,
    }
}

/// Builds the Debian package in `target/debian`, and one of its debug symbols. Returns the path of
/// the first.
pub(crate) fn deb() -> Result<PathBuf> {
    let root = run::root()?;
    let target = run::target(&root);
    generate(&root, &target)?;
    let tool = cargo_deb(run::cargo(&root), &target)?;
    let mut deb = Command::new(&tool);
    // An older package would be another one to choose from.
    if target.join("debian").exists() {
        fs::remove_dir_all(target.join("debian"))?;
    }
    // The program is built already. Its symbols go into a package of their own, for debuggers.
    deb.current_dir(&root).args(["--no-build", "--dbgsym", "-p", "straightline"]);
    let path = PathBuf::from(run::output(&mut deb)?.lines().last().context("cargo-deb printed no path")?);
    println!("{}", path.display());
    Ok(path)
}

/// Builds the tarball for other distributions in `target/dist`, and the file with its debug
/// information. Returns the path of the first.
pub(crate) fn tarball() -> Result<PathBuf> {
    let root = run::root()?;
    let target = run::target(&root);
    let made = generate(&root, &target)?;
    let program = target.join("release/straightline");
    let version = run::output(Command::new(&program).arg("--version"))?;
    let version = version.split_whitespace().last().context("the program printed no version")?;
    let name = format!("straightline-{version}-x86_64-linux");
    let folder = made.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let debug = made.join(format!("{name}.debug"));
    let separated = folder.join("bin/straightline");
    separate(&program, &separated, &debug)?;
    run::must(Command::new(&separated).args(["demo", "--secs", "1"]))?;
    for (from, to) in FILES {
        copy(&root.join(from), &folder.join(to))?;
    }
    for entry in fs::read_dir(made.join("man"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let section = path.extension().unwrap_or_default();
        copy(&path, &folder.join("share/man").join(format!("man{}", section.display())).join(name))?;
    }
    copy_all(&made.join("completions"), &folder.join("share/straightline/completions"))?;
    for document in DOCUMENTS {
        copy(&root.join(document), &folder.join("share/doc/straightline").join(document))?;
    }
    copy_all(&root.join("docs"), &folder.join("share/doc/straightline/docs"))?;
    let path = made.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "-czf"]).arg(&path).arg("-C").arg(&made).arg(&name);
    run::must(&mut tar)?;
    println!("{}\n{}", path.display(), debug.display());
    Ok(path)
}

/// Copies a program without its debug information, which goes to a file of its own. Names of
/// functions stay in the program, for `perf` and for backtraces.
fn separate(program: &Path, to: &Path, debug: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(Path::new(".")))?;
    run::must(Command::new("objcopy").arg("--only-keep-debug").arg(program).arg(debug))?;
    let mut link = OsString::from("--add-gnu-debuglink=");
    link.push(debug);
    run::must(Command::new("objcopy").arg("--strip-debug").arg(link).arg(program).arg(to))
}

/// Builds the program, and lets it write manual pages and completions. Returns their folder.
fn generate(root: &Path, target: &Path) -> Result<PathBuf> {
    run::must(run::cargo(root).args(["build", "--release", "-p", "straightline"]))?;
    let program = target.join("release/straightline");
    let folder = target.join("dist");
    let man = folder.join("man");
    if man.exists() {
        fs::remove_dir_all(&man)?;
    }
    run::must(Command::new(&program).arg("man").arg(&man))?;
    fs::create_dir_all(folder.join("completions"))?;
    for (shell, file) in SHELLS {
        let text = run::output(Command::new(&program).args(["completions", shell]))?;
        fs::write(folder.join("completions").join(file), text + "\n")?;
    }
    Ok(folder)
}

/// Returns the path of cargo-deb, which this cargo builds once for a target folder.
pub(crate) fn cargo_deb(mut install: Command, target: &Path) -> Result<PathBuf> {
    let folder = target.join("tools");
    let program = folder.join("bin/cargo-deb");
    let has_it = run::output(Command::new(&program).arg("--version")).is_ok_and(|printed| is_cargo_deb(&printed));
    if !has_it {
        println!("building cargo-deb {CARGO_DEB}, once: this takes about two minutes");
        install.args(["install", "--quiet", "--locked", "--version", CARGO_DEB, "cargo-deb", "--root"]).arg(&folder);
        // Compression by the program `xz` is enough, and debug symbols stay where they are.
        install.args(["--no-default-features", "--features", "gzip"]);
        // It runs once, so to optimise it fully takes more time than it saves.
        install.args(["--debug"]).env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "false");
        run::must(&mut install)?;
    }
    Ok(program)
}

/// Returns whether a program that printed this for `--version` is the cargo-deb that builds the package. Some versions
/// print their name before the number.
fn is_cargo_deb(printed: &str) -> bool {
    printed.split_whitespace().next_back() == Some(CARGO_DEB)
}

/// Copies all that is in a folder.
fn copy_all(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let path = entry.path();
        let to = to.join(entry.file_name());
        if path.is_dir() { copy_all(&path, &to)? } else { copy(&path, &to)? }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Where packages have documents.
    const FOLDER: &str = "usr/share/doc/straightline/";

    #[test]
    fn cargo_deb_is_known_by_its_version() {
        assert!(is_cargo_deb(&format!("cargo-deb {CARGO_DEB}\n")));
        assert!(is_cargo_deb(&format!("{CARGO_DEB}\n")));
        for other in ["cargo-deb 3.7.9\n", "cargo-deb 13.8.0\n", "cargo-deb\n", ""] {
            assert!(!is_cargo_deb(other), "{other}");
        }
    }

    #[test]
    fn the_debian_package_has_the_same_documents_as_the_tarball() {
        let root = run::root().expect("the repository");
        let manifest = fs::read_to_string(root.join("crates/straightline/Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = manifest.parse().expect("TOML");
        let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().expect("a list");
        let text = |value: &toml::Value| value.as_str().expect("a string").to_owned();
        let assets = assets.iter().map(|asset| (text(&asset[0]), text(&asset[1])));
        let documents = assets.filter_map(|(from, to)| {
            let from = from.strip_prefix("../../").unwrap_or(&from).to_owned();
            let name = from.rsplit('/').next().expect("a name");
            Some((format!("{}{name}", to.strip_prefix(FOLDER)?), from.clone()))
        });
        let expected = DOCUMENTS.map(|document| (document.to_owned(), document.to_owned()));
        let all = ("docs/*".to_owned(), "docs/**/*".to_owned());
        assert_eq!(documents.collect::<BTreeSet<_>>(), expected.into_iter().chain([all]).collect());
    }

    /// A reader of a package's documents has nothing else.
    #[test]
    fn links_of_documents_in_packages_lead_to_what_packages_have() {
        let root = run::root().expect("the repository");
        let mut markdown: Vec<PathBuf> =
            DOCUMENTS.iter().filter(|name| name.ends_with(".md")).map(PathBuf::from).collect();
        let docs = fs::read_dir(root.join("docs")).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let docs = docs.map(|name| Path::new("docs").join(name));
        markdown.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
        let mut links = 0;
        for file in markdown {
            let text = fs::read_to_string(root.join(&file)).expect("a document");
            for (_, rest) in text.match_indices("](").map(|(at, _)| text.split_at(at + 2)) {
                let link = rest.split([')', '#', ' ']).next().unwrap_or_default();
                if link.is_empty() || link.contains("://") {
                    continue;
                }
                let to = normal(&file.parent().unwrap_or(Path::new("")).join(link));
                let is_known = DOCUMENTS.iter().any(|known| Path::new(known) == to) || to.starts_with("docs");
                assert!(is_known && root.join(&to).exists(), "{}: {link}", file.display());
                links += 1;
            }
        }
        assert!(links > 50, "{links}");
    }

    /// Resolves `..` in a path.
    fn normal(path: &Path) -> PathBuf {
        let mut normal = PathBuf::new();
        for part in path.components() {
            if part.as_os_str() == ".." {
                normal.pop();
            } else {
                normal.push(part);
            }
        }
        normal
    }
}

//! Folders of results within a folder, as `lab exp --all` leaves them. They are combined unless
//! that would mislead.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use straightline_report::results::{Environment, Results};

use super::{is_begun, missing, read_one};

/// Returns the folders of results in a folder, by name; none if the folder has results of its own.
///
/// # Errors
/// A folder cannot be examined. Or both the folder and folders in it have results, so that readers
/// of one would miss the other.
pub(super) fn parts(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let parts = begun_in(folder)?;
    ensure!(
        parts.is_empty() || !is_begun(folder)?,
        "{} has samples of its own and folders of results in it: use one of {}, or move its own files into a folder \
         beside these",
        folder.display(),
        named(&parts)
    );
    Ok(parts)
}

/// Returns the folders in this folder that have results, by name.
pub(super) fn begun_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut begun = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| missing(folder))? {
        let path = entry.with_context(|| missing(folder))?.path();
        if is_folder(&path)? && is_begun(&path)? {
            begun.push(path);
        }
    }
    begun.sort();
    Ok(begun)
}

/// Returns whether a path is a folder or a link to a folder. A broken link is not a folder.
fn is_folder(path: &Path) -> anyhow::Result<bool> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        found => Ok(found.with_context(|| format!("cannot examine {}", path.display()))?.is_dir()),
    }
}

/// Formats folders as a list.
pub(super) fn named(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Combines the samples of all these folders. Each folder must have scenarios of its own, and all
/// folders must have the same environment. Otherwise differences between folders would look like
/// differences between cells or rounds.
pub(super) fn read(parts: &[PathBuf]) -> anyhow::Result<Results> {
    let mut all = Results::default();
    let mut owners: BTreeMap<String, &PathBuf> = BTreeMap::new();
    let one_of = || format!("so they are not combined: use one of {}", named(parts));
    for (number, part) in parts.iter().enumerate() {
        let Results { environment, samples, bounds } = read_one(part)?;
        for sample in &samples {
            let owner = owners.entry(sample.scenario.clone()).or_insert(part);
            if *owner != part {
                let one = owner.display();
                let other = part.display();
                bail!("{} is both in {one} and in {other}, {}", sample.scenario, one_of());
            }
        }
        all.samples.extend(samples);
        all.bounds = all.bounds.or(bounds);
        if number == 0 {
            all.environment = environment;
            continue;
        }
        if let Some(field) = difference(&all.environment, &environment) {
            let one = parts[0].display();
            let other = part.display();
            bail!("the environments of {one} and {other} differ in {field}, {}", one_of());
        }
        let name = part.file_name().unwrap_or_default().to_string_lossy();
        join(&mut all.environment, environment, &name);
    }
    Ok(all)
}

/// Returns a field that should be equal and is not. Other programs and features may differ between
/// scenarios.
fn difference(one: &Environment, other: &Environment) -> Option<String> {
    let own = |environment: &Environment| Environment {
        features: BTreeMap::new(),
        peers: BTreeMap::new(),
        ..environment.clone()
    };
    own(one).differences(&own(other)).into_iter().next().map(|difference| difference.field)
}

fn join(all: &mut Environment, part: Environment, name: &str) {
    all.taken = all.taken.clone().min(part.taken);
    // Each command is listed once, however many experiments it has measured.
    if !all.command.split(|word| word == ";").any(|known| known == part.command) {
        all.command.push(";".to_owned());
        all.command.extend(part.command);
    }
    add(&mut all.features, part.features, name);
    add(&mut all.peers, part.peers, name);
}

/// Adds entries; an entry that differs from an existing one gets a name of its own.
fn add<T: PartialEq>(all: &mut BTreeMap<String, T>, part: BTreeMap<String, T>, name: &str) {
    for (key, value) in part {
        match all.get(&key) {
            Some(known) if *known == value => {}
            Some(_) => drop(all.insert(format!("{key}, in {name}"), value)),
            None => drop(all.insert(key, value)),
        }
    }
}

//! Folders of results within a folder, as `lab exp --all` leaves them: read as one, where that misleads nobody.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use super::folder::{is_begun, missing, read_one};
use super::{Environment, Results};

/// The folders of results in a folder that is none itself, by name; none in one that is.
///
/// # Errors
/// It cannot be known, of one of them even; or there are results in the folder and in folders of it, and whoever reads the one
/// passes over the other.
pub(super) fn parts(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let parts = begun_in(folder)?;
    ensure!(
        parts.is_empty() || !is_begun(folder)?,
        "{} has samples of its own and folders of results in it: name one of {}, or move its own files into a folder beside these",
        folder.display(),
        named(&parts)
    );
    Ok(parts)
}

/// The folders in this one in which somebody has written results, by name.
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

/// Whatever a link leads to; one that leads nowhere is none.
fn is_folder(path: &Path) -> anyhow::Result<bool> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        found => Ok(found.with_context(|| format!("cannot look at {}", path.display()))?.is_dir()),
    }
}

/// In a list.
pub(super) fn named(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// All samples of these folders, of which each must have scenarios of its own, and all must have been taken on the same: else
/// what differs between two folders would look as if it were between two places or two rounds of one.
pub(super) fn read(parts: &[PathBuf]) -> anyhow::Result<Results> {
    let mut all = Results::default();
    let mut owners: BTreeMap<String, &PathBuf> = BTreeMap::new();
    let one_of = || format!("so they are not read as one: name one of {}", named(parts));
    for (number, part) in parts.iter().enumerate() {
        let Results { environment, samples } = read_one(part)?;
        for sample in &samples {
            let owner = owners.entry(sample.scenario.clone()).or_insert(part);
            if *owner != part {
                let (one, other) = (owner.display(), part.display());
                bail!("{} is both in {one} and in {other}, {}", sample.scenario, one_of());
            }
        }
        all.samples.extend(samples);
        if number == 0 {
            all.environment = environment;
            continue;
        }
        if let Some(field) = difference(&all.environment, &environment) {
            let (one, other) = (parts[0].display(), part.display());
            bail!("the environments of {one} and {other} differ in {field}, {}", one_of());
        }
        let name = part.file_name().unwrap_or_default().to_string_lossy();
        join(&mut all.environment, environment, &name);
    }
    Ok(all)
}

/// A field that should be the same. Others take part in one scenario and not in another, and so do features.
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
    // Each once, however many experiments one command has measured.
    if !all.command.split(|word| word == ";").any(|known| known == part.command) {
        all.command.push(";".to_owned());
        all.command.extend(part.command);
    }
    add(&mut all.features, part.features, name);
    add(&mut all.peers, part.peers, name);
}

/// Adds what is there under another name already by a name of its own.
fn add<T: PartialEq>(all: &mut BTreeMap<String, T>, part: BTreeMap<String, T>, name: &str) {
    for (key, value) in part {
        match all.get(&key) {
            Some(known) if *known == value => {}
            Some(_) => drop(all.insert(format!("{key}, in {name}"), value)),
            None => drop(all.insert(key, value)),
        }
    }
}

//! A folder of results: `environment.json`, and `samples.jsonl` with one sample per line. If there
//! were searches, `trials.jsonl` has each of their trials. This program does not read that file. A
//! user may add `machine.json`, the bounds of the machine (`straightline lab machine --json`).
//!
//! Each sample is written before the next trial starts, so an interrupted run loses no sample.
//! Reading checks everything. A folder with anything unknown in it is refused.

mod report;
mod together;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use straightline_report::results::{Environment, FORMAT, MemoryBounds, Results, Sample};
use together::named;

pub use report::write_report;

const ENVIRONMENT: &str = "environment.json";
const SAMPLES: &str = "samples.jsonl";
const TRIALS: &str = "trials.jsonl";
const BOUNDS: &str = "machine.json";

/// A writer of a folder of results.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    environment: Environment,
    samples: File,
    trials: Option<File>,
}

impl Writer {
    /// Checks whether a folder of this name can be [created](Self::create) beside existing results.
    ///
    /// # Errors
    /// The folder already has results or folders of results in it, or it is in a folder that has
    /// results of its own. Readers would refuse such a folder.
    pub fn check(folder: &Path) -> anyhow::Result<()> {
        for name in [ENVIRONMENT, SAMPLES, TRIALS] {
            let path = folder.join(name);
            ensure!(!exists(&path)?, "{} exists already: use a new folder, or remove the old one", path.display());
        }
        let parts = if exists(folder)? { together::begun_in(folder)? } else { Vec::new() };
        let shown = folder.display();
        ensure!(
            parts.is_empty(),
            "{shown} has folders of results in it: use a new folder, or one beside {}",
            named(&parts)
        );
        if let Some(above) = folder.parent() {
            ensure!(
                !is_begun(above)?,
                "{shown} would be in a folder that has results of its own: use a folder outside of it"
            );
        }
        Ok(())
    }

    /// Creates a folder, and writes the environment of all its samples into it.
    ///
    /// # Errors
    /// The folder cannot be created, or [`Self::check`] refuses its name.
    pub fn create(folder: &Path, environment: Environment) -> anyhow::Result<Writer> {
        Writer::check(folder)?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join(SAMPLES);
        let writer = Writer { folder: folder.to_owned(), environment, samples: create(&path)?, trials: None };
        writer.write_environment()?;
        Ok(writer)
    }

    /// Returns its path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes the features negotiated with a peer. The file is written only if the features have
    /// changed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn negotiated(&mut self, with: &str, features: &[&str]) -> anyhow::Result<()> {
        let features: Vec<String> = features.iter().map(|&feature| feature.to_owned()).collect();
        if self.environment.features.get(with) == Some(&features) {
            return Ok(());
        }
        self.environment.features.insert(with.to_owned(), features);
        self.write_environment()
    }

    /// Notes the version of another program that takes part.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn peer(&mut self, name: &str, version: &str) -> anyhow::Result<()> {
        if self.environment.peers.get(name).is_some_and(|known| known == version) {
            return Ok(());
        }
        self.environment.peers.insert(name.to_owned(), version.to_owned());
        self.write_environment()
    }

    /// Adds a sample. The sample is in the file when this function returns.
    ///
    /// # Errors
    /// The sample cannot be written, or one of its metrics is not a number, which readers would
    /// refuse.
    pub fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        add(&mut self.samples, sample).with_context(|| format!("cannot write {}", self.folder.join(SAMPLES).display()))
    }

    /// Adds a trial of a search.
    ///
    /// # Errors
    /// The errors of [`Self::write`].
    pub fn write_trial(&mut self, trial: &Sample) -> anyhow::Result<()> {
        let path = self.folder.join(TRIALS);
        let trials = match &mut self.trials {
            Some(trials) => trials,
            none => none.insert(create(&path)?),
        };
        add(trials, trial).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes the file atomically.
    fn write_environment(&self) -> anyhow::Result<()> {
        let path = self.folder.join(ENVIRONMENT);
        let new = self.folder.join(".environment.json");
        let mut text = serde_json::to_vec_pretty(&self.environment)?;
        text.push(b'\n');
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create_new(path).with_context(|| format!("cannot make {}", path.display()))
}

/// Adds a line to a file, without a buffer in this process.
fn add(file: &mut File, sample: &Sample) -> anyhow::Result<()> {
    check(sample).map_err(anyhow::Error::msg).context("a sample cannot be stored")?;
    let mut line = serde_json::to_vec(sample)?;
    line.push(b'\n');
    Ok(file.write_all(&line)?)
}

/// Reads a folder of results. If the folder has several folders of results in it, as `lab exp
/// --all` leaves them, combines these.
///
/// # Errors
/// A file is missing, has another format, or is damaged; the error says which file, where, and
/// what would be right. Or the folders do not belong together, or one of them would be ignored.
pub fn read(folder: &Path) -> anyhow::Result<Results> {
    let parts = together::parts(folder)?;
    if parts.is_empty() {
        return read_one(folder);
    }
    let results = together::read(&parts)?;
    Ok(Results { bounds: read_bounds(folder)?.or(results.bounds), ..results })
}

/// Returns whether the folder has results.
pub(super) fn is_begun(folder: &Path) -> anyhow::Result<bool> {
    Ok(exists(&folder.join(ENVIRONMENT))? || exists(&folder.join(SAMPLES))?)
}

/// Returns whether a path exists. Fails if the path cannot be examined.
fn exists(path: &Path) -> anyhow::Result<bool> {
    path.try_exists().with_context(|| format!("cannot examine {}", path.display()))
}

/// Reads a folder that is not part of another one.
pub(super) fn read_one(folder: &Path) -> anyhow::Result<Results> {
    Ok(Results { environment: read_environment(folder)?, samples: read_samples(folder)?, bounds: read_bounds(folder)? })
}

/// The part of an environment that is the same in all formats.
#[derive(Deserialize)]
struct Version {
    format: u32,
    program: Option<String>,
}

fn read_environment(folder: &Path) -> anyhow::Result<Environment> {
    let path = folder.join(ENVIRONMENT);
    let text = fs::read_to_string(&path).with_context(|| missing(&path))?;
    let place = |error: &serde_json::Error| format!("{}:{}: {error}", path.display(), error.line());
    let version: Version = serde_json::from_str(&text)
        .map_err(|error| anyhow::anyhow!("{}; a folder of results has `\"format\": {FORMAT}` there", place(&error)))?;
    if version.format != FORMAT {
        let by = version.program.unwrap_or_else(|| "another version".to_owned());
        bail!(
            "{}:{}: the results have format {}, written by straightline {by}; this is {}, which reads format \
             {FORMAT}: use the other version, or measure again",
            path.display(),
            1 + text.lines().position(|line| line.contains("\"format\"")).unwrap_or(0),
            version.format,
            straightline_switch::VERSION,
        );
    }
    serde_json::from_str(&text).map_err(|error| {
        anyhow::anyhow!("{}; the file must be as it was written, without additions or omissions", place(&error))
    })
}

/// Returns the bounds of the machine, if there are any.
fn read_bounds(folder: &Path) -> anyhow::Result<Option<MemoryBounds>> {
    let path = folder.join(BOUNDS);
    if !exists(&path)? {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let bounds = serde_json::from_str(&text);
    bounds
        .map(Some)
        .with_context(|| format!("{} must be what `straightline lab machine --json` prints", path.display()))
}

fn read_samples(folder: &Path) -> anyhow::Result<Vec<Sample>> {
    let path = folder.join(SAMPLES);
    let mut file = BufReader::new(File::open(&path).with_context(|| missing(&path))?);
    let mut samples = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if file.read_until(b'\n', &mut line).with_context(|| format!("cannot read {}", path.display()))? == 0 {
            return Ok(samples);
        }
        samples.push(read_sample(&line).with_context(|| format!("{}:{}", path.display(), samples.len() + 1))?);
    }
}

fn read_sample(line: &[u8]) -> anyhow::Result<Sample> {
    ensure!(
        line.ends_with(b"\n"),
        "the last line is incomplete, as after a full disk: remove it to read the samples before it"
    );
    let sample: Sample = serde_json::from_slice(line).map_err(|error| {
        // The error's line number counts within this line of the file, so only the column is shown.
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default();
        // An error without a column is about the sample as a whole.
        let place = if error.column() > 0 { format!("column {}: ", error.column()) } else { String::new() };
        anyhow::anyhow!("{place}{what}; each line must be one sample, a JSON object as it was written")
    })?;
    check(&sample).map_err(anyhow::Error::msg)?;
    Ok(sample)
}

/// Checks the rules for every sample.
fn check(sample: &Sample) -> Result<(), String> {
    if sample.round == 0 {
        return Err("round 0: rounds start from 1".to_owned());
    }
    let values = sample.metrics.iter().chain(&sample.cycles);
    match values.into_iter().find(|(_, value)| !value.is_finite()) {
        Some((name, value)) => Err(format!("{name} is {value}: leave out what could not be measured")),
        None => Ok(()),
    }
}

/// Formats the message for a file that cannot be read, with what would be right.
pub(super) fn missing(path: &Path) -> String {
    format!(
        "cannot read {}; a folder of results has {ENVIRONMENT} and {SAMPLES} in it, or folders that do",
        path.display()
    )
}

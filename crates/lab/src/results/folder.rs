//! A folder of results: `environment.json`, and `samples.jsonl` with one sample a line; beside them, where there were searches,
//! `trials.jsonl` with each of their trials, which nobody reads here.
//!
//! Each sample is in the file before the next one is taken: whatever ends a run loses nothing. What is read is checked,
//! and a folder that is not understood to the last byte is refused.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::together::{self, named};
use super::{Environment, FORMAT, Sample};

const ENVIRONMENT: &str = "environment.json";
const SAMPLES: &str = "samples.jsonl";
const TRIALS: &str = "trials.jsonl";

/// A folder that is being filled.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    environment: Environment,
    samples: File,
    trials: Option<File>,
}

impl Writer {
    /// Whether a folder of this name can be [made](Self::create), as far as others' results go.
    ///
    /// # Errors
    /// It has results in it already, or folders of results, or is in a folder that has results of its own: which no reader
    /// would take.
    pub fn check(folder: &Path) -> anyhow::Result<()> {
        for name in [ENVIRONMENT, SAMPLES, TRIALS] {
            let path = folder.join(name);
            ensure!(!exists(&path)?, "{} is there already: name a new folder, or remove the old one", path.display());
        }
        let parts = if exists(folder)? { together::begun_in(folder)? } else { Vec::new() };
        let shown = folder.display();
        ensure!(
            parts.is_empty(),
            "{shown} has folders of results in it: name a new one, or one beside {}",
            named(&parts)
        );
        if let Some(above) = folder.parent() {
            ensure!(
                !is_begun(above)?,
                "{shown} would be in a folder that has results of its own: name one that is not"
            );
        }
        Ok(())
    }

    /// Makes a folder, and writes into it what all its samples are taken on.
    ///
    /// # Errors
    /// It cannot be made, or not [there](Self::check).
    pub fn create(folder: &Path, environment: Environment) -> anyhow::Result<Writer> {
        Writer::check(folder)?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join(SAMPLES);
        let writer = Writer { folder: folder.to_owned(), environment, samples: create(&path)?, trials: None };
        writer.write_environment()?;
        Ok(writer)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes what was negotiated with whom; trials say that more often than it changes.
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

    /// Notes the version of somebody who takes part.
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

    /// Adds a sample. It is in the file when this returns.
    ///
    /// # Errors
    /// It cannot be written; or a figure of it is no number, which no reader would take.
    pub fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        add(&mut self.samples, sample).with_context(|| format!("cannot write {}", self.folder.join(SAMPLES).display()))
    }

    /// Adds a trial by which a search comes to its sample.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_trial(&mut self, trial: &Sample) -> anyhow::Result<()> {
        let path = self.folder.join(TRIALS);
        let trials = match &mut self.trials {
            Some(trials) => trials,
            none => none.insert(create(&path)?),
        };
        add(trials, trial).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Whole or not at all, whatever happens meanwhile.
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

/// Adds a line. Nothing is kept back in this process.
fn add(file: &mut File, sample: &Sample) -> anyhow::Result<()> {
    check(sample).map_err(anyhow::Error::msg).context("a sample that cannot be kept")?;
    let mut line = serde_json::to_vec(sample)?;
    line.push(b'\n');
    Ok(file.write_all(&line)?)
}

/// A folder that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// What the samples were taken on.
    pub environment: Environment,
    /// In the order in which they were taken.
    pub samples: Vec<Sample>,
}

/// Where a figure was measured, and of what: samples of one place differ by chance only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SeriesKey {
    /// As in the sample.
    pub scenario: String,
    /// As in the sample.
    pub cell: BTreeMap<String, String>,
    /// As in the sample.
    pub variant: String,
}

impl SeriesKey {
    /// That of a sample.
    pub fn of(sample: &Sample) -> SeriesKey {
        SeriesKey { scenario: sample.scenario.clone(), cell: sample.cell.clone(), variant: sample.variant.clone() }
    }
}

impl Results {
    /// Reads a folder; or, of one that only holds such folders, as `lab exp --all` leaves it, all of these as one.
    ///
    /// # Errors
    /// A file is missing, is of another format, or is damaged: which, where, and what would be right. Folders that do not
    /// belong together, or of which one would be passed over.
    pub fn read(folder: &Path) -> anyhow::Result<Results> {
        let parts = together::parts(folder)?;
        if parts.is_empty() { read_one(folder) } else { together::read(&parts) }
    }

    /// Samples by place, in the order in which each place came first.
    pub fn places(&self) -> Vec<(SeriesKey, Vec<&Sample>)> {
        let mut places: Vec<(SeriesKey, Vec<&Sample>)> = Vec::new();
        let mut known = BTreeMap::new();
        for sample in &self.samples {
            let at = *known.entry(SeriesKey::of(sample)).or_insert_with_key(|place| {
                places.push((place.clone(), Vec::new()));
                places.len() - 1
            });
            places[at].1.push(sample);
        }
        places
    }
}

/// Whether somebody has written results there.
pub(super) fn is_begun(folder: &Path) -> anyhow::Result<bool> {
    Ok(exists(&folder.join(ENVIRONMENT))? || exists(&folder.join(SAMPLES))?)
}

/// What cannot be looked at may be there.
fn exists(path: &Path) -> anyhow::Result<bool> {
    path.try_exists().with_context(|| format!("cannot look at {}", path.display()))
}

/// Reads a folder that is no other's part.
pub(super) fn read_one(folder: &Path) -> anyhow::Result<Results> {
    Ok(Results { environment: read_environment(folder)?, samples: read_samples(folder)? })
}

/// A figure of those samples that count and have it, each with its round, as `statistics` takes it.
pub fn series<'a>(samples: impl IntoIterator<Item = &'a Sample>, metric: &str) -> Vec<(u32, f64)> {
    let valid = samples.into_iter().filter(|sample| sample.invalid.is_none());
    valid.filter_map(|sample| Some((sample.round, *sample.metrics.get(metric)?))).collect()
}

/// What every folder of results says, of whatever format it is.
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
        .map_err(|error| anyhow::anyhow!("{}; a folder of results says `\"format\": {FORMAT}` there", place(&error)))?;
    if version.format != FORMAT {
        let by = version.program.unwrap_or_else(|| "another version".to_owned());
        bail!(
            "{}:{}: results of format {}, which straightline {by} wrote; this is {} and reads format {FORMAT}: \
             use that one, or measure again",
            path.display(),
            1 + text.lines().position(|line| line.contains("\"format\"")).unwrap_or(0),
            version.format,
            straightline_switch::VERSION,
        );
    }
    serde_json::from_str(&text).map_err(|error| {
        anyhow::anyhow!("{}; the file must be as it was written: nothing added, nothing missing", place(&error))
    })
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
        "the last line ends in its middle, as where a disk was full: remove it, and the samples before it can be read"
    );
    let sample: Sample = serde_json::from_slice(line).map_err(|error| {
        // Its line number is that within this line.
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default();
        anyhow::anyhow!("column {}: {what}; each line is one sample, a JSON object as it was written", error.column())
    })?;
    check(&sample).map_err(anyhow::Error::msg)?;
    Ok(sample)
}

/// What holds of every sample.
fn check(sample: &Sample) -> Result<(), String> {
    if sample.round == 0 {
        return Err("round 0; rounds are counted from 1".to_owned());
    }
    let values = sample.metrics.iter().chain(&sample.cycles);
    match values.into_iter().find(|(_, value)| !value.is_finite()) {
        Some((name, value)) => Err(format!("{name} is {value}; leave out what could not be measured")),
        None => Ok(()),
    }
}

/// What cannot be read, and what would be right.
pub(super) fn missing(path: &Path) -> String {
    format!(
        "cannot read {}; a folder of results has {ENVIRONMENT} and {SAMPLES} in it, or folders that do",
        path.display()
    )
}

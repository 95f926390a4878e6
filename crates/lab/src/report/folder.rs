//! A folder of results: samples as lines of JSON, and what they were taken on.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::results::Sample;

/// The samples of a folder, and its environment (nothing where it has none).
pub(super) fn read(folder: &Path) -> anyhow::Result<(Vec<Sample>, Value)> {
    let path = folder.join("samples.jsonl");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(
                "{} has no samples.jsonl: it is no folder that the laboratory has written results into",
                folder.display()
            )
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut samples = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let sample = serde_json::from_str(line);
        samples.push(sample.with_context(|| format!("{}:{}: this is no sample", path.display(), index + 1))?);
    }
    let path = folder.join("environment.json");
    let environment = match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?,
        Err(error) if error.kind() == ErrorKind::NotFound => Value::Null,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    Ok((samples, environment))
}

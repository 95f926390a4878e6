//! Samples as they come: a line of JSON each, so that nothing is lost if the end does not come.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};

use crate::results::Sample;

/// A folder of results.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    samples: File,
}

impl Folder {
    /// Makes it. One that has samples already is refused: two runs are not one.
    ///
    /// # Errors
    /// It cannot be made, or has samples.
    pub fn create(path: &Path) -> anyhow::Result<Folder> {
        let shown = path.display();
        fs::create_dir_all(path).with_context(|| format!("cannot make {shown}"))?;
        let file = path.join("samples.jsonl");
        ensure!(!file.exists(), "{shown} has samples of another run: name another folder");
        let samples = File::create_new(&file).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Folder { path: path.to_owned(), samples })
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, sample: &Sample) -> anyhow::Result<()> {
        let line = serde_json::to_string(sample)? + "\n";
        self.samples.write_all(line.as_bytes()).with_context(|| format!("cannot write to {}", self.path.display()))
    }

    /// Writes the table beside them.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self, table: &str) -> anyhow::Result<()> {
        let file = self.path.join("table.md");
        fs::write(&file, table).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// A moment as a part of a file's name: `2026-11-21-143005`, UTC.
#[must_use]
pub fn date(moment: SystemTime) -> String {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (mut days, seconds) = (since / 86_400, since % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= if is_leap(year) { 366 } else { 365 } {
        days -= if is_leap(year) { 366 } else { 365 };
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{:02}-{hour:02}{minute:02}{second:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_lines_and_two_runs_are_not_mixed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a/b");
        let mut folder = Folder::create(&path).expect("a new folder");
        let sample = Sample { scenario: "fake".to_owned(), round: 1, ..Sample::default() };
        folder.add(&sample).expect("a line");
        folder.add(&Sample { round: 2, invalid: Some("why\nnot".to_owned()), ..sample.clone() }).expect("a line");
        folder.finish("a table").expect("a table");
        let text = fs::read_to_string(path.join("samples.jsonl")).expect("samples");
        let read: Vec<Sample> = text.lines().map(|line| serde_json::from_str(line).expect("a sample")).collect();
        assert_eq!((read.len(), &read[0], read[1].round), (2, &sample, 2));
        assert_eq!(fs::read_to_string(path.join("table.md")).expect("a table"), "a table");
        let error = Folder::create(&path).expect_err("samples are there").to_string();
        assert!(error.contains("another run"), "{error}");
    }

    #[test]
    fn dates() {
        let at = |seconds| date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        // As date(1) says.
        assert_eq!(at(0), "1970-01-01-000000");
        assert_eq!(at(951_782_400 + 3661), "2000-02-29-010101");
        assert_eq!(at(1_767_225_599), "2025-12-31-235959");
        assert_eq!(at(4_107_542_400), "2100-03-01-000000");
    }
}

//! The files of a capture that begins another file when one is full.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use az::SaturatingAs;

use crate::output;

/// The names and the number of the files.
#[derive(Debug)]
pub(super) struct Rotation {
    /// The name to which the number is added.
    base: PathBuf,
    /// The size in bytes at which a file is full.
    size: u64,
    /// The number of files to keep; none for all.
    keep: Option<usize>,
    /// The files that this capture has made and not removed, newest last.
    kept: VecDeque<PathBuf>,
    /// The number of files that were made.
    made: u64,
}

impl Rotation {
    pub(super) fn new(base: &Path, size: u64, keep: Option<u32>) -> Self {
        let keep = keep.map(|keep| keep.saturating_as::<usize>());
        Rotation { base: base.to_owned(), size, keep, kept: VecDeque::new(), made: 0 }
    }

    /// Returns whether a file of this length is full.
    pub(super) fn is_full(&self, len: u64) -> bool {
        len >= self.size
    }

    /// Returns the number of files that were made.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Returns the path of the next file: `vm1_00002.pcapng` for `vm1.pcapng`. Files beyond the number
    /// to keep are removed first.
    pub(super) fn next(&mut self) -> PathBuf {
        while self.keep.is_some_and(|keep| self.kept.len() >= keep) {
            let Some(oldest) = self.kept.pop_front() else { break };
            if let Err(error) = fs::remove_file(&oldest) {
                output::message("warning", &format_args!("{}: cannot remove the file: {error}", oldest.display()));
            }
        }
        self.made += 1;
        let mut name = OsString::from(self.base.file_stem().unwrap_or_default());
        name.push(format!("_{:05}", self.made));
        if let Some(extension) = self.base.extension() {
            name.push(".");
            name.push(extension);
        }
        let path = self.base.with_file_name(name);
        self.kept.push_back(path.clone());
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers() {
        let mut rotation = Rotation::new(Path::new("a.b/vm1.pcapng"), 1024, None);
        assert_eq!(rotation.next(), Path::new("a.b/vm1_00001.pcapng"));
        assert_eq!(rotation.next(), Path::new("a.b/vm1_00002.pcapng"));
        assert!(rotation.made() == 2 && rotation.is_full(1024) && !rotation.is_full(1023));
        assert_eq!(Rotation::new(Path::new("vm1"), 1024, None).next(), Path::new("vm1_00001"));
    }
}

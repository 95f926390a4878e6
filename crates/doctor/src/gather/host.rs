//! Files of `/proc` and `/sys`, below a root that tests choose.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::facts::{Fact, Unknown};

/// The most bytes that are read of a file.
const MOST: u64 = 4 << 20;

/// The root of the files.
#[derive(Debug)]
pub(super) struct Host {
    root: PathBuf,
}

impl Host {
    pub(super) fn new(root: impl Into<PathBuf>) -> Self {
        Host { root: root.into() }
    }

    /// Returns the place of a path, which is written without a leading slash.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Reads a file as text. Bytes that are not UTF-8 are replaced.
    pub(super) fn read(&self, path: &str) -> Fact<String> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.path(path)).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
        file.map_err(|error| unknown(Path::new("/").join(path).as_path(), &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a file of one line.
    pub(super) fn line(&self, path: &str) -> Fact<String> {
        self.read(path).map(|text| text.trim().to_owned())
    }

    /// Returns the names in a folder that are numbers, in their order.
    pub(super) fn numbers(&self, path: &str) -> Fact<Vec<u32>> {
        let folder = fs::read_dir(self.path(path)).map_err(|error| unknown(Path::new(path), &error))?;
        let names = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut numbers: Vec<u32> = names.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns whether there is such a file or folder.
    pub(super) fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }
}

/// Returns a fact that is not known because a file cannot be read.
pub(super) fn unknown(path: &Path, error: &io::Error) -> Unknown {
    let why = format!("cannot read {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => Unknown::for_root(why),
        _ => Unknown::new(why),
    }
}

/// Parses numbers and ranges as the kernel writes them: `0,2-3`.
pub(super) fn cpu_list<S: FromIterator<usize>>(text: &str) -> Fact<S> {
    let bad = || Unknown::new(format!("{text:?} is no list of CPUs"));
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = first.parse::<usize>().map_err(|_| bad())?;
        let last = last.parse::<usize>().map_err(|_| bad())?;
        if last - first.min(last) > 1 << 16 {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list::<Vec<_>>("0,2-4,7\n"), Ok(vec![0, 2, 3, 4, 7]));
        assert_eq!(cpu_list::<Vec<_>>(""), Ok(vec![]));
        assert_eq!(cpu_list::<Vec<_>>("4-2"), Ok(vec![]));
        for bad in ["x", "1-", "-1", "0-99999999999"] {
            assert!(cpu_list::<Vec<_>>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_missing_file_is_unknown_and_says_which() {
        let host = Host::new("/nowhere");
        assert!(host.read("proc/1/limits").unwrap_err().why.contains("/proc/1/limits"));
        assert!(host.numbers("proc").is_err() && !host.has("proc"));
    }
}

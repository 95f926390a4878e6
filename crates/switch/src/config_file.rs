//! The file of the applied configuration, and whether it was edited since.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::api::ConfigurationFile;

/// The file, with the text that was applied last.
#[derive(Debug)]
pub(crate) struct AppliedFile {
    path: PathBuf,
    text: String,
}

impl AppliedFile {
    pub(crate) fn new(path: &Path, text: String) -> Self {
        AppliedFile { path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), text }
    }

    /// Compares the file with the applied text.
    pub(crate) fn status(&self) -> ConfigurationFile {
        ConfigurationFile { path: self.path.display().to_string(), changed: self.is_changed().ok() }
    }

    fn is_changed(&self) -> io::Result<bool> {
        // Whoever puts a pipe there must not hold the API's thread.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&self.path)?;
        let length = self.text.len() as u64;
        let mut now = Vec::new();
        file.take(length + 1).read_to_end(&mut now)?;
        Ok(now != self.text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_edited_file_differs_from_the_applied_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch.toml");
        fs::write(&path, "a = 1\n").unwrap();
        let file = AppliedFile::new(&path, "a = 1\n".to_owned());
        assert_eq!(file.status(), ConfigurationFile { path: path.display().to_string(), changed: Some(false) });
        for edited in ["a = 2\n", "a = 1\nb = 2\n", "a", ""] {
            fs::write(&path, edited).unwrap();
            assert_eq!(file.status().changed, Some(true), "{edited:?}");
        }
        // The same text again is no change.
        fs::write(&path, "a = 1\n").unwrap();
        assert_eq!(file.status().changed, Some(false));
        fs::remove_file(&path).unwrap();
        assert_eq!(file.status().changed, None);
    }
}

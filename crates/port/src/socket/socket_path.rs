//! Socket paths: whether one can be bound at all, and whether it is free now.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::socket_file;

/// The most bytes of a path. `sun_path` has 108 (unix(7)), and the last is a NUL.
pub const MAX_PATH: usize = 107;

/// The state of a socket path: what file is there, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketState {
    /// Nothing: the path can be bound.
    Free,
    /// A socket that a process left when it ended: it may be removed, and then bound.
    Stale,
    /// A socket that a running process has open.
    Live,
    /// A file of another kind, which we must not remove.
    NotASocket,
}

/// The reason why a path cannot be bound: its text is not valid, or its folder cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketPathError {
    /// The path is longer than [`MAX_PATH`].
    #[error("{0} bytes long; a socket path has at most {MAX_PATH}")]
    TooLong(usize),
    /// The path is empty, or ends in `/` or `..`.
    #[error("names no file; write the path of the socket itself")]
    NoFile,
    /// The path contains a NUL byte, where the kernel would end it.
    #[error("contains a NUL byte")]
    Nul,
    /// The path's folder does not exist, or cannot be read.
    #[error("cannot use its folder {folder:?}: {why}; create it first: sudo mkdir -p {folder}")]
    Folder {
        /// The folder.
        folder: String,
        /// The system's error.
        why: String,
    },
}

/// Checks everything about the path that does not change from moment to moment.
///
/// # Errors
/// The reason why the path cannot be bound.
pub fn check(path: &Path) -> Result<(), SocketPathError> {
    check_name(path)?;
    let folder = folder(path);
    let why = match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => "not a folder".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(SocketPathError::Folder { folder: folder.display().to_string(), why })
}

/// Checks the path as it is written: whether there can be a socket of this name, now or later.
///
/// # Errors
/// The reason why no socket can have this name.
pub fn check_name(path: &Path) -> Result<(), SocketPathError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > MAX_PATH {
        return Err(SocketPathError::TooLong(bytes.len()));
    }
    if bytes.contains(&0) {
        return Err(SocketPathError::Nul);
    }
    if path.file_name().is_none() || bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
        return Err(SocketPathError::NoFile);
    }
    Ok(())
}

/// Returns what is at `path` now, without disturbing a process that listens there.
///
/// # Errors
/// The system's error if the state cannot be found out, for example because we may not connect.
pub fn state(path: &Path) -> io::Result<SocketState> {
    socket_file::state(path)
}

/// Returns the folder of a socket path, which is the current one if the path names none.
pub fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    #[test]
    fn states() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        assert_eq!(state(&path).unwrap(), SocketState::Free);
        assert_eq!(state(&folder.path().join("none/s")).unwrap(), SocketState::Free);

        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(state(&path).unwrap(), SocketState::Live);
        listener.set_nonblocking(true).unwrap();
        let nobody = listener.accept().unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock, "the probe must not be seen");
        drop(listener);
        assert_eq!(state(&path).unwrap(), SocketState::Stale);

        fs::remove_file(&path).unwrap();
        let datagram = UnixDatagram::bind(&path).unwrap();
        assert_eq!(state(&path).unwrap(), SocketState::Live);
        drop(datagram);
        assert_eq!(state(&path).unwrap(), SocketState::Stale);

        fs::remove_file(&path).unwrap();
        fs::write(&path, "x").unwrap();
        assert_eq!(state(&path).unwrap(), SocketState::NotASocket);
        assert_eq!(state(folder.path()).unwrap(), SocketState::NotASocket);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(folder.path().join("nowhere"), &path).unwrap();
        assert_eq!(state(&path).unwrap(), SocketState::NotASocket);
    }

    #[test]
    fn paths() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("s");
        assert_eq!(check(&good), Ok(()));
        assert_eq!(check(Path::new("here.sock")), Ok(()));
        assert_eq!(check(Path::new("")), Err(SocketPathError::NoFile));
        assert_eq!(check(Path::new("/tmp/..")), Err(SocketPathError::NoFile));
        assert_eq!(check(Path::new("/tmp/")), Err(SocketPathError::NoFile));
        assert_eq!(check(Path::new("/tmp/a\0b")), Err(SocketPathError::Nul));
        let fill = |length: usize| {
            let base = folder.path().as_os_str().len() + 1;
            folder.path().join("x".repeat(length - base))
        };
        assert_eq!(check(&fill(107)), Ok(()));
        assert_eq!(check(&fill(108)), Err(SocketPathError::TooLong(108)));
        UnixListener::bind(fill(107)).unwrap();
        fs::write(&good, "").unwrap();
        let message = check(&good.join("s")).unwrap_err().to_string();
        assert!(message.contains("not a folder"), "{message}");
        let message = check(&folder.path().join("none/s")).unwrap_err().to_string();
        assert!(message.contains("No such file"), "{message}");
        assert_eq!(check_name(&folder.path().join("none/s")), Ok(()), "somebody may make it later");
        assert_eq!(check_name(&fill(108)), Err(SocketPathError::TooLong(108)));
    }
}

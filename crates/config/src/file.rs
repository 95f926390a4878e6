//! The file of a configuration: its bytes, and whether others than root may write it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use straightline_graph::Clock;

/// The most bytes of a file. The largest configurations, of thousands of ports, have less.
pub(super) const MOST_BYTES: u64 = 16 << 20;

/// The longest wait for the writer of a pipe. The switch answers no client meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file that was read.
#[derive(Debug)]
pub(super) struct ReadFile {
    /// The bytes. One more than [`MOST_BYTES`] says that there are too many.
    pub(super) bytes: Vec<u8>,
    /// The users who may write the file besides root, if root reads it.
    pub(super) writers: Option<String>,
}

/// Reads a file.
///
/// # Errors
/// The file cannot be read, or it is a pipe into which nobody writes.
pub(super) fn read(path: &Path) -> io::Result<ReadFile> {
    // Whoever puts a pipe there must not hold the switch.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let bytes = read_within(&file, PATIENCE)?;
    if bytes.is_empty() && metadata.file_type().is_fifo() {
        return Err(silent());
    }
    let trusted = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    let writers = if rustix::process::geteuid().is_root() { writers(&metadata, trusted) } else { None };
    Ok(ReadFile { bytes, writers })
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it is a pipe into which nobody writes; a configuration is a file")
}

/// Reads a file, or a pipe for at most this time.
fn read_within(file: &File, most: Duration) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let clock = Clock::real();
    let until = clock.now() + most;
    loop {
        match file.take(MOST_BYTES + 1 - bytes.len() as u64).read_to_end(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done.map(|_| bytes),
        }
        match clock.poll(&mut [PollFd::new(file, PollFlags::IN)], Some(until)) {
            Ok(0) => return Err(silent()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns who may write a file besides root and the user `trusted`, who has become root by sudo.
fn writers(file: &Metadata, trusted: Option<u32>) -> Option<String> {
    let user = file.uid();
    let group = file.gid();
    if !file.is_file() {
        None
    } else if file.mode() & 0o002 != 0 {
        Some("everybody".to_owned())
    } else if user != 0 && Some(user) != trusted {
        Some(format!("the user {user}"))
    } else if file.mode() & 0o020 != 0 && group != 0 && group != user {
        // A group with the number of the user is that user's own.
        Some(format!("the group {group}"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_holds_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch.toml");
        mknodat(CWD, &path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
        // Nobody has it open.
        assert_eq!(read(&path).unwrap_err().to_string(), silent().to_string());
        // Somebody has it open, and writes nothing, a part, or all.
        let reader =
            OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&path).unwrap();
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(read_within(&reader, Duration::ZERO).is_err());
        writer.write_all(b"[switch]\n").unwrap();
        assert!(read_within(&reader, Duration::ZERO).is_err());
        writer.write_all(b"[port.a]\n").unwrap();
        drop(writer);
        assert_eq!(read_within(&reader, Duration::ZERO).unwrap(), b"[port.a]\n");
    }

    #[test]
    fn others_who_may_write_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch.toml");
        fs::write(&path, "").unwrap();
        let owner = fs::metadata(&path).unwrap().uid();
        let by_mode = |mode: u32, trusted| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            writers(&fs::metadata(&path).unwrap(), trusted)
        };
        assert_eq!(by_mode(0o644, Some(owner)), None);
        assert_eq!(by_mode(0o646, Some(owner)), Some("everybody".to_owned()));
        let expected = (owner != 0).then(|| format!("the user {owner}"));
        assert_eq!(by_mode(0o644, None), expected);
    }
}

//! The output of a capture: a file, a FIFO or standard output. It never ends in the middle of a block.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use az::SaturatingAs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGXFSZ;

use crate::output;

/// The permission bits of users other than the owner.
const OF_OTHERS: u32 = 0o077;

/// Collects whole blocks, and writes them when it is told to.
#[derive(Debug)]
pub(super) struct CaptureFile {
    to: io::Result<File>,
    /// The path, or none for standard output.
    path: Option<PathBuf>,
    /// True for a regular file, which takes all bytes at once and can be cut.
    is_regular: bool,
    pending: Vec<u8>,
    /// Set while the program that reads our output does not read.
    is_stuck: Arc<AtomicBool>,
    /// Bytes and packets that were written. All of them are whole blocks.
    written: u64,
    packets: u64,
    /// Packets in `pending`.
    pending_packets: u64,
}

/// The reason why packets could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{place}: cannot write: {error}; it has {packets} packets, and no packet of the switch is lost")]
pub(super) struct WriteError {
    place: String,
    packets: u64,
    error: io::Error,
}

impl WriteError {
    /// Returns whether the program that reads our output has gone.
    pub(super) fn is_broken_pipe(&self) -> bool {
        self.error.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Lets a write beyond the limit of a file's size fail. Without a handler, the signal would end this
/// process before it can say so.
pub(super) fn handle_size_limit() -> anyhow::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot set up signal handlers")?;
    Ok(())
}

impl CaptureFile {
    /// Creates a file that only its owner may read, because it has the contents of packets. An
    /// existing file is emptied, and others lose their permissions. A FIFO is opened when it has a
    /// reader; `is_stuck` is set until then, and while its reader does not read.
    pub(super) fn create(path: &Path, is_stuck: Arc<AtomicBool>) -> anyhow::Result<Self> {
        is_stuck.store(true, Ordering::Relaxed);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        is_stuck.store(false, Ordering::Relaxed);
        let title = path.display();
        let file = file.with_context(|| format!("{title}: cannot create the file"))?;
        let metadata = file.metadata().with_context(|| format!("{title}: cannot read its permissions"))?;
        let mode = metadata.permissions().mode();
        if metadata.is_file() && mode & OF_OTHERS != 0 {
            let owner_only = Permissions::from_mode(mode & 0o7777 & !OF_OTHERS);
            if let Err(error) = file.set_permissions(owner_only) {
                let what =
                    format_args!("{title}: other users may keep their permissions {:04o}: {error}", mode & 0o7777);
                output::message("warning", &what);
            }
        }
        Ok(Self::new(Ok(file), Some(path.to_owned()), metadata.is_file(), is_stuck))
    }

    /// Returns standard output as a file. `is_stuck` is set while its reader does not read.
    pub(super) fn stdout(is_stuck: Arc<AtomicBool>) -> Self {
        let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
        Self::new(file, None, false, is_stuck)
    }

    fn new(to: io::Result<File>, path: Option<PathBuf>, is_regular: bool, is_stuck: Arc<AtomicBool>) -> Self {
        CaptureFile { to, path, is_regular, pending: Vec::new(), is_stuck, written: 0, packets: 0, pending_packets: 0 }
    }

    /// Counts a packet whose block is whole.
    pub(super) fn count_packet(&mut self) {
        self.pending_packets += 1;
    }

    /// Returns the file's length in bytes, with what is still to be written.
    pub(super) fn len(&self) -> u64 {
        self.written.saturating_add(self.pending.len().saturating_as::<u64>())
    }

    /// Returns whether the file has packets, or has them still to be written.
    pub(super) fn has_packets(&self) -> bool {
        self.packets + self.pending_packets > 0
    }

    /// Returns the file, for a wait until its reader has gone (POLLERR, which only a pipe or a socket
    /// reports). If there is no file, the next write says why.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().ok().map(AsFd::as_fd)
    }

    /// Returns the flag that is set while the program that reads our output does not read.
    pub(super) fn is_stuck(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_stuck)
    }

    /// Returns the number of packets that were written.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Writes all blocks, if they have more than `len` bytes. If that fails, the file ends behind the
    /// last block that was written before.
    pub(super) fn hand_over(&mut self, len: usize) -> Result<(), WriteError> {
        if self.pending.len() <= len {
            return Ok(());
        }
        let done = match &mut self.to {
            Ok(file) if self.is_regular => file.write_all(&self.pending).inspect_err(|_| {
                // If this fails too, the first error says why.
                let _ = file.set_len(self.written);
            }),
            Ok(file) => write_to_pipe(file, &self.pending, &self.is_stuck),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        if let Err(error) = done {
            let place = self.path.as_ref().map_or("standard output".to_owned(), |path| path.display().to_string());
            return Err(WriteError { place, packets: self.packets, error });
        }
        self.written += self.pending.len().saturating_as::<u64>();
        self.packets += std::mem::take(&mut self.pending_packets);
        self.pending.clear();
        Ok(())
    }
}

/// Writes to what may be a pipe, and sets `is_stuck` while the pipe is full.
pub(in crate::commands) fn write_to_pipe(file: &mut File, bytes: &[u8], is_stuck: &AtomicBool) -> io::Result<()> {
    /// Bytes that a pipe takes at once if it can be written at all (PIPE_BUF).
    const CHUNK: usize = 4096;
    for chunk in bytes.chunks(CHUNK) {
        let can_write = |timeout: Option<&Timespec>| {
            let mut fds = [PollFd::new(&*file, PollFlags::OUT)];
            poll(&mut fds, timeout).is_ok_and(|ready| ready > 0)
        };
        if !can_write(Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            is_stuck.store(true, Ordering::Relaxed);
            // After an error of the wait, the write waits.
            can_write(None);
            is_stuck.store(false, Ordering::Relaxed);
        }
        file.write_all(chunk)?;
    }
    Ok(())
}

impl Write for CaptureFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Does nothing: [`Self::hand_over`] writes.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

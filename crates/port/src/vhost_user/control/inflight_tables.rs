//! The tables of buffers in flight of one connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::fstat;
use straightline_virtio::ring::{InflightFile, InflightShape, InflightTable};

/// The tables of a connection.
#[derive(Debug, Default)]
pub(crate) struct InflightTables {
    /// The table in use. Every running ring keeps its part of it, if it has one.
    pub(crate) table: Option<InflightTable>,
    /// The file for all tables that we make for this frontend.
    pub(crate) own: Option<InflightFile>,
    /// True if the table in use is in that file.
    pub(crate) is_own: bool,
}

impl InflightTables {
    /// Returns the table in use.
    pub(crate) fn table(&self) -> Option<&InflightTable> {
        self.table.as_ref()
    }

    /// Returns the file that the frontend is given.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.own.as_ref().map(AsFd::as_fd)
    }

    /// Returns whether a file that was sent to us is ours.
    pub(crate) fn owns(&self, file: &OwnedFd) -> bool {
        let is_same = |own: &InflightFile| {
            let own = fstat(own).ok()?;
            let other = fstat(file).ok()?;
            Some((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
        };
        self.own.as_ref().and_then(is_same).unwrap_or(false)
    }

    /// Returns whether the table in use is in our file and has this shape.
    pub(crate) fn has(&self, shape: InflightShape) -> bool {
        self.is_own && self.table.as_ref().is_some_and(|table| table.shape() == shape)
    }
}

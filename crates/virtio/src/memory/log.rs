//! The dirty log: a bitmap that a frontend shares with us while it moves its guest, one bit for each page that we wrote
//! (vhost-user, "Migration").
//!
//! The frontend takes a bit away and then copies the page. A bit that it took away must not stand for a write that it did
//! not see: first the bytes are written, then the mark is made, with a fence between.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};

use super::{GuestMemory, MapError, Region};

/// Bytes of guest memory that one bit stands for, whatever its pages are (`VHOST_LOG_PAGE`).
pub const LOG_PAGE: u64 = 4096;

/// A frontend's bitmap: bit 0 of byte 0 is the page at guest address 0.
#[derive(Debug)]
pub struct DirtyLog {
    map: Region,
    /// A write lay outside of what the log has bits for.
    overrun: AtomicBool,
}

/// Marks made after the writes that they stand for: see [`DirtyLog::after_writes`].
#[derive(Debug)]
pub struct Marks<'l>(&'l DirtyLog);

impl DirtyLog {
    /// Maps `size` bytes at `offset` of the frontend's file.
    pub fn map(file: BorrowedFd<'_>, offset: u64, size: u64) -> Result<Self, MapError> {
        Ok(DirtyLog { map: Region::map(file, offset, size, 0, 0)?, overrun: AtomicBool::new(false) })
    }

    /// Whether it has a bit for every byte of `memory`.
    pub fn covers(&self, memory: &GuestMemory) -> bool {
        self.map.size() >= memory.end().div_ceil(8 * LOG_PAGE)
    }

    /// Whether everything that was marked is in it: no write lay outside, and its file has not vanished (see
    /// [`super::fault`]).
    #[inline]
    pub fn is_intact(&self) -> bool {
        !self.overrun.load(Ordering::Relaxed) && !self.map.poisoned()
    }

    /// For marks of what this thread has written so far.
    pub fn after_writes(&self) -> Marks<'_> {
        // A mark that is there already is not made again. SeqCst against the frontend's exchange: either we see that it
        // has taken the bit away, or it sees what we wrote before this fence.
        fence(Ordering::SeqCst);
        Marks(self)
    }
}

impl Marks<'_> {
    /// Marks the pages of `len` bytes from guest address `addr`.
    pub fn mark(&self, addr: u64, len: u64) {
        let Some(last) = len.checked_sub(1) else { return };
        let Some(last) = addr.checked_add(last).filter(|last| last / (8 * LOG_PAGE) < self.0.map.size()) else {
            return self.missed();
        };
        for page in addr / LOG_PAGE..=last / LOG_PAGE {
            self.set(page);
        }
    }

    /// Something was written that cannot be marked.
    #[cold]
    pub fn missed(&self) {
        self.0.overrun.store(true, Ordering::Relaxed);
    }

    fn set(&self, page: u64) {
        let Ok(at) = usize::try_from(page / 8) else { return };
        // SAFETY: the byte is within the mapping, since the page's bit is (`mark`), and the log keeps it mapped; it is
        // shared with the frontend, so all access to it is atomic.
        let byte = unsafe { AtomicU8::from_ptr(self.0.map.host().add(at)) };
        let bit = 1 << (page % 8);
        if byte.load(Ordering::Relaxed) & bit == 0 {
            byte.fetch_or(bit, Ordering::Release);
        }
    }
}

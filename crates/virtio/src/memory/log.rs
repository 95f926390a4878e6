//! The dirty log: a bitmap that a frontend shares with us while it migrates its guest (vhost-user,
//! "Migration"). It has one bit for each page, set when we write to the page.
//!
//! The frontend clears a bit and then copies the page. If a page is written after the copy, its bit
//! must be set again. So the bytes are written first and the mark is made afterwards, with a fence
//! between.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};

use super::{GuestMemory, MapError, Region};

/// Bytes of guest memory for each bit, for any page size of the guest (`VHOST_LOG_PAGE`).
// Cites vhost-user-migration-4.
pub const LOG_PAGE: u64 = 4096;

/// A frontend's bitmap: bit 0 of byte 0 is the page at guest address 0.
#[derive(Debug)]
pub struct DirtyLog {
    map: Region,
    /// True if a write lay outside the pages that the log has bits for.
    overrun: AtomicBool,
}

/// Permission to make marks: the writes to be marked are done (see [`DirtyLog::after_writes`]).
#[derive(Debug)]
pub struct Marks<'l>(&'l DirtyLog);

impl DirtyLog {
    /// Maps `size` bytes at `offset` of the frontend's file.
    pub fn map(file: BorrowedFd<'_>, offset: u64, size: u64) -> Result<Self, MapError> {
        // Cites vhost-user-migration-5.
        Ok(DirtyLog { map: Region::map(file, offset, size, 0, 0)?, overrun: AtomicBool::new(false) })
    }

    /// Returns whether the log has a bit for every byte of `memory`.
    pub fn covers(&self, memory: &GuestMemory) -> bool {
        // Cites vhost-user-migration-6.
        self.map.size() >= memory.end().div_ceil(8 * LOG_PAGE)
    }

    /// Returns whether the log has all marks: all writes were inside its range, and its file has
    /// not vanished (see [`super::fault`]).
    #[inline]
    pub fn is_intact(&self) -> bool {
        !self.overrun.load(Ordering::Relaxed) && !self.map.poisoned()
    }

    /// Returns a value by which this thread marks its writes so far.
    pub fn after_writes(&self) -> Marks<'_> {
        // SeqCst, paired with the frontend's atomic exchange. `set` does not repeat a mark that is
        // still set. So either `set` sees that the frontend has cleared the bit, or the frontend
        // sees everything written before this fence.
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

    /// Records that something was written that cannot be marked.
    #[cold]
    pub fn missed(&self) {
        // Relaxed: the flag guards no other data.
        self.0.overrun.store(true, Ordering::Relaxed);
    }

    fn set(&self, page: u64) {
        let Ok(at) = usize::try_from(page / 8) else { return };
        // SAFETY: the byte is within the mapping, since the page's bit is (`mark`), and the log
        // keeps it mapped. It is shared with the frontend, so all access to it is atomic.
        let byte = unsafe { AtomicU8::from_ptr(self.0.map.host().add(at)) };
        // Cites vhost-user-migration-7.
        let bit = 1 << (page % 8);
        if byte.load(Ordering::Relaxed) & bit == 0 {
            // Release: the bytes are visible before their mark.
            // Cites vhost-user-migration-8.
            byte.fetch_or(bit, Ordering::Release);
        }
    }
}

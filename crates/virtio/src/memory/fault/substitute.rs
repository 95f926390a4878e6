//! The substitute for vanished guest memory, which the SIGBUS handler maps: a memfd of zeros.
//!
//! A private mapping would be simpler, but the kernel charges all of it to the process. It refuses
//! the mapping if the process has reached RLIMIT_DATA, or the machine its commit limit
//! (`vm.overcommit_memory=2`). A shared mapping of a file is never charged, and adjoining parts of
//! it are one mapping.
//!
//! The memfd is sparse and as long as the address space. The substitute for the byte at an address
//! lies at the same offset. So no two regions share a page, and mapping a region's substitute again
//! changes nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use az::SaturatingAs;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::{Errno, Result};

/// Length of the memfd, beyond every address of a process: x86-64 has 56 bits with five-level page
/// tables and 47 without, arm64 at most 52.
const LEN: u64 = 1 << 56;

/// The memfd and the size of a page.
#[derive(Debug)]
pub(super) struct Substitute {
    file: OwnedFd,
    page: usize,
}

/// The part of the memfd that backs a page.
#[derive(Debug)]
pub(super) enum Page {
    /// The page's own offset. The page is allocated now, or by the next access.
    Own,
    /// The offset of a page that all regions may share, because the kernel has no free page.
    Spare(u64),
}

static SUBSTITUTE: OnceLock<Substitute> = OnceLock::new();

impl Substitute {
    /// Offset of the spare page: no region is at address 0.
    const SPARE: u64 = 0;

    /// Creates the memfd, unless it exists.
    pub(super) fn prepare() -> Result<()> {
        if SUBSTITUTE.get().is_none() {
            let file = memfd_create("straightline-vanished", MemfdFlags::CLOEXEC)?;
            ftruncate(&file, LEN)?;
            let page = rustix::param::page_size();
            fallocate(&file, FallocateFlags::empty(), Self::SPARE, wide(page))?;
            // Another thread may have been faster; then its memfd stays.
            let _ = SUBSTITUTE.set(Substitute { file, page });
        }
        Ok(())
    }

    /// Returns the memfd, if it exists. Like everything below, this neither allocates nor locks:
    /// the signal handler calls it.
    pub(super) fn get() -> Option<&'static Substitute> {
        SUBSTITUTE.get()
    }

    /// Returns the memfd as a file to map.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the offset of an address.
    pub(super) fn offset(address: usize) -> u64 {
        wide(address)
    }

    /// Returns the bytes of a page.
    pub(super) fn page(&self) -> usize {
        self.page
    }

    /// Allocates the page that begins at `address`. The commit limit can prevent this too. Then the
    /// spare page must be mapped, which was allocated in advance. Regions may share the spare page,
    /// because no data that was read from a poisoned region is published.
    pub(super) fn allocate(&self, address: usize) -> Page {
        match fallocate(&self.file, FallocateFlags::empty(), wide(address), wide(self.page)) {
            // Another signal interrupted the call: the access repeats, and faults again if the page
            // is still missing.
            Ok(()) | Err(Errno::INTR) => Page::Own,
            Err(_) => Page::Spare(Self::SPARE),
        }
    }

    /// Frees the pages of a region that is no longer accessed. The next region at the same
    /// addresses finds zeros.
    pub(super) fn free(&self, start: usize, len: usize) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The call fails only for a range beyond the file's end or for a sealed file. Neither is
        // the case here.
        let _ = fallocate(&self.file, punch, wide(start), wide(len));
    }
}

fn wide(n: usize) -> u64 {
    n.saturating_as::<u64>()
}

//! One region of guest memory: a file mapped between two guard pages.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{fstat, fstatfs};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::fault::{MAX_REGIONS, Owner, Watch, WatchError};

/// Flags of `get_mempolicy`, which `libc` does not have: the node of the page at an address.
const MPOL_F_NODE: libc::c_ulong = 1;
const MPOL_F_ADDR: libc::c_ulong = 2;

const TMPFS_MAGIC: u64 = 0x0102_1994;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// The most bytes of address space that all regions of this process may have together, guard pages
/// included.
///
/// A process has 128 TiB of address space on x86-64 with four-level page tables. A file may be
/// sparse, so its length costs a frontend nothing. Without a limit, one frontend could use up all
/// address space, and nothing more could be mapped. The other half stays free, for threads and the
/// heap.
pub const MAX_MAPPED: usize = 64 << 40;

/// Bytes of address space that all regions have now.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// The reason why a region cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The region has no bytes.
    #[error("region at {0:#x} is empty")]
    Empty(u64),
    /// An address or offset of the region overflows 64 bits.
    #[error("region at {guest:#x}: its address or offset {offset:#x} plus its size {size:#x} overflows")]
    Overflow {
        /// Guest address.
        guest: u64,
        /// Offset into the file.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// The region extends beyond the end of its file.
    #[error("region at {guest:#x} ends at byte {end:#x} of its file, but the file has {len:#x} bytes")]
    BeyondFile {
        /// Guest address.
        guest: u64,
        /// Byte of the file at which the region would end.
        end: u64,
        /// Bytes in the file.
        len: u64,
    },
    /// The file cannot be shared with the guest: it is on another filesystem.
    #[error("guest memory must be a memfd or a file on tmpfs or hugetlbfs (share=on), not a file on filesystem {0:#x}")]
    NotShareable(u64),
    /// The process has as many regions as the SIGBUS handler can watch ([`MAX_REGIONS`]).
    #[error("region at {0:#x}: this process already maps {MAX_REGIONS} regions, the maximum")]
    TooMany(u64),
    /// The regions of all ports would take more address space than [`MAX_MAPPED`].
    #[error(
        "region at {guest:#x} of {size:#x} bytes: the regions of all ports may have {MAX_MAPPED:#x} bytes of address \
         space together, and have {mapped:#x} already"
    )]
    NoSpace {
        /// Guest address.
        guest: u64,
        /// Bytes.
        size: u64,
        /// Bytes of address space that the regions of all ports have.
        mapped: usize,
    },
    /// A system call failed.
    #[error("region at {guest:#x} of {size:#x} bytes: {what}: {source}")]
    System {
        /// Guest address.
        guest: u64,
        /// Bytes.
        size: u64,
        /// The step that failed.
        what: &'static str,
        /// The error of that step.
        source: rustix::io::Errno,
    },
}

/// A part of guest memory, mapped for as long as this value lives.
pub struct Region {
    guest_addr: u64,
    user_addr: u64,
    size: u64,
    host: *mut u8,
    // Fields are dropped in this order. The watch goes first: once the addresses are unmapped,
    // another region may get them and watch them.
    watch: Watch,
    _reserved: Reservation,
}

// SAFETY: the pointers point into a shared mapping that lives as long as the region. Every access
// goes through atomics or through the kernels for memory that others write.
unsafe impl Send for Region {}
// SAFETY: as above. The region itself is immutable.
unsafe impl Sync for Region {}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:#x}..{:#x})", self.guest_addr, self.guest_addr + self.size)
    }
}

impl Region {
    /// Maps `size` bytes at `offset` of `file` as guest memory from `guest_addr` on. The frontend
    /// has the same bytes at its own address `user_addr`.
    pub fn map(
        file: BorrowedFd<'_>,
        offset: u64,
        size: u64,
        guest_addr: u64,
        user_addr: u64,
    ) -> Result<Region, MapError> {
        Self::map_for(Owner::Frontend, file, offset, size, guest_addr, user_addr)
    }

    /// Maps the first `size` bytes of a file that no frontend has, from address 0 on. The limits of
    /// frontends' regions do not count it: those who use them up cannot prevent it.
    pub fn map_own(file: BorrowedFd<'_>, size: u64) -> Result<Region, MapError> {
        Self::map_for(Owner::Process, file, 0, size, 0, 0)
    }

    fn map_for(
        owner: Owner,
        file: BorrowedFd<'_>,
        offset: u64,
        size: u64,
        guest_addr: u64,
        user_addr: u64,
    ) -> Result<Region, MapError> {
        if size == 0 {
            return Err(MapError::Empty(guest_addr));
        }
        let overflow = MapError::Overflow { guest: guest_addr, offset, size };
        let Some(end) = offset.checked_add(size) else { return Err(overflow) };
        if guest_addr.checked_add(size).is_none() || user_addr.checked_add(size).is_none() {
            return Err(overflow);
        }
        let system = |what| move |source| MapError::System { guest: guest_addr, size, what, source };
        let fs = fstatfs(file).map_err(system("cannot look at its filesystem"))?;
        let magic = u64::try_from(fs.f_type).unwrap_or(0) & 0xffff_ffff;
        if magic != TMPFS_MAGIC && magic != HUGETLBFS_MAGIC {
            return Err(MapError::NotShareable(magic));
        }
        let len = u64::try_from(fstat(file).map_err(system("cannot look at its file"))?.st_size).unwrap_or(0);
        if end > len {
            return Err(MapError::BeyondFile { guest: guest_addr, end, len });
        }
        let page = match magic {
            HUGETLBFS_MAGIC => u64::try_from(fs.f_bsize).unwrap_or(0),
            _ => u64::try_from(rustix::param::page_size()).unwrap_or(0),
        };
        if !page.is_power_of_two() {
            return Err(MapError::NotShareable(magic));
        }
        // The mapping starts and ends on pages; the region may do neither.
        let low = offset & !(page - 1);
        let high = end.checked_next_multiple_of(page).ok_or(overflow)?;
        let to_usize = |n: u64| usize::try_from(n).map_err(|_| MapError::TooMany(guest_addr));
        let page = to_usize(page)?;
        let span = to_usize(high - low)?;
        let inset = to_usize(offset - low)?;
        let no_space = |mapped| MapError::NoSpace { guest: guest_addr, size, mapped };
        let share = Share::take(owner, span.saturating_add(3 * page)).map_err(no_space)?;
        let (reserved, start) = Self::map_guarded(file, low, span, page, share).map_err(system("cannot map it"))?;
        let watch = Watch::new(owner, start.addr(), span).map_err(|error| match error {
            WatchError::TooMany => MapError::TooMany(guest_addr),
            WatchError::NoSubstitute(source) => system("cannot make a substitute for vanished memory")(source),
        })?;
        // SAFETY: the inset is less than a page, and the span is at least a page.
        let host = unsafe { start.add(inset) };
        Ok(Region { guest_addr, user_addr, size, host, watch, _reserved: reserved })
    }

    /// Maps `span` bytes of the file with at least one inaccessible page on either side. `share`
    /// covers three pages more than the span.
    fn map_guarded(
        file: BorrowedFd<'_>,
        low: u64,
        span: usize,
        page: usize,
        share: Share,
    ) -> Result<(Reservation, *mut u8), rustix::io::Errno> {
        // SAFETY: the first call makes a fresh reservation without access, at an address that the
        // kernel chooses. The second call maps the file inside it, aligned to the file's page size.
        // Nothing else of the process is replaced.
        unsafe {
            let reserved = mmap_anonymous(
                std::ptr::null_mut(),
                share.bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
            .cast::<u8>();
            let reservation = Reservation(reserved, share);
            let first = reserved.add(page);
            let start = first.add(first.align_offset(page));
            mmap(
                start.cast(),
                span,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED,
                file.as_fd(),
                low,
            )?;
            // Keep guest memory out of our core dumps and of child processes. Best effort: it
            // changes no result.
            let _ = madvise(start.cast(), span, Advice::LinuxDontDump);
            let _ = madvise(start.cast(), span, Advice::LinuxDontFork);
            Ok((reservation, start))
        }
    }

    /// Returns the first guest address.
    pub fn guest_addr(&self) -> u64 {
        self.guest_addr
    }

    /// Returns the frontend's own address of the first byte.
    pub fn user_addr(&self) -> u64 {
        self.user_addr
    }

    /// Returns the number of bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether a part of the region has vanished (see [`super::fault`]).
    #[inline]
    pub fn poisoned(&self) -> bool {
        self.watch.poisoned()
    }

    /// Returns the NUMA node of the page at this offset, or `None` if it is beyond the region or the
    /// kernel does not tell. The kernel allocates a page that nobody has used yet.
    pub(super) fn node(&self, offset: u64) -> Option<usize> {
        let offset = usize::try_from(offset).ok().filter(|_| offset < self.size)?;
        let mut node: libc::c_int = -1;
        // SAFETY: the kernel writes the node into `node`. Of the address it uses only the page's
        // place, and it checks that the page is there.
        let done = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut node,
                std::ptr::null_mut::<libc::c_ulong>(),
                0_usize,
                self.host.wrapping_add(offset),
                MPOL_F_NODE | MPOL_F_ADDR,
            )
        };
        usize::try_from(node).ok().filter(|_| done == 0)
    }

    /// Returns the address of the first byte in this process.
    pub(super) fn host(&self) -> *mut u8 {
        self.host
    }
}

/// Reserved addresses, guard pages included, with the file mapped between the guard pages.
struct Reservation(*mut u8, Share);

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: this value owns the reservation. Every user of a pointer into it has ended its
        // turn (an `RcuCell` holds the region) or owns the region itself.
        let _ = unsafe { munmap(self.0.cast(), self.1.bytes) };
    }
}

/// A share of [`MAX_MAPPED`] bytes, which is given back when this is dropped. Memory of the process
/// itself is not limited.
struct Share {
    owner: Owner,
    bytes: usize,
}

impl Share {
    /// Takes `bytes` of the limit. The error is the number of bytes in use.
    fn take(owner: Owner, bytes: usize) -> Result<Share, usize> {
        if owner == Owner::Process {
            return Ok(Share { owner, bytes });
        }
        let more = |mapped: usize| mapped.checked_add(bytes).filter(|sum| *sum <= MAX_MAPPED);
        // Relaxed: the counter guards no other data.
        MAPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map(|_| Share { owner, bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.owner == Owner::Frontend {
            MAPPED.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

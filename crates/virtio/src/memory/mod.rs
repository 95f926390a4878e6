//! Guest memory: the only module that reaches it.
//!
//! Regions come from file descriptors that a frontend sent. This module alone translates and checks
//! addresses. The result is a [`MemorySegment`] that lives for a turn, or an [`Area`] that keeps
//! its region mapped. Guest memory is never a `&[u8]`: the guest writes the bytes whenever it
//! likes.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

mod area;
pub mod fault;
mod log;
mod region;

use std::sync::Arc;

use az::SaturatingAs;
use straightline_packet::MemorySegment;

pub use area::Area;
pub use log::{DirtyLog, LOG_PAGE, Marks};
pub use region::{MAX_MAPPED, MapError, Region};

/// The fields of a region that translation needs, kept together for the cache.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: u64,
    size: u64,
    host: *mut u8,
}

/// All memory of one guest.
#[derive(Debug, Default)]
pub struct GuestMemory {
    windows: Vec<Window>,
    regions: Vec<Arc<Region>>,
}

// SAFETY: the pointers in the windows belong to the regions beside them, which are Send and Sync.
unsafe impl Send for GuestMemory {}
// SAFETY: as above. The map is immutable.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// Creates a map of these regions. Returns `None` if they overlap in guest addresses.
    pub fn new(mut regions: Vec<Arc<Region>>) -> Option<Self> {
        regions.sort_by_key(|r| r.guest_addr());
        if regions.windows(2).any(|w| w[0].guest_addr() + w[0].size() > w[1].guest_addr()) {
            return None;
        }
        let windows =
            regions.iter().map(|r| Window { start: r.guest_addr(), size: r.size(), host: r.host() }).collect();
        Some(GuestMemory { windows, regions })
    }

    /// Returns the regions, ordered by guest address.
    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// Returns the address behind the last guest address; 0 if there is no region.
    pub fn end(&self) -> u64 {
        self.regions.last().map_or(0, |r| r.guest_addr() + r.size())
    }

    /// Returns the guest address of a segment's first byte, or `None` for other memory.
    pub fn guest_addr(&self, place: MemorySegment<'_>) -> Option<u64> {
        self.windows.iter().find_map(|w| {
            let offset = u64::try_from(place.address().checked_sub(w.host.addr())?).ok()?;
            (offset < w.size).then(|| w.start + offset)
        })
    }

    /// Returns the NUMA node of the memory at the frontend's address `user_addr`, or `None` for other
    /// memory and where the kernel does not tell. Asking is a system call, so it is not for workers.
    /// The guest should have used that memory: the kernel allocates a page that nobody has used.
    pub fn node(&self, user_addr: u64) -> Option<usize> {
        self.regions.iter().find_map(|r| r.node(user_addr.checked_sub(r.user_addr())?))
    }

    /// Returns whether any part of the memory has vanished.
    pub fn poisoned(&self) -> bool {
        self.regions.iter().any(|r| r.poisoned())
    }

    /// Translates `len` bytes from `addr`, if they lie in one region. `hint` remembers the region
    /// of the last hit.
    #[inline(always)]
    pub fn segment(&self, addr: u64, len: u32, hint: &mut usize) -> Option<MemorySegment<'_>> {
        if let Some(window) = self.windows.get(*hint)
            && let Some(found) = window.segment(addr, len)
        {
            return Some(found);
        }
        self.search(addr, len, hint)
    }

    #[cold]
    fn search(&self, addr: u64, len: u32, hint: &mut usize) -> Option<MemorySegment<'_>> {
        // Cites vhost-user-memory-2.
        let at = self.windows.partition_point(|w| w.start <= addr).checked_sub(1)?;
        let found = self.windows[at].segment(addr, len)?;
        *hint = at;
        Some(found)
    }

    /// Translates `len` bytes from `addr`, which may extend over regions that adjoin without a gap.
    /// Calls `each` with the segment in each region. Returns false if the guest does not have all
    /// of the bytes; `each` may have been called before.
    pub fn segments<'m>(
        &'m self,
        addr: u64,
        len: u32,
        hint: &mut usize,
        mut each: impl FnMut(MemorySegment<'m>),
    ) -> bool {
        let mut addr = addr;
        let mut len = len;
        while len > 0 {
            let Some(at) = self.windows.partition_point(|w| w.start <= addr).checked_sub(1) else { return false };
            let window = &self.windows[at];
            let left = window.size.saturating_sub(addr - window.start);
            let step = left.saturating_as::<u32>().min(len);
            if step == 0 {
                return false;
            }
            let Some(segment) = window.segment(addr, step) else { return false };
            *hint = at;
            each(segment);
            let Some(next) = addr.checked_add(u64::from(step)) else { return false };
            (addr, len) = (next, len - step);
        }
        true
    }

    /// Returns `len` bytes at the frontend's address `user_addr`, aligned to `align`, within one
    /// region. Rings lie at such addresses.
    pub fn area(&self, user_addr: u64, len: usize, align: usize) -> Option<Area> {
        // Cites vhost-user-memory-1.
        let region = self.regions.iter().find(|r| (r.user_addr()..r.user_addr() + r.size()).contains(&user_addr))?;
        Area::new(Arc::clone(region), user_addr - region.user_addr(), len, align)
    }
}

impl Window {
    #[inline(always)]
    fn segment<'m>(&self, addr: u64, len: u32) -> Option<MemorySegment<'m>> {
        let offset = addr.wrapping_sub(self.start);
        // Neither comparison can overflow: the offset is inside, and the length fits behind it.
        if offset >= self.size || u64::from(len) > self.size - offset {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: `len` bytes from `offset` lie in the region's mapping. The mapping lives as long
        // as the map's borrow (the public functions bind 'm to it). Guest memory is never borrowed
        // by a Rust reference.
        Some(unsafe { MemorySegment::new(self.host.add(offset), len) })
    }
}

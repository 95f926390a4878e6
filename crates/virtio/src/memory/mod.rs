//! Guest memory: the one door to it.
//!
//! Regions come from file descriptors that a frontend sent. Addresses are translated and checked here, and nowhere
//! else; what comes out is a [`MemorySegment`] that lives for a turn, or an [`Area`] that keeps its region mapped. Nothing
//! is ever a `&[u8]`: the guest writes the bytes whenever it likes.

mod area;
pub mod fault;
mod log;
mod region;

use std::sync::Arc;

use straightline_packet::MemorySegment;

pub use area::Area;
pub use log::{DirtyLog, LOG_PAGE, Marks};
pub use region::{MAX_MAPPED, MapError, Region};

/// The part of a region that translation needs, kept together for the cache.
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

// SAFETY: the pointers in the windows are those of the regions beside them, which are Send and Sync.
unsafe impl Send for GuestMemory {}
// SAFETY: as above; the map is immutable.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// A map of these regions, which must not overlap in guest addresses. `None` where they do.
    pub fn new(mut regions: Vec<Arc<Region>>) -> Option<Self> {
        regions.sort_by_key(|r| r.guest_addr());
        if regions.windows(2).any(|w| w[0].guest_addr() + w[0].size() > w[1].guest_addr()) {
            return None;
        }
        let windows =
            regions.iter().map(|r| Window { start: r.guest_addr(), size: r.size(), host: r.host() }).collect();
        Some(GuestMemory { windows, regions })
    }

    /// Its regions by guest address.
    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// One past the last guest address; 0 where there is none.
    pub fn end(&self) -> u64 {
        self.regions.last().map_or(0, |r| r.guest_addr() + r.size())
    }

    /// The guest address of a place in it; `None` for other memory.
    pub fn guest_addr(&self, place: MemorySegment<'_>) -> Option<u64> {
        self.windows.iter().find_map(|w| {
            let offset = u64::try_from(place.address().checked_sub(w.host.addr())?).ok()?;
            (offset < w.size).then(|| w.start + offset)
        })
    }

    /// Whether any part of it has vanished.
    pub fn poisoned(&self) -> bool {
        self.regions.iter().any(|r| r.poisoned())
    }

    /// `len` bytes from `addr`, if one region has them all. `hint` remembers the region that was hit last.
    #[inline]
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
        let at = self.windows.partition_point(|w| w.start <= addr).checked_sub(1)?;
        let found = self.windows[at].segment(addr, len)?;
        *hint = at;
        Some(found)
    }

    /// `len` bytes from `addr`, in as many pieces as there are regions that adjoin without a gap. `false`, with some
    /// pieces given perhaps, where the guest does not have all of them.
    pub fn segments<'m>(
        &'m self,
        addr: u64,
        len: u32,
        hint: &mut usize,
        mut each: impl FnMut(MemorySegment<'m>),
    ) -> bool {
        let (mut addr, mut len) = (addr, len);
        while len > 0 {
            let Some(at) = self.windows.partition_point(|w| w.start <= addr).checked_sub(1) else { return false };
            let window = &self.windows[at];
            let left = window.size.saturating_sub(addr - window.start);
            let step = u32::try_from(left).unwrap_or(u32::MAX).min(len);
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

    /// `len` bytes at the frontend's address `user_addr`, aligned to `align`, within one region: where a ring lies.
    pub fn area(&self, user_addr: u64, len: usize, align: usize) -> Option<Area> {
        let region = self.regions.iter().find(|r| (r.user_addr()..r.user_addr() + r.size()).contains(&user_addr))?;
        Area::new(Arc::clone(region), user_addr - region.user_addr(), len, align)
    }
}

impl Window {
    #[inline]
    fn segment<'m>(&self, addr: u64, len: u32) -> Option<MemorySegment<'m>> {
        let offset = addr.wrapping_sub(self.start);
        // Two comparisons that cannot overflow: the offset is inside, and the length fits behind it.
        if offset >= self.size || u64::from(len) > self.size - offset {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: `len` bytes from `offset` lie in the region's mapping, which lives as long as the map's borrow
        // ('m is bound to it by the public functions). Guest memory is never borrowed by a Rust reference.
        Some(unsafe { MemorySegment::new(self.host.add(offset), len) })
    }
}

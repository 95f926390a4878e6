//! The memory of a guest: regions that come and go, and the rings that follow them.

use std::os::fd::AsFd;
use std::sync::Arc;

use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::vhost_user::RegionFd;

use super::frontend::ConnectedFrontend;

impl ConnectedFrontend {
    pub(crate) fn set_memory(&mut self, regions: Vec<RegionFd>) -> Result<(), String> {
        self.was_sent_memory = true;
        let mapped = regions.iter().map(map).collect::<Result<_, _>>()?;
        self.replace_memory(mapped)
    }

    pub(crate) fn add_region(&mut self, region: &RegionFd) -> Result<(), String> {
        self.was_sent_memory = true;
        let mut regions = self.memory.regions().to_vec();
        // Cites vhost-user-add-mem-reg-1.
        regions.push(map(region)?);
        self.change_slots(regions)
    }

    /// Sets another set of regions. Regions that stay remain mapped where they were, and rings in
    /// them continue without a gap. A ring in a region that has gone stops; a ring that waited for
    /// a new region starts.
    pub(crate) fn change_slots(&mut self, regions: Vec<Arc<Region>>) -> Result<(), String> {
        let memory = GuestMemory::new(regions).ok_or("memory regions overlap")?;
        self.check_log(&memory)?;
        let before = std::mem::replace(&mut self.memory, Arc::new(memory));
        for ring in self.rings.iter().flatten() {
            ring.queue.set_memory(Arc::clone(&self.memory));
        }
        let done = (0..self.session.rings()).try_for_each(|index| self.sync_ring(index).map(drop));
        self.publish();
        self.note_bases();
        if done.is_err() {
            // As in `replace_memory`: the session restores its old table.
            drop(self.swap_memory(before));
        }
        done
    }

    /// Sets another memory map. Rings are stopped, found again in the new map, and continue at
    /// their positions.
    fn replace_memory(&mut self, regions: Vec<Arc<Region>>) -> Result<(), String> {
        let memory = Arc::new(GuestMemory::new(regions).ok_or("memory regions overlap")?);
        self.check_log(&memory)?;
        let before = self.swap_memory(memory);
        let done = (0..self.session.rings()).try_for_each(|index| self.sync_ring(index).map(drop));
        match done {
            Ok(()) => self.publish(),
            // The session restores the old table, and so do we. After that, rings start again in
            // the old table.
            Err(_) => drop(self.swap_memory(before)),
        }
        done
    }

    /// Stops all rings, records their positions (a ring's memory may come back only later), and
    /// sets another map. Returns the previous map, which is no longer used.
    fn swap_memory(&mut self, memory: Arc<GuestMemory>) -> Arc<GuestMemory> {
        for index in 0..self.session.rings() {
            self.take_out(index);
        }
        self.publish();
        self.note_bases();
        std::mem::replace(&mut self.memory, memory)
    }
}

fn map(region: &RegionFd) -> Result<Arc<Region>, String> {
    let spec = region.spec();
    Region::map(region.fd.as_fd(), spec.mmap_offset, spec.size, spec.guest_addr, spec.user_addr)
        .map(Arc::new)
        .map_err(|e| e.to_string())
}

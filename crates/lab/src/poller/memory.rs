//! Where rings and buffers lie: one file, shown to both backends.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anyhow::Context;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use straightline_packet::Segment;
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::vhost_user::{FrontendClient, RegionRef, RegionSpec};

use super::options::Options;
use crate::guest::BASE;
use crate::guest::options::{RING_ROOM, memory_file};

/// Rings of two ports.
const RINGS: u16 = 4;

/// From one ring to the next: not the same places of every cache.
const RING_STEP: u64 = RING_ROOM + 17 * 64;

const HUGE_PAGE: u64 = 2 << 20;

/// The guest's memory.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) guest: Arc<GuestMemory>,
    file: OwnedFd,
    len: u64,
    buffers: u64,
    stride: u64,
    buffer_len: u32,
    count: u64,
}

impl Memory {
    /// Room for four rings, and a buffer for each of their entries.
    pub(super) fn new(options: &Options) -> anyhow::Result<Memory> {
        let buffer_len = options.buffer();
        let offset = u64::from(options.header_offset);
        // An odd number of lines from one to the next: they are spread over all of a cache.
        let lines = (offset + u64::from(buffer_len)).div_ceil(64);
        let stride = 64 * (lines + 1 - lines % 2);
        let count = u64::from(RINGS) * u64::from(options.queue_size);
        let rings = (u64::from(RINGS) * RING_STEP).next_multiple_of(4096);
        let len = (rings + count * stride).next_multiple_of(if options.huge_pages { HUGE_PAGE } else { 4096 });
        let file = if options.huge_pages { huge_file(len)? } else { memory_file(len)? };
        let region = Region::map(file.as_fd(), 0, len, BASE, BASE)?;
        let guest = GuestMemory::new(vec![Arc::new(region)]).context("guest memory overlaps itself")?;
        let buffers = BASE + rings + offset;
        Ok(Memory { guest: Arc::new(guest), file, len, buffers, stride, buffer_len, count })
    }

    /// SET_MEM_TABLE.
    pub(super) fn share(&self, client: &mut FrontendClient) -> anyhow::Result<()> {
        let spec = RegionSpec { guest_addr: BASE, size: self.len, user_addr: BASE, mmap_offset: 0 };
        Ok(client.set_mem_table(&[RegionRef { spec, fd: self.file.as_fd() }])?)
    }

    /// Where ring `number` of the four is.
    pub(super) fn ring(&self, number: usize) -> u64 {
        BASE + RING_STEP * u64::try_from(number).unwrap_or(0)
    }

    /// Guest addresses of all buffers.
    pub(super) fn buffers(&self) -> Vec<u64> {
        (0..self.count).map(|n| self.buffers + n * self.stride).collect()
    }

    /// The first `len` bytes of a buffer.
    pub(super) fn buffer(&self, addr: u64, len: u32) -> Option<Segment<'_>> {
        self.guest.segment(addr, len.min(self.buffer_len), &mut 0)
    }
}

/// A memory file in huge pages, all of which there are: one that is missing when it is touched would end us.
fn huge_file(len: u64) -> anyhow::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let file = memfd_create("straightline-guest", flags).context("cannot make guest memory in huge pages")?;
    let pages = len / HUGE_PAGE;
    fallocate(&file, FallocateFlags::empty(), 0, len).with_context(|| {
        format!("{pages} huge pages of 2 MiB are needed and not free: reserve more (vm.nr_hugepages) or leave --hugepages out")
    })?;
    Ok(file)
}

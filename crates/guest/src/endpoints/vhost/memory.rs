//! Guest memory with rings and buffers: one file, shown to all backends.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anyhow::Context;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use straightline_packet::MemorySegment;
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::vhost_user::{FrontendClient, RegionRef, RegionSpec};

use super::options::PortOptions;
use crate::guest::BASE;
use crate::guest::options::{RING_ROOM, memory_file};

/// The distance between two rings. It spreads the rings over different sets of every cache.
const RING_STEP: u64 = RING_ROOM + 17 * 64;

const HUGE_PAGE: u64 = 2 << 20;

/// The guest's memory.
#[derive(Debug)]
pub struct Memory {
    /// The memory, as the driver sees it.
    pub guest: Arc<GuestMemory>,
    file: OwnedFd,
    len: u64,
    buffers: u64,
    stride: u64,
    /// The factor that turns a distance in cache lines into a number of strides.
    inverse: u64,
    buffer_len: u32,
    count: u64,
}

impl Memory {
    /// Maps memory for the two rings of each of `ports` ports, and for one buffer for each ring
    /// entry.
    pub fn new(options: &PortOptions, ports: u16) -> anyhow::Result<Memory> {
        let buffer_len = options.buffer_len;
        let offset = u64::from(options.header_offset);
        // The distance between buffers is an odd number of lines. This spreads buffers over all
        // sets of a cache.
        let lines = (offset + u64::from(buffer_len)).div_ceil(64);
        let lines = lines + 1 - lines % 2;
        let stride = 64 * lines;
        let count = 2 * u64::from(ports) * u64::from(options.queue_size);
        let rings = (2 * u64::from(ports) * RING_STEP).next_multiple_of(4096);
        let len = (rings + count * stride).next_multiple_of(if options.huge_pages { HUGE_PAGE } else { 4096 });
        let file = if options.huge_pages { huge_file(len)? } else { memory_file(len)? };
        let region = Region::map(file.as_fd(), 0, len, BASE, BASE)?;
        let guest = GuestMemory::new(vec![Arc::new(region)]).context("guest memory overlaps itself")?;
        let buffers = BASE + rings + offset;
        Ok(Memory { guest: Arc::new(guest), file, len, buffers, stride, inverse: inverse(lines), buffer_len, count })
    }

    /// Sends SET_MEM_TABLE.
    pub fn share(&self, client: &mut FrontendClient) -> anyhow::Result<()> {
        let spec = RegionSpec { guest_addr: BASE, size: self.len, user_addr: BASE, mmap_offset: 0 };
        Ok(client.set_mem_table(&[RegionRef { spec, fd: self.file.as_fd() }])?)
    }

    /// Returns the address of ring `number`.
    pub fn ring(&self, number: usize) -> u64 {
        BASE + RING_STEP * u64::try_from(number).unwrap_or(0)
    }

    /// Returns the guest addresses of all buffers.
    pub fn buffers(&self) -> Vec<u64> {
        (0..self.count).map(|n| self.buffers + n * self.stride).collect()
    }

    /// Returns the address of a buffer by its index.
    #[inline]
    pub(crate) fn address(&self, number: u64) -> u64 {
        self.buffers + number * self.stride
    }

    /// Returns the index of the buffer that starts at this address.
    #[inline]
    pub fn number(&self, addr: u64) -> u64 {
        ((addr - self.buffers) / 64).wrapping_mul(self.inverse)
    }

    /// Returns the first `len` bytes of a buffer.
    #[inline]
    pub fn buffer(&self, addr: u64, len: u32) -> Option<MemorySegment<'_>> {
        self.guest.segment(addr, len.min(self.buffer_len), &mut 0)
    }
}

/// Returns the inverse of an odd number modulo 2^64. Multiplying a product by the inverse of a
/// factor divides the product by this factor, without a division.
fn inverse(odd: u64) -> u64 {
    // Newton's step doubles the number of correct low bits. An odd number is its own inverse in
    // three bits.
    (0..5).fold(odd, |guess, _| guess.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(guess))))
}

/// Makes a memory file in huge pages, and reserves all pages now. Touching a page that cannot be
/// allocated later would end this process.
fn huge_file(len: u64) -> anyhow::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let file = memfd_create("straightline-guest", flags).context("cannot make guest memory in huge pages")?;
    let pages = len / HUGE_PAGE;
    fallocate(&file, FallocateFlags::empty(), 0, len).with_context(|| {
        format!(
            "{pages} huge pages of 2 MiB are needed and not free: reserve more (vm.nr_hugepages) or leave out \
         --hugepages"
        )
    })?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_known_by_their_addresses() {
        for (buffer_len, header_offset) in [(76, 0), (2048, 52), (1531, 7), (1 << 20, 63)] {
            let options = PortOptions { buffer_len, header_offset, queue_size: 32, ..PortOptions::default() };
            let memory = Memory::new(&options, 2).expect("memory");
            let buffers = memory.buffers();
            assert_eq!(buffers.len(), 128);
            for (number, addr) in (0..).zip(buffers) {
                assert_eq!((memory.number(addr), memory.address(number)), (number, addr));
                assert_eq!(addr % 64, u64::from(header_offset));
                assert_eq!(memory.buffer(addr, u32::MAX).map(MemorySegment::len), Some(buffer_len));
            }
        }
    }
}

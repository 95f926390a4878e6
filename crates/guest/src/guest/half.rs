//! One ring of a guest, with its buffers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use straightline_packet::MemorySegment;
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::ring::Geometry;
use straightline_virtio::vhost_user::{FrontendClient, RingAddresses};

use super::driver::AnyDriver;

/// A ring, its eventfds, and as many buffers as it has entries.
#[derive(Debug)]
pub(super) struct Half {
    /// The index of the ring in the device.
    pub(super) index: u16,
    pub(super) driver: AnyDriver,
    pub(super) geometry: Geometry,
    pub(super) kick: Arc<OwnedFd>,
    pub(super) call: OwnedFd,
    pub(super) buffers: Buffers,
}

/// The buffers of a ring, all of the same length, one after the other.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Guest address of the first buffer.
    start: u64,
    pub(super) len: u32,
    /// The number of each chain's first buffer, by the id with which the chain returns.
    pub(super) of: Vec<u16>,
    hint: usize,
}

impl Half {
    /// Makes ring `index` at `place`, in zeroed memory, with buffers of `buffer_len` bytes from
    /// `buffers` on.
    pub(super) fn new(
        memory: &GuestMemory,
        index: u16,
        (place, buffers): (u64, u64),
        (size, buffer_len): (u16, u32),
        features: u64,
    ) -> anyhow::Result<Self> {
        let (driver, geometry) = AnyDriver::new(memory, place, size, features)?;
        let buffers = Buffers { start: buffers, len: buffer_len, of: vec![0; usize::from(size)], hint: 0 };
        Ok(Half { index, driver, geometry, kick: Arc::new(event()?), call: event()?, buffers })
    }

    /// Sets up the ring at the backend, which continues from `base`.
    pub(super) fn start(&mut self, client: &mut FrontendClient, base: u32) -> anyhow::Result<()> {
        self.driver.want_interrupt(false);
        set_up(client, self.index, self.geometry, base, [self.call.as_fd(), self.kick.as_fd()])
    }

    /// Publishes added chains, and kicks if the backend has asked for a kick.
    pub(super) fn kick(&mut self) {
        self.driver.publish();
        if self.driver.must_kick() {
            self.ring_the_bell();
        }
    }

    /// Kicks, whether or not the backend has asked for a kick.
    pub(super) fn ring_the_bell(&self) {
        // Cites packed-2.8.16-4.
        notify(self.kick.as_fd());
    }
}

/// Sets up a ring at the backend, which continues from `base`: its addresses, and the eventfds for
/// calls and kicks.
pub(crate) fn set_up(
    client: &mut FrontendClient,
    index: u16,
    Geometry { size, desc, avail, used }: Geometry,
    base: u32,
    [call, kick]: [BorrowedFd<'_>; 2],
) -> anyhow::Result<()> {
    client.set_vring_num(index, size)?;
    client.set_vring_base(index, base)?;
    client.set_vring_addr(index, RingAddresses { desc, avail, used })?;
    client.set_vring_call(index, Some(call))?;
    client.set_vring_kick(index, Some(kick))?;
    Ok(())
}

/// Makes an eventfd for a backend.
pub(crate) fn event() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Signals an eventfd.
pub(crate) fn notify(event: BorrowedFd<'_>) {
    // Writing fails only if the counter is full: then it already signals.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

impl Buffers {
    /// Returns the guest address of a buffer.
    #[inline]
    pub(super) fn address(&self, buffer: u16) -> u64 {
        self.start + u64::from(buffer) * u64::from(self.len)
    }

    /// Returns the first `len` bytes of a buffer.
    #[inline]
    pub(super) fn segment<'m>(&mut self, memory: &'m GuestMemory, buffer: u16, len: u32) -> Option<MemorySegment<'m>> {
        memory.segment(self.address(buffer), len.min(self.len), &mut self.hint)
    }
}

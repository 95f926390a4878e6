//! One ring of a guest, with its buffers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use straightline_packet::Segment;
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::ring::Geometry;
use straightline_virtio::vhost_user::{FrontendClient, RingAddresses};

use super::driver::AnyDriver;

/// A ring, the eventfds beside it, and as many buffers as it has entries.
#[derive(Debug)]
pub(super) struct Half {
    /// Which of the device's rings it is.
    pub(super) index: u16,
    pub(super) driver: AnyDriver,
    pub(super) geometry: Geometry,
    pub(super) kick: Arc<OwnedFd>,
    pub(super) call: OwnedFd,
    pub(super) buffers: Buffers,
}

/// The buffers of a ring, each of the same length, one behind the other.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Guest address of the first one.
    start: u64,
    pub(super) len: u32,
    /// Which buffer the chain begins with that comes back as this.
    pub(super) of: Vec<u16>,
    hint: usize,
}

impl Half {
    /// Ring `index` at `place` in memory that is all zeros there, with buffers of `buffer_len` bytes from `buffers` on.
    pub(super) fn new(
        memory: &GuestMemory,
        index: u16,
        (place, buffers): (u64, u64),
        (size, buffer_len): (u16, u32),
        features: u64,
    ) -> anyhow::Result<Self> {
        let (driver, geometry) = AnyDriver::new(memory, place, size, features)?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let buffers = Buffers { start: buffers, len: buffer_len, of: vec![0; usize::from(size)], hint: 0 };
        Ok(Half { index, driver, geometry, kick: Arc::new(event()?), call: event()?, buffers })
    }

    /// Sets the ring up at the backend, which goes on at `base`.
    pub(super) fn start(&mut self, client: &mut FrontendClient, base: u32) -> anyhow::Result<()> {
        self.driver.want_interrupt(false);
        let Geometry { size, desc, avail, used } = self.geometry;
        client.set_vring_num(self.index, size)?;
        client.set_vring_base(self.index, base)?;
        client.set_vring_addr(self.index, RingAddresses { desc, avail, used })?;
        client.set_vring_call(self.index, Some(self.call.as_fd()))?;
        client.set_vring_kick(self.index, Some(self.kick.as_fd()))?;
        Ok(())
    }

    /// Publishes, and kicks if the backend asked for it.
    pub(super) fn kick(&mut self) {
        self.driver.publish();
        if self.driver.must_kick() {
            self.ring_the_bell();
        }
    }

    /// Kicks, asked for or not.
    pub(super) fn ring_the_bell(&self) {
        // A counter that is full has its kick already.
        let _ = rustix::io::write(&*self.kick, &1_u64.to_ne_bytes());
    }
}

impl Buffers {
    /// Guest address of a buffer.
    #[inline]
    pub(super) fn address(&self, buffer: u16) -> u64 {
        self.start + u64::from(buffer) * u64::from(self.len)
    }

    /// The first `len` bytes of a buffer.
    #[inline]
    pub(super) fn segment<'m>(&mut self, memory: &'m GuestMemory, buffer: u16, len: u32) -> Option<Segment<'m>> {
        memory.segment(self.address(buffer), len.min(self.len), &mut self.hint)
    }
}

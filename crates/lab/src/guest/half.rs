//! One ring of a guest, with its buffers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use straightline_packet::Segment;
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::ring::{Geometry, SplitDriver};
use straightline_virtio::vhost_user::{FrontendClient, RingAddresses};

/// A ring, the eventfds beside it, and as many buffers as it has entries.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) driver: SplitDriver,
    pub(super) geometry: Geometry,
    pub(super) kick: Arc<OwnedFd>,
    pub(super) call: OwnedFd,
    /// Guest address of the first buffer.
    buffers: u64,
    buffer_len: u32,
    /// Which buffer the chain with this head begins with.
    pub(super) buffer_of: Vec<u16>,
    hint: usize,
}

impl Half {
    /// A ring at `place` in memory that is all zeros there, with buffers from `buffers` on.
    pub(super) fn new(
        memory: &GuestMemory,
        place: u64,
        buffers: u64,
        size: u16,
        buffer_len: u32,
        event_idx: bool,
    ) -> anyhow::Result<Self> {
        let n = u64::from(size);
        let geometry =
            Geometry { size, desc: place, avail: place + 16 * n, used: (place + 18 * n + 6).next_multiple_of(64) };
        let driver = SplitDriver::new(memory, geometry, event_idx)
            .map_err(|part| anyhow::anyhow!("a ring of {size} entries: its {part} does not fit"))?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Half {
            driver,
            geometry,
            kick: Arc::new(event()?),
            call: event()?,
            buffers,
            buffer_len,
            buffer_of: vec![0; usize::from(size)],
            hint: 0,
        })
    }

    /// Sets the ring up at the backend, which goes on at `base`, and starts it.
    pub(super) fn start(&mut self, client: &mut FrontendClient, index: u16, base: u32) -> anyhow::Result<()> {
        self.driver.want_interrupt(false);
        let Geometry { size, desc, avail, used } = self.geometry;
        client.set_vring_num(index, size)?;
        client.set_vring_base(index, base)?;
        client.set_vring_addr(index, RingAddresses { desc, avail, used })?;
        client.set_vring_call(index, Some(self.call.as_fd()))?;
        client.set_vring_kick(index, Some(self.kick.as_fd()))?;
        client.set_vring_enable(index, true)?;
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

    /// Guest address of a buffer.
    #[inline]
    pub(super) fn address(&self, buffer: u16) -> u64 {
        self.buffers + u64::from(buffer) * u64::from(self.buffer_len)
    }

    /// The first `len` bytes of a buffer.
    #[inline]
    pub(super) fn segment<'m>(&mut self, memory: &'m GuestMemory, buffer: u16, len: u32) -> Option<Segment<'m>> {
        memory.segment(self.address(buffer), len.min(self.buffer_len), &mut self.hint)
    }
}

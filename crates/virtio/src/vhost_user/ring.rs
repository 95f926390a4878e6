//! What the frontend said about one ring.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Set-up of one ring, as far as it came. Addresses are the frontend's own (user addresses).
///
/// File descriptors are shared, so that a worker can hold one without a `dup`, and see with [`Arc::ptr_eq`] whether
/// it was replaced; they close when the last holder lets go.
#[derive(Debug, Default)]
pub struct RingSetup {
    /// Descriptors in the ring; 0 until it is set.
    pub size: u16,
    /// Descriptor table; descriptor ring, if packed.
    pub desc: u64,
    /// Available ring; driver event suppression area, if packed.
    pub avail: u64,
    /// Used ring; device event suppression area, if packed.
    pub used: u64,
    /// Where to go on: for a split ring the next available index (16 bits); for a packed ring bits 0 to 14 the next
    /// available position, bit 15 its wrap counter, bits 16 to 30 the next used position, bit 31 its wrap counter.
    pub base: u32,
    /// Readable when the driver made buffers available. Not always an eventfd: some frontends send pipes.
    pub kick: Option<Arc<OwnedFd>>,
    /// To write to when buffers were used.
    pub call: Option<Arc<OwnedFd>>,
    /// To write to when the ring is broken.
    pub err: Option<Arc<OwnedFd>>,
    /// The frontend started the ring without a kick descriptor: it must be polled.
    pub polled: bool,
    /// How often it was started, with a kick descriptor or without: a ring that broke goes on when it is started again.
    pub starts: u32,
    /// Whether buffers may be used. A ring that is ready and disabled gets no packet, and what it sends is dropped
    /// ("Ring states").
    pub enabled: bool,
    /// Whether the ring was enabled since it was last stopped. Until then its packets wait: Cloud Hypervisor lets its
    /// driver send before it enables the ring.
    pub was_enabled: bool,
    /// Whether the three addresses were set (0 is a valid address).
    pub(super) has_addresses: bool,
}

impl RingSetup {
    /// Whether the frontend started it, with a kick descriptor or for polling.
    pub fn is_started(&self) -> bool {
        self.kick.is_some() || self.polled
    }

    /// The kick goes: the ring is stopped until another comes. Size, addresses and base stay.
    pub(super) fn stop(&mut self) {
        self.kick = None;
        self.polled = false;
        self.was_enabled = self.enabled;
    }

    /// Enables or disables the ring.
    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
        // A ring that is stopped begins anew.
        self.was_enabled = enabled || (self.was_enabled && self.is_started());
    }

    /// Back to the beginning, but for the call and error descriptors: they are the frontend's wiring and no state of
    /// the device, and QEMU does not always send them again after a reset. Starts go on being counted.
    pub(super) fn reset(&mut self) {
        *self = Self { call: self.call.take(), err: self.err.take(), starts: self.starts, ..Self::default() };
    }

    /// After a failure: it must be set up again before it can start.
    pub(super) fn abandon(&mut self) {
        self.stop();
        self.has_addresses = false;
        (self.desc, self.avail, self.used) = (0, 0, 0);
    }
}

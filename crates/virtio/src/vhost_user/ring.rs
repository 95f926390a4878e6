//! The set-up of one ring by the frontend.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The set-up of one ring, as far as it has arrived. Addresses are the frontend's own (user
/// addresses).
///
/// File descriptors are shared. A worker can hold one without a `dup`, and see with [`Arc::ptr_eq`]
/// whether it was replaced. A descriptor closes when its last holder drops it.
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
    /// The position at which the ring continues. For a split ring: the next available index (16
    /// bits). For a packed ring, the base has two halves. Bits 0 to 14 are the next available
    /// position, and bit 15 is its wrap counter. Bits 16 to 30 are the next used position, and bit
    /// 31 is its wrap counter.
    pub base: u32,
    /// The kick descriptor, readable when the driver has made buffers available. It is not always
    /// an eventfd: some frontends send pipes.
    pub kick: Option<Arc<OwnedFd>>,
    /// The call descriptor, to write to when buffers were used.
    pub call: Option<Arc<OwnedFd>>,
    /// The error descriptor, to write to when the ring is unusable.
    pub err: Option<Arc<OwnedFd>>,
    /// True if the frontend started the ring without a kick descriptor: it must be polled.
    pub polled: bool,
    /// The number of times the ring was started, with or without a kick descriptor. A ring that
    /// stopped because of a fault continues when it is started again.
    pub starts: u32,
    /// True if buffers may be used. A ring that is ready and disabled gets no packet, and packets
    /// that it sends are dropped ("Ring states").
    pub enabled: bool,
    /// True if the ring was enabled since it was last stopped. Until then its packets wait: Cloud
    /// Hypervisor lets its driver send before it enables the ring.
    pub was_enabled: bool,
    /// True if the three addresses were set (0 is a valid address).
    pub(super) has_addresses: bool,
}

impl RingSetup {
    /// Returns whether the frontend started the ring, with a kick descriptor or for polling.
    pub fn is_started(&self) -> bool {
        self.kick.is_some() || self.polled
    }

    /// Returns the number of descriptors that the ring has.
    pub(super) fn fds(&self) -> usize {
        [&self.kick, &self.call, &self.err].into_iter().flatten().count()
    }

    /// Drops the kick descriptor: the ring is stopped until another one arrives. Size, addresses
    /// and base stay.
    pub(super) fn stop(&mut self) {
        self.kick = None;
        self.polled = false;
        self.was_enabled = self.enabled;
    }

    /// Enables or disables the ring.
    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
        // A stopped ring begins anew.
        self.was_enabled = enabled || (self.was_enabled && self.is_started());
    }

    /// Returns to the first state, but keeps the call and error descriptors. They are the
    /// frontend's wiring and no state of the device. QEMU does not always send them again after a
    /// reset. The count of starts continues.
    pub(super) fn reset(&mut self) {
        *self = Self { call: self.call.take(), err: self.err.take(), starts: self.starts, ..Self::default() };
    }

    /// Discards the set-up after a failure: the ring must be set up again before it can start.
    pub(super) fn abandon(&mut self) {
        self.stop();
        self.has_addresses = false;
        (self.desc, self.avail, self.used) = (0, 0, 0);
    }
}

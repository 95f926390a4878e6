//! The driver half of a ring of either layout, as far as a guest needs it.

use straightline_virtio::features as f;
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::ring::{DeviceFault, Geometry, PackedDriver, RingOptions, SplitDriver};

/// The operations that loops over a burst need. The loops are compiled for each layout, so that the
/// layout is not tested per packet.
pub(crate) trait Driver {
    /// Adds a chain of buffers: guest address, length, and true if the device writes to the buffer.
    /// Returns the id with which the chain will return; `None` if too few descriptors are free.
    fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16>;
    /// Returns the next chain that the device has used: its id and the number of written bytes.
    /// `Err` if the device has used an impossible chain.
    fn used(&mut self) -> Option<Result<(u16, u32), DeviceFault>>;
    /// Publishes everything that was added.
    fn publish(&mut self);
}

macro_rules! implement_driver {
    ($driver:ident) => {
        impl Driver for $driver {
            #[inline]
            fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16> {
                self.add(buffers)
            }

            #[inline]
            fn used(&mut self) -> Option<Result<(u16, u32), DeviceFault>> {
                self.used()
            }

            #[inline]
            fn publish(&mut self) {
                self.publish();
            }
        }
    };
}

implement_driver!(SplitDriver);
implement_driver!(PackedDriver);

/// Returns the parts of a ring at `place`, in the negotiated layout. Each side writes to cache
/// lines of its own.
pub(crate) fn lay_out(place: u64, size: u16, features: u64) -> Geometry {
    let n = u64::from(size);
    if features & f::VIRTIO_F_RING_PACKED != 0 {
        // Cites packed-2.8.11-1.
        let avail = (place + 16 * n).next_multiple_of(64);
        Geometry { size, desc: place, avail, used: avail + 64 }
    } else {
        Geometry { size, desc: place, avail: place + 16 * n, used: (place + 18 * n + 6).next_multiple_of(64) }
    }
}

/// A driver half of either layout, for operations that happen once per burst or less often.
#[derive(Debug)]
pub(super) enum AnyDriver {
    /// A split ring (virtio 1.2, 2.7).
    Split(SplitDriver),
    /// A packed ring (virtio 1.2, 2.8).
    Packed(PackedDriver),
}

/// Compiles the given code once for each layout.
macro_rules! either {
    ($driver:expr, $half:ident => $body:expr) => {
        match $driver {
            $crate::guest::driver::AnyDriver::Split($half) => $body,
            $crate::guest::driver::AnyDriver::Packed($half) => $body,
        }
    };
}
pub(super) use either;

impl AnyDriver {
    /// Makes an empty ring of the negotiated layout at `place`, in zeroed memory. Also returns the
    /// ring's parts.
    pub(super) fn new(memory: &GuestMemory, place: u64, size: u16, features: u64) -> anyhow::Result<(Self, Geometry)> {
        let geometry = lay_out(place, size, features);
        let options = RingOptions {
            event_idx: features & f::VIRTIO_F_EVENT_IDX != 0,
            in_order: features & f::VIRTIO_F_IN_ORDER != 0,
            indirect: false,
        };
        let wrong = |part| {
            anyhow::anyhow!("a ring of {size} entries is not possible: its {part} does not fit into guest memory")
        };
        if features & f::VIRTIO_F_RING_PACKED != 0 {
            Ok((AnyDriver::Packed(PackedDriver::new(memory, geometry, options).map_err(wrong)?), geometry))
        } else {
            Ok((AnyDriver::Split(SplitDriver::new(memory, geometry, options).map_err(wrong)?), geometry))
        }
    }

    pub(super) fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16> {
        either!(self, half => half.add(buffers))
    }

    pub(super) fn publish(&mut self) {
        either!(self, half => half.publish());
    }

    pub(super) fn must_kick(&mut self) -> bool {
        either!(self, half => half.must_kick())
    }

    pub(super) fn want_interrupt(&mut self, wanted: bool) -> bool {
        either!(self, half => half.want_interrupt(wanted))
    }

    /// Returns the ring's position, in the form of SET_VRING_BASE, for a new device that knows
    /// nothing of earlier traffic.
    pub(super) fn base(&self) -> u32 {
        match self {
            AnyDriver::Split(half) => half.base().into(),
            AnyDriver::Packed(half) => half.base(),
        }
    }
}

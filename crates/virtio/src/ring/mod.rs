//! Virtqueues: the split ring and the packed ring, the device half and the driver half of each (virtio 1.2, 2.7 and 2.8).

mod bursts;
mod chain;
mod device;
mod driver;
mod inflight;
mod layout;
mod notify;
#[cfg(test)]
mod notify_loom;
mod packed_device;
mod packed_driver;
mod recover;
mod split_device;
mod split_driver;
mod standing;

pub use bursts::{Buffers, Bursts, Moved, PackedBursts, SplitBursts};
pub use chain::{BURST, Chain, ChainFault, Direction, Fault, First, RingFault};
pub use device::{Device, Ring};
pub use driver::{DeviceFault, Tables};
pub use inflight::{Inflight, InflightError, InflightFile, InflightShape, InflightTable};
pub use layout::{Descriptor, Geometry, INDIRECT, NEXT, Options, WRITE};
pub use packed_device::PackedDevice;
pub use packed_driver::PackedDriver;
pub use split_device::SplitDevice;
pub use split_driver::SplitDriver;
pub use standing::Standing;

/// What `notify` works on; its test has others.
mod shared {
    pub(super) use crate::memory::Area;
    pub(super) use std::sync::atomic::{Ordering, fence};
}

/// Whether the other side wants to be told of entries `old..new`, given the index after which it asked to be told
/// (virtio 1.2, 2.7.10: `vring_need_event`). All indexes wrap at 65536.
#[inline]
pub fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

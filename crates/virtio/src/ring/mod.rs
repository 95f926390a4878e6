//! Virtqueues: the split ring and the packed ring, the device half and the driver half of each
//! (virtio 1.2, 2.7 and 2.8).
//!
//! | file | holds |
//! |---|---|
//! | `layout` | offsets in both layouts; descriptors as read from memory |
//! | `chain` | descriptor chains: checks and faults |
//! | `device` | [`Device`], the operations of a device half; [`Ring`], a device half of either layout |
//! | `split_device`, `packed_device` | the two device halves |
//! | `driver` | what both driver halves share |
//! | `split_driver`, `packed_driver` | the two driver halves, for chains of any length |
//! | `bursts` | driver halves for single buffers, as cheap as possible |
//! | `notify` | event suppression: the only place where two sides race |
//! | `standing` | the progress of both sides, to detect lost calls |
//! | `inflight` | the in-flight table that a frontend keeps |
//! | `recover` | the position of a lost device half in a packed ring |

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
pub use layout::{Descriptor, Geometry, INDIRECT, NEXT, RingOptions, WRITE};
pub use packed_device::PackedDevice;
pub use packed_driver::PackedDriver;
pub use split_device::SplitDevice;
pub use split_driver::SplitDriver;
pub use standing::Standing;

/// The types that `notify` works on; its test substitutes loom's.
mod shared {
    pub(super) use crate::memory::Area;
    pub(super) use std::sync::atomic::{Ordering, fence};
}

/// Returns whether the other side asked for a notification of entries `old..new`. `event` is the
/// index after which it wants one (virtio 1.2, 2.7.10: `vring_need_event`). All indexes wrap at
/// 65536.
#[inline]
pub fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

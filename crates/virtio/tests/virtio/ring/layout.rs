//! A layout of rings, for tests that are written once and run with both layouts.

use proptest::prelude::*;
use straightline_testing::guest_ring::{GuestRing, events};
use straightline_virtio::ring::{
    Device, DeviceFault, Direction, First, PackedDevice, PackedDriver, RingFault, RingOptions, SplitDevice,
    SplitDriver, Standing,
};

/// Makes a test of each layout from generic functions: `split::NAME` and `packed::NAME`.
macro_rules! for_both_layouts {
    ($($test:ident),+ $(,)?) => {
        mod split {
            $(#[test]
            fn $test() {
                super::$test::<crate::ring::split::Split>();
            })+
        }

        mod packed {
            $(#[test]
            fn $test() {
                super::$test::<crate::ring::packed::Packed>();
            })+
        }
    };
}
pub(crate) use for_both_layouts;

/// The operations of a device half that the trait [`Device`] does not have.
pub(crate) trait DeviceHalf: Device + Send {
    fn size(&self) -> u16;
    fn base(&self) -> u32;
    fn poisoned(&self) -> bool;
    fn arm(&mut self, beyond: u16) -> Result<bool, RingFault>;
    fn disarm(&mut self);
    fn must_notify(&mut self) -> bool;
    fn standing(&self) -> Option<Standing>;
}

/// The operations of a driver half.
pub(crate) trait DriverHalf: Send {
    fn free(&self) -> u16;
    fn base(&self) -> u32;
    fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16>;
    fn publish(&mut self);
    fn must_kick(&mut self) -> bool;
    fn used(&mut self) -> Option<Result<(u16, u32), DeviceFault>>;
    fn want_interrupt(&mut self, enabled: bool) -> bool;
}

macro_rules! implement_halves {
    ($device:ident, $driver:ident) => {
        impl DeviceHalf for $device {
            fn size(&self) -> u16 {
                $device::size(self)
            }
            fn base(&self) -> u32 {
                $device::base(self).into()
            }
            fn poisoned(&self) -> bool {
                $device::poisoned(self)
            }
            fn arm(&mut self, beyond: u16) -> Result<bool, RingFault> {
                $device::arm(self, beyond)
            }
            fn disarm(&mut self) {
                $device::disarm(self);
            }
            fn must_notify(&mut self) -> bool {
                $device::must_notify(self)
            }
            fn standing(&self) -> Option<Standing> {
                $device::standing(self)
            }
        }

        impl DriverHalf for $driver {
            fn free(&self) -> u16 {
                $driver::free(self)
            }
            fn base(&self) -> u32 {
                $driver::base(self).into()
            }
            fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16> {
                $driver::add(self, buffers)
            }
            fn publish(&mut self) {
                $driver::publish(self);
            }
            fn must_kick(&mut self) -> bool {
                $driver::must_kick(self)
            }
            fn used(&mut self) -> Option<Result<(u16, u32), DeviceFault>> {
                $driver::used(self)
            }
            fn want_interrupt(&mut self, enabled: bool) -> bool {
                $driver::want_interrupt(self, enabled)
            }
        }
    };
}

implement_halves!(SplitDevice, SplitDriver);
implement_halves!(PackedDevice, PackedDriver);

/// A layout of rings: its two halves, and what stands where.
///
/// A *position* counts entries since the ring began, so it never wraps. An entry is a chain in a
/// split ring, and a descriptor in a packed ring.
pub(crate) trait Layout {
    type Device: DeviceHalf;
    type Driver: DriverHalf;

    /// Sizes of rings that are worth a test, from small to large.
    const SIZES: &'static [u16];
    /// Size of a ring for tests of chains.
    const SIZE: u16;
    /// Size of a ring that two threads fill and empty.
    const SMALL: u16;
    /// Base of a new ring.
    const START: u32;
    /// Flags of a descriptor that no specification defines.
    const UNDEFINED: u16;
    /// A batch of the whole ring looks like what a killed device leaves. So the driver half
    /// publishes a part of it before.
    const WHOLE_RING_IS_AMBIGUOUS: bool;
    /// Each side publishes entries by an index, not by a flag in each descriptor.
    const HAS_INDEXES: bool;
    /// Entries from the beginning to shortly before the indexes wrap, or 0 if all sizes wrap soon.
    const BEFORE_WRAP: u64;

    fn device(guest: &GuestRing, options: RingOptions) -> Self::Device {
        Self::successor(guest, Self::START, options)
    }
    /// Creates a device half that continues at `base`.
    fn successor(guest: &GuestRing, base: u32, options: RingOptions) -> Self::Device;
    /// Creates a device half after the last one was lost: the frontend knows nothing.
    fn recovered(guest: &GuestRing, options: RingOptions, direction: Direction) -> Self::Device;
    /// Creates a driver half whose chains are in tables if that was negotiated.
    fn driver(guest: &GuestRing, options: RingOptions) -> Self::Driver;
    /// Creates both halves of a new ring.
    fn halves(guest: &GuestRing, event_idx: bool) -> (Self::Device, Self::Driver) {
        (Self::device(guest, events(event_idx)), Self::driver(guest, events(event_idx)))
    }

    /// Returns the number of entries of a chain with `span` descriptors.
    fn entries(span: u16) -> u64;
    /// Returns the base of a device half that has taken and given back entries up to these positions.
    fn base(taken: u64, given: u64, size: u16) -> u32;
    /// Returns whether a chain that a guest sends is good although it has buffers to write.
    fn ignores_write(first: &First) -> bool;

    /// Returns whether the device asked for a kick for the entries `old..new`, by another form of
    /// the rule.
    fn is_kick_due(guest: &GuestRing, event_idx: bool, old: u64, new: u64) -> bool;
    /// Returns whether the driver asked for a call for the entries `old..new`, by another form of
    /// the rule. `None` stands for a device half that does not know the last decision.
    fn is_call_due(guest: &GuestRing, event_idx: bool, old: Option<u64>, new: u64) -> bool;
    /// Returns the flags, or the mode, of the event suppression of the device and the driver.
    fn modes(guest: &GuestRing) -> [u16; 2];
    /// Returns the modes in which a side wants notifications, and in which it wants none.
    fn on_and_off(event_idx: bool) -> [u16; 2];
    /// Returns the words of the driver's event suppression.
    fn driver_suppression(guest: &GuestRing) -> [u16; 2];
    /// Any word for the event of a ring of this size.
    fn event(size: u16) -> BoxedStrategy<u16>;
    /// Writes the event suppression of both sides.
    fn suppress(guest: &GuestRing, event: u16, mode: u16);
    /// Returns whether a driver that waits from `from` on has asked for a call that the device at
    /// `used` owes it.
    fn is_asked(from: u64, used: u64, size: u16) -> bool;

    /// Writes the descriptor at `index` of a new ring. If it has NEXT, the descriptor behind it is
    /// the next one.
    fn put(guest: &GuestRing, index: u16, addr: u64, len: u32, flags: u16);
    /// Makes the chain that begins with descriptor 0 available. [`Self::put`] came before.
    fn offer(guest: &GuestRing);
    /// Returns the id of a chain whose only descriptor [`Self::put`] has written at 0.
    fn id() -> u16;
    /// Writes an indirect table of these buffers, one after the other: address, length, flags.
    fn table(guest: &GuestRing, addr: u64, buffers: &[(u64, u32, u16)]);
    /// Reports a used chain as a device does, with the bytes written if it says so. The chain, or
    /// the batch that ends with it, has the entries `position..end`.
    fn report(guest: &GuestRing, position: u64, end: u64, id: u32, bytes: Option<u32>);
}

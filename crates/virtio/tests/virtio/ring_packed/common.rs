//! A packed ring in a guest's memory, and positions in it counted without wrapping.

use straightline_testing::guest_ring::{AVAIL, GuestRing, USED, events};
use straightline_virtio::ring::{Direction, PackedDevice, PackedDriver, RingOptions};

/// Flags of a packed descriptor (virtio 1.2, 2.8.1).
pub(crate) const FLAG_AVAIL: u16 = 1 << 7;
pub(crate) const FLAG_USED: u16 = 1 << 15;

/// Addresses of both event suppression structures: a position, then a mode.
pub(crate) const DRIVER_SUPPRESSION: u64 = AVAIL;
pub(crate) const DEVICE_SUPPRESSION: u64 = USED;

/// A new ring's base: index 0, wrap counter 1.
pub(crate) const START: u32 = 0x8000_8000;

pub(crate) fn device(guest: &GuestRing, base: u32, event_idx: bool, indirect: bool) -> PackedDevice {
    PackedDevice::new(&guest.ours, guest.geometry(), base, RingOptions { event_idx, indirect, in_order: false })
        .expect("the ring is in memory")
}

/// Creates a device half after the last one was lost: the frontend knows nothing.
pub(crate) fn recovered(guest: &GuestRing, event_idx: bool, direction: Direction) -> PackedDevice {
    let options = RingOptions { event_idx, indirect: true, in_order: false };
    PackedDevice::recover(&guest.ours, guest.geometry(), 0, options, direction, None).expect("the ring is in memory")
}

pub(crate) fn driver(guest: &GuestRing, event_idx: bool) -> PackedDriver {
    any_driver(guest, events(event_idx))
}

/// Creates a driver half whose chains are in tables if that was negotiated.
pub(crate) fn any_driver(guest: &GuestRing, options: RingOptions) -> PackedDriver {
    let driver = PackedDriver::new(&guest.ours, guest.geometry(), options).expect("the ring is in memory");
    driver.with_tables(&guest.ours, guest.tables()).expect("in memory")
}

/// Creates both halves of a new ring.
pub(crate) fn halves(guest: &GuestRing, event_idx: bool) -> (PackedDevice, PackedDriver) {
    (device(guest, START, event_idx, false), driver(guest, event_idx))
}

/// Writes a descriptor in the order of a packed ring: address, length, id, flags.
pub(crate) fn descriptor(guest: &GuestRing, table: u64, index: u16, (addr, len, id, flags): (u64, u32, u16, u16)) {
    // In a split ring flags come first.
    guest.descriptor(table, index, addr, len, id, flags);
}

/// Returns the position of the descriptor that is the `position`th since the ring began: an index
/// with its wrap counter above it.
pub(crate) fn bits(position: u64, size: u16) -> u16 {
    let size = u64::from(size);
    let at = u16::try_from(position % size).expect("less than the size");
    at | if (position / size).is_multiple_of(2) { 0x8000 } else { 0 }
}

/// Returns whether the side with event suppression at `suppression` asked for a notification of
/// descriptors `old..new`. This is another form of the rule: the position is one of these
/// descriptors, and of more than a round only the last round counts.
pub(crate) fn is_notified(guest: &GuestRing, suppression: u64, event_idx: bool, old: u64, new: u64) -> bool {
    let asked = guest.read16(suppression);
    let mode = guest.read16(suppression + 2);
    let from = old.max(new.saturating_sub(guest.size.into()));
    match mode {
        _ if old == new => false,
        1 => false,
        2 if event_idx => (from..new).any(|position| bits(position, guest.size) == asked),
        _ => true,
    }
}

//! The packed layout.

use proptest::prelude::*;
use straightline_testing::guest_ring::{AVAIL, DESC, GuestRing, USED, events};
use straightline_virtio::ring::{Direction, First, INDIRECT, PackedDevice, PackedDriver, RingOptions, WRITE};

use super::layout::Layout;

pub(crate) struct Packed;

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
fn is_notified(guest: &GuestRing, suppression: u64, event_idx: bool, old: u64, new: u64) -> bool {
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

impl Layout for Packed {
    type Device = PackedDevice;
    type Driver = PackedDriver;

    const SIZES: &'static [u16] = &[1, 2, 3, 5, 8, 255, 256];
    const SIZE: u16 = 6;
    const SMALL: u16 = 5;
    const START: u32 = START;
    const UNDEFINED: u16 = 0x7f78;
    const WHOLE_RING_IS_AMBIGUOUS: bool = true;
    const HAS_INDEXES: bool = false;
    const BEFORE_WRAP: u64 = 0;

    /// Our device half writes one used descriptor for each chain, so that its position can be
    /// recovered. So it is never told of in-order use.
    fn successor(guest: &GuestRing, base: u32, options: RingOptions) -> PackedDevice {
        device(guest, base, options.event_idx, options.indirect)
    }

    fn recovered(guest: &GuestRing, options: RingOptions, direction: Direction) -> PackedDevice {
        recovered(guest, options.event_idx, direction)
    }

    fn driver(guest: &GuestRing, options: RingOptions) -> PackedDriver {
        any_driver(guest, options)
    }

    fn entries(span: u16) -> u64 {
        span.into()
    }

    fn base(taken: u64, given: u64, size: u16) -> u32 {
        u32::from(bits(taken, size)) | u32::from(bits(given, size)) << 16
    }

    /// In a table of buffers that a guest sends, WRITE has no meaning.
    fn ignores_write(first: &First) -> bool {
        first.desc.flags & INDIRECT != 0
    }

    fn is_kick_due(guest: &GuestRing, event_idx: bool, old: u64, new: u64) -> bool {
        is_notified(guest, DEVICE_SUPPRESSION, event_idx, old, new)
    }

    fn is_call_due(guest: &GuestRing, event_idx: bool, old: Option<u64>, new: u64) -> bool {
        match old {
            Some(old) => is_notified(guest, DRIVER_SUPPRESSION, event_idx, old, new),
            // The driver is notified unless it polls.
            None => guest.read16(DRIVER_SUPPRESSION + 2) != 1,
        }
    }

    fn modes(guest: &GuestRing) -> [u16; 2] {
        [DEVICE_SUPPRESSION, DRIVER_SUPPRESSION].map(|suppression| guest.read16(suppression + 2))
    }

    fn on_and_off(event_idx: bool) -> [u16; 2] {
        [if event_idx { 2 } else { 0 }, 1]
    }

    fn driver_suppression(guest: &GuestRing) -> [u16; 2] {
        [guest.read16(DRIVER_SUPPRESSION), guest.read16(DRIVER_SUPPRESSION + 2)]
    }

    fn event(size: u16) -> BoxedStrategy<u16> {
        (0..size, any::<bool>()).prop_map(|(at, wrap)| at | u16::from(wrap) << 15).boxed()
    }

    fn suppress(guest: &GuestRing, event: u16, mode: u16) {
        for suppression in [DRIVER_SUPPRESSION, DEVICE_SUPPRESSION] {
            guest.write16(suppression, event);
            guest.write16(suppression + 2, mode);
        }
    }

    fn is_asked(from: u64, used: u64, size: u16) -> bool {
        // A position distinguishes two rounds, no more.
        let size = u64::from(size);
        (1..=size).contains(&((used - from) % (2 * size)))
    }

    fn put(guest: &GuestRing, index: u16, addr: u64, len: u32, flags: u16) {
        descriptor(guest, DESC, index, (addr, len, 100 + index, flags | FLAG_AVAIL));
    }

    fn offer(_: &GuestRing) {}

    fn id() -> u16 {
        100
    }

    fn table(guest: &GuestRing, addr: u64, buffers: &[(u64, u32, u16)]) {
        for (n, &(buffer, len, flags)) in (0..).zip(buffers) {
            descriptor(guest, addr, n, (buffer, len, 0xffff, flags));
        }
    }

    fn report(guest: &GuestRing, position: u64, _: u64, id: u32, bytes: Option<u32>) {
        let place = bits(position, guest.size);
        let flags = if place & 0x8000 != 0 { FLAG_AVAIL | FLAG_USED } else { 0 };
        let id = u16::try_from(id & 0xffff).expect("16 bits");
        // Without WRITE the length means nothing (2.8.4).
        let (write, len) = bytes.map_or((0, 5), |bytes| (WRITE, bytes));
        descriptor(guest, DESC, place & 0x7fff, (0, len, id, flags | write));
    }
}

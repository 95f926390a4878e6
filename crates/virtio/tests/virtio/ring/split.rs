//! The split layout.

use proptest::prelude::*;
use straightline_testing::guest_ring::{AVAIL, DESC, GuestRing, USED};
use straightline_virtio::ring::{Direction, First, NEXT, RingOptions, SplitDevice, SplitDriver};

use super::layout::Layout;

pub(crate) struct Split;

/// Returns whether the entry `event` is among the new ones (another form of the rule in virtio 1.2,
/// 2.7.10). `event` is a 16-bit index, `old..new` are positions.
fn is_among(event: u16, old: u64, new: u64) -> bool {
    (old..new).any(|i| i & 0xffff == u64::from(event))
}

/// Returns the lower 16 bits of a position.
fn index(position: u64) -> u16 {
    u16::try_from(position & 0xffff).expect("16 bits")
}

/// Writes a used element.
pub(crate) fn write_element(guest: &GuestRing, at: u16, id: u32, bytes: u32) {
    guest.write(USED + 4 + 8 * u64::from(at % guest.size), &[id.to_le_bytes(), bytes.to_le_bytes()].concat());
}

impl Layout for Split {
    type Device = SplitDevice;
    type Driver = SplitDriver;

    const SIZES: &'static [u16] = &[1, 2, 4, 8, 64, 1024];
    const SIZE: u16 = 8;
    const SMALL: u16 = 4;
    const START: u32 = 0;
    const UNDEFINED: u16 = 0xfff8;
    const WHOLE_RING_IS_AMBIGUOUS: bool = false;
    const HAS_INDEXES: bool = true;
    const BEFORE_WRAP: u64 = 65_530;

    fn successor(guest: &GuestRing, base: u32, options: RingOptions) -> SplitDevice {
        guest.device(u16::try_from(base).expect("an index"), options)
    }

    fn recovered(guest: &GuestRing, options: RingOptions, _: Direction) -> SplitDevice {
        SplitDevice::recover(&guest.ours, guest.geometry(), options).expect("the ring is in memory")
    }

    fn driver(guest: &GuestRing, options: RingOptions) -> SplitDriver {
        guest.driver(options)
    }

    fn entries(_: u16) -> u64 {
        1
    }

    fn base(taken: u64, _: u64, _: u16) -> u32 {
        index(taken).into()
    }

    fn ignores_write(_: &First) -> bool {
        false
    }

    fn is_kick_due(guest: &GuestRing, event_idx: bool, old: u64, new: u64) -> bool {
        if event_idx { is_among(guest.avail_event(), old, new) } else { new > old && guest.read16(USED) & 1 == 0 }
    }

    fn is_call_due(guest: &GuestRing, event_idx: bool, old: Option<u64>, new: u64) -> bool {
        match old {
            Some(old) if event_idx => is_among(guest.used_event(), old, new),
            None if event_idx => true,
            old => old != Some(new) && guest.read16(AVAIL) & 1 == 0,
        }
    }

    fn modes(guest: &GuestRing) -> [u16; 2] {
        [guest.read16(USED), guest.read16(AVAIL)]
    }

    fn on_and_off(event_idx: bool) -> [u16; 2] {
        // "The driver MUST set flags to 0" with the event index (2.7.7.1), because a device looks at
        // only one of the two.
        [0, u16::from(!event_idx)]
    }

    fn driver_suppression(guest: &GuestRing) -> [u16; 2] {
        [guest.used_event(), guest.read16(AVAIL)]
    }

    fn event(_: u16) -> BoxedStrategy<u16> {
        prop_oneof![6 => 0..1300_u16, 1 => any::<u16>()].boxed()
    }

    fn suppress(guest: &GuestRing, event: u16, mode: u16) {
        let size = u64::from(guest.size);
        guest.write16(AVAIL, mode);
        guest.write16(AVAIL + 4 + 2 * size, event);
        guest.write16(USED, mode);
        guest.write16(USED + 4 + 8 * size, event);
    }

    fn is_asked(from: u64, used: u64, size: u16) -> bool {
        from < used && used - from <= size.into()
    }

    fn put(guest: &GuestRing, index: u16, addr: u64, len: u32, flags: u16) {
        guest.descriptor(DESC, index, addr, len, flags, index + 1);
    }

    fn offer(guest: &GuestRing) {
        guest.offer(0, 0);
    }

    fn id() -> u16 {
        0
    }

    fn table(guest: &GuestRing, addr: u64, buffers: &[(u64, u32, u16)]) {
        for (n, &(buffer, len, flags)) in (1..).zip(buffers) {
            let flags = flags | if usize::from(n) < buffers.len() { NEXT } else { 0 };
            guest.descriptor(addr, n - 1, buffer, len, flags, n);
        }
    }

    fn report(guest: &GuestRing, position: u64, end: u64, id: u32, bytes: Option<u32>) {
        write_element(guest, index(position), id, bytes.unwrap_or(0));
        guest.write16(USED + 2, index(end));
    }
}

//! The progress of both sides of a ring, by which a port detects that a driver does not answer a
//! call.
//!
//! With the event index (virtio 1.2, 2.7.10 and 2.8.14), a driver's event word names the used entry
//! for which it asks for a call. A driver that gets the call looks at the used entries and then
//! moves the word beyond them. If the word asks for an entry that has been used, and nothing moves,
//! the driver has not looked. Then the call may be lost. A driver that polls may leave an old word
//! too, and the ring does not show which case it is.

use super::packed_device::RingPosition;

/// The progress of both sides of a ring at one moment. Two equal values mean that nothing moved in
/// between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The driver's event word as it is in memory; in a packed ring, the position and above it the
    /// mode.
    pub event: u32,
    /// The driver's available index; in a packed ring, the position behind the last available
    /// descriptor.
    pub available: u16,
    /// The position of the next used entry. In a packed ring the top bit of each position is the
    /// wrap counter.
    pub used: u16,
    /// True if the event word asks for an entry that has been used.
    pub is_asked: bool,
}

/// Returns whether the used entry at index `event` of a split ring is one of the last `size` before
/// `used`. The driver has seen older ones: it has made their entries available again.
pub(super) fn is_used_split(event: u16, used: u16, size: u16) -> bool {
    (1..=size).contains(&used.wrapping_sub(event))
}

/// Returns whether the descriptor at `event` of a packed ring is one of the last `size` before
/// `used`.
pub(super) fn is_used_packed(event: RingPosition, used: RingPosition, size: u16) -> bool {
    match event.wrap == used.wrap {
        _ if event.at >= size => false,
        true => event.at < used.at,
        // The position belongs to the previous round: the device has not reached it again.
        false => event.at >= used.at,
    }
}

/// Returns the number of values in `0..n` that satisfy `is_so`, by bisection. These values must
/// come first; in any other order the result is some number up to `n`.
pub(super) fn partition_point(n: u16, is_so: impl Fn(u16) -> bool) -> u16 {
    let mut low = 0;
    let mut high = n;
    while low < high {
        let middle = low + (high - low) / 2;
        if is_so(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the position of the `n`th descriptor since the ring began.
    fn position(n: u32, size: u16) -> RingPosition {
        let round = n / u32::from(size);
        let at = n % u32::from(size);
        RingPosition { at: u16::try_from(at).expect("less than the size"), wrap: round.is_multiple_of(2) }
    }

    #[test]
    fn a_split_rings_last_entries_have_been_used() {
        for size in [1_u16, 2, 4, 8] {
            // These indexes include the point at which they wrap.
            for used in 65_500..65_600_u32 {
                for event in used - 2 * u32::from(size)..used + 2 * u32::from(size) {
                    let is_used = event < used && event + u32::from(size) >= used;
                    let word = |n: u32| u16::try_from(n % 65_536).expect("16 bits");
                    assert_eq!(is_used_split(word(event), word(used), size), is_used, "{event} of {used}, size {size}");
                }
            }
        }
    }

    #[test]
    fn a_packed_rings_last_descriptors_have_been_used() {
        for size in [1_u16, 2, 3, 5, 8] {
            let n = u32::from(size);
            for used in 2 * n..8 * n {
                // The wrap counter distinguishes two rounds, so a driver asks for less than one round
                // ahead.
                for event in used - n..used + n {
                    let is_used = event < used;
                    let event = position(event, size);
                    let used = position(used, size);
                    assert_eq!(is_used_packed(event, used, size), is_used, "{event:?} of {used:?}, size {size}");
                }
            }
        }
    }

    #[test]
    fn a_place_outside_the_ring_asks_for_nothing() {
        for at in [5, 6, 0x7fff] {
            for wrap in [false, true] {
                assert!(!is_used_packed(RingPosition { at, wrap }, RingPosition { at: 3, wrap: true }, 5));
            }
        }
    }

    #[test]
    fn the_border_is_found_at_every_position() {
        for n in 0..40 {
            for is in 0..=n {
                assert_eq!(partition_point(n, |i| i < is), is);
            }
            assert!(partition_point(n, |i| i % 3 == 1) <= n, "of no order, some number");
        }
    }
}

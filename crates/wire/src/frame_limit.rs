//! The length of the longest frame of a port.

use az::SaturatingAs;

use crate::{ethernet, vlan};

/// The length of the longest frame that a port takes: its MTU, an Ethernet header, and one VLAN tag.
/// A frame with two tags may have [`Self::SECOND_TAG`] bytes more. The frame check sequence does not
/// count.
///
/// ```
/// use straightline_wire::FrameLimit;
///
/// let limit = FrameLimit::new(1500);
/// assert_eq!((limit.bytes(), limit.mtu()), (1518, 1500));
/// assert_eq!(FrameLimit::of_bytes(9018).mtu(), 9000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimit(u32);

/// Bytes of a frame beyond the MTU: the Ethernet header, and one tag (IEEE 802.1Q, 9.6), which a
/// port takes whether it knows VLANs or not.
const BEYOND_MTU: u32 = 18;
const _: () = assert!(BEYOND_MTU as usize == ethernet::LEN + vlan::LEN);
const _: () = assert!(FrameLimit::SECOND_TAG as usize == vlan::LEN);

impl FrameLimit {
    /// The bytes that a frame's second tag adds to the limit.
    pub const SECOND_TAG: u32 = 4;

    /// Returns the limit of a port with this MTU in bytes.
    #[inline]
    #[must_use]
    pub const fn new(mtu: u16) -> Self {
        FrameLimit(mtu as u32 + BEYOND_MTU)
    }

    /// Returns the limit of a port whose longest frame has this number of bytes.
    #[inline]
    #[must_use]
    pub const fn of_bytes(bytes: u32) -> Self {
        FrameLimit(bytes)
    }

    /// Returns the number of bytes of the longest frame.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// Returns the MTU in bytes, at most 65535.
    #[must_use]
    pub fn mtu(self) -> u16 {
        self.0.saturating_sub(BEYOND_MTU).saturating_as::<u16>()
    }
}

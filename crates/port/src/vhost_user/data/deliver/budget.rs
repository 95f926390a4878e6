//! How much of a turn one port's receive buffers may take.
//!
//! The guest decides how small its buffers are and how many descriptors each of them has. Another guest decides how many
//! packets come, and how long they are. So the work for one port is counted in descriptors, and it ends.

use straightline_virtio::ring::BURST;

/// Buffers that one packet may take. A packet of 64 KiB takes 44 of 1500 bytes. One of 1514 bytes takes 128 of 12 bytes,
/// which are the smallest that virtio allows (virtio 1.2, 5.1.6.3.1).
pub(super) const MOST_BUFFERS: u16 = 256;

/// Descriptors that a turn looks at for one port, whatever comes of it.
const LIMIT: u32 = 16 * 1024;

/// As many more for each buffer of several descriptors that is used, because a packet that is cut takes one buffer for each
/// segment. A driver without mergeable buffers gives 19 descriptors in a table, or up to 47 (Linux' `CONFIG_MAX_SKB_FRAGS`).
const EACH: u32 = 64;

/// The most that come together in this way: a ring of 1024 such buffers.
const MOST: u32 = 64 * 1024;

/// Descriptors of a port's receive rings that were looked at in this turn, and how many may be. The last buffer may exceed
/// the limit.
///
/// Buffers of one descriptor that each take a whole packet, or a piece of one, are not counted: there are no more of them
/// than packets and pieces.
#[derive(Debug)]
pub(crate) struct DescriptorBudget {
    spent: u32,
    limit: u32,
    in_parts: bool,
}

impl Default for DescriptorBudget {
    fn default() -> Self {
        DescriptorBudget { spent: 0, limit: LIMIT, in_parts: false }
    }
}

impl DescriptorBudget {
    /// For a frame that is delivered in parts, perhaps of one packet each. What one part has read ahead, the next one would
    /// read again, so each part first looks at as many buffers as it has packets.
    pub(crate) fn in_parts() -> Self {
        DescriptorBudget { in_parts: true, ..DescriptorBudget::default() }
    }

    /// How many buffers are looked at first for so many packets.
    pub(super) fn first_look(&self, packets: usize) -> usize {
        if self.in_parts { packets.min(BURST) } else { BURST }
    }

    /// Counts descriptors that were looked at.
    #[inline]
    pub(super) fn spend(&mut self, descriptors: u32) {
        self.spent = self.spent.saturating_add(descriptors);
    }

    /// Whether the port has had its share of this turn.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.spent > self.limit
    }

    /// Allows what one more buffer of several descriptors may take.
    pub(super) fn allow_one(&mut self) {
        self.limit = self.limit.saturating_add(EACH).min(MOST);
    }

    /// The limit as it is now, for [`Self::set_limit`].
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the limit back: buffers that were allowed for were not used.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }
}

//! The bound on the work for one port in a turn.
//!
//! The guest decides how small its buffers are and how many descriptors each has. Another guest
//! decides how many packets come, and how long they are. So a turn counts the descriptors that it
//! reads for a port, and stops at a limit. Each output of a graph has a budget of its own: a mirror
//! port has one for each place of a mirror that copies to it. An output that expedites packets has two.

use straightline_virtio::ring::BURST;

/// The most buffers of one packet. A packet of 64 KiB takes 44 buffers of 1500 bytes. One of 1514
/// bytes takes 128 buffers of 12 bytes, the smallest that virtio allows (virtio 1.2, 5.1.6.3.1).
pub(super) const MOST_BUFFERS: u16 = 256;

/// Descriptors that a turn may read for one port in any case.
const LIMIT: u32 = 16 * 1024;

/// Descriptors added to the limit for each used buffer of several descriptors. The reason: a packet
/// that is segmented takes one buffer for each segment. A driver without mergeable buffers gives 19
/// descriptors in a table, or up to 47 (Linux's `CONFIG_MAX_SKB_FRAGS`).
const EACH: u32 = 64;

/// The highest limit that can be reached in this way: a ring of 1024 such buffers.
const MOST: u32 = 64 * 1024;

/// The descriptors of a port's receive rings that this turn has read, and how many it may read. The
/// last buffer may exceed the limit.
///
/// A buffer of one descriptor that takes a whole packet, or a whole segment, is not counted. The
/// number of packets and segments already bounds the number of such buffers.
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
    /// Returns the budget for a batch that is delivered in parts, perhaps of one packet each.
    /// Buffers that one part reads ahead would be read again by the next part. So each part first
    /// looks at as many buffers as it has packets.
    pub(crate) fn in_parts() -> Self {
        DescriptorBudget { in_parts: true, ..DescriptorBudget::default() }
    }

    /// Returns the number of buffers to look at first, for a batch of `packets` packets.
    pub(super) fn first_look(&self, packets: usize) -> usize {
        if self.in_parts { packets.min(BURST) } else { BURST }
    }

    /// Counts descriptors that were read.
    #[inline]
    pub(super) fn spend(&mut self, descriptors: u32) {
        self.spent = self.spent.saturating_add(descriptors);
    }

    /// Returns whether the port has used up its share of this turn.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.spent > self.limit
    }

    /// Raises the limit for one more buffer of several descriptors.
    pub(super) fn allow_one(&mut self) {
        self.limit = self.limit.saturating_add(EACH).min(MOST);
    }

    /// Returns the current limit, for [`Self::set_limit`].
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Restores an earlier limit, because the buffers that it was raised for were not used.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }
}

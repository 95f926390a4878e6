//! How a port is made.

use std::time::Duration;

use anyhow::ensure;
use straightline_virtio::features as f;

use crate::guest::HEADER_LEN;

/// How the rings are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Virtio 1.2, 2.7.
    #[default]
    Split,
    /// Virtio 1.2, 2.8.
    Packed,
}

impl Layout {
    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layout::Split => "split",
            Layout::Packed => "packed",
        }
    }
}

/// How a port is made.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// How the rings are laid out.
    pub layout: Layout,
    /// Whether it negotiates buffers that can be merged: without, what is longer than a buffer cannot be received.
    pub mergeable: bool,
    /// Whether it negotiates that buffers are used in order.
    pub in_order: bool,
    /// Entries in each ring: a power of two, from 32 to 1024.
    pub queue_size: u16,
    /// Bytes in each buffer, header included.
    pub buffer_len: u32,
    /// Bytes by which a buffer is behind the beginning of a cache line: with 52 the frame begins on one, as in DPDK's
    /// guests, with 0 the header does.
    pub header_offset: u32,
    /// Whether its memory is in huge pages of 2 MiB.
    pub huge_pages: bool,
    /// The longest frame that is sent. Where a buffer has no room for it, frames may be in several, each a descriptor of a
    /// chain, which costs all of them some cycles.
    pub longest: u32,
    /// Whether checksums and the segmentation of TCP are left to the device, and are taken unfinished from it.
    pub segments: bool,
    /// Features of virtio-net (virtio 1.2, 5.1.3) that are negotiated besides: where not all is wanted that `segments` stands
    /// for, or not both ways.
    pub offloads: u64,
    /// How long a backend may take to answer.
    pub patience: Duration,
}

impl Default for PortOptions {
    fn default() -> Self {
        PortOptions {
            layout: Layout::default(),
            mergeable: true,
            in_order: false,
            queue_size: 1024,
            buffer_len: 2048,
            header_offset: 52,
            huge_pages: false,
            longest: 1518,
            segments: false,
            offloads: 0,
            patience: Duration::from_secs(10),
        }
    }
}

impl PortOptions {
    /// In how many transmit buffers the longest frame is.
    pub(super) fn buffers_of_longest(&self) -> usize {
        (self.longest + HEADER_LEN).div_ceil(self.buffer_len) as usize
    }

    /// What is negotiated, nothing less.
    pub(super) fn features(&self) -> u64 {
        let when = |wanted: bool, feature| if wanted { feature } else { 0 };
        f::VIRTIO_F_VERSION_1
            | when(self.mergeable, f::VIRTIO_NET_F_MRG_RXBUF)
            | when(self.in_order, f::VIRTIO_F_IN_ORDER)
            | when(self.layout == Layout::Packed, f::VIRTIO_F_RING_PACKED)
            | when(self.segments, f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4)
            | when(self.segments, f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO4)
            | self.offloads
    }

    /// # Errors
    /// What cannot be, and what would.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.queue_size.is_power_of_two() && (32..=1024).contains(&self.queue_size),
            "a ring has a power of two of entries, from 32 to 1024, not {}",
            self.queue_size
        );
        ensure!(
            (76..=1 << 20).contains(&self.buffer_len),
            "a buffer has 76 bytes to 1 MiB, header included: not {}",
            self.buffer_len
        );
        ensure!(
            self.header_offset < 64,
            "a header is 0 to 63 bytes behind a line's beginning: not {}",
            self.header_offset
        );
        let most = u32::from(self.queue_size) / 2 * self.buffer_len;
        ensure!(
            (14..=65_549).contains(&self.longest) && self.longest + HEADER_LEN <= most,
            "frames of 14 to 65549 bytes can be sent, if half of a ring's buffers ({most} bytes) hold one: not of {}",
            self.longest
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_said() {
        PortOptions::default().check().expect("the defaults");
        let refused = |change: fn(&mut PortOptions)| {
            let mut options = PortOptions::default();
            change(&mut options);
            options.check().expect_err("it cannot be").to_string()
        };
        assert!(refused(|o| o.queue_size = 100).contains("power of two"));
        assert!(refused(|o| o.queue_size = 2048).contains("1024"));
        assert!(refused(|o| o.buffer_len = 75).contains("76"));
        assert!(refused(|o| o.header_offset = 64).contains("63"));
        assert!(refused(|o| o.longest = 70_000).contains("65549"));
        assert!(refused(|o| (o.longest, o.buffer_len, o.queue_size) = (9000, 128, 32)).contains("2048 bytes"));
    }
}

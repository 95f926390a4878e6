//! Options of a port.

use std::time::Duration;

use anyhow::ensure;
use straightline_virtio::features as f;

use crate::guest::HEADER_LEN;

/// The ring layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Split rings (virtio 1.2, 2.7).
    #[default]
    Split,
    /// Packed rings (virtio 1.2, 2.8).
    Packed,
}

impl Layout {
    /// Returns the layout's name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layout::Split => "split",
            Layout::Packed => "packed",
        }
    }
}

/// Options of a port.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// The ring layout.
    pub layout: Layout,
    /// True to negotiate mergeable receive buffers. Without them a packet longer than a buffer
    /// cannot be received.
    pub mergeable: bool,
    /// True to negotiate that buffers are used in order.
    pub in_order: bool,
    /// Entries of each ring: a power of two, from 32 to 1024.
    pub queue_size: u16,
    /// Bytes of each buffer, header included.
    pub buffer_len: u32,
    /// Offset of a buffer from the start of a cache line. With 52 the frame starts on a line, as in
    /// DPDK's guests; with 0 the header starts on a line.
    pub header_offset: u32,
    /// True to place memory in huge pages of 2 MiB.
    pub huge_pages: bool,
    /// Length of the longest frame that is sent. If such a frame does not fit into a buffer, frames
    /// may use several buffers, each a descriptor of a chain. This costs every frame some cycles.
    pub longest: u32,
    /// True to leave checksums and TCP segmentation to the device, and to accept unfinished
    /// checksums and unsegmented packets from the device.
    pub segments: bool,
    /// Further features of virtio-net (virtio 1.2, 5.1.3) to negotiate. They select a part of the
    /// features of `segments`, for example one direction only.
    pub offloads: u64,
    /// Time limit for a backend's answer.
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
    /// Returns the number of transmit buffers that the longest frame needs.
    pub(super) fn buffers_of_longest(&self) -> usize {
        (self.longest + HEADER_LEN).div_ceil(self.buffer_len) as usize
    }

    /// Returns the features to negotiate. All of them are required.
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

    /// Checks that the options are possible together.
    ///
    /// # Errors
    /// An option is out of range; the error names the range.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.queue_size.is_power_of_two() && (32..=1024).contains(&self.queue_size),
            "{} ring entries are not possible: use a power of two from 32 to 1024",
            self.queue_size
        );
        ensure!(
            (76..=1 << 20).contains(&self.buffer_len),
            "a buffer of {} bytes is not possible: use 76 bytes to 1 MiB, header included",
            self.buffer_len
        );
        ensure!(
            self.header_offset < 64,
            "a header offset of {} bytes is not possible: use 0 to 63",
            self.header_offset
        );
        let most = u32::from(self.queue_size) / 2 * self.buffer_len;
        ensure!(
            (14..=65_549).contains(&self.longest) && self.longest + HEADER_LEN <= most,
            "frames of {} bytes cannot be sent: use 14 to 65549 bytes, of which half of a ring's buffers ({most} \
             bytes) hold one",
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

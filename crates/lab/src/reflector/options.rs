//! What can be asked for.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{bail, ensure};

use super::frames;
use crate::endpoints::{Layout, PortOptions};
use crate::forward::Touch;
use crate::guest::HEADER_LEN;
use crate::sizes::Sizes;

/// What the guest does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// It sends so many bursts into each port once, and then what it receives by one port by the other.
    #[default]
    Loop,
    /// It sends by both ports without pause, and drops what it receives.
    Flood,
    /// It sends by the first port without pause, and drops what it receives by the second.
    OneWay,
}

impl Load {
    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Load::Loop => "loop",
            Load::Flood => "flood",
            Load::OneWay => "one-way",
        }
    }

    /// Whether packets come by this port, the first (0) or the second (1).
    pub(super) fn comes_by(self, port: usize) -> bool {
        self != Load::OneWay || port == 1
    }
}

/// How it is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the two backends listen.
    pub backends: [PathBuf; 2],
    /// What the guest does.
    pub load: Load,
    /// How the rings are laid out.
    pub layout: Layout,
    /// Whether it negotiates buffers that can be merged. (No packet is longer than a buffer.)
    pub mergeable: bool,
    /// Whether it negotiates that buffers are used in order.
    pub in_order: bool,
    /// Entries in each ring: a power of two, at most 1024.
    pub queue_size: u16,
    /// Bytes in each buffer, header included; by itself as many as the largest frame needs, at least 2048.
    pub buffer_len: Option<u32>,
    /// Bytes by which a buffer is behind the beginning of a cache line: with 52 the frame begins on one, as in DPDK's
    /// guests, with 0 the header does.
    pub header_offset: u32,
    /// What it does with the bytes of a packet: one that was received before it is sent on or dropped, one of a flood before
    /// it is sent again. Of the headers it reads those of virtio-net and Ethernet; who edits writes what it has read, so that
    /// lines are the guest's own and what comes back can still be compared with what was sent.
    pub touch: Touch,
    /// Frame lengths.
    pub sizes: Sizes,
    /// What they are drawn by.
    pub seed: u64,
    /// Whether they are TCP segments that the device is to cut: checksum and segmentation are negotiated both ways.
    pub segments: bool,
    /// Bursts of 32 packets that are sent into each port at first; by itself 16, or as many as a ring holds.
    pub bursts: Option<u16>,
    /// The CPU that it is pinned to.
    pub cpu: Option<usize>,
    /// Whether a backend runs on the same CPU: it is let run as soon as nothing comes.
    pub shares_cpu: bool,
    /// Ends the trial as soon as it is set.
    pub stop: Option<Arc<AtomicBool>>,
    /// Whether a trial that is stopped while it is measured reports of the time until then.
    pub may_end_early: bool,
    /// Whether its memory is in huge pages of 2 MiB.
    pub huge_pages: bool,
    /// Whether what has come back at the end is compared, byte by byte, with what was sent.
    pub verify: bool,
    /// How long it runs before it is measured.
    pub warm_up: Duration,
    /// How long it is measured.
    pub time: Duration,
    /// How long a backend may take to answer, or to return the first packets.
    pub patience: Duration,
}

impl Options {
    /// Between these two backends, with all else as it comes.
    #[must_use]
    pub fn new(backends: [PathBuf; 2]) -> Self {
        Options {
            backends,
            load: Load::default(),
            layout: Layout::default(),
            mergeable: true,
            in_order: false,
            queue_size: 1024,
            buffer_len: None,
            header_offset: 52,
            touch: Touch::default(),
            sizes: Sizes::one(64),
            seed: 1,
            segments: false,
            bursts: None,
            cpu: None,
            shares_cpu: false,
            stop: None,
            may_end_early: false,
            huge_pages: false,
            verify: true,
            warm_up: Duration::from_secs(1),
            time: Duration::from_secs(2),
            patience: Duration::from_secs(10),
        }
    }

    /// Bytes of a buffer.
    pub(super) fn buffer(&self) -> u32 {
        // A buffer that is full to its end may be followed by another one of the same packet.
        let least = (self.sizes.longest() + HEADER_LEN + 1).next_multiple_of(64);
        self.buffer_len.unwrap_or(least.max(2048))
    }

    /// Packets sent into each port at first.
    pub(super) fn packets(&self) -> usize {
        let most = self.queue_size / 32;
        32 * usize::from(self.bursts.unwrap_or(16).min(most.max(1)))
    }

    /// How its ports are made.
    pub(crate) fn port(&self) -> PortOptions {
        PortOptions {
            layout: self.layout,
            mergeable: self.mergeable,
            in_order: self.in_order,
            queue_size: self.queue_size,
            buffer_len: self.buffer(),
            header_offset: self.header_offset,
            huge_pages: self.huge_pages,
            longest: self.sizes.longest(),
            segments: self.segments,
            offloads: 0,
            patience: self.patience,
        }
    }

    /// # Errors
    /// What cannot be, and what would.
    pub fn check(&self) -> anyhow::Result<()> {
        let (shortest, most) = (frames::shortest(self.segments), frames::LONGEST);
        ensure!(
            self.sizes.shortest() >= shortest && self.sizes.longest() <= most,
            "frames of {shortest} to {most} bytes can be sent, not of {}",
            self.sizes
        );
        let (buffer, least) = (self.buffer(), self.sizes.longest() + HEADER_LEN + 1);
        if !(least..=1 << 20).contains(&buffer) {
            bail!(
                "frames of {} bytes need buffers of {least} bytes at least, and 1 MiB at most: not {buffer}",
                self.sizes
            );
        }
        self.port().check()?;
        let most = self.queue_size / 32;
        if let Some(bursts) = self.bursts {
            ensure!(
                (1..=most).contains(&bursts),
                "a ring of {} takes 1 to {most} bursts: not {bursts}",
                self.queue_size
            );
        }
        ensure!(!self.time.is_zero(), "nothing is measured in no time");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::new(["a".into(), "b".into()])
    }

    #[test]
    fn what_cannot_be_is_said() {
        options().check().expect("the defaults");
        let refused = |change: fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            options.check().expect_err("it cannot be").to_string()
        };
        assert!(refused(|o| o.sizes = Sizes::one(20)).contains("50 to 65549"));
        assert!(refused(|o| o.sizes = Sizes::one(70_000)).contains("70000"));
        assert!(refused(|o| o.queue_size = 100).contains("power of two"));
        assert!(refused(|o| o.queue_size = 2048).contains("1024"));
        assert!(refused(|o| o.buffer_len = Some(76)).contains("77"));
        assert!(refused(|o| o.bursts = Some(33)).contains("1 to 32"));
        assert!(refused(|o| o.header_offset = 64).contains("63"));
        assert!(refused(|o| o.time = Duration::ZERO).contains("no time"));
    }
}

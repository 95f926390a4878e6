//! Options of a trial.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{bail, ensure};
use straightline_guest::HEADER_LEN;
use straightline_guest::endpoints::PortOptions;

use super::frames;
use crate::guests::touch::Touch;
use crate::traffic::{Counted, Sizes};

/// The load that the guest generates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// The guest sends [`ReflectorOptions::bursts`] bursts into each port once. Then it sends packets that it receives
    /// on one port through the other port.
    #[default]
    Loop,
    /// The guest sends through both ports without pause, and drops received packets.
    Flood,
    /// The guest sends through the first port without pause, and drops packets that it receives on
    /// the second.
    OneWay,
}

impl Load {
    /// Returns the load's name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Load::Loop => "loop",
            Load::Flood => "flood",
            Load::OneWay => "one-way",
        }
    }

    /// Returns whether packets arrive on this port: the first (0) or the second (1).
    pub(super) fn comes_by(self, port: usize) -> bool {
        self != Load::OneWay || port == 1
    }
}

/// Options of a trial.
#[derive(Clone, Debug)]
pub struct ReflectorOptions {
    /// The sockets of the two backends.
    pub backends: [PathBuf; 2],
    /// The load.
    pub load: Load,
    /// Options of both ports. No packet is longer than a buffer, even if buffers are mergeable. With
    /// `segments`, the guest sends TCP packets that the device may segment. `patience` also limits
    /// the time until the first packets return. The frame lengths determine `longest`.
    pub ports: PortOptions,
    /// Bytes of each buffer, header included. The default is the length that the longest frame
    /// needs, but at least the length in `ports`.
    pub buffer_len: Option<u32>,
    /// Offset of the packets that a flood sends from the start of a cache line. The default is that
    /// of received packets, which is in `ports`.
    pub sent_offset: Option<u32>,
    /// The guest's accesses to the bytes of a packet. It touches a received packet before the
    /// packet is sent on or dropped, and a flood's packet before it is sent again. Headers are
    /// those of virtio-net and Ethernet. A guest that edits writes the bytes back unchanged. So the
    /// cache lines move to the guest's CPU, and returned packets can still be compared with sent
    /// ones.
    pub touch: Touch,
    /// Frame lengths.
    pub sizes: Sizes,
    /// Random seed for frame lengths.
    pub seed: u64,
    /// Number of bursts of 32 packets that are sent into each port at the start. The default is 16,
    /// or as many as fit into a ring.
    pub bursts: Option<u16>,
    /// The CPU that the guest is pinned to.
    pub cpu: Option<usize>,
    /// True if a backend runs on the same CPU. The guest then yields as soon as nothing arrives.
    pub shares_cpu: bool,
    /// A flag that ends the trial as soon as it is set.
    pub stop: Option<Arc<AtomicBool>>,
    /// True to get a report of the time so far if a trial is stopped during its measurement.
    pub may_end_early: bool,
    /// True to compare the packets that return at the end, byte by byte, with the sent packets.
    pub verify: bool,
    /// Time of traffic before the measurement.
    pub warm_up: Duration,
    /// Measured time.
    pub time: Duration,
    /// The packets that end the measurement in place of its time, if they do.
    pub counted: Option<Counted>,
}

impl ReflectorOptions {
    /// Returns options for a trial between these two backends, with defaults for the rest.
    #[must_use]
    pub fn new(backends: [PathBuf; 2]) -> Self {
        ReflectorOptions {
            backends,
            load: Load::default(),
            ports: PortOptions::default(),
            buffer_len: None,
            sent_offset: None,
            touch: Touch::default(),
            sizes: Sizes::one(64),
            seed: 1,
            bursts: None,
            cpu: None,
            shares_cpu: false,
            stop: None,
            may_end_early: false,
            verify: true,
            warm_up: Duration::from_secs(1),
            time: Duration::from_secs(2),
            counted: None,
        }
    }

    /// Returns the length of a buffer.
    pub(super) fn buffer(&self) -> u32 {
        // A full buffer may be followed by another one of the same packet. With one byte more than
        // needed, no buffer is full.
        let least = (self.sizes.longest() + HEADER_LEN + 1 + self.sent_shift()).next_multiple_of(64);
        self.buffer_len.unwrap_or(least.max(self.ports.buffer_len))
    }

    /// Returns the bytes from the start of a buffer to a packet that is sent.
    pub(super) fn sent_shift(&self) -> u32 {
        self.sent_offset.map_or(0, |sent| sent.wrapping_sub(self.ports.header_offset) % 64)
    }

    /// Returns the number of packets that are sent into each port at the start.
    pub(super) fn packets(&self) -> usize {
        let most = self.ports.queue_size / 32;
        32 * usize::from(self.bursts.unwrap_or(16).min(most.max(1)))
    }

    /// Returns the options of the reflector's ports.
    pub(crate) fn port(&self) -> PortOptions {
        PortOptions { buffer_len: self.buffer(), longest: self.sizes.longest(), ..self.ports.clone() }
    }

    /// Checks that the options are possible together.
    ///
    /// # Errors
    /// An option is out of range; the error names the range.
    pub fn check(&self) -> anyhow::Result<()> {
        let shortest = frames::shortest(self.ports.segments);
        let most = frames::LONGEST;
        ensure!(
            self.sizes.shortest() >= shortest && self.sizes.longest() <= most,
            "frames of {} bytes cannot be sent: use {shortest} to {most} bytes",
            self.sizes
        );
        if let Some(offset) = self.sent_offset {
            ensure!(offset < 64, "an offset of {offset} bytes is not possible for sent packets: use 0 to 63");
            ensure!(
                self.load != Load::Loop,
                "in a loop, packets are sent from where they came: leave out the offset of sent packets"
            );
        }
        self.port().check()?;
        let buffer = self.buffer();
        let least = self.sizes.longest() + HEADER_LEN + 1 + self.sent_shift();
        if !(least..=1 << 20).contains(&buffer) {
            bail!(
                "a buffer of {buffer} bytes is not possible for frames of {} bytes: use {least} bytes to 1 MiB",
                self.sizes
            );
        }
        let most = self.ports.queue_size / 32;
        if let Some(bursts) = self.bursts {
            ensure!(
                (1..=most).contains(&bursts),
                "{bursts} bursts do not fit into a ring of {} entries: use 1 to {most}",
                self.ports.queue_size
            );
        }
        ensure!(!self.time.is_zero(), "the measured time must be more than 0");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ReflectorOptions {
        ReflectorOptions::new(["a".into(), "b".into()])
    }

    #[test]
    fn what_cannot_be_is_said() {
        options().check().expect("the defaults");
        let refused = |change: fn(&mut ReflectorOptions)| {
            let mut options = options();
            change(&mut options);
            options.check().expect_err("it cannot be").to_string()
        };
        assert!(refused(|o| o.sizes = Sizes::one(20)).contains("50 to 65549"));
        assert!(refused(|o| o.sizes = Sizes::one(70_000)).contains("70000"));
        assert!(refused(|o| o.ports.queue_size = 100).contains("power of two"));
        assert!(refused(|o| o.ports.queue_size = 2048).contains("1024"));
        assert!(refused(|o| o.buffer_len = Some(76)).contains("77"));
        assert!(refused(|o| o.bursts = Some(33)).contains("1 to 32"));
        assert!(refused(|o| o.ports.header_offset = 64).contains("63"));
        assert!(refused(|o| o.time = Duration::ZERO).contains("more than 0"));
        assert!(refused(|o| o.sent_offset = Some(0)).contains("from where they came"));
        assert!(refused(|o| (o.load, o.sent_offset) = (Load::Flood, Some(64))).contains("0 to 63"));
        // A packet may begin up to 63 bytes behind the start of its buffer.
        assert!(
            refused(|o| (o.load, o.sent_offset, o.buffer_len) = (Load::Flood, Some(51), Some(139))).contains("140")
        );
    }
}

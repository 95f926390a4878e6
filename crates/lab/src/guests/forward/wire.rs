//! A guest as a wire between two ports: it forwards packets unchanged, on demand at the rate of a
//! line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use straightline_graph::clock::{hertz, seconds};
use straightline_guest::endpoints::{Endpoint, TestPort, VhostPort, relay};

use super::BURST;
use super::engine::Idle;
use crate::convert::float;

/// Bytes that Ethernet adds to a frame on a line: checksum, preamble and the gap between frames.
pub(crate) const LINE_OVERHEAD: u64 = 24;

/// The longest time for which a line makes good, after the switch was descheduled.
const CATCH_UP_SECS: f64 = 0.005;

/// The longest step of a line's clock. After a longer one, the wire's own thread was descheduled,
/// and the line stood still.
const STEP_SECS: f64 = 0.001;

/// A wire with two ends.
pub(crate) struct Wire {
    ports: [VhostPort; 2],
    /// The line of each direction; none if the wire is as fast as its guest.
    lines: Option<[Line; 2]>,
    clock: Clock,
    meter: Arc<Meter>,
}

/// Counters of a wire, which other endpoints may read.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    packets: AtomicU64,
    bytes: AtomicU64,
    cycles: AtomicU64,
}

/// A reading of a [`Meter`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Passed {
    /// Packets and bytes of their frames, both directions together.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Seconds, without those in which the wire's thread was descheduled.
    pub(crate) secs: f64,
}

impl Meter {
    /// Returns the counters since the wire was made.
    pub(crate) fn read(&self) -> Passed {
        Passed {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            secs: seconds(self.cycles.load(Ordering::Relaxed)),
        }
    }
}

impl Passed {
    /// Returns the difference to an earlier reading.
    pub(crate) fn since(self, then: Passed) -> Passed {
        Passed { packets: self.packets - then.packets, bytes: self.bytes - then.bytes, secs: self.secs - then.secs }
    }
}

impl Wire {
    /// Makes a wire between two ports, which must come from one call of
    /// [`VhostPort::connect_all`]. With a rate, each direction passes at most this many bits a
    /// second, and each frame takes [`LINE_OVERHEAD`] bytes more than it has.
    pub(crate) fn new(ports: Vec<VhostPort>, bits_per_s: Option<f64>) -> anyhow::Result<Wire> {
        let ports = <[VhostPort; 2]>::try_from(ports).ok().context("a wire has two ends")?;
        let lines = bits_per_s.map(|rate| [Line::new(rate); 2]);
        Ok(Wire { ports, lines, clock: Clock::new(), meter: Arc::default() })
    }

    /// Returns its counters.
    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// Forwards a burst in one direction. Returns the number of packets.
    #[inline]
    fn pass(&mut self, from: usize) -> anyhow::Result<usize> {
        let Wire { ports: [one, other], lines, clock, .. } = self;
        let (from_port, to) = if from == 0 { (one, other) } else { (other, one) };
        let Some(line) = lines.as_mut().map(|lines| &mut lines[from]) else {
            return relay(from_port, to, BURST, &mut Idle);
        };
        if !line.is_free(clock.now) {
            return Ok(0);
        }
        let before = from_port.counters();
        let packets = relay(from_port, to, BURST, &mut Idle)?;
        let bytes = from_port.counters().rx_bytes - before.rx_bytes;
        line.spend(bytes + u64::try_from(packets).unwrap_or(0) * LINE_OVERHEAD);
        Ok(packets)
    }
}

impl Endpoint for Wire {
    #[inline]
    fn turn(&mut self, now: u64) -> anyhow::Result<usize> {
        self.clock.tick(now);
        let packets = self.pass(0)? + self.pass(1)?;
        let [one, other] = [self.ports[0].counters(), self.ports[1].counters()];
        self.meter.packets.store(one.rx_packets + other.rx_packets, Ordering::Relaxed);
        self.meter.bytes.store(one.rx_bytes + other.rx_bytes, Ordering::Relaxed);
        self.meter.cycles.store(self.clock.now, Ordering::Relaxed);
        Ok(packets)
    }

    fn wake(&mut self) {
        self.ports.iter_mut().for_each(TestPort::wake);
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.ports.iter_mut().try_for_each(TestPort::check)
    }
}

/// A clock that stands still while its thread is descheduled.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Cycles since the first tick.
    now: u64,
    longest: u64,
    last: Option<u64>,
}

impl Clock {
    fn new() -> Clock {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a short time")]
        let longest = (STEP_SECS * hertz()) as u64;
        Clock { now: 0, longest, last: None }
    }

    #[inline]
    fn tick(&mut self, now: u64) {
        let step = self.last.replace(now).map_or(0, |last| now.saturating_sub(last));
        self.now += step.min(self.longest);
    }
}

/// One direction of a line: a token bucket.
#[derive(Clone, Copy, Debug)]
struct Line {
    bytes_per_cycle: f64,
    /// Bytes that may pass now; negative while a burst takes its time.
    credit: f64,
    most: f64,
    since: u64,
}

impl Line {
    fn new(bits_per_s: f64) -> Line {
        let bytes_per_s = bits_per_s / 8.0;
        let bytes_per_cycle = bytes_per_s / hertz();
        Line { bytes_per_cycle, credit: 0.0, most: bytes_per_s * CATCH_UP_SECS, since: 0 }
    }

    /// Returns whether a burst may pass now.
    #[inline]
    fn is_free(&mut self, now: u64) -> bool {
        let passed = now.saturating_sub(self.since);
        self.since = now;
        self.credit = (self.credit + float(passed) * self.bytes_per_cycle).min(self.most);
        self.credit >= 0.0
    }

    #[inline]
    fn spend(&mut self, bytes: u64) {
        self.credit -= float(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_passes_its_rate_whatever_the_bursts() {
        for burst in [84, 1_538, 100_000] {
            // 8 Gbit/s: a gigabyte a second.
            let mut line = Line::new(8e9);
            let mut passed = 0;
            let step = hertz() / 1e5;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time from now on")]
            for turn in 0..100_000 {
                let now = (f64::from(turn) * step) as u64;
                while line.is_free(now) {
                    line.spend(burst);
                    passed += burst;
                }
            }
            let off = (float(passed) - 1e9).abs();
            assert!(off <= float(burst) + 2e4, "{passed} bytes in bursts of {burst}");
        }
    }

    #[test]
    fn an_idle_line_saves_no_more_than_5_ms() {
        let mut line = Line::new(8e9);
        assert!(line.is_free(0));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time from now on")]
        let hour = (3600.0 * hertz()) as u64;
        assert!(line.is_free(hour));
        line.spend(5_000_001);
        assert!(!line.is_free(hour));
    }

    #[test]
    fn a_clock_leaves_out_long_steps() {
        let mut clock = Clock::new();
        for now in [500, 600, 600, 600 + clock.longest, 600 + 9 * clock.longest] {
            clock.tick(now);
        }
        assert_eq!(clock.now, 100 + 2 * clock.longest);
    }
}

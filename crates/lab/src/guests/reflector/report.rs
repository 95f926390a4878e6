//! The results of a trial.

use std::fmt;

use serde::Serialize;
use straightline_guest::HEADER_LEN;
use straightline_guest::endpoints::{Connection, Work};
use straightline_virtio::features as f;

use super::options::ReflectorOptions;
use crate::convert::float;
use crate::trial::validity;

/// Results of one port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortReport {
    /// The socket of the port's backend.
    pub socket: String,
    /// Million packets received per second in the measured time.
    pub mpps: f64,
    /// Gigabits of received frames per second.
    pub gbit_per_s: f64,
    /// Number of packets received in the entire run, including warm-up and end.
    pub rx_packets: u64,
    /// Number of packets sent in the entire run.
    pub tx_packets: u64,
}

/// Results of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReflectorReport {
    /// Million packets received per second, by both ports together.
    pub mpps: f64,
    /// Gigabits of received frames per second, without Ethernet checksums.
    pub gbit_per_s: f64,
    /// The guest's cycles of the time-stamp counter per received packet, including sending or
    /// dropping it. Only turns that found packets count.
    pub guest_cycles_per_packet: f64,
    /// Packets per turn, counting only turns that found packets.
    pub packets_per_turn: f64,
    /// Mean length of received frames.
    pub frame_bytes: f64,
    /// Measured seconds.
    pub secs: f64,
    /// The ports, in the order of the backends in the options.
    pub ports: [PortReport; 2],
    /// Number of cache lines of guest memory per packet, header included. They are counted at the
    /// end, from the addresses and lengths of the packets' buffers.
    pub lines_per_packet: f64,
    /// Number of these cache lines that the guest touched.
    pub touched_lines_per_packet: f64,
    /// Number of packets that were sent and never returned; unknown for a flood.
    pub lost: Option<u64>,
    /// Number of packets that were compared, byte by byte, with the sent packets.
    pub verified: u64,
    /// Number of kicks that the backends asked for.
    pub kicks: u64,
    /// The load.
    pub load: &'static str,
    /// The touch policy.
    pub touch: &'static str,
    /// The ring layout.
    pub ring: &'static str,
    /// The frame lengths.
    pub sizes: String,
    /// Entries of a ring.
    pub queue_size: u16,
    /// Bytes of a buffer.
    pub buffer_len: u32,
    /// True if the memory is in huge pages.
    pub huge_pages: bool,
    /// The negotiated features.
    pub features: Vec<&'static str>,
}

/// Packets and bytes that one port has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) packets: u64,
    /// Headers included.
    pub(super) bytes: u64,
    pub(super) longest: u32,
}

impl Count {
    pub(super) fn since(self, then: Count) -> Count {
        Count { packets: self.packets - then.packets, bytes: self.bytes - then.bytes, ..self }
    }

    /// Returns the bytes of the frames without virtio-net headers. A faulty backend may report
    /// packets that are shorter than a header.
    fn frame_bytes(self) -> u64 {
        self.bytes.saturating_sub(u64::from(HEADER_LEN).saturating_mul(self.packets))
    }
}

/// Counters of the time between two points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) counters: [Count; 2],
    pub(super) work: Work,
    pub(super) secs: f64,
}

/// Counters of the entire run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    pub(super) received: [u64; 2],
    pub(super) sent: [u64; 2],
    pub(super) lost: Option<u64>,
    pub(super) verified: u64,
    pub(super) kicks: u64,
    pub(super) lines: Lines,
}

/// The cache lines of packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lines {
    pub(super) packets: u64,
    pub(super) lines: u64,
    pub(super) touched: u64,
}

impl ReflectorReport {
    /// Makes the report of a valid trial: packets have the right size and come from both ports.
    pub(super) fn new(
        options: &ReflectorOptions,
        ports: &[Connection; 2],
        window: Window,
        totals: Totals,
    ) -> anyhow::Result<ReflectorReport> {
        let [a, b] = window.counters;
        let sockets = [0, 1].map(|at: usize| ports[at].socket.display());
        let expected = [0, 1].map(|at| options.load.comes_by(at));
        validity::balance([a.packets, b.packets], expected, [&sockets[0], &sockets[1]]).demand()?;
        let packets = a.packets + b.packets;
        let bytes = a.frame_bytes() + b.frame_bytes();
        let longest = a.longest.max(b.longest).saturating_sub(HEADER_LEN);
        let frame_bytes = float(bytes) / float(packets);
        validity::lengths(longest, bytes, packets, &options.sizes).demand()?;
        let port = |at: usize| PortReport {
            socket: ports[at].socket.display().to_string(),
            mpps: float(window.counters[at].packets) / window.secs / 1e6,
            gbit_per_s: gbit(window.counters[at], window.secs),
            rx_packets: totals.received[at],
            tx_packets: totals.sent[at],
        };
        Ok(ReflectorReport {
            mpps: float(packets) / window.secs / 1e6,
            gbit_per_s: gbit(a, window.secs) + gbit(b, window.secs),
            guest_cycles_per_packet: window.work.cycles_per_packet().unwrap_or(0.0),
            packets_per_turn: window.work.packets_per_turn().unwrap_or(0.0),
            frame_bytes,
            lines_per_packet: float(totals.lines.lines) / float(totals.lines.packets.max(1)),
            touched_lines_per_packet: float(totals.lines.touched) / float(totals.lines.packets.max(1)),
            secs: window.secs,
            ports: [port(0), port(1)],
            lost: totals.lost,
            verified: totals.verified,
            kicks: totals.kicks,
            load: options.load.name(),
            touch: options.touch.name(),
            ring: options.ports.layout.name(),
            sizes: options.sizes.to_string(),
            queue_size: options.ports.queue_size,
            buffer_len: options.buffer(),
            huge_pages: options.ports.huge_pages,
            features: f::names(ports[0].features & ports[1].features).collect(),
        })
    }
}

impl fmt::Display for ReflectorReport {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReflectorReport { load, touch, ring, queue_size, sizes, .. } = self;
        writeln!(to, "{load}, touch {touch}, {ring} rings of {queue_size}, frames of {sizes} bytes")?;
        for port in &self.ports {
            writeln!(to, "{:>9.3} Mpps {:>8.2} Gbit/s  from {}", port.mpps, port.gbit_per_s, port.socket)?;
        }
        writeln!(to, "{:>9.3} Mpps {:>8.2} Gbit/s  together", self.mpps, self.gbit_per_s)?;
        writeln!(
            to,
            "guest: {:.1} cycles a packet, {:.1} packets a turn; mean received frame: {:.1} bytes",
            self.guest_cycles_per_packet, self.packets_per_turn, self.frame_bytes
        )?;
        match self.lost {
            Some(lost) => writeln!(to, "{lost} lost, {} compared with what was sent", self.verified),
            None => writeln!(to, "{} compared with what was sent", self.verified),
        }
    }
}

fn gbit(count: Count, secs: f64) -> f64 {
    float(count.frame_bytes()) * 8.0 / secs / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_without_a_header_are_of_no_bytes() {
        for (packets, bytes, frames) in [(3, 3 * 76, 192), (3, 36, 0), (3, 35, 0), (3, 0, 0)] {
            assert_eq!(Count { packets, bytes, longest: 0 }.frame_bytes(), frames);
        }
    }
}

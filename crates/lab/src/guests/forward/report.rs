//! Results of a guest.

use std::fmt;

use serde::Serialize;
use straightline_graph::clock::hertz;
use straightline_guest::endpoints::Work;
use straightline_virtio::features as f;

use super::{ForwardOptions, Forwarder};
use crate::convert::float;

/// Results of one port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortReport {
    /// The socket of the port's backend.
    pub socket: String,
    /// Received packets.
    pub rx_packets: u64,
    /// Bytes of their frames.
    pub rx_bytes: u64,
    /// Sent packets.
    pub tx_packets: u64,
    /// Bytes of their frames.
    pub tx_bytes: u64,
    /// Million packets received per second.
    pub rx_mpps: f64,
    /// Million packets sent per second.
    pub tx_mpps: f64,
    /// Received packets that the mode dropped.
    pub dropped: u64,
    /// Packets that were not sent on because they were longer than the port's options allow.
    pub too_long: u64,
    /// Number of kicks that the backend asked for.
    pub kicks: u64,
    /// The negotiated features.
    pub features: Vec<&'static str>,
}

/// Results of a guest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForwardReport {
    /// The forward mode.
    pub mode: &'static str,
    /// The touch policy.
    pub touch: &'static str,
    /// The ring layout.
    pub ring: &'static str,
    /// Seconds from the first packet to the last. Rates are computed over this time.
    pub secs: f64,
    /// Cycles of the time-stamp counter per received packet, or per sent packet if no packet is
    /// received. Only turns that moved packets count.
    pub cycles_per_packet: f64,
    /// Packets per turn, counting only turns that moved packets.
    pub packets_per_turn: f64,
    /// The ports, in the order in which the backends were given.
    pub ports: Vec<PortReport>,
    /// Counters that only this mode has.
    pub notes: Vec<(&'static str, u64)>,
}

impl ForwardReport {
    pub(super) fn new(options: &ForwardOptions, guest: &dyn Forwarder, work: Work) -> ForwardReport {
        let secs = work.span.map_or(0.0, |(first, last)| float(last.saturating_sub(first)) / hertz());
        let mpps = |packets: u64| if secs > 0.0 { float(packets) / secs / 1e6 } else { 0.0 };
        let port = |port: &straightline_guest::endpoints::VhostPort| {
            let counters = port.counters();
            PortReport {
                socket: port.socket().display().to_string(),
                rx_packets: counters.rx_packets,
                rx_bytes: counters.rx_bytes,
                tx_packets: counters.tx_packets,
                tx_bytes: counters.tx_bytes,
                rx_mpps: mpps(counters.rx_packets),
                tx_mpps: mpps(counters.tx_packets),
                dropped: counters.dropped,
                too_long: counters.too_long,
                kicks: counters.kicks,
                features: f::names(port.features()).collect(),
            }
        };
        ForwardReport {
            mode: options.mode.name(),
            touch: options.touch.name(),
            ring: options.ports.layout.name(),
            secs,
            cycles_per_packet: work.cycles_per_packet().unwrap_or(0.0),
            packets_per_turn: work.packets_per_turn().unwrap_or(0.0),
            ports: guest.ports().into_iter().map(port).collect(),
            notes: guest.notes(),
        }
    }
}

impl fmt::Display for ForwardReport {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "{}, touch {}, {} rings, {:.3} s of packets", self.mode, self.touch, self.ring, self.secs)?;
        for port in &self.ports {
            writeln!(to, "{}", port.socket)?;
            writeln!(
                to,
                "  rx {:>9.3} Mpps {:>12} packets {:>15} bytes",
                port.rx_mpps, port.rx_packets, port.rx_bytes
            )?;
            writeln!(
                to,
                "  tx {:>9.3} Mpps {:>12} packets {:>15} bytes",
                port.tx_mpps, port.tx_packets, port.tx_bytes
            )?;
            if port.dropped > 0 {
                writeln!(to, "  {} dropped by the mode", port.dropped)?;
            }
            if port.too_long > 0 {
                writeln!(to, "  {} dropped because they need several buffers: raise --longest", port.too_long)?;
            }
        }
        for (name, count) in &self.notes {
            writeln!(to, "{count} {name}")?;
        }
        writeln!(to, "{:.1} cycles a packet, {:.1} packets a turn", self.cycles_per_packet, self.packets_per_turn)
    }
}

//! A guest with testpmd's forward modes, under the same names. Options set how many bytes of each
//! packet the guest touches in addition.
//!
//! Packets that come on one port leave through the other one; a guest with one port returns them. A
//! packet stays in its buffer.
//!
//! | file | holds |
//! |---|---|
//! | `options` | options of a guest |
//! | `engine` | the guest that forwards packets in any mode |
//! | `io`, `mac`, `macswap`, `five_tuple`, `icmpecho`, `csum`, `noisy` | modes that forward |
//! | `rxonly`, `txonly`, `flowgen` | modes that do not forward, the last two over any [`TestPort`](straightline_guest::endpoints::TestPort) |
//! | `wire` | a guest as a wire between two ports, with the rate of a line |
//! | `trace` | a guest that counts the cache lines of packets |
//! | `report` | results |

mod csum;
mod engine;
mod five_tuple;
mod flowgen;
mod icmpecho;
mod io;
mod mac;
mod macswap;
mod noisy;
mod options;
mod report;
mod rxonly;
#[cfg(test)]
mod tests;
mod trace;
mod txonly;
mod wire;

use std::path::PathBuf;

use az::SaturatingAs;

use anyhow::{Context, ensure};
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};

pub use crate::guests::touch::Touch;
use engine::Relay;
pub use options::{ForwardOptions, Mode, Noise, Spread};
pub use report::{ForwardReport, PortReport};
use straightline_guest::endpoints::{Endpoint, EventLoop, VhostPort};
pub(crate) use wire::{LINE_OVERHEAD, Meter, Passed, Wire};

/// The most packets that are taken from a ring at once.
const BURST: usize = 64;

/// A running guest and its counters.
pub trait Forwarder: Endpoint {
    /// Returns the guest's ports, with their counters.
    fn ports(&self) -> Vec<&VhostPort>;

    /// Returns the counters that only this mode has: name and value.
    fn notes(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Makes a guest on one or two ports. Two ports must come from one call of
/// [`VhostPort::connect_all`].
///
/// # Errors
/// The number of ports is not 1 or 2, the options are not possible, or the mode lacks a resource.
pub fn guest(ports: Vec<VhostPort>, options: &ForwardOptions) -> anyhow::Result<Box<dyn Forwarder>> {
    ensure!((1..=2).contains(&ports.len()), "a guest has one or two ports, not {}", ports.len());
    options.check()?;
    let touch = options.touch;
    Ok(match options.mode {
        Mode::Io => Box::new(Relay::new(ports, touch, io::Io)),
        Mode::Mac => Box::new(Relay::new(ports, touch, mac::Mac)),
        Mode::MacSwap => Box::new(Relay::new(ports, touch, macswap::MacSwap)),
        Mode::FiveTupleSwap => Box::new(Relay::new(ports, touch, five_tuple::FiveTupleSwap)),
        Mode::RxOnly => Box::new(rxonly::RxOnly::new(ports, touch)),
        Mode::TxOnly => Box::new(txonly::TxOnly::new(ports, options.size)?),
        Mode::FlowGen => Box::new(flowgen::FlowGen::new(ports, options.size, options.flows, options.spread)?),
        Mode::IcmpEcho => Box::new(Relay::new(ports, touch, icmpecho::IcmpEcho::default())),
        Mode::Csum => Box::new(Relay::new(ports, touch, csum::Csum::new())),
        Mode::Noisy => Box::new(Relay::new(ports, touch, noisy::Noisy::new(options.noise)?)),
    })
}

/// Makes a guest that forwards packets unchanged and touches them by this policy. The guest counts
/// the cache lines of packets, header included, and those of them that it touched. It counts by the
/// addresses and lengths of the packets' buffers.
pub(crate) fn traced(ports: Vec<VhostPort>, touch: Touch) -> Box<dyn Forwarder> {
    Box::new(Relay::new(ports, touch, trace::Trace::new(touch)))
}

/// Connects a guest to these backends and runs it in this event loop. If the run ends with an error,
/// for example because a backend went away, the report is returned beside the error.
///
/// # Errors
/// A resource is not available, or a backend refused something.
pub fn run(
    backends: &[PathBuf],
    options: &ForwardOptions,
    events: &EventLoop<'_>,
) -> anyhow::Result<(ForwardReport, anyhow::Result<()>)> {
    let ports = VhostPort::connect_all(backends, &options.ports)?;
    let mut guest = guest(ports, options)?;
    let (work, ended) = events.run(&mut [&mut *guest]);
    Ok((ForwardReport::new(options, &*guest, work.first().copied().unwrap_or_default()), ended.map(drop)))
}

/// Returns the address of our port `number`.
fn own(number: usize) -> MacAddr {
    MacAddr([2, 0x53, 0x4c, 0, 0, number.saturating_as::<u8>()])
}

/// Returns the address of the peer at port `number`: testpmd's default.
fn peer(number: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number.saturating_as::<u8>()])
}

/// Returns a UDP frame without a checksum, sent by port `number`.
fn udp_frame(number: usize, net: Net, [src_port, dst_port]: [u16; 2], size: u16) -> anyhow::Result<Vec<u8>> {
    let transport = Transport::Udp { src_port, dst_port };
    let src = own(number);
    let dst = peer(number);
    let mut frame = Frame { src, dst, tags: [None, None], net, transport, payload_len: 0 };
    let payload = usize::from(size).checked_sub(frame.headers_len());
    let payload = payload.with_context(|| format!("a frame of {size} bytes is too short for its headers"))?;
    frame.payload_len = u16::try_from(payload)?;
    let mut bytes = vec![0; size.into()];
    frame.emit(&mut bytes, Checksum::Zero)?;
    Ok(bytes)
}

//! A guest that does with packets what testpmd's forward modes do, by their names, and touches as much of them as it is told.
//!
//! A packet stays in its buffer: what comes by one port goes by the other, or back by the only one.
//!
//! | file | holds |
//! |---|---|
//! | `options` | what can be asked for |
//! | `engine` | the guest that hands packets on, whatever the mode does with them |
//! | `touch` | what of each packet is read and written besides |
//! | `io`, `mac`, `macswap`, `five_tuple`, `icmpecho`, `csum`, `noisy` | modes that hand on |
//! | `rxonly`, `txonly`, `flowgen` | modes that do not, the last two over any [`TestPort`](crate::tester::TestPort) |
//! | `trace` | a guest that says in which cache lines packets are |
//! | `report` | what came of it |

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
mod touch;
mod trace;
mod txonly;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, ensure};
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};

use crate::endpoints::{Endpoint, VhostPort, drive};
use engine::Relay;
pub use options::{Mode, Noise, Options, Touch};
pub use report::{ForwardReport, PortReport};

/// The most packets that are taken from a ring at once.
const BURST: usize = 64;

/// A guest at work, and what it has counted.
pub trait Forwarder: Endpoint {
    /// Its ports, with their counts.
    fn ports(&self) -> Vec<&VhostPort>;

    /// What only this mode counts: a name, and how many.
    fn notes(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A guest on one or two ports, which have been made together ([`VhostPort::connect_all`]).
///
/// # Errors
/// There are none, or more; the options cannot be; or what the mode needs cannot be had.
pub fn guest(ports: Vec<VhostPort>, options: &Options) -> anyhow::Result<Box<dyn Forwarder>> {
    ensure!((1..=2).contains(&ports.len()), "a guest has one port or two, not {}", ports.len());
    options.check()?;
    let touch = options.touch;
    Ok(match options.mode {
        Mode::Io => Box::new(Relay::new(ports, touch, io::Io)),
        Mode::Mac => Box::new(Relay::new(ports, touch, mac::Mac)),
        Mode::MacSwap => Box::new(Relay::new(ports, touch, macswap::MacSwap)),
        Mode::FiveTupleSwap => Box::new(Relay::new(ports, touch, five_tuple::FiveTupleSwap)),
        Mode::RxOnly => Box::new(rxonly::RxOnly::new(ports, touch)),
        Mode::TxOnly => Box::new(txonly::TxOnly::new(ports, options.size)?),
        Mode::FlowGen => Box::new(flowgen::FlowGen::new(ports, options.size, options.flows)?),
        Mode::IcmpEcho => Box::new(Relay::new(ports, touch, icmpecho::IcmpEcho::default())),
        Mode::Csum => Box::new(Relay::new(ports, touch, csum::Csum::new())),
        Mode::Noisy => Box::new(Relay::new(ports, touch, noisy::Noisy::new(options.noise)?)),
    })
}

/// A guest that hands packets on as they are, touches so much of each, and notes in which cache lines of its memory they were,
/// header included, and which of these it touched: by the addresses and lengths of their buffers.
pub(crate) fn traced(ports: Vec<VhostPort>, touch: Touch) -> Box<dyn Forwarder> {
    Box::new(Relay::new(ports, touch, trace::Trace::new(touch)))
}

/// Connects a guest to these backends and has it work until `stop` is set, on this CPU, where one is named. What it counted
/// is reported also where it ends with an error: a backend that went away.
///
/// # Errors
/// What could not be had, or what a backend refused.
pub fn run(
    backends: &[PathBuf],
    options: &Options,
    cpu: Option<usize>,
    stop: &AtomicBool,
) -> anyhow::Result<(ForwardReport, anyhow::Result<()>)> {
    let ports = VhostPort::connect_all(backends, &options.ports)?;
    let mut guest = guest(ports, options)?;
    let (work, ended) = drive(&mut [&mut *guest], cpu, stop);
    Ok((ForwardReport::new(options, &*guest, work.first().copied().unwrap_or_default()), ended))
}

/// The address of our port `number`.
fn own(number: usize) -> MacAddr {
    MacAddr([2, 0x53, 0x4c, 0, 0, u8::try_from(number).unwrap_or(u8::MAX)])
}

/// The address of whoever is behind port `number`, as testpmd has it where nobody says otherwise.
fn peer(number: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, u8::try_from(number).unwrap_or(u8::MAX)])
}

/// A frame of UDP without a checksum, that port `number` sends.
fn udp_frame(number: usize, net: Net, [src_port, dst_port]: [u16; 2], size: u16) -> anyhow::Result<Vec<u8>> {
    let transport = Transport::Udp { src_port, dst_port };
    let (src, dst) = (own(number), peer(number));
    let mut frame = Frame { src, dst, tags: [None, None], net, transport, payload_len: 0 };
    let payload = usize::from(size).checked_sub(frame.headers_len());
    let payload = payload.with_context(|| format!("a frame of {size} bytes is too short for its headers"))?;
    frame.payload_len = u16::try_from(payload)?;
    let mut bytes = vec![0; size.into()];
    frame.emit(&mut bytes, Checksum::Zero)?;
    Ok(bytes)
}

//! `flowgen`: sends UDP frames of many flows in turn, and drops received packets.

use std::net::Ipv4Addr;

use anyhow::{Context, ensure};
use straightline_guest::endpoints::{Endpoint, Received, TestPort, VhostPort};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::frame::Net;

use super::{BURST, Forwarder, Spread, udp_frame};

/// Offset of the IPv4 header, and that of the bytes in which flows differ: its checksum, the addresses, and
/// the ports of UDP.
const IP: usize = 14;
const FLOW: usize = IP + 10;

/// The bytes in which flows differ.
type FlowBytes = [u8; 14];

/// The number of flows of [`Spread::Prefixes`]: a bit of each address and one of the destination port.
const PREFIXES: usize = 32 * 32 * 16;

pub(super) struct FlowGen<P> {
    pub(super) ports: Vec<Port<P>>,
}

pub(super) struct Port<P> {
    pub(super) port: P,
    frame: Vec<u8>,
    flows: Vec<FlowBytes>,
    next: usize,
}

impl<P: TestPort> FlowGen<P> {
    /// Makes a generator for `flows` flows. With [`Spread::Prefixes`], only the first port sends several.
    pub(super) fn new(ports: Vec<P>, size: u16, flows: u16, spread: Spread) -> anyhow::Result<Self> {
        ensure!(flows > 0, "the number of flows must be at least 1");
        let ports = ports.into_iter().enumerate().map(|(number, port)| {
            let count = match spread {
                Spread::Prefixes if number > 0 => 1,
                Spread::Prefixes => usize::from(flows).min(PREFIXES),
                Spread::Destinations => usize::from(flows),
            };
            let frame = udp_frame(number, net(0, spread), port_numbers(0, spread), size)?;
            let flows = (0..count).map(|flow| {
                let frame = udp_frame(number, net(flow, spread), port_numbers(flow, spread), size)?;
                Ok(*frame[FLOW..].first_chunk().context("the headers of UDP")?)
            });
            Ok(Port { port, frame, flows: flows.collect::<anyhow::Result<_>>()?, next: 0 })
        });
        Ok(FlowGen { ports: ports.collect::<anyhow::Result<_>>()? })
    }
}

/// Returns the addresses of a flow.
fn net(flow: usize, spread: Spread) -> Net {
    let flow = u32::try_from(flow).unwrap_or(0);
    let [src, dst] = match spread {
        Spread::Destinations => [0, flow],
        Spread::Prefixes => [1 << (flow % 32), 1 << (flow / 32 % 32)],
    };
    Net::v4(Ipv4Addr::from_bits(0x0afe_0000 ^ src), Ipv4Addr::from_bits(0x0afd_0000 ^ dst))
}

/// Returns the ports of a flow.
fn port_numbers(flow: usize, spread: Spread) -> [u16; 2] {
    match spread {
        Spread::Destinations => [1000, 1001],
        Spread::Prefixes => [1000, 1001 ^ 1 << (flow / 1024 % 16)],
    }
}

impl<P: TestPort> Endpoint for FlowGen<P> {
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let mut packets = 0;
        for Port { port, frame, flows, next } in &mut self.ports {
            packets += port.receive(BURST, &mut |_: &dyn Received| {})?;
            for _ in 0..port.free_buffers().min(BURST) {
                if !port.send(0, &NetHeader::default(), frame, &[(FLOW, &flows[*next])]) {
                    break;
                }
                packets += 1;
                *next = if *next + 1 == flows.len() { 0 } else { *next + 1 };
            }
            port.flush()?;
        }
        Ok(packets)
    }

    fn wake(&mut self) {
        self.ports.iter_mut().for_each(|port| port.port.wake());
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.ports.iter_mut().try_for_each(|port| port.port.check())
    }
}

impl Forwarder for FlowGen<VhostPort> {
    fn ports(&self) -> Vec<&VhostPort> {
        self.ports.iter().map(|port| &port.port).collect()
    }
}

//! `flowgen`: sends UDP frames to many destinations in turn, and drops received packets.

use std::net::Ipv4Addr;

use anyhow::ensure;
use straightline_guest::endpoints::{Endpoint, Received, TestPort, VhostPort};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::checksum;
use straightline_wire::frame::Net;

use super::{BURST, Forwarder, udp_frame};

/// Offsets of the IPv4 header, of its checksum, and of the low half of its destination.
const IP: usize = 14;
const CHECKSUM: usize = IP + 10;
const DESTINATION: usize = IP + 18;

pub(super) struct FlowGen<P> {
    pub(super) ports: Vec<Port<P>>,
    flows: u16,
}

pub(super) struct Port<P> {
    pub(super) port: P,
    frame: Vec<u8>,
    /// The sum of the IPv4 header without destination and checksum.
    sum: u16,
    next: u16,
}

impl<P: TestPort> FlowGen<P> {
    /// Makes a generator for `flows` destinations, from 10.253.0.0 on.
    pub(super) fn new(ports: Vec<P>, size: u16, flows: u16) -> anyhow::Result<Self> {
        ensure!(flows > 0, "the number of flows must be at least 1");
        let net = Net::v4(Ipv4Addr::new(10, 254, 0, 0), Ipv4Addr::new(10, 253, 0, 0));
        let ports = ports.into_iter().enumerate().map(|(number, port)| {
            let frame = udp_frame(number, net, [1000, 1001], size)?;
            let mut header = frame[IP..IP + 20].to_vec();
            header[CHECKSUM - IP..][..2].fill(0);
            Ok(Port { port, sum: checksum::sum(&header), frame, next: 0 })
        });
        Ok(FlowGen { ports: ports.collect::<anyhow::Result<_>>()?, flows })
    }
}

impl<P: TestPort> Endpoint for FlowGen<P> {
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let mut packets = 0;
        for Port { port, frame, sum, next } in &mut self.ports {
            packets += port.receive(BURST, &mut |_: &dyn Received| {})?;
            for _ in 0..port.free_buffers().min(BURST) {
                let check = !checksum::add(*sum, *next);
                let patches: [(usize, &[u8]); 2] =
                    [(CHECKSUM, &check.to_be_bytes()), (DESTINATION, &next.to_be_bytes())];
                if !port.send(0, &NetHeader::default(), frame, &patches) {
                    break;
                }
                packets += 1;
                *next = if *next == self.flows - 1 { 0 } else { *next + 1 };
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

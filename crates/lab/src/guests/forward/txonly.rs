//! `txonly`: sends UDP frames without pause, and receives nothing. Addresses and ports are
//! testpmd's.

use std::net::Ipv4Addr;

use straightline_guest::endpoints::{Endpoint, TestPort, VhostPort};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::frame::Net;

use super::{BURST, Forwarder, udp_frame};

pub(super) struct TxOnly<P> {
    pub(super) ports: Vec<P>,
    /// The frame of each port.
    frames: Vec<Vec<u8>>,
}

impl<P: TestPort> TxOnly<P> {
    pub(super) fn new(ports: Vec<P>, size: u16) -> anyhow::Result<Self> {
        let net = Net::v4(Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2));
        let frames = (0..ports.len()).map(|number| udp_frame(number, net, [9, 9], size));
        Ok(TxOnly { frames: frames.collect::<anyhow::Result<_>>()?, ports })
    }
}

impl<P: TestPort> Endpoint for TxOnly<P> {
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let mut packets = 0;
        for (port, frame) in self.ports.iter_mut().zip(&self.frames) {
            let burst = port.free_buffers().min(BURST);
            packets += (0..burst).take_while(|_| port.send(0, &NetHeader::default(), frame, &[])).count();
            port.flush()?;
        }
        Ok(packets)
    }

    fn wake(&mut self) {
        self.ports.iter_mut().for_each(TestPort::wake);
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.ports.iter_mut().try_for_each(TestPort::check)
    }
}

impl Forwarder for TxOnly<VhostPort> {
    fn ports(&self) -> Vec<&VhostPort> {
        self.ports.iter().collect()
    }
}

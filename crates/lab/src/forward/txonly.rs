//! `txonly`: frames of UDP are sent without pause, and nothing is received. Addresses and ports are testpmd's.

use std::net::Ipv4Addr;

use anyhow::Context;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};

use super::{BURST, Forwarder, own, peer};
use crate::tester::{Actor, TestPort, VhostPort};

pub(super) struct TxOnly<P> {
    ports: Vec<P>,
    /// Of each port.
    frames: Vec<Vec<u8>>,
}

impl<P: TestPort> TxOnly<P> {
    pub(super) fn new(ports: Vec<P>, size: u16) -> anyhow::Result<Self> {
        let frames = (0..ports.len()).map(|number| {
            let (src_port, dst_port) = (9, 9);
            let mut frame = Frame {
                src: own(number),
                dst: peer(number),
                tags: [None, None],
                net: Net::v4(Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)),
                transport: Transport::Udp { src_port, dst_port },
                payload_len: 0,
            };
            let payload = usize::from(size).checked_sub(frame.headers_len());
            let payload = payload.with_context(|| format!("a frame of {size} bytes is too short for its headers"))?;
            frame.payload_len = u16::try_from(payload)?;
            let mut bytes = vec![0; size.into()];
            frame.emit(&mut bytes, Checksum::Zero)?;
            Ok(bytes)
        });
        Ok(TxOnly { frames: frames.collect::<anyhow::Result<_>>()?, ports })
    }
}

impl<P: TestPort> Actor for TxOnly<P> {
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let mut packets = 0;
        for (port, frame) in self.ports.iter_mut().zip(&self.frames) {
            let burst = port.room().min(BURST);
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
    fn ports(&self) -> &[VhostPort] {
        &self.ports
    }
}

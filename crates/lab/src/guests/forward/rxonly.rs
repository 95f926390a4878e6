//! `rxonly`: touches received packets by the touch policy, counts them, and drops them.

use straightline_guest::endpoints::{Endpoint, Received, TestPort, VhostPort};

use super::{BURST, Forwarder, Touch};
use crate::guests::touch::Toucher;

pub(super) struct RxOnly {
    ports: Vec<VhostPort>,
    toucher: Toucher,
    touched: u64,
}

impl RxOnly {
    pub(super) fn new(ports: Vec<VhostPort>, touch: Touch) -> Self {
        RxOnly { ports, toucher: Toucher::new(touch), touched: 0 }
    }
}

impl Endpoint for RxOnly {
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let RxOnly { ports, toucher, touched } = self;
        let mut packets = 0;
        for port in ports {
            packets += if toucher.touch == Touch::None {
                port.receive(BURST, &mut |_: &dyn Received| {})?
            } else {
                port.take(BURST, |packet| {
                    toucher.apply(packet);
                    *touched += 1;
                })?
            };
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

impl Forwarder for RxOnly {
    fn ports(&self) -> Vec<&VhostPort> {
        self.ports.iter().collect()
    }

    fn notes(&self) -> Vec<(&'static str, u64)> {
        if self.toucher.touch == Touch::None { Vec::new() } else { vec![("packets touched", self.touched)] }
    }
}

//! `rxonly`: what comes is counted and dropped.

use super::{BURST, Forwarder};
use crate::tester::{Actor, TestPort, VhostPort};

pub(super) struct RxOnly<P> {
    ports: Vec<P>,
}

impl<P: TestPort> RxOnly<P> {
    pub(super) fn new(ports: Vec<P>) -> Self {
        RxOnly { ports }
    }
}

impl<P: TestPort> Actor for RxOnly<P> {
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let mut packets = 0;
        for port in &mut self.ports {
            packets += port.receive(BURST, &mut |_| {})?;
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

impl Forwarder for RxOnly<VhostPort> {
    fn ports(&self) -> Vec<&VhostPort> {
        self.ports.iter().collect()
    }
}

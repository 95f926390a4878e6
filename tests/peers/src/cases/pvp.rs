//! DPDK's test plans with traffic from outside. Two embedded guests send numbered packets by the
//! ports `a` and `b`. One or two testpmd guests between them forward the packets to the other end.
//! Their ports are clients: testpmd listens.

use anyhow::{Result, ensure};
use straightline_virtio::features as f;

use super::embedded_guest;
use crate::guest_pair::GuestPair;
use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::{Test, beside_others};
use crate::switch::{Join, Port, Switch};
use crate::testpmd::Testpmd;

/// The ring layout of all guests, as arguments of DPDK.
#[derive(Clone, Copy)]
struct Layout {
    ring: &'static str,
    device: &'static str,
}

const SPLIT: Layout = Layout { ring: "split", device: ",in_order=0" };
const PACKED: Layout = Layout { ring: "packed", device: ",packed_vq=1,in_order=0" };
const VECTORISED: Layout = Layout { ring: "packed", device: ",packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1" };

/// The ports of each testpmd guest.
const GUESTS: [[&str; 2]; 2] = [["c", "d"], ["e", "f"]];

pub(super) fn tests() -> Vec<Test> {
    let mut tests = vec![Test::new("virtio_smoke+pvp_packed_vectorised", &[Need::Dpdk], smoke)];
    for layout in [SPLIT, PACKED] {
        for (count, guests) in [(1, "a_guest"), (2, "two_guests")] {
            let name = format!("pvp_vhost_user_reconnect+{}_{guests}", layout.ring);
            tests.push(Test::new(&name, &[Need::Dpdk], move |lab| reconnect(lab, layout, count)));
        }
    }
    beside_others(tests)
}

/// The smallest and the largest frame.
fn smoke(lab: &Lab) -> Result<()> {
    let mut testbed = Testbed::start(lab, VECTORISED, 1)?;
    testbed.exchange(2000, &[60])?;
    testbed.exchange(2000, &[1514])?;
    testbed.end()
}

/// The switch ends or is killed, and starts again, several times. Then the testpmd guests do the
/// same. Traffic continues each time.
fn reconnect(lab: &Lab, layout: Layout, guests: usize) -> Result<()> {
    let (restarts, reboots) = if lab.machine.long { (8, 5) } else { (2, 2) };
    let mut testbed = Testbed::start(lab, layout, guests)?;
    testbed.exchange(500, &LENS)?;
    for round in 0..restarts {
        testbed.restart_switch(round % 2 == 1)?;
        testbed.exchange(500, &LENS)?;
    }
    for round in 0..reboots {
        testbed.restart_guests(round % 2 == 1)?;
        testbed.exchange(500, &LENS)?;
    }
    testbed.end()
}

/// Lengths of the embedded guests' frames.
const LENS: [usize; 4] = [60, 566, 1514, 1000];

/// The switch, the testpmd guests, and the two embedded guests at the ends.
struct Testbed<'lab> {
    lab: &'lab Lab<'lab>,
    layout: Layout,
    switch: Switch<'lab>,
    guests: Vec<Testpmd>,
    ends: GuestPair,
}

impl<'lab> Testbed<'lab> {
    fn start(lab: &'lab Lab<'_>, layout: Layout, guests: usize) -> Result<Self> {
        let names: Vec<&str> = ["a"].into_iter().chain(GUESTS[..guests].concat()).chain(["b"]).collect();
        let port = |name| Port { client: name != "a" && name != "b", packed: Some(true), ..Port::new(name) };
        let ports: Vec<Port> = names.into_iter().map(port).collect();
        let switch = Switch::start(lab, &ports, Join::Patch)?;
        let guests = (0..guests).map(|at| guest(lab, layout, at)).collect::<Result<_>>()?;
        let packed = if layout.ring == "packed" { f::VIRTIO_F_RING_PACKED } else { 0 };
        let ends = embedded_guest::connect(lab, &embedded_guest::options(packed | f::VIRTIO_NET_F_MRG_RXBUF, 1))?;
        let testbed = Self { lab, layout, switch, guests, ends };
        testbed.wait_links()?;
        Ok(testbed)
    }

    /// Sends packets in both directions. All arrive, in order and unchanged. None is dropped, and
    /// both outer ports have the same counts.
    fn exchange(&mut self, count: u64, lens: &[usize]) -> Result<()> {
        self.ends.exchange(count, lens)?;
        let ports = self.switch.ports()?;
        ensure!(ports.iter().all(|port| port.dropped() == 0), "packets were dropped: {ports:?}");
        let [a, b] = [self.switch.port("a")?, self.switch.port("b")?];
        ensure!(
            a.rx() == b.tx() && b.rx() == a.tx(),
            "the packets received by one end are not those delivered to the other: {a:?}, {b:?}"
        );
        ensure!(
            a.rx().packets >= count && b.rx().packets >= count,
            "an end counts fewer than {count} packets: {a:?}, {b:?}"
        );
        Ok(())
    }

    /// Ends or kills the switch, and starts it again.
    ///
    /// Guests with packed rings do not poll meanwhile. DPDK resets their rings when the switch comes
    /// back, and waits 1 ms for its polling thread to leave them. On few CPUs that thread may be
    /// descheduled for longer. It then fills a ring that was just filled, and DPDK reports a
    /// "vring descriptor with no mbuf cookie".
    fn restart_switch(&mut self, kill: bool) -> Result<()> {
        let is_packed = self.layout.ring == "packed";
        for testpmd in self.guests.iter_mut().filter(|_| is_packed) {
            testpmd.command("stop", "Done.")?;
        }
        if kill {
            self.switch.kill()?
        } else {
            self.switch.end()?
        }
        self.switch.start_again()?;
        for (end, port) in self.ends.guests.iter_mut().zip(["a", "b"]) {
            end.reconnect(&self.lab.socket(port))?;
        }
        self.wait_links()?;
        for testpmd in self.guests.iter_mut().filter(|_| is_packed) {
            testpmd.command("start", "io packet forwarding")?;
        }
        Ok(())
    }

    fn restart_guests(&mut self, kill: bool) -> Result<()> {
        let count = self.guests.len();
        for testpmd in self.guests.drain(..) {
            if kill { testpmd.kill()? } else { testpmd.quit()? }
        }
        for name in GUESTS[..count].concat() {
            self.switch.wait_link(name, "down")?;
        }
        self.guests = (0..count).map(|at| guest(self.lab, self.layout, at)).collect::<Result<_>>()?;
        self.wait_links()
    }

    fn wait_links(&self) -> Result<()> {
        for port in self.switch.ports()? {
            let port = self.switch.wait_link(&port.name, "up")?;
            ensure!(port.ring.as_deref() == Some(self.layout.ring), "ring of port {} is {:?}", port.name, port.ring);
        }
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        for testpmd in self.guests.drain(..) {
            testpmd.quit()?;
        }
        self.switch.stop()
    }
}

fn guest(lab: &Lab, layout: Layout, at: usize) -> Result<Testpmd> {
    Testpmd::forwarder(lab, u32::try_from(at)?, GUESTS[at], layout.device)
}

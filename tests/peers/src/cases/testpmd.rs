//! DPDK's testpmd with two virtio-user ports on a patch, for every path of its driver through a
//! ring. Sizes and counts must be right, and nothing may be lost. Tests that DPDK has a test plan
//! for have its name.

use anyhow::{Result, ensure};

use crate::lab::Lab;
use crate::machine::{Need, two_workers};
use crate::proc;
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{Count, Join, Port, PortStatus, Switch};
use crate::testpmd::{PortStats, Testpmd};

/// A path of the virtio-user driver through its rings, as DPDK calls it.
#[derive(Clone, Copy)]
struct DriverPath {
    name: &'static str,
    /// Arguments of the virtio-user device.
    device: &'static str,
}

impl DriverPath {
    fn is_packed(self) -> bool {
        self.device.contains("packed_vq=1")
    }

    fn is_mergeable(self) -> bool {
        !self.device.contains("mrg_rxbuf=0")
    }
}

const SPLIT: DriverPath = DriverPath { name: "split", device: ",in_order=0" };
const PACKED: DriverPath = DriverPath { name: "packed", device: ",packed_vq=1,in_order=0" };
const VECTORISED: DriverPath =
    DriverPath { name: "packed_vectorised", device: ",packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1" };

const PATHS: [DriverPath; 9] = [
    SPLIT,
    DriverPath { name: "split_not_mergeable", device: ",mrg_rxbuf=0,in_order=0" },
    DriverPath { name: "split_vectorised", device: ",mrg_rxbuf=0,in_order=0,vectorized=1" },
    DriverPath { name: "split_in_order", device: ",in_order=1" },
    DriverPath { name: "split_in_order_not_mergeable", device: ",in_order=1,mrg_rxbuf=0" },
    PACKED,
    DriverPath { name: "packed_not_mergeable", device: ",packed_vq=1,mrg_rxbuf=0,in_order=0" },
    DriverPath { name: "packed_in_order", device: ",packed_vq=1,in_order=1" },
    VECTORISED,
];

/// Frame lengths: the smallest and the largest, one with several cache lines in both head and body,
/// and a jumbo frame.
const SIZES: [&str; 4] = ["64", "570", "1518", "9000"];

/// The lengths above, with the jumbo frame in several buffers.
const IN_BUFFERS: [&str; 4] = ["64", "570", "1518", "2000,2000,2000,2000,1000"];

pub(super) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for path in PATHS {
        let name = format!("loopback_multi_paths_port_restart+{}", path.name);
        tests.push(Test::new(&name, &[Need::Dpdk], move |lab| port_restart(lab, path)));
    }
    for path in [SPLIT, PACKED, VECTORISED] {
        let name = format!("loopback_multi_queues+{}", path.name);
        tests.push(Test::new(&name, &[Need::Dpdk], move |lab| multi_queues(lab, path, &[])));
    }
    for path in [SPLIT, PACKED] {
        let name = format!("loopback_multi_queues_workers+{}", path.name);
        tests.push(Test::new(&name, &[Need::Dpdk], move |lab| multi_queues(lab, path, &two_workers()?)));
    }
    tests.push(Test::new("virtio_smoke+loopback_reconnect", &[Need::Dpdk], smoke_reconnect));
    for path in [SPLIT, PACKED] {
        let name = format!("virtio_user_server_mode+{}", path.name);
        tests.push(Test::new(&name, &[Need::Dpdk], move |lab| server_mode(lab, path)));
    }
    beside_others(tests)
}

/// All sizes. Then the guest's ports are stopped and started, and the first size is sent again.
fn port_restart(lab: &Lab, path: DriverPath) -> Result<()> {
    let (switch, mut guest) = start(lab, path, 1, "")?;
    let sizes = if path.is_mergeable() { IN_BUFFERS } else { SIZES };
    for size in sizes {
        bounce(&switch, &mut guest, size, 1)?;
    }
    guest.restart_ports()?;
    wait_links(&switch, path, 1)?;
    bounce(&switch, &mut guest, sizes[0], 1)?;
    guest.quit()?;
    switch.stop()
}

/// Two queue pairs with as many flows as testpmd makes. Both pairs carry packets in both
/// directions.
fn multi_queues(lab: &Lab, path: DriverPath, cpus: &[u32]) -> Result<()> {
    let (switch, mut guest) = start_on(lab, path, 2, "", cpus)?;
    bounce(&switch, &mut guest, "64", 2)?;
    bounce(&switch, &mut guest, "1518", 2)?;
    for name in ["a", "b"] {
        let queues = switch.port(name)?.by_queue();
        let used = queues.len() == 2 && queues.iter().all(|&(rx, tx)| rx > 0 && tx > 0);
        ensure!(used, "packets received from and delivered to the queue pairs of port {name}: {queues:?}");
    }
    guest.quit()?;
    switch.stop()
}

/// The guest listens, with four in-order queue pairs. The switch ends and starts again. All pairs
/// are used as before, also by bursts of one packet.
fn smoke_reconnect(lab: &Lab) -> Result<()> {
    let path = DriverPath { name: "split_in_order", device: ",in_order=1" };
    let (mut switch, mut guest) = start(lab, path, 4, ",server=1")?;
    for round in 0..2 {
        if round > 0 {
            switch.end()?;
            switch.start_again()?;
            wait_links(&switch, path, 4)?;
        }
        bounce(&switch, &mut guest, "64", 4)?;
        for name in ["a", "b"] {
            let queues = switch.port(name)?.by_queue();
            let used = queues.len() == 4 && queues.iter().all(|&(rx, tx)| rx > 0 && tx > 0);
            ensure!(used, "packets received from and delivered to the queue pairs of port {name}: {queues:?}");
        }
    }
    guest.set_burst(1)?;
    bounce_bursts(&switch, &mut guest, "64", 1, 4)?;
    guest.quit()?;
    switch.stop()
}

/// The guest listens. The switch is killed and started again, and then the guest is restarted.
fn server_mode(lab: &Lab, path: DriverPath) -> Result<()> {
    let (mut switch, mut guest) = start(lab, path, 1, ",server=1")?;
    bounce(&switch, &mut guest, "64", 1)?;
    for _ in 0..2 {
        switch.kill()?;
        switch.start_again()?;
        wait_links(&switch, path, 1)?;
        bounce(&switch, &mut guest, "1518", 1)?;
    }
    guest.quit()?;
    let mut guest = testpmd(lab, path, 1, ",server=1")?;
    wait_links(&switch, path, 1)?;
    bounce(&switch, &mut guest, "570", 1)?;
    guest.quit()?;
    switch.stop()
}

fn start<'lab>(lab: &'lab Lab<'_>, path: DriverPath, queues: u32, more: &str) -> Result<(Switch<'lab>, Testpmd)> {
    start_on(lab, path, queues, more, &[])
}

/// Starts the switch, with workers on these CPUs, and the guest.
fn start_on<'lab>(
    lab: &'lab Lab<'_>,
    path: DriverPath,
    queues: u32,
    more: &str,
    cpus: &[u32],
) -> Result<(Switch<'lab>, Testpmd)> {
    let client = more.contains("server=1");
    let packed = Some(true);
    let ports = ["a", "b"].map(|name| Port { mtu: 9000, client, packed, queues, ..Port::new(name) });
    let switch = Switch::start_on(lab, &ports, Join::Patch, cpus)?;
    let guest = testpmd(lab, path, queues, more)?;
    wait_links(&switch, path, queues)?;
    Ok((switch, guest))
}

fn testpmd(lab: &Lab, path: DriverPath, queues: u32, more: &str) -> Result<Testpmd> {
    let device = format!("{}{more}", path.device);
    let jumbo: &[&str] = if path.is_mergeable() {
        // Frames may use several buffers.
        &["--max-pkt-len=9018", "--enable-scatter", "--tx-offloads=0x8000"]
    } else {
        // One buffer must hold a frame if buffers are not mergeable.
        &["--mbuf-size=9600"]
    };
    let args = [jumbo, &["--txonly-multi-flow"]].concat();
    Testpmd::guest(lab, &format!("testpmd-{}", path.name), &device, queues, &args)
}

/// Waits until both links are up with the ring layout and the features of the path.
fn wait_links(switch: &Switch<'_>, path: DriverPath, queues: u32) -> Result<()> {
    for name in ["a", "b"] {
        let port = switch.wait_link(name, "up")?;
        let ring = if path.is_packed() { "packed" } else { "split" };
        ensure!(port.ring.as_deref() == Some(ring), "ring of port {name} is {:?}", port.ring);
        ensure!(port.queues.len() == queues as usize, "queue pairs of port {name}: {:?}", port.queues);
        let has_feature = |name: &str| port.features.iter().any(|feature| feature == name);
        let agreed = [has_feature("mrg-rxbuf"), has_feature("in-order"), has_feature("mq")];
        let right = [path.is_mergeable(), path.device.contains("in_order=1"), queues > 1];
        ensure!(agreed == right, "features of port {name}: {:?}", port.features);
    }
    Ok(())
}

/// Lets packets start at each port and bounce for a while. Sent and received counts must agree, and
/// nothing may be dropped.
fn bounce(switch: &Switch<'_>, guest: &mut Testpmd, segments: &str, queues: u64) -> Result<()> {
    // Each receive ring has enough buffers for all packets in flight.
    let bursts = if segments.contains(',') { 4 } else { 16 };
    bounce_bursts(switch, guest, segments, bursts, u64::from(bursts) * 32 * queues)
}

/// Bounces packets with this number of bursts for each queue. `started` is the number of packets in
/// all bursts; some must come back more than once.
fn bounce_bursts(switch: &Switch<'_>, guest: &mut Testpmd, segments: &str, bursts: u32, started: u64) -> Result<()> {
    let size: u64 = segments.split(',').filter_map(|len| len.parse::<u64>().ok()).sum();
    let before = Counts::read(switch, guest)?;
    guest.bounce(segments, bursts, before.stats.map(|stats| stats.rx_packets + started))?;
    // Packets in flight still arrive; the time depends on the load of the machine.
    let rest = proc::until("all packets are collected", || {
        Ok(Some(Counts::read(switch, guest)?).filter(|now| now.agree(&before)))
    });
    let now = rest.or_else(|_| Counts::read(switch, guest))?;
    guest.stop_receiving()?;
    for (at, name) in ["a", "b"].into_iter().enumerate() {
        let (guest, rx, tx) = now.since(&before, at);
        let both = format!("{size} B, port {name}: the guest counts {guest:?}, the switch rx {rx:?}, tx {tx:?}");
        ensure!(guest.rx_packets > started, "packets do not come back: {both}");
        ensure!(guest.rx_bytes == guest.rx_packets * size, "received sizes are not {size}: {both}");
        ensure!(guest.tx_bytes == guest.tx_packets * size, "sent sizes are not {size}: {both}");
        ensure!((rx.packets, rx.bytes) == (guest.tx_packets, guest.tx_bytes), "sent is not received: {both}");
        ensure!((tx.packets, tx.bytes) == (guest.rx_packets, guest.rx_bytes), "delivered is not received: {both}");
        let port = &now.ports[at];
        let then = &before.ports[at];
        ensure!(port.dropped() == then.dropped(), "dropped: {port:?}, {both}");
    }
    let [came, left] = now.passed(&before);
    ensure!(came[0] == left[1] && came[1] == left[0], "{size} B: {came:?} came, {left:?} left: {:?}", now.ports);
    say!("  {size} B: {} packets", came[0] + came[1]);
    Ok(())
}

/// Counts of the guest and of the switch for the ports `a` and `b`.
struct Counts {
    stats: [PortStats; 2],
    ports: [PortStatus; 2],
}

impl Counts {
    fn read(switch: &Switch<'_>, guest: &mut Testpmd) -> Result<Self> {
        Ok(Self { stats: guest.stats()?, ports: [switch.port("a")?, switch.port("b")?] })
    }

    /// Returns the counts of a port since then: the guest's, and the switch's of packets received
    /// and delivered.
    fn since(&self, then: &Self, at: usize) -> (PortStats, Count, Count) {
        let port = &self.ports[at];
        let port_then = &then.ports[at];
        let guest = since(self.stats[at], then.stats[at]);
        (guest, port.rx().since(port_then.rx()), port.tx().since(port_then.tx()))
    }

    /// Returns the packets received from each port since then, and those delivered to each.
    fn passed(&self, then: &Self) -> [[u64; 2]; 2] {
        let [a, b] = [0, 1].map(|at| self.since(then, at));
        [[a.1.packets, b.1.packets], [a.2.packets, b.2.packets]]
    }

    /// Returns true if no packet is in flight, neither between guest and switch nor in the switch.
    fn agree(&self, then: &Self) -> bool {
        let [came, left] = self.passed(then);
        let counted = |at: usize| {
            let guest = since(self.stats[at], then.stats[at]);
            came[at] == guest.tx_packets && left[at] == guest.rx_packets
        };
        counted(0) && counted(1) && came[0] == left[1] && came[1] == left[0]
    }
}

fn since(now: PortStats, then: PortStats) -> PortStats {
    PortStats {
        rx_packets: now.rx_packets - then.rx_packets,
        rx_bytes: now.rx_bytes - then.rx_bytes,
        tx_packets: now.tx_packets - then.tx_packets,
        tx_bytes: now.tx_bytes - then.tx_bytes,
    }
}

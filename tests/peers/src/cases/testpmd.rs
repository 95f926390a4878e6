//! DPDK's testpmd with two virtio-user ports through a patch: sizes, counts, and nothing lost unaccounted.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::lab::Lab;
use crate::machine::Need;
use crate::proc;
use crate::runner::Test;
use crate::switch::{Join, Port, Switch};
use crate::testpmd::{RING, Testpmd};

/// The least and the largest frame, one in several cache lines of both head and body, and a jumbo.
const SIZES: [u32; 4] = [64, 570, 1518, 9000];

pub(super) fn tests() -> Vec<Test> {
    [("testpmd_mergeable", ""), ("testpmd_not_mergeable", ",mrg_rxbuf=0"), ("testpmd_server", ",server=1")]
        .map(|(name, device)| {
            Test::new(name, &[Need::Dpdk], move |lab| SIZES.iter().try_for_each(|size| bounce(lab, device, *size)))
        })
        .into()
}

/// 512 packets start at each port and are bounced for a second; `device` are arguments of virtio-user.
fn bounce(lab: &Lab, device: &str, size: u32) -> Result<()> {
    let client = device.contains("server=1");
    let ports = ["a", "b"].map(|name| Port { mtu: 9000, client, ..Port::new(name) });
    let switch = Switch::start(lab, &ports, Join::Patch)?;
    let mut guest = Testpmd::start(lab, device, size)?;
    for name in ["a", "b"] {
        let port = switch.wait_link(name, "up", Duration::from_secs(10))?;
        ensure!(port.ring.as_deref() == Some("split"), "ring of port {name} is {:?}", port.ring);
        let mergeable = port.features.iter().any(|feature| feature == "mrg-rxbuf");
        ensure!(mergeable != device.contains("mrg_rxbuf=0"), "mrg-rxbuf of port {name}: {:?}", port.features);
    }
    guest.command("start tx_first 16", "io packet forwarding")?;
    proc::pause(Duration::from_secs(1))?;
    guest.command("stop", "Done.")?;
    // What is still in the rings arrives, and the counters come to rest.
    proc::pause(Duration::from_millis(500))?;
    let stats = guest.stats()?;
    let (a, b) = (switch.port("a")?, switch.port("b")?);
    guest.quit()?;

    let mpps = stats.iter().map(|port| port.rx_packets).sum::<u64>() / 1000;
    println!("  {size} B: the guest received {mpps} thousand packets in a second or so");
    let size = u64::from(size);
    for (name, port, guest, far) in [("a", &a, stats[0], &b), ("b", &b, stats[1], &a)] {
        let (rx, tx) = (port.rx(), port.tx());
        let both = format!("port {name}: the guest counts {guest:?}, the switch rx {rx:?}, tx {tx:?}");
        ensure!(guest.rx_packets > 512, "packets do not come back: {both}");
        ensure!(guest.rx_bytes == guest.rx_packets * size, "received sizes are not {size}: {both}");
        ensure!(guest.tx_bytes == guest.tx_packets * size, "sent sizes are not {size}: {both}");
        ensure!(rx.packets == guest.tx_packets, "sent and not received by the switch: {both}");
        ensure!(rx.bytes == rx.packets * size && tx.bytes == tx.packets * size, "bytes: {both}");
        // The guest stopped looking, so up to a ring of packets lies delivered and uncounted there.
        let uncollected = tx.packets.checked_sub(guest.rx_packets);
        ensure!(uncollected.is_some_and(|n| n <= RING), "delivered is not received: {both}");
        ensure!(tx.packets <= far.rx().packets, "more left than came: {both}");
    }
    let came = a.rx().packets + b.rx().packets;
    let left = a.tx().packets + b.tx().packets;
    let dropped = a.dropped() + b.dropped();
    ensure!(came == left + dropped, "{came} came, {left} left, {dropped} dropped: {a:?} {b:?}");
    switch.stop()
}

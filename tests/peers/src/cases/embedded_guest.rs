//! The embedded guest with third-party backends: every ring layout, several queue pairs, either end
//! listening, and a backend that is killed and starts again.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use straightline_guest::endpoints::{PortOptions, Received, TestPort, VhostPort};
use straightline_guest::{Guest, GuestOptions};
use straightline_lab::guests::forward;
use straightline_lab::guests::reflector::{self, Layout, Load, ReflectorOptions};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

use crate::guest_pair::GuestPair;
use crate::lab::Lab;
use crate::machine::Need;
use crate::ovs::Ovs;
use crate::proc;
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::testpmd::Testpmd;

pub(super) fn tests() -> Vec<Test> {
    let mut tests = beside_others(vec![
        Test::new("guest_testpmd_paths", &[Need::Dpdk], |lab| testpmd_paths(lab, 1)),
        Test::new("guest_testpmd_queues", &[Need::Dpdk], |lab| testpmd_paths(lab, 2)),
        Test::new("guest_testpmd_reconnect", &[Need::Dpdk], testpmd_reconnect),
        Test::new("guest_testpmd_forward", &[Need::Dpdk], testpmd_forward),
        Test::new("guest_testpmd_server", &[Need::Dpdk], testpmd_server),
        Test::new("guest_ovs_paths", &[Need::Ovs], |lab| ovs_paths(lab, 1)),
        Test::new("guest_ovs_queues", &[Need::Ovs], |lab| ovs_paths(lab, 2)),
        Test::new("guest_ovs_server", &[Need::Ovs], ovs_server),
    ]);
    // It measures at full load.
    tests.push(Test::new("guest_testpmd_poller", &[Need::Dpdk], testpmd_poller));
    tests
}

/// Ring layouts and receive modes, by name, as feature bits.
const PATHS: [(&str, u64); 6] = [
    ("split", f::VIRTIO_NET_F_MRG_RXBUF),
    ("packed", f::VIRTIO_F_RING_PACKED | f::VIRTIO_NET_F_MRG_RXBUF),
    ("split, not mergeable", 0),
    ("packed, not mergeable", f::VIRTIO_F_RING_PACKED),
    ("split, in order", f::VIRTIO_F_IN_ORDER | f::VIRTIO_NET_F_MRG_RXBUF),
    ("packed, in order", f::VIRTIO_F_RING_PACKED | f::VIRTIO_F_IN_ORDER | f::VIRTIO_NET_F_MRG_RXBUF),
];

/// Packets that testpmd takes at a time.
const BURST: u64 = 32;

/// Frame lengths that fit into one receive buffer of 2036 bytes.
const LENS: [usize; 4] = [60, 566, 1514, 1000];
/// Frame lengths. Some frames need several receive buffers.
const LARGE: [usize; 5] = [60, 566, 1514, 2036, 9014];

pub(super) fn options(features: u64, queue_pairs: u16) -> GuestOptions {
    let features = features | f::VIRTIO_F_VERSION_1 | f::VIRTIO_F_EVENT_IDX;
    GuestOptions { features, queue_pairs, ..GuestOptions::default() }
}

pub(super) fn connect(lab: &Lab, options: &GuestOptions) -> Result<GuestPair> {
    let pair = GuestPair::new([Guest::connect(&lab.socket("a"), options)?, Guest::connect(&lab.socket("b"), options)?]);
    for guest in &pair.guests {
        ensure!(
            guest.features() & options.features == options.features,
            "the backend negotiated the features {:#x}, and not all that the guest offered",
            guest.features()
        );
    }
    Ok(pair)
}

/// Every layout through one testpmd process. Its packet counts must equal ours.
fn testpmd_paths(lab: &Lab, queues: u16) -> Result<()> {
    let mut testpmd = Testpmd::switch(lab, "testpmd", queues.into(), false)?;
    for (name, features) in PATHS {
        say!("  {name}, {queues} queue pairs");
        let mut pair = connect(lab, &options(features, queues))?;
        testpmd.wait_links()?;
        testpmd.command("clear port stats all", "cleared")?;
        testpmd.command("start", "io packet forwarding")?;
        pair.exchange(5000, if features & f::VIRTIO_NET_F_MRG_RXBUF == 0 { &LENS } else { &LARGE })?;
        pair.fill()?;
        testpmd.command("stop", "Done.")?;
        let stats = testpmd.stats()?;
        for at in 0..2 {
            let theirs = (stats[at].rx_packets, stats[at].tx_packets);
            let ours = pair.counts(at);
            ensure!(theirs == ours, "testpmd counts {stats:?}, but guest {at} has sent and received {ours:?}");
        }
    }
    testpmd.quit()
}

/// The reflector: testpmd's counts equal its own. In a long run, packets come back unchanged, and none is
/// lost.
fn testpmd_poller(lab: &Lab) -> Result<()> {
    let mut testpmd = Testpmd::switch(lab, "testpmd", 1, false)?;
    testpmd.command("start", "io packet forwarding")?;
    for layout in [Layout::Split, Layout::Packed] {
        for (mergeable, in_order) in [(true, false), (false, true)] {
            for load in [Load::Loop, Load::Flood] {
                say!("  {}, {}, mergeable {mergeable}, in order {in_order}", layout.name(), load.name());
                testpmd.command("clear port stats all", "cleared")?;
                let time = Duration::from_millis(500);
                let ports = PortOptions { layout, mergeable, in_order, ..PortOptions::default() };
                let options = ReflectorOptions {
                    sizes: "imix".parse()?,
                    warm_up: time,
                    ..ReflectorOptions::new([lab.socket("a"), lab.socket("b")])
                };
                let report = reflector::run(&ReflectorOptions { load, ports, time, ..options })?;
                let stats = testpmd.stats()?;
                for (ours, theirs) in report.ports.iter().zip(stats) {
                    let counts = [(ours.tx_packets, theirs.rx_packets), (ours.rx_packets, theirs.tx_packets)];
                    for (ours, theirs) in counts {
                        // While traffic stops, a burst may be counted on one side only, and what
                        // is in a ring: all of it, if testpmd does not run just then.
                        let most = (ours / 1000).max(u64::from(report.queue_size) + BURST);
                        ensure!(
                            ours.abs_diff(theirs) <= most,
                            "testpmd counts {stats:?}, but the guest counts {report:?}"
                        );
                    }
                }
                // In half a second on a busy machine, testpmd may not run at all.
                let is_judged = lab.machine.long;
                ensure!(!is_judged || load == Load::Flood || report.lost == Some(0), "{report:?}");
                ensure!(!is_judged || report.verified > 0, "{report:?}");
            }
        }
    }
    testpmd.quit()
}

/// The generator's port, and the forwarding guest. Frames in one buffer and in several come back
/// with their addresses swapped, and testpmd's counts equal the counts of both.
fn testpmd_forward(lab: &Lab) -> Result<()> {
    const PACKETS: u64 = 2000;
    let frames: Vec<Vec<u8>> = LARGE.iter().map(|&len| (0..=250).cycle().take(len).collect()).collect();
    let mut testpmd = Testpmd::switch(lab, "testpmd", 1, false)?;
    for layout in [Layout::Split, Layout::Packed] {
        for (buffer_len, in_order) in [(2048, false), (2048, true), (400, false)] {
            say!("  {}, buffers of {buffer_len}, in order {in_order}", layout.name());
            let ports = PortOptions { layout, in_order, buffer_len, longest: 9014, ..PortOptions::default() };
            let options =
                forward::ForwardOptions { mode: forward::Mode::MacSwap, ports, ..forward::ForwardOptions::default() };
            let mut generator = VhostPort::connect(&lab.socket("a"), &options.ports)?;
            let mut guest = forward::guest(VhostPort::connect_all(&[lab.socket("b")], &options.ports)?, &options)?;
            testpmd.wait_links()?;
            testpmd.command("clear port stats all", "cleared")?;
            testpmd.command("start", "io packet forwarding")?;
            let mut sent = 0_u64;
            let mut came = 0_u64;
            let mut wrong = 0_u64;
            proc::until("all packets have come back", || {
                // A thousand iterations between looks at the clock.
                for _ in 0..1000 {
                    let template = usize::try_from(sent)? % frames.len();
                    let number = sent.to_be_bytes();
                    if sent < PACKETS
                        && sent < came + 16
                        && generator.send(template, &NetHeader::default(), &frames[template], &[(20, &number)])
                    {
                        sent += 1;
                    }
                    generator.flush()?;
                    guest.turn(0)?;
                    generator.receive(32, &mut |packet: &dyn Received| {
                        let mut want = frames[usize::try_from(came).unwrap_or(0) % frames.len()].clone();
                        want[20..28].copy_from_slice(&came.to_be_bytes());
                        want[..12].rotate_left(6);
                        let mut bytes = vec![0; packet.len()];
                        packet.read(0, &mut bytes);
                        wrong += u64::from(bytes != want);
                        came += 1;
                    })?;
                }
                generator.wake();
                guest.wake();
                Ok((came >= PACKETS).then_some(()))
            })?;
            ensure!(
                (came, wrong) == (PACKETS, 0),
                "{came} of {PACKETS} packets came back, {wrong} of them with wrong bytes"
            );
            testpmd.command("stop", "Done.")?;
            let stats = testpmd.stats()?;
            let ours = [generator.counters(), guest.ports().first().context("a port")?.counters()];
            for (theirs, ours) in stats.iter().zip(ours) {
                ensure!(
                    (theirs.rx_packets, theirs.tx_packets) == (ours.tx_packets, ours.rx_packets),
                    "testpmd counts {stats:?}, but the generator and the guest count {ours:?}"
                );
            }
        }
    }
    testpmd.quit()
}

/// testpmd is killed while the rings contain packets that it has not taken, and packets that the
/// guests have not read. Another testpmd continues at the same place, and nothing is lost.
///
/// testpmd is not killed while it moves packets. Its packed ring would then have descriptors that
/// are partly given back, and no successor could distinguish them from valid ones.
fn testpmd_reconnect(lab: &Lab) -> Result<()> {
    for (name, features) in &PATHS[..2] {
        say!("  {name}");
        let mut testpmd = Testpmd::switch(lab, "testpmd", 1, false)?;
        let mut pair = connect(lab, &options(*features, 1))?;
        for round in 0..3 {
            testpmd.wait_links()?;
            testpmd.command("start", "io packet forwarding")?;
            pair.exchange(1000, &LARGE)?;
            pair.fill()?;
            pair.send_some(20)?;
            pair.wait_free_buffers()?;
            testpmd.command("stop", "Done.")?;
            pair.send_some(20)?;
            testpmd.kill()?;
            for port in ["a", "b"] {
                // testpmd refuses an existing socket file, even if its owner has ended.
                std::fs::remove_file(lab.socket(port))?;
            }
            testpmd = Testpmd::switch(lab, &format!("testpmd-{}-{round}", name), 1, false)?;
            for (guest, port) in pair.guests.iter_mut().zip(["a", "b"]) {
                guest.reconnect(&lab.socket(port))?;
            }
        }
        testpmd.wait_links()?;
        testpmd.command("start", "io packet forwarding")?;
        pair.exchange(1000, &LARGE)?;
        pair.fill()?;
        testpmd.quit()?;
    }
    Ok(())
}

/// The guests listen. testpmd connects and is killed, and another testpmd connects.
fn testpmd_server(lab: &Lab) -> Result<()> {
    let listeners = [UnixListener::bind(lab.socket("a"))?, UnixListener::bind(lab.socket("b"))?];
    for (name, features) in &PATHS[..2] {
        say!("  {name}");
        let mut testpmd = Testpmd::switch(lab, "testpmd", 1, true)?;
        let mut pair = accept(&listeners, &options(*features, 1))?;
        for round in 0..2 {
            testpmd.wait_links()?;
            testpmd.command("start", "io packet forwarding")?;
            pair.exchange(1000, &LARGE)?;
            pair.fill()?;
            testpmd.command("stop", "Done.")?;
            pair.send_some(20)?;
            testpmd.kill()?;
            testpmd = Testpmd::switch(lab, &format!("testpmd-{}-{round}", name), 1, true)?;
            for (guest, listener) in pair.guests.iter_mut().zip(&listeners) {
                guest.accept_again(listener)?;
            }
        }
        testpmd.wait_links()?;
        testpmd.command("start", "io packet forwarding")?;
        pair.exchange(1000, &LARGE)?;
        pair.fill()?;
        testpmd.kill()?;
    }
    Ok(())
}

/// Every layout through one Open vSwitch process. Its packet counts must equal ours.
fn ovs_paths(lab: &Lab, queues: u16) -> Result<()> {
    let ovs = Ovs::start(lab, false)?;
    for (name, features) in PATHS {
        say!("  {name}, {queues} queue pairs");
        let before = ovs.packets()?;
        let mut pair = connect(lab, &options(features, queues))?;
        pair.warm_up()?;
        pair.exchange(5000, &LENS)?;
        pair.fill()?;
        // Open vSwitch updates its counters only now and then.
        let ours = [0, 1].map(|at| pair.counts(at).0);
        let counts = || -> Result<_> {
            let now = ovs.packets()?;
            Ok([0, 1].map(|at| now[at] - before[at]))
        };
        proc::until("OvS has counted all", || Ok((counts()? == ours).then_some(())))
            .with_context(|| format!("OvS counts {:?}, but the guests have sent {ours:?}", counts()))?;
    }
    Ok(())
}

/// The guests listen. Open vSwitch connects, is killed, and connects again.
fn ovs_server(lab: &Lab) -> Result<()> {
    let listeners = [UnixListener::bind(lab.socket("a"))?, UnixListener::bind(lab.socket("b"))?];
    let mut ovs = Ovs::start(lab, true)?;
    for (name, features) in &PATHS[..2] {
        say!("  {name}");
        let mut pair = accept(&listeners, &options(*features, 1))?;
        pair.warm_up()?;
        pair.exchange(1000, &LENS)?;
        pair.send_some(20)?;
        pair.wait_free_buffers()?;
        ovs.restart()?;
        for (guest, listener) in pair.guests.iter_mut().zip(&listeners) {
            guest.accept_again(listener)?;
        }
        pair.warm_up()?;
        pair.exchange(1000, &LENS)?;
        pair.fill()?;
    }
    Ok(())
}

fn accept(listeners: &[UnixListener; 2], options: &GuestOptions) -> Result<GuestPair> {
    Ok(GuestPair::new([Guest::accept(&listeners[0], options)?, Guest::accept(&listeners[1], options)?]))
}

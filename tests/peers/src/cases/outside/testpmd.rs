//! DPDK's testpmd with its drivers for the same interfaces: `net_af_xdp` at the other end of a veth
//! pair, and `net_tap`. One embedded guest is on the switch, the other on testpmd's vhost port.

use anyhow::{Result, ensure};
use straightline_guest::GuestOptions;
use straightline_virtio::features as f;

use super::DeviceKind;
use crate::cases::embedded_guest::{connect, options};
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::{self, Namespace};
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{DevicePort, Port, Switch};
use crate::testpmd::Testpmd;

/// Frame lengths up to the MTU.
const LENS: [usize; 5] = [60, 270, 566, 1514, 1000];

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Namespaces, Need::Dpdk];
    beside_others(vec![
        Test::new("testpmd_af_xdp", &needs, af_xdp),
        Test::new("testpmd_tap_af_packet", &needs, tap_and_af_packet),
        Test::new("testpmd_tap_bridge", &needs, tap_and_bridge),
        Test::new("testpmd_has_the_queue", &needs, has_the_queue),
    ])
}

/// Exchanges packets between a guest on the switch and a guest on testpmd. All arrive, in order and
/// unchanged.
fn exchange(lab: &Lab, testpmd: Testpmd, switch: Switch, port: &str) -> Result<()> {
    let mut testpmd = testpmd;
    switch.wait_link(port, "up")?;
    let guest: GuestOptions = options(f::VIRTIO_NET_F_MRG_RXBUF, 1);
    let mut pair = connect(lab, &guest)?;
    testpmd.wait_links()?;
    testpmd.command("start", "io packet forwarding")?;
    pair.warm_up()?;
    let before = switch.port(port)?;
    pair.exchange(5000, &LENS)?;
    let after = switch.port(port)?;
    let [received, sent] = [after.rx().since(before.rx()).packets, after.tx().since(before.tx()).packets];
    say!("  port {port}: {received} packets received, {sent} sent");
    ensure!(received >= 5000 && sent >= 5000, "not all packets passed port {port}: {after:?}");
    ensure!(after.dropped() == before.dropped(), "port {port} dropped packets: {after:?}");
    drop(pair);
    testpmd.quit()?;
    switch.stop()
}

fn start(lab: &Lab, namespace: &Namespace, device: &str) -> Result<Testpmd> {
    let vhost = format!("net_vhost{{}},iface={}", lab.socket("b").display());
    let args = ["--no-flush-rx", "--total-num-mbufs=16384"].map(str::to_owned);
    Testpmd::spawn_by(namespace.command("stdbuf"), lab, "testpmd", &[device.to_owned(), vhost], &args, 0)
}

fn af_xdp(lab: &Lab) -> Result<()> {
    let [host, far] = [Namespace::silent("host")?, Namespace::silent("far")?];
    net::veth([(&host, "v1"), (&far, "v2")], 1, 1500)?;
    let switch = Switch::start_in(lab, &host, &[Port::new("a")], &[("nic0", &DeviceKind::AfXdp.keys("v1"))], &[])?;
    let testpmd = start(lab, &far, "net_af_xdp{},iface=v2")?;
    exchange(lab, testpmd, switch, "nic0")?;
    host.has_no_program()
}

/// testpmd makes a tap, and the switch uses it by AF_PACKET.
fn tap_and_af_packet(lab: &Lab) -> Result<()> {
    let host = Namespace::silent("host")?;
    let testpmd = start(lab, &host, "net_tap{},iface=dtap0")?;
    let nic0: DevicePort = ("nic0", &DeviceKind::AfPacket.keys("dtap0"));
    let switch = Switch::start_in(lab, &host, &[Port::new("a")], &[nic0], &[])?;
    exchange(lab, testpmd, switch, "nic0")
}

/// A Linux bridge joins testpmd's tap and the switch's.
fn tap_and_bridge(lab: &Lab) -> Result<()> {
    let host = Namespace::silent("host")?;
    // With multicast snooping, the bridge itself sends IGMP reports.
    host.sh("ip link add br0 type bridge mcast_snooping 0; ip link set br0 up")?;
    let testpmd = start(lab, &host, "net_tap{},iface=dtap0")?;
    host.sh("ip link set dtap0 master br0; ip link set dtap0 up")?;
    let keys = "kind = \"tap\"\nname = \"sl0\"\nbridge = \"br0\"";
    let switch = Switch::start_in(lab, &host, &[Port::new("a")], &[("host", keys)], &[])?;
    exchange(lab, testpmd, switch, "host")
}

/// testpmd has the interface's queue first. The port says so, leaves testpmd's program alone, and
/// gets the interface when testpmd ends.
fn has_the_queue(lab: &Lab) -> Result<()> {
    let [host, far] = [Namespace::silent("host")?, Namespace::silent("far")?];
    net::veth([(&host, "v1"), (&far, "eth0")], 1, 1500)?;
    let testpmd = start(lab, &host, "net_af_xdp{},iface=v1")?;
    let program = host.link("v1")?.and_then(|link| link.xdp);
    ensure!(program.is_some(), "testpmd has attached no program");
    let switch = Switch::start_in(lab, &host, &[Port::new("a")], &[("nic0", &DeviceKind::AfXdp.keys("v1"))], &[])?;
    let down = switch.wait_link("nic0", "down")?;
    say!("  port nic0 down: {:?}", down.reason);
    ensure!(down.reason.is_some_and(|reason| reason.contains("program")), "the reason does not name the program");
    let now = host.link("v1")?.and_then(|link| link.xdp);
    ensure!(now == program, "testpmd's program was {program:?}, now {now:?}");
    testpmd.quit()?;
    switch.wait_link("nic0", "up")?;
    switch.stop()?;
    host.has_no_program()
}

//! Two User Mode Linux guests on a patch.

use anyhow::{Result, ensure};

use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{Join, Port, Switch};
use crate::traffic::{self, Transfer};

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Uml(2)];
    beside_others(vec![
        // User Mode Linux accepts the packed ring if it is offered.
        Test::new("uml_patch_ping", &needs, |lab| ping(lab, None, "packed")),
        Test::new("uml_patch_ping_split", &needs, |lab| ping(lab, Some(false), "split")),
        Test::new("uml_two_devices", &needs, two_devices),
        Test::new("uml_patch_mtu1500", &needs, |lab| traffic(lab, 1500)),
        Test::new("uml_patch_mtu9000", &needs, |lab| traffic(lab, 9000)),
    ])
}

/// Pings of each size at which the packet path differs, and pings of several frames.
fn ping(lab: &Lab, packed: Option<bool>, ring: &str) -> Result<()> {
    let ports = ["a", "b"].map(|name| Port { packed, ..Port::new(name) });
    let switch = Switch::start(lab, &ports, Join::Patch)?;
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, GuestKind::Uml, 1500)?;
    echoes(&switch, &mut one, &mut two, ring)?;
    switch.stop()
}

fn echoes(switch: &Switch, one: &mut LinuxGuest, two: &mut LinuxGuest, ring: &str) -> Result<()> {
    let first = one.ip();
    let second = two.ip();
    traffic::reach(one, &second)?;
    // A header alone; sizes around 256, from which a body may stay in guest memory; a full frame;
    // IP fragments.
    for bytes in [0, 56, 200, 214, 215, 256, 700, 1472, 1473, 8000] {
        traffic::ping(one, &second, 10, bytes)?;
    }
    traffic::ping(two, &first, 10, 1472)?;
    for name in ["a", "b"] {
        let port = switch.port(name)?;
        ensure!(port.link == "up", "link of port {name} is {}", port.link);
        ensure!(port.ring.as_deref() == Some(ring), "ring of port {name} is {:?}", port.ring);
        // 110 echoes passed in each direction; echoes of 1473 and 8000 bytes took several frames.
        ensure!(
            port.rx().packets >= 110 && port.tx().packets >= 110,
            "port {name} counts fewer than 110 packets in a direction: {port:?}"
        );
    }
    for (guest, port) in [(one, "a"), (two, "b")] {
        traffic::all_received(guest, "eth0", switch, port)?;
        traffic::no_errors(guest)?;
    }
    Ok(())
}

/// A large file and iperf3 in both directions, with all offloads of the guests, and then without.
fn traffic(lab: &Lab, mtu: u32) -> Result<()> {
    let ports = ["a", "b"].map(|name| Port { mtu, ..Port::new(name) });
    let switch = Switch::start(lab, &ports, Join::Patch)?;
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, GuestKind::Uml, mtu)?;
    both_ways(lab, &mut one, &mut two, mtu)?;
    say!("  without offloads");
    for guest in [&mut one, &mut two] {
        traffic::turn_off(guest, &["tso", "gso", "gro", "tx", "rx"])?;
    }
    both_ways(lab, &mut one, &mut two, mtu)?;
    switch.stop()
}

fn both_ways(lab: &Lab, one: &mut LinuxGuest, two: &mut LinuxGuest, mtu: u32) -> Result<()> {
    let second = two.ip();
    traffic::reach(one, &second)?;
    // 28 bytes are the IP and ICMP headers; the MTU includes them and the data.
    traffic::ping(one, &second, 20, mtu - 28)?;
    let mib = if lab.machine.long { 256 } else { 64 };
    traffic::file(one, two, mib)?;
    traffic::file(two, one, 16)?;
    let seconds = if lab.machine.long { 10 } else { 1 };
    traffic::iperf3(one, two, seconds, false)?;
    traffic::iperf3(one, two, seconds, true)?;
    traffic::no_errors(one)?;
    traffic::no_errors(two)
}

/// Two guests with two devices each, every device on a network of its own. Both networks carry a
/// file at the same time, in opposite directions. Then one network works while the other is down.
///
/// The patch waits instead of dropping. Both guests are busy with both files, and six packets of 64
/// KiB fill a ring of 256 buffers. So packets have to wait for free buffers.
fn two_devices(lab: &Lab) -> Result<()> {
    let switch = Switch::start(lab, &["a", "b", "c", "d"].map(Port::new), Join::PatchThatWaits)?;
    let mut one = LinuxGuest::start_uml(lab, 1, &["a", "c"])?;
    let mut two = LinuxGuest::start_uml(lab, 2, &["b", "d"])?;
    both_networks(&switch, &mut one, &mut two)?;
    switch.stop()
}

fn both_networks(switch: &Switch, one: &mut LinuxGuest, two: &mut LinuxGuest) -> Result<()> {
    for guest in [&mut *one, &mut *two] {
        guest.configure(1500)?;
        let n = guest.number;
        guest.sh(&format!(
            "ip link set eth1 address 02:78:00:00:00:0{n} && ip addr add 10.78.0.{n}/24 dev eth1 && ip link set eth1 up"
        ))?;
    }
    let first = two.ip();
    let second = "10.78.0.2";
    for address in [&first, second] {
        traffic::reach(one, address)?;
        traffic::ping(one, address, 10, 1472)?;
    }
    let mut there = Transfer::prepare(one, two, &first, 9000, 32)?;
    let mut back = Transfer::prepare(two, one, "10.78.0.1", 9001, 32)?;
    there.send(one)?;
    back.send(two)?;
    traffic::ping(one, &first, 10, 56)?;
    traffic::ping(one, second, 10, 56)?;
    there.finish(one, two)?;
    back.finish(two, one)?;
    let bytes = 32 << 20;
    for (from, to) in [("a", "b"), ("d", "c")] {
        let from = switch.port(from)?;
        let to = switch.port(to)?;
        ensure!(
            from.rx().bytes > bytes && to.tx().bytes > bytes,
            "the file did not pass by its own network only: {from:?}, {to:?}"
        );
        ensure!(
            from.tx().bytes < bytes && to.rx().bytes < bytes,
            "the file did not pass by its own network only: {from:?}, {to:?}"
        );
    }
    one.sh("ip link set eth1 down")?;
    traffic::ping(one, &first, 10, 1000)?;
    let (status, _) = one.run(&format!("ping -c 1 -W 1 -q {second}"))?;
    ensure!(status != 0, "guest 2 answers on a network whose device is down");
    one.sh("ip link set eth1 up")?;
    traffic::reach(one, second)?;
    traffic::ping(one, second, 10, 1472)?;
    for (guest, ports) in [(one, ["a", "c"]), (two, ["b", "d"])] {
        for (interface, port) in ["eth0", "eth1"].iter().zip(ports) {
            traffic::all_received(guest, interface, switch, port)?;
            let dropped = switch.port(port)?.dropped();
            ensure!(dropped == 0, "{dropped} packets were dropped at port {port}");
        }
        traffic::no_errors(guest)?;
    }
    Ok(())
}

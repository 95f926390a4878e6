//! Interfaces that change while packets pass: they go down, get another MTU, disappear, come back,
//! and move to another namespace. `ports` says what is wrong, and the port recovers by itself.

use anyhow::{Context, Result, ensure};

use super::DeviceKind;
use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::{self, Namespace};
use crate::proc;
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{Port, PortStatus, Switch};
use crate::traffic::{self, Transfer};

/// Echoes in both directions, some hundred a second.
const NOISE: &str = "-i 0.005 -s 1000";

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Namespaces, Need::Uml(1)];
    beside_others(vec![
        Test::new("links_af_xdp", &needs, |lab| nic(lab, DeviceKind::AfXdp)),
        Test::new("links_af_packet", &needs, |lab| nic(lab, DeviceKind::AfPacket)),
        Test::new("links_tap", &needs, tap),
    ])
}

/// Waits until a port is down, and checks that the reason names the interface.
fn goes_down(switch: &Switch, port: &str, interface: &str) -> Result<()> {
    let down = switch.wait_link(port, "down")?;
    let reason = down.reason.unwrap_or_default();
    say!("  port {port} down: {reason}");
    ensure!(reason.contains(interface), "the reason does not name {interface}: {reason:?}");
    Ok(())
}

fn goes_up(switch: &Switch, port: &str) -> Result<PortStatus> {
    switch.wait_link(port, "up")
}

/// Waits until `ports` shows an MTU for the port's interface.
fn shows_mtu(switch: &Switch, port: &str, mtu: u32) -> Result<()> {
    proc::until(&format!("`ports` shows MTU {mtu}"), || {
        Ok(switch.port(port)?.device.filter(|device| device.mtu == mtu).map(|_| ()))
    })
}

/// Sends echoes from a guest in the background, until the end of the guest.
fn noise(guest: &mut LinuxGuest, to: &str) -> Result<()> {
    guest.sh(&format!("(while :; do ping {NOISE} {to}; sleep 0.2; done) </dev/null >/dev/null 2>&1 &"))?;
    Ok(())
}

/// Sets the interface of a port down and up during the transfer of a file. If the file has arrived before,
/// because the test did not run, another one is sent.
fn interrupt(
    switch: &Switch,
    (port, namespace, interface): (&str, &Namespace, &str),
    from: &mut LinuxGuest,
    to: &mut LinuxGuest,
) -> Result<()> {
    proc::until("the interface goes down during the transfer of a file", || {
        let before = switch.port(port)?.rx().bytes;
        let file = Transfer::begin(from, to, 256)?;
        proc::until("a part of the file has passed", || {
            Ok((switch.port(port)?.rx().bytes > before + (16 << 20)).then_some(()))
        })?;
        namespace.sh(&format!("ip link set {interface} down"))?;
        goes_down(switch, port, interface)?;
        let is_over = file.is_over(to)?;
        namespace.sh(&format!("ip link set {interface} up"))?;
        goes_up(switch, port)?;
        file.finish(from, to)?;
        Ok((!is_over).then_some(()))
    })
}

fn nic(lab: &Lab, kind: DeviceKind) -> Result<()> {
    let [host, far, other] = [Namespace::new("host")?, Namespace::new("far")?, Namespace::new("other")?];
    // The interface appears only after the start.
    let switch = Switch::start_in(lab, &host, &[Port::new("a")], &[("nic0", &kind.keys("v1"))], &[])?;
    goes_down(&switch, "nic0", "v1")?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    net::veth([(&host, "v1"), (&far, "eth0")], 1, 1500)?;
    let mut peer = LinuxGuest::in_namespace(lab, &far, 2, "eth0")?;
    for end in [&mut guest, &mut peer] {
        end.configure(1500)?;
    }
    goes_up(&switch, "nic0")?;
    let first = guest.ip();
    let second = peer.ip();
    traffic::reach(&mut guest, &second)?;
    noise(&mut guest, &second)?;
    noise(&mut peer, &first)?;

    say!("  v1 goes down and up during the transfer of a file");
    interrupt(&switch, ("nic0", &host, "v1"), &mut peer, &mut guest)?;

    say!("  the other end goes down and up");
    far.sh("ip link set eth0 down")?;
    switch.wait_link("nic0", "down")?;
    far.sh("ip link set eth0 up")?;
    traffic::reach(&mut guest, &second)?;
    goes_up(&switch, "nic0")?;

    say!("  v1 gets another MTU");
    host.sh("ip link set v1 mtu 1400")?;
    shows_mtu(&switch, "nic0", 1400)?;
    traffic::ping(&mut guest, &second, 5, 1400 - 28)?;
    host.sh("ip link set v1 mtu 1500")?;
    shows_mtu(&switch, "nic0", 1500)?;
    traffic::reach(&mut guest, &second)?;
    traffic::ping(&mut guest, &second, 5, 1500 - 28)?;

    say!("  v1 moves to another namespace and back");
    host.sh(&format!("ip link set v1 netns {}", other.name()))?;
    goes_down(&switch, "nic0", "v1")?;
    other.sh(&format!("ip link set v1 netns {}", host.name()))?;
    host.sh("ip link set v1 up")?;
    goes_up(&switch, "nic0")?;
    traffic::reach(&mut guest, &second)?;

    say!("  v1 is deleted and made again");
    host.sh("ip link del v1")?;
    goes_down(&switch, "nic0", "v1")?;
    net::veth([(&host, "v1"), (&far, "eth0")], 1, 1500)?;
    peer.address(None)?;
    goes_up(&switch, "nic0")?;
    traffic::reach(&mut guest, &second)?;
    traffic::ping(&mut peer, &first, 5, 1472)?;
    traffic::file(&mut guest, &mut peer, 16)?;
    traffic::no_errors(&mut guest)?;
    traffic::no_errors(&mut peer)?;
    switch.stop()?;
    host.has_no_program()
}

fn tap(lab: &Lab) -> Result<()> {
    let [namespace, other] = [Namespace::new("host")?, Namespace::new("other")?];
    let keys = "kind = \"tap\"\nname = \"sl0\"";
    let switch = Switch::start_in(lab, &namespace, &[Port::new("a")], &[("host", keys)], &[])?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    let mut host = LinuxGuest::in_namespace(lab, &namespace, 2, "sl0")?;
    guest.configure(1500)?;
    host.boot()?;
    host.address(None)?;
    let first = guest.ip();
    let second = host.ip();
    traffic::reach(&mut guest, &second)?;
    noise(&mut guest, &second)?;
    noise(&mut host, &first)?;

    say!("  sl0 goes down and up during the transfer of a file");
    interrupt(&switch, ("host", &namespace, "sl0"), &mut host, &mut guest)?;

    say!("  sl0 gets another MTU");
    namespace.sh("ip link set sl0 mtu 1400")?;
    shows_mtu(&switch, "host", 1400)?;
    namespace.sh("ip link set sl0 mtu 1500")?;
    shows_mtu(&switch, "host", 1500)?;
    traffic::ping(&mut host, &first, 5, 1472)?;

    say!("  sl0 moves to another namespace, where it still works, and back");
    namespace.sh(&format!("ip link set sl0 netns {}", other.name()))?;
    let mut elsewhere = LinuxGuest::in_namespace(lab, &other, 3, "sl0")?;
    elsewhere.boot()?;
    elsewhere.address(None)?;
    traffic::reach(&mut guest, &elsewhere.ip())?;
    drop(elsewhere);
    other.sh(&format!("ip link set sl0 netns {}", namespace.name()))?;
    host.address(None)?;
    traffic::reach(&mut guest, &second)?;

    say!("  sl0 is deleted: the port makes it again");
    let old = namespace.link("sl0")?.context("no sl0")?;
    namespace.sh("ip link del sl0")?;
    let new = proc::until("sl0 is made again", || namespace.link("sl0"))?;
    ensure!(new.ifindex != old.ifindex, "sl0 was not deleted: {new:?}");
    let reasons = switch.port("host")?.reasons;
    ensure!(reasons.iter().any(|down| down.reason.contains("sl0")), "no reason names sl0: {reasons:?}");
    goes_up(&switch, "host")?;
    // The addresses were those of the old interface.
    host.address(None)?;
    traffic::reach(&mut guest, &second)?;
    traffic::file(&mut guest, &mut host, 16)?;
    traffic::no_errors(&mut guest)?;
    traffic::no_errors(&mut host)?;
    switch.stop()
}

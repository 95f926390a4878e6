//! One bridge with ports of all kinds, and its end by SIGKILL.

use anyhow::{Context, Result, ensure};

use super::{Amount, DeviceKind, exchange};
use crate::guest::{GuestKind, LinuxGuest, Qemu};
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::{self, Namespace};
use crate::proc;
use crate::runner::Test;
use crate::switch::{Port, Switch};
use crate::traffic;

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("devices_of_all_kinds", &[Need::Namespaces], all_kinds).beside_others(),
        Test::new("devices_killed", &[Need::Namespaces], killed).beside_others(),
        // It measures CPU time and round trips.
        Test::new("devices_sleep", &[Need::Namespaces, Need::Uml(1)], sleep),
        Test::new("devices_qemu", &[Need::Namespaces, Need::Qemu], qemu).beside_others(),
    ]
}

const TAP: &str = "kind = \"tap\"\nname = \"sl0\"";

/// A tap, an AF_XDP and an AF_PACKET interface exchange packets without any guest.
fn all_kinds(lab: &Lab) -> Result<()> {
    let [host, xdp, packet] = [Namespace::new("host")?, Namespace::new("xdp")?, Namespace::new("packet")?];
    net::veth([(&host, "v1"), (&xdp, "eth0")], 1, 1500)?;
    net::veth([(&host, "v2"), (&packet, "eth0")], 1, 1500)?;
    let nic0 = DeviceKind::AfXdp.keys("v1");
    let nic1 = DeviceKind::AfPacket.keys("v2");
    let switch = Switch::start_in(lab, &host, &[], &[("host", TAP), ("nic0", &nic0), ("nic1", &nic1)], &[])?;
    let places = [(&host, "sl0"), (&xdp, "eth0"), (&packet, "eth0")];
    let mut ends = Vec::new();
    for (number, (namespace, interface)) in (1..).zip(places) {
        let mut end = LinuxGuest::in_namespace(lab, namespace, number, interface)?;
        end.boot()?;
        end.address(None)?;
        end.add_ip6()?;
        ends.push(end);
    }
    let [one, two, three] = ends.as_mut_slice() else { unreachable!("three places") };
    let amount = Amount { mtu: 1500, mib: 16 };
    exchange(one, two, amount)?;
    exchange(two, three, amount)?;
    exchange(three, one, amount)?;
    switch.stop()?;
    host.has_no_program()
}

/// After SIGKILL no XDP program, no interface and no route is left. A tap that existed before is as
/// it was. The next start works.
fn killed(lab: &Lab) -> Result<()> {
    let [host, far] = [Namespace::silent("host")?, Namespace::silent("far")?];
    net::veth([(&host, "v1"), (&far, "eth0")], 1, 1500)?;
    net::veth([(&host, "v2"), (&far, "eth1")], 1, 1500)?;
    host.sh(
        "ip tuntap add dev sl1 mode tap user nobody vnet_hdr; ip addr add 10.78.0.1/24 dev sl1; ip link set sl1 up",
    )?;
    let routes = host.routes()?;
    let tap = host.link("sl1")?;
    let nic0 = DeviceKind::AfXdp.keys("v1");
    let nic1 = DeviceKind::AfPacket.keys("v2");
    let existing = "kind = \"tap\"\nname = \"sl1\"";
    let devices = [("host", TAP), ("old", existing), ("nic0", &nic0), ("nic1", &nic1)];
    let mut switch = Switch::start_in(lab, &host, &[], &devices, &[])?;
    for end in ["SIGKILL", "SIGTERM"] {
        for (port, _) in devices {
            switch.wait_link(port, "up")?;
        }
        ensure!(host.link("v1")?.context("no v1")?.xdp.is_some(), "no program is attached to v1");
        match end {
            "SIGKILL" => {
                switch.kill()?;
                // The kernel and the opener clean up after the end of the process.
                proc::until("sl0 is gone", || Ok(host.link("sl0")?.is_none().then_some(())))?;
            }
            _ => switch.end()?,
        }
        proc::until("no program is attached", || Ok(host.has_no_program().ok()))?;
        ensure!(host.link("sl0")?.is_none(), "after {end} the tap sl0 is left");
        let now = (host.routes()?, host.link("sl1")?);
        ensure!(now == (routes.clone(), tap.clone()), "before: {routes} {tap:?}\nafter {end}: {now:?}");
        if end == "SIGKILL" {
            switch.start_again()?;
        }
    }
    switch.clean()
}

/// The CPU time of an idle switch with device ports, and the latency of the first packet after a
/// pause.
fn sleep(lab: &Lab) -> Result<()> {
    let [host, far] = [Namespace::new("host")?, Namespace::new("far")?];
    net::veth([(&host, "v1"), (&far, "eth0")], 1, 1500)?;
    let nic0 = DeviceKind::AfXdp.keys("v1");
    let switch = Switch::start_in(lab, &host, &[Port::new("a")], &[("host", TAP), ("nic0", &nic0)], &[])?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    let mut tap = LinuxGuest::in_namespace(lab, &host, 2, "sl0")?;
    let mut nic = LinuxGuest::in_namespace(lab, &far, 3, "eth0")?;
    for end in [&mut guest, &mut tap, &mut nic] {
        end.boot()?;
        end.address(None)?;
    }
    traffic::reach(&mut guest, "10.77.0.2")?;
    traffic::reach(&mut guest, "10.77.0.3")?;
    crate::cases::idle::is_idle(lab, &switch)?;
    for (from, to) in [(&mut guest, "10.77.0.2"), (&mut tap, "10.77.0.3"), (&mut nic, "10.77.0.1")] {
        crate::cases::idle::wakes(lab, &switch, from, to, 2)?;
    }
    switch.stop()
}

/// QEMU has a host and a NIC.
fn qemu(lab: &Lab) -> Result<()> {
    let [host, far] = [Namespace::new("host")?, Namespace::new("far")?];
    net::veth([(&host, "v1"), (&far, "eth0")], 1, 1500)?;
    let nic0 = DeviceKind::AfXdp.keys("v1");
    let switch = Switch::start_in(lab, &host, &[Port::new("a")], &[("host", TAP), ("nic0", &nic0)], &[])?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Qemu(Qemu::default()), 1, "a")?;
    let mut tap = LinuxGuest::in_namespace(lab, &host, 2, "sl0")?;
    let mut nic = LinuxGuest::in_namespace(lab, &far, 3, "eth0")?;
    for end in [&mut guest, &mut tap, &mut nic] {
        end.boot()?;
        end.address(None)?;
        end.add_ip6()?;
    }
    let amount = Amount { mtu: 1500, mib: if lab.machine.long { 256 } else { 16 } };
    exchange(&mut guest, &mut tap, amount)?;
    exchange(&mut guest, &mut nic, amount)?;
    switch.stop()
}

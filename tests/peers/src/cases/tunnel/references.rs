//! The harness itself: other implementations against each other. If these tests fail, the harness
//! or the machine is at fault, and not the switch.

use anyhow::Result;

use super::l2tpv3::{self, Side};
use super::ovs::{self, MTU};
use super::vxlan::Vxlan;
use super::{Carrier, Inner, Wire};
use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::Test;

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Namespaces, Need::QemuNet, Need::Uml(1)];
    vec![
        Test::new("tunnel_references_l2tpv3", &needs, qemu_and_uml),
        Test::new("tunnel_references_ovs", &[Need::Namespaces, Need::Ovs], kernel_and_ovs),
    ]
}

/// QEMU against User Mode Linux.
fn qemu_and_uml(lab: &Lab) -> Result<()> {
    let tunnels = &l2tpv3::TUNNELS[..2];
    let wire = Wire::new(Carrier::AfPacket, MTU)?;
    let mut devices = Vec::new();
    let mut places = Vec::new();
    for (unit, tunnel) in (0..).zip(tunnels) {
        wire.near.sh(&tunnel.outer.add(1, "v1"))?;
        wire.add_far(tunnel.outer, tunnel.far)?;
        devices.push(tunnel.uml(Side::Far, unit, MTU));
        places.push(tunnel.qemu(lab, &wire.near, Side::Near)?);
    }
    let mut guest = LinuxGuest::start_with_devices(lab, 1, wire.far().command("setarch"), &devices)?;
    guest.boot()?;
    guest.load_ip6()?;
    for ((number, (_, place)), interface) in (1..).zip(&places).zip(["eth0", "vec1"]) {
        let inner = Inner(number);
        inner.join(&mut guest, interface, 2, MTU)?;
        let mut near = place.guest(lab, inner, (number + 1, 1), MTU)?;
        inner.exchange(&mut near, &mut guest, MTU)?;
    }
    Ok(())
}

/// The kernel's vxlan device against Open vSwitch.
fn kernel_and_ovs(lab: &Lab) -> Result<()> {
    let wire = Wire::new(Carrier::AfPacket, MTU)?;
    // Open vSwitch reads packets as they are on the wire, and a veth pair finishes no checksums.
    wire.near.sh("ethtool -K v1 tx off")?;
    let mut ovs = ovs::Far::start(lab, wire.far(), "eth0", &[])?;
    for (number, tunnel) in (1..).zip(&ovs::TUNNELS[..2]) {
        wire.near.sh(&tunnel.outer.add(1, "v1"))?;
        let device = Vxlan { far: ovs::FAR, outer: tunnel.outer, vni: ovs::VNI, options: "" };
        let place = device.device_in(&wire.near, "v1", [1, ovs::FAR])?;
        let inner = Inner(number);
        let mut near = place.guest(lab, inner, (1, 1), MTU)?;
        ovs.exchange(tunnel.settings, tunnel.outer, &mut near, inner)?;
    }
    Ok(())
}

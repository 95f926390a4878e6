//! One port with several network identifiers (`vnis`): each tenant reaches its own network at the other
//! end, and no other.
//!
//! ```text
//! red guest ── VLAN 10 ┐                       ┌ vxlan device 10010 ── red network
//!                      ├ bridge ── fabric ──── ┤
//! blue guest ─ VLAN 20 ┘                       └ vxlan device 10020 ── blue network
//! ```
//!
//! Success: both tenants exchange files. With the kernel, both have the same addresses, and an address
//! that only the blue network has is silent for red.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::ovs::{self, Far};
use super::vxlan::Vxlan;
use super::{Carrier, Inner, Outer, SPACE, Wire, capture, carried_by, underlay};
use crate::cases::outside::DeviceKind;
use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::Namespace;
use crate::runner::Test;
use crate::switch::{Port, Switch};
use crate::traffic;

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("tunnel_networks_linux", &[Need::Namespaces, Need::Captures, Need::Uml(2)], with_kernel),
        Test::new("tunnel_networks_ovs", &[Need::Namespaces, Need::Ovs, Need::Uml(2)], with_ovs),
    ]
}

const MTU: u32 = 1500;
const VNIS: [u32; 2] = [10_010, 10_020];

/// Returns the configuration: the ports `a` and `b` of the tenants in VLANs 10 and 20, and the port
/// `fabric` with a network for each.
fn configuration(lab: &Lab, kind: &str, remote: &str, others: &[Port]) -> Result<String> {
    let tenants = ["a", "b"].map(|name| Port { mtu: MTU, ..Port::new(name) });
    let mut text = Switch::port_sections(lab, &[&tenants[..], others].concat())?;
    for (port, vlan) in [("a", 10), ("b", 20)] {
        let section = format!("[port.{port}]\n");
        text = text.replace(&section, &format!("{section}vlan = {vlan}\n"));
    }
    write!(text, "\n[port.fabric]\nkind = {kind:?}\nunderlay = \"wan\"\nremote = {remote:?}\nmtu = {MTU}\n")?;
    writeln!(text, "vnis = {{ 10 = {}, 20 = {} }}", VNIS[0], VNIS[1])?;
    write!(text, "\n[bridge.lan]\nports = [\"a\", \"b\", \"fabric\"]\n")?;
    Ok(text)
}

/// Starts the guests of both tenants.
fn tenants(lab: &Lab, inners: [Inner; 2]) -> Result<[LinuxGuest; 2]> {
    let mut guests = [LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?, LinuxGuest::start(lab, GuestKind::Uml, 2, "b")?];
    for (guest, inner) in guests.iter_mut().zip(inners) {
        guest.boot()?;
        guest.load_ip6()?;
        inner.join(guest, "eth0", 1, MTU)?;
    }
    Ok(guests)
}

/// The switch drops nothing of the tunnel, and shows its networks.
fn shows_networks(switch: &Switch) -> Result<()> {
    let port = switch.port("fabric")?;
    ensure!(!port.drops.contains_key("vlan-not-allowed"), "{:?}", port.drops);
    let vnis: Vec<_> = port.tunnel.iter().flat_map(|ends| ends.vnis.clone()).collect();
    ensure!(vnis == [(10, VNIS[0]), (20, VNIS[1])], "{vnis:?}");
    carried_by(switch, ["fabric"].into_iter())
}

fn with_kernel(lab: &Lab) -> Result<()> {
    const FAR: u8 = 11;
    let wire = Wire::new(Carrier::AfXdp, MTU)?;
    wire.add_far(Outer::V4, FAR)?;
    let mut text = configuration(lab, "vxlan", &Outer::V4.address(FAR), &[])?;
    let nic = DeviceKind::AfXdp.keys("v1");
    write!(text, "\n[port.nic0]\n{nic}\nmtu = {}\n{}", MTU + SPACE, underlay("wan", "nic0", ""))?;
    let mut switch = Switch::spawn_with(lab, &wire.near.prefix(), &text)?;
    switch.wait_ready()?;
    let inner = Inner(1);
    let mut near = tenants(lab, [inner; 2])?;
    let mut far = Vec::new();
    for (number, vni) in (3..).zip(VNIS) {
        let device = Vxlan { far: FAR, outer: Outer::V4, vni, options: "udpcsum" };
        let place = device.device_in(wire.far(), wire.interface(), [FAR, 1])?;
        far.push((place.guest(lab, inner, (number, 2), MTU)?, place));
    }
    for (near, (far, _)) in near.iter_mut().zip(&mut far) {
        inner.exchange(near, far, MTU)?;
        capture(lab, &wire, near, far, inner, &[])?;
    }
    let [red, blue] = &mut near;
    let only_blue = inner.v4(3);
    let (far_blue, place) = &mut far[1];
    far_blue.sh(&format!("ip addr add {only_blue}/24 dev {}", place.interface))?;
    traffic::reach(blue, &only_blue)?;
    let (code, text) = red.run(&format!("ping -c 2 -W 1 {only_blue}"))?;
    ensure!(code != 0, "red reaches an address of blue: {text}");
    shows_networks(&switch)?;
    switch.stop()
}

fn with_ovs(lab: &Lab) -> Result<()> {
    let wire = Port { mtu: MTU + SPACE, ..Port::new("u") };
    let mut text = configuration(lab, "geneve", &Outer::V4.address(ovs::FAR), &[wire])?;
    text += &underlay("wan", wire.name, "");
    let mut switch = Switch::spawn_with(lab, &[], &text)?;
    switch.wait_ready()?;
    let namespace = Namespace::new("ovs")?;
    let device = format!("options:dpdk-devargs=net_virtio_user0,path={}", lab.socket(wire.name).display());
    let mut far = Far::start(lab, &namespace, "wire", &["type=dpdk", &device])?;
    // The bridges of both networks are in one namespace, so their addresses differ.
    let inners = [Inner(1), Inner(2)];
    let mut near = tenants(lab, inners)?;
    let keys = ["options:key=10010", "options:key=10020"];
    for ((near, inner), key) in near.iter_mut().zip(inners).zip(keys) {
        far.exchange(&["type=geneve", key, "options:csum=true"], Outer::V4, near, inner)?;
    }
    shows_networks(&switch)?;
    // Open vSwitch has sockets in the same folder.
    switch.end()
}

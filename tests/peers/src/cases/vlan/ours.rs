//! Our switch, with ports of all kinds.

use std::fmt::Write as _;

use anyhow::Result;
use straightline_guest::endpoints::InterfaceKind;

use super::frames::MTU;
use super::topology::{BRIDGES, CUSTOMER, Mode, Native, PORTS, VlanPort};
use super::{exchange, tags};
use crate::cases::ends::{Device, Embedded, End};
use crate::cases::outside::DeviceKind;
use crate::lab::Lab;
use crate::net::{self, Namespace};
use crate::switch::Switch;

/// Ports with an embedded guest each.
pub(super) fn agrees(lab: &Lab) -> Result<()> {
    let text = configuration(lab, |at| vhost_user(lab, PORTS[at].name))?;
    let mut switch = Switch::spawn_with(lab, &[], &text)?;
    switch.wait_ready()?;
    let mut ends: Vec<Box<dyn End>> = Vec::new();
    for port in &PORTS {
        ends.push(Box::new(Embedded::connect(&lab.socket(port.name))?));
    }
    let outputs = exchange::agrees(lab, &mut ends, MTU, &[])?;
    tags::are_read(lab, &outputs)?;
    switch.stop()
}

/// Ports on interfaces: taps, AF_PACKET and AF_XDP ports in turn.
pub(super) fn devices_agree(lab: &Lab) -> Result<()> {
    let namespace = Namespace::silent("vlan")?;
    let mut near = Vec::new();
    for at in 0..PORTS.len() {
        let [inside, outside] = ["v", "w"].map(|end| format!("{end}{at}"));
        if at % 3 > 0 {
            net::veth([(&namespace, inside.as_str()), (&namespace, outside.as_str())], 1, 1500)?;
        }
        near.push(match at % 3 {
            0 => format!("kind = \"tap\"\nname = \"{outside}\""),
            1 => DeviceKind::AfPacket.keys(&inside),
            _ => DeviceKind::AfXdp.keys(&inside),
        });
    }
    let text = configuration(lab, |at| near[at].clone())?;
    let mut switch = Switch::spawn_with(lab, &namespace.prefix(), &text)?;
    switch.wait_ready()?;
    namespace.sh("for end in /sys/class/net/w*; do ip link set ${end##*/} up; done")?;
    let mut ends: Vec<Box<dyn End>> = Vec::new();
    for (at, port) in PORTS.iter().enumerate() {
        switch.wait_link(port.name, "up")?;
        let end = namespace.run(|| Device::open(InterfaceKind::AfPacket, &format!("w{at}")))??;
        ends.push(Box::new(end));
    }
    // A packet socket sends one tag beyond the MTU at most, and none of a provider.
    exchange::agrees(lab, &mut ends, MTU - 8, &[])?;
    switch.stop()
}

/// Returns the configuration of all bridges. `near` returns the kind of a port, and the keys of it.
fn configuration(lab: &Lab, near: impl Fn(usize) -> String) -> Result<String> {
    let mut text = Switch::port_sections(lab, &[])?;
    for (at, port) in PORTS.iter().enumerate() {
        write!(text, "\n[port.{}]\n{}\nmtu = {MTU}\n{}\n", port.name, near(at), keys(port)?)?;
    }
    for (at, bridge) in BRIDGES.iter().enumerate() {
        let ports = PORTS.iter().filter(|port| port.bridge == at);
        let names: Vec<&str> = ports.map(|port| port.name).collect();
        // The frames move stations from port to port, as no network does. The others have no such protection.
        write!(text, "\n[bridge.{}]\nports = {names:?}\nloop-protection = false\n", bridge.name)?;
    }
    Ok(text)
}

/// Returns the lines of a vhost-user port.
pub(super) fn vhost_user(lab: &Lab, name: &str) -> String {
    format!("kind = \"vhost-user\"\nsocket = \"{}\"", lab.socket(name).display())
}

/// Returns the keys that set a port's VLANs.
fn keys(port: &VlanPort) -> Result<String> {
    let mut keys = match &port.mode {
        Mode::Access(vlan) => format!("vlan = {vlan}"),
        Mode::Qinq(vlan) => format!("qinq = {vlan}"),
        Mode::Trunk(vlans, native) => {
            let tag = if port.tpid() == CUSTOMER { "802.1Q" } else { "802.1ad" };
            let mut keys = format!("trunk = {vlans:?}\ntag = \"{tag}\"");
            if let Some(Native { vlan, tagged }) = native {
                let form = if *tagged { "tagged" } else { "untagged" };
                write!(keys, "\nnative-vlan = {vlan}\nnative = \"{form}\"")?;
            }
            keys
        }
    };
    if port.priority > 0 {
        write!(keys, "\npriority = {}", port.priority)?;
    }
    Ok(keys)
}

//! Linux bridges with VLAN filtering in a User Mode Linux guest. Its ports are sockets that keep the
//! boundaries of packets, so no other kernel touches a tag on the way.

use std::process::Command;

use anyhow::Result;

use super::differences::LINUX;
use super::topology::{BRIDGES, CUSTOMER, Mode, Native, PORTS, VlanPort};
use super::{exchange, frames};
use crate::cases::ends::{End, Listener};
use crate::guest::LinuxGuest;
use crate::lab::Lab;

/// MTU of the guest's interfaces, for three tags.
const MTU: u32 = 1600;

pub(super) fn agrees(lab: &Lab) -> Result<()> {
    let mut listeners = Vec::new();
    let mut devices = Vec::new();
    for (at, port) in PORTS.iter().enumerate() {
        let socket = lab.socket(port.name);
        listeners.push(Listener::new(&socket)?);
        let own = lab.socket(&format!("{}-guest", port.name));
        devices.push(format!("vec{at}:transport=bess,src={},dst={},mtu={MTU}", own.display(), socket.display()));
    }
    let mut guest = LinuxGuest::start_with_devices(lab, 1, Command::new("setarch"), &devices)?;
    guest.boot()?;
    guest.load_bridge()?;
    for bridge in BRIDGES {
        let name = bridge.name;
        let tag = if bridge.tpid == CUSTOMER { "802.1Q" } else { "802.1ad" };
        guest.sh(&format!(
            "iproute2 link add {name} type bridge vlan_filtering 1 vlan_default_pvid 0 vlan_protocol {tag} \
             mcast_snooping 0 && ip link set {name} up"
        ))?;
    }
    for (at, port) in PORTS.iter().enumerate() {
        let interface = if at == 0 { guest.interface.clone() } else { format!("vec{at}") };
        let bridge = BRIDGES[port.bridge].name;
        guest.sh(&format!("ip link set {interface} master {bridge} && {}", membership(port, &interface)))?;
        guest.sh(&format!("ip link set {interface} up"))?;
    }
    let mut ends: Vec<Box<dyn End>> = Vec::new();
    for listener in &listeners {
        ends.push(Box::new(listener.accept()?));
    }
    exchange::agrees(lab, &mut ends, frames::MTU, &LINUX)?;
    Ok(())
}

/// Returns the commands that set a port's VLANs.
fn membership(port: &VlanPort, interface: &str) -> String {
    let add = |vlan: u16, flags: &str| format!("bridge vlan add dev {interface} vid {vlan} {flags}");
    let commands: Vec<String> = match &port.mode {
        Mode::Access(vlan) | Mode::Qinq(vlan) => vec![add(*vlan, "pvid untagged")],
        Mode::Trunk(vlans, native) => {
            let native = native.map(|Native { vlan, tagged }| add(vlan, if tagged { "pvid" } else { "pvid untagged" }));
            vlans.iter().map(|&vlan| add(vlan, "")).chain(native).collect()
        }
    };
    commands.join(" && ")
}

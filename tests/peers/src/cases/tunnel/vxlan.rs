//! VXLAN (RFC 7348): the switch and the vxlan device of this machine's kernel.

use anyhow::Result;

use super::{Carrier, Inner, Outer, Place, Wire, capture, carried};
use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::Namespace;
use crate::runner::Test;
use crate::say::say;

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Namespaces, Need::Captures, Need::Uml(1)];
    [
        ("tunnel_vxlan_af_xdp", Carrier::AfXdp, 1500),
        ("tunnel_vxlan_af_packet_jumbo", Carrier::AfPacket, 9000),
        ("tunnel_vxlan_tap", Carrier::Tap, 1500),
    ]
    .map(|(name, carrier, mtu)| Test::new(name, &needs, move |lab| with_kernel(lab, carrier, mtu)))
    .into()
}

/// A tunnel from host 1 of the underlay's network to another host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vxlan {
    pub(super) far: u8,
    pub(super) outer: Outer,
    pub(super) vni: u32,
    /// Options of the kernel's device.
    pub(super) options: &'static str,
}

const TUNNELS: [Vxlan; 3] = [
    Vxlan { far: 11, outer: Outer::V4, vni: 0x12_3456, options: "udpcsum" },
    Vxlan { far: 12, outer: Outer::V4, vni: 7, options: "noudpcsum" },
    Vxlan { far: 13, outer: Outer::V6, vni: 7, options: "" },
];

impl Vxlan {
    /// Returns the lines of the tunnel's section in the configuration.
    pub(super) fn keys(&self, mtu: u32) -> String {
        let remote = self.outer.address(self.far);
        format!("kind = \"vxlan\"\nunderlay = \"wan\"\nremote = \"{remote}\"\nvni = {}\nmtu = {mtu}", self.vni)
    }

    /// Makes the far end in the kernel. It gets a namespace of its own.
    pub(super) fn device(&self, wire: &Wire) -> Result<Place> {
        wire.add_far(self.outer, self.far)?;
        self.device_in(wire.far(), wire.interface(), [self.far, 1])
    }

    /// Makes an end in the kernel, whose own host and other host of the underlay's network are
    /// `hosts`. It gets a namespace of its own.
    pub(super) fn device_in(&self, namespace: &Namespace, interface: &str, hosts: [u8; 2]) -> Result<Place> {
        let name = format!("vx{}", self.far);
        let vni = self.vni;
        let options = self.options;
        let [own, other] = hosts.map(|host| self.outer.address(host));
        namespace.sh(&format!(
            "ip link add {name} type vxlan id {vni} local {own} remote {other} dstport 4789 dev {interface} {options}"
        ))?;
        Place::of(namespace, &name)
    }
}

fn with_kernel(lab: &Lab, carrier: Carrier, mtu: u32) -> Result<()> {
    let wire = Wire::new(carrier, mtu)?;
    if carrier == Carrier::AfPacket {
        // A veth pair passes on segments of a tunnel unsegmented, and AF_PACKET cannot describe them.
        wire.far().sh("ethtool -K eth0 tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off")?;
    }
    let tunnels: Vec<(String, String)> =
        TUNNELS.iter().map(|tunnel| (format!("t{}", tunnel.far), tunnel.keys(mtu))).collect();
    let switch = wire.switch(lab, &tunnels)?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    guest.boot()?;
    guest.load_ip6()?;
    for (number, tunnel) in (1..).zip(TUNNELS) {
        say!("  {tunnel:?}");
        let inner = Inner(number);
        inner.join(&mut guest, "eth0", 1, mtu)?;
        let place = tunnel.device(&wire)?;
        let mut far = place.guest(lab, inner, (number + 1, 2), mtu)?;
        inner.exchange(&mut guest, &mut far, mtu)?;
        // Other kinds of ports leave checksums to the interface.
        if carrier == Carrier::AfXdp {
            capture(lab, &wire, &mut guest, &mut far, inner, &[])?;
        }
    }
    carried(&switch, &tunnels)?;
    switch.stop()
}

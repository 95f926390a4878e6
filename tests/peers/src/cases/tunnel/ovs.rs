//! VXLAN, Geneve and GRE: the switch and Open vSwitch with DPDK, whose virtio-user device is on the
//! underlay's port.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::{Inner, Outer, SPACE, carried_by, underlay};
use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::Namespace;
use crate::ovs::{OUTER_BRIDGE, TunnelOvs};
use crate::runner::Test;
use crate::say::say;
use crate::switch::{Port, Switch};

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("tunnel_ovs", &[Need::Namespaces, Need::Ovs, Need::Uml(1)], with_ovs)]
}

pub(super) const MTU: u32 = 1500;

/// Host of the underlay's network.
pub(super) const FAR: u8 = 2;

/// VXLAN's network identifier in [`TUNNELS`].
pub(super) const VNI: u32 = 5;

/// A tunnel to Open vSwitch.
pub(super) struct Tunnel {
    pub(super) outer: Outer,
    /// Settings of OvS's interface.
    pub(super) settings: &'static [&'static str],
    /// The lines of the tunnel's section.
    keys: &'static str,
}

pub(super) const TUNNELS: [Tunnel; 5] = [
    Tunnel {
        outer: Outer::V4,
        settings: &["type=vxlan", "options:key=5", "options:csum=true"],
        keys: "kind = \"vxlan\"\nvni = 5",
    },
    Tunnel {
        outer: Outer::V6,
        settings: &["type=vxlan", "options:key=5", "options:csum=true"],
        keys: "kind = \"vxlan\"\nvni = 5",
    },
    Tunnel {
        outer: Outer::V4,
        settings: &["type=geneve", "options:key=6", "options:csum=true"],
        keys: "kind = \"geneve\"\nvni = 6",
    },
    Tunnel {
        outer: Outer::V6,
        settings: &["type=geneve", "options:key=6", "options:csum=true"],
        keys: "kind = \"geneve\"\nvni = 6",
    },
    Tunnel {
        outer: Outer::V4,
        settings: &["type=gre", "options:key=7", "options:csum=true"],
        keys: "kind = \"gre\"\nkey = 7\nchecksum = true",
    },
];

/// Open vSwitch as host 2 of the underlay's network, in a namespace of its own or of the network.
pub(super) struct Far<'t> {
    ovs: TunnelOvs<'t>,
    namespace: &'t Namespace,
    /// A shell where the interfaces of its bridges are.
    host: LinuxGuest,
}

impl<'t> Far<'t> {
    /// Starts Open vSwitch with this interface on the underlay.
    pub(super) fn start(lab: &'t Lab<'_>, namespace: &'t Namespace, port: &str, settings: &[&str]) -> Result<Self> {
        let mtu = MTU + SPACE;
        let request = format!("mtu_request={mtu}");
        let ovs = TunnelOvs::start(lab, namespace, mtu, port, &[settings, &[request.as_str()]].concat())?;
        let [v4, v6] = [Outer::V4, Outer::V6].map(|outer| outer.add(FAR, OUTER_BRIDGE));
        namespace.sh(&format!("ip link set {OUTER_BRIDGE} up; {v4}; {v6}"))?;
        let mut host = LinuxGuest::in_namespace(lab, namespace, 2, OUTER_BRIDGE)?;
        host.boot()?;
        Ok(Self { ovs, namespace, host })
    }

    /// Adds a tunnel, and lets a guest exchange traffic with its far end.
    pub(super) fn exchange(
        &mut self,
        settings: &[&str],
        outer: Outer,
        near: &mut LinuxGuest,
        inner: Inner,
    ) -> Result<()> {
        say!("  {settings:?} over {outer:?}");
        let bridge = format!("br{}", inner.0);
        let remote = format!("options:remote_ip={}", outer.address(1));
        let settings = [settings, &[remote.as_str()]].concat();
        self.ovs.add_bridge(self.namespace, &bridge, MTU, &format!("{bridge}-port"), &settings)?;
        inner.join(&mut self.host, &bridge, 2, MTU)?;
        inner.exchange(near, &mut self.host, MTU).with_context(|| format!("{settings:?}: {:?}", self.ovs.state()))
    }
}

fn with_ovs(lab: &Lab) -> Result<()> {
    let near = Port { mtu: MTU, ..Port::new("a") };
    let wire = Port { mtu: MTU + SPACE, ..Port::new("u") };
    let mut text = Switch::port_sections(lab, &[near, wire])?;
    let mut names = Vec::new();
    for (number, Tunnel { outer, keys, .. }) in (1..).zip(TUNNELS) {
        let name = format!("t{number}");
        let remote = outer.address(FAR);
        write!(text, "\n[port.{name}]\n{keys}\nunderlay = \"wan\"\nremote = \"{remote}\"\nmtu = {MTU}\n")?;
        names.push(name);
    }
    text += &underlay("wan", wire.name, "");
    let ports: Vec<&str> = [near.name].into_iter().chain(names.iter().map(String::as_str)).collect();
    write!(text, "\n[bridge.lan]\nports = {ports:?}\n")?;
    let mut switch = Switch::spawn_with(lab, &[], &text)?;
    switch.wait_ready()?;

    let far = Namespace::new("ovs")?;
    let device = format!("options:dpdk-devargs=net_virtio_user0,path={}", lab.socket(wire.name).display());
    let mut ovs = Far::start(lab, &far, "wire", &["type=dpdk", &device])?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, near.name)?;
    guest.boot()?;
    guest.load_ip6()?;
    for (number, tunnel) in (1..).zip(&TUNNELS) {
        let inner = Inner(number);
        inner.join(&mut guest, "eth0", 1, MTU)?;
        ovs.exchange(tunnel.settings, tunnel.outer, &mut guest, inner)?;
    }
    carried_by(&switch, names.iter().map(String::as_str))?;
    // Open vSwitch has sockets in the same folder.
    switch.end()
}

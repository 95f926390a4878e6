//! Tunnels: guests exchange traffic with other implementations of each encapsulation.
//!
//! | file | what it tests |
//! |---|---|
//! | `references` | the harness itself: other implementations against each other, without a switch |
//! | `l2tpv3` | L2TPv3 and GRE: the switch and QEMU, the switch and User Mode Linux's own drivers |
//! | `vxlan` | VXLAN: the switch and the kernel of this machine |
//! | `linux` | the tunnel devices of User Mode Linux, on a vhost-user port as underlay |
//! | `ovs` | Open vSwitch: VXLAN, Geneve, GRE |
//! | `networks` | one port with several network identifiers: the kernel, Open vSwitch |
//! | `captures` | each kind between two switches, and what tshark reads on the wire |
//! | `next_hop` | a next hop that goes away and returns |

mod captures;
mod l2tpv3;
mod linux;
mod networks;
mod next_hop;
mod ovs;
mod references;
mod vxlan;

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::outside::DeviceKind;
use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::net::{self, Capture, Namespace};
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{DevicePort, Port, Switch};
use crate::traffic::{self, Transfer};

/// Returns the tests.
pub(super) fn tests() -> Vec<Test> {
    let mut tests = references::tests();
    tests.extend(l2tpv3::tests());
    tests.extend(vxlan::tests());
    tests.extend(linux::tests());
    tests.extend(ovs::tests());
    tests.extend(networks::tests());
    tests.extend(captures::tests());
    tests.extend(next_hop::tests());
    beside_others(tests)
}

/// The IP version of an underlay's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outer {
    V4,
    V6,
}

impl Outer {
    /// Returns an address of the underlay's network (RFC 5737, RFC 3849). Host 1 is the switch.
    fn address(self, host: u8) -> String {
        match self {
            Self::V4 => format!("192.0.2.{host}"),
            Self::V6 => format!("2001:db8::{host}"),
        }
    }

    /// Returns a command that adds such an address to an interface.
    fn add(self, host: u8, interface: &str) -> String {
        match self {
            Self::V4 => format!("ip addr add {}/24 dev {interface}", self.address(host)),
            Self::V6 => format!("ip -6 addr add {}/64 dev {interface}", self.address(host)),
        }
    }
}

/// A network inside a tunnel, by its number. Host 1 is at the near end, host 2 at the far end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner(pub(super) u8);

impl Inner {
    pub(super) fn v4(self, host: u8) -> String {
        format!("10.78.{}.{host}", self.0)
    }

    fn v6(self, host: u8) -> String {
        format!("fd78:{}::{host}", self.0)
    }

    /// Makes an interface of a guest a host of the network.
    pub(super) fn join(self, guest: &mut LinuxGuest, interface: &str, host: u8, mtu: u32) -> Result<()> {
        // An interface answers for its own addresses only, and an address is valid at once.
        let settings = format!("net.ipv4.conf.all.arp_ignore=1 net.ipv6.conf.{interface}.accept_dad=0");
        guest.sh(&format!(
            "sysctl -qw {settings} && ip addr add {}/24 dev {interface} && ip -6 addr add {}/64 dev {interface} \
             && ip link set {interface} mtu {mtu} up",
            self.v4(host),
            self.v6(host)
        ))?;
        Ok(())
    }

    /// Lets the two hosts exchange echoes and files, over IPv4 and IPv6.
    fn exchange(self, one: &mut LinuxGuest, other: &mut LinuxGuest, mtu: u32) -> Result<()> {
        self.exchange_by(one, other, mtu, false)
    }

    /// Lets host 1 send echoes of the smallest and the largest length to host 2.
    fn echo(self, one: &mut LinuxGuest, mtu: u32, only_v4: bool) -> Result<()> {
        // Each address, with the bytes of the IP and ICMP headers.
        let both = [(self.v4(2), 28), (self.v6(2), 48)];
        for (address, headers) in if only_v4 { &both[..1] } else { &both[..] } {
            traffic::reach(one, address)?;
            traffic::ping(one, address, 3, 56)?;
            traffic::ping(one, address, 3, mtu - headers)?;
        }
        Ok(())
    }

    /// Does the same as [`Self::exchange`], or with `only_v4` without IPv6.
    pub(super) fn exchange_by(
        self,
        one: &mut LinuxGuest,
        other: &mut LinuxGuest,
        mtu: u32,
        only_v4: bool,
    ) -> Result<()> {
        self.echo(one, mtu, only_v4)?;
        send_file(one, other, &self.v4(2))?;
        if !only_v4 {
            send_file(one, other, &self.v6(2))?;
        }
        send_file(other, one, &self.v4(1))?;
        traffic::no_errors(one)?;
        traffic::no_errors(other)
    }
}

/// Sends a file of 8 MiB to an address of `to`, and compares the hashes.
fn send_file(from: &mut LinuxGuest, to: &mut LinuxGuest, address: &str) -> Result<()> {
    let mut file = Transfer::prepare(from, to, address, 9000, 8)?;
    file.send(from)?;
    file.finish(from, to)
}

/// The kind of the port that carries an underlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    AfXdp,
    AfPacket,
    Tap,
}

/// Space for the headers of every tunnel in a packet of the underlay, beyond the inner MTU.
const SPACE: u32 = 150;

/// The network of an underlay: the namespace of the switch, and the interface of the other end.
struct Wire {
    carrier: Carrier,
    /// MTU inside the tunnels.
    mtu: u32,
    near: Namespace,
    /// The namespace of the other end. `None`: it is that of the switch, which makes a tap there.
    far: Option<Namespace>,
}

impl Wire {
    /// Makes a network in which packets of this length fit into tunnels.
    fn new(carrier: Carrier, mtu: u32) -> Result<Self> {
        let near = Namespace::new("near")?;
        let mut far = None;
        if carrier != Carrier::Tap {
            let other = far.insert(Namespace::new("far")?);
            net::veth([(&near, "v1"), (other, "eth0")], 1, mtu + SPACE)?;
        }
        Ok(Self { carrier, mtu, near, far })
    }

    fn far(&self) -> &Namespace {
        self.far.as_ref().unwrap_or(&self.near)
    }

    /// Returns the interface of the far end.
    fn interface(&self) -> &'static str {
        if self.carrier == Carrier::Tap { "sl0" } else { "eth0" }
    }

    /// Adds an address of the network to the far end.
    fn add_far(&self, outer: Outer, host: u8) -> Result<()> {
        self.far().sh(&outer.add(host, self.interface()))?;
        Ok(())
    }

    /// Starts a switch at the near end, with a guest's port `a` and tunnels in a bridge.
    fn switch<'lab>(&self, lab: &'lab Lab<'_>, tunnels: &[(String, String)]) -> Result<Switch<'lab>> {
        let tunnels: Vec<DevicePort> = tunnels.iter().map(|(name, keys)| (name.as_str(), keys.as_str())).collect();
        let port = Port { mtu: self.mtu, ..Port::new("a") };
        let mut text = Switch::configuration(lab, &[port], &tunnels, &[])?;
        let keys = match self.carrier {
            Carrier::AfXdp => DeviceKind::AfXdp.keys("v1"),
            Carrier::AfPacket => DeviceKind::AfPacket.keys("v1"),
            Carrier::Tap => "kind = \"tap\"\nname = \"sl0\"".to_owned(),
        };
        write!(text, "\n[port.nic0]\n{keys}\nmtu = {}\n{}", self.mtu + SPACE, underlay("wan", "nic0", ""))?;
        let mut switch = Switch::spawn_with(lab, &self.near.prefix(), &text)?;
        switch.wait_ready()?;
        Ok(switch)
    }
}

/// Returns the section of an underlay with both addresses of host 1.
fn underlay(name: &str, port: &str, more: &str) -> String {
    let [v4, v6] = [Outer::V4.address(1), Outer::V6.address(1)];
    format!("\n[underlay.{name}]\nport = \"{port}\"\naddress = [\"{v4}/24\", \"{v6}/64\"]\n{more}\n")
}

/// Captures what arrives at the far end while guest `one` sends a file, with and without
/// segmentation and checksums by the switch. All checksums are right, inside and outside.
fn capture(
    lab: &Lab,
    wire: &Wire,
    one: &mut LinuxGuest,
    other: &mut LinuxGuest,
    inner: Inner,
    options: &[&str],
) -> Result<()> {
    let least = usize::try_from((8 << 20) / wire.mtu)?;
    for state in ["on", "off"] {
        let interface = one.interface.clone();
        one.sh(&format!("ethtool -K {interface} tx {state} && ethtool -K {interface} tso {state}"))?;
        let capture = Capture::start(lab, wire.far(), wire.interface())?;
        send_file(one, other, &inner.v4(2))?;
        capture.checksums_are_right_by(least, options)?;
    }
    one.sh(&format!("ethtool -K {0} tx on && ethtool -K {0} tso on", one.interface))?;
    Ok(())
}

/// Asserts that packets have passed all tunnels, and prints how many were dropped.
fn carried(switch: &Switch, tunnels: &[(String, String)]) -> Result<()> {
    carried_by(switch, tunnels.iter().map(|(name, _)| name.as_str()))
}

fn carried_by<'t>(switch: &Switch, tunnels: impl Iterator<Item = &'t str>) -> Result<()> {
    for name in tunnels {
        let port = switch.port(name)?;
        say!("  port {name}: {} packets in, {} out, drops {:?}", port.rx().packets, port.tx().packets, port.drops);
        ensure!(port.rx().packets > 100 && port.tx().packets > 100, "few packets passed port {name}: {port:?}");
    }
    Ok(())
}

/// A namespace of its own for an interface that a peer has made: the far end of a tunnel.
struct Place {
    namespace: Namespace,
    interface: String,
}

impl Place {
    /// Moves an interface from the namespace `from` to a new one.
    fn of(from: &Namespace, interface: &str) -> Result<Self> {
        let namespace = Namespace::new("end")?;
        from.sh(&format!("ip link set {interface} netns {}", namespace.name()))?;
        Ok(Self { namespace, interface: interface.to_owned() })
    }

    /// Starts a shell at the end, as a host of the inner network.
    fn guest(&self, lab: &Lab, inner: Inner, (number, host): (u8, u8), mtu: u32) -> Result<LinuxGuest> {
        let mut guest = LinuxGuest::in_namespace(lab, &self.namespace, number, &self.interface)?;
        guest.boot()?;
        inner.join(&mut guest, &self.interface, host, mtu)?;
        Ok(guest)
    }
}

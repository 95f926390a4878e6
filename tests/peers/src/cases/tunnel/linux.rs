//! The tunnel devices of Linux, in a User Mode Linux guest whose vhost-user port is the underlay.
//! No interface of this machine and no privileges are necessary.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::{Inner, Outer, SPACE, carried_by, underlay};
use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::Test;
use crate::say::say;
use crate::switch::{Join, Port, Switch};

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("tunnel_references_linux", &[Need::Uml(2)], between_guests),
        Test::new("tunnel_linux", &[Need::Uml(2)], |lab| with_linux(lab, 1500)),
        Test::new("tunnel_linux_jumbo", &[Need::Uml(2)], |lab| with_linux(lab, 9000)),
    ]
}

/// The guest whose devices are the far ends is host 2 of the underlay's network.
const FAR: u8 = 2;

/// The near guest's ports.
const NEAR: [&str; 4] = ["a", "b", "c", "d"];

/// A tunnel device of Linux, and the tunnel of the switch.
struct Tunnel {
    /// The kind of the device and its keys. `L` and `R` stand for the addresses of the guest and
    /// of the other host in the underlay's network.
    device: &'static str,
    outer: Outer,
    /// The lines of the tunnel's section, without address and MTU.
    keys: &'static str,
    /// The port of the near guest: all tunnels that carry Ethernet are in one bridge.
    port: &'static str,
    /// A command that completes the device `D`. `N` stands for the other host's inner address.
    then: &'static str,
    /// True if the device carries IPv4 alone.
    only_v4: bool,
    /// True if it is on the underlay with a VLAN.
    is_tagged: bool,
}

const ETHERNET: Tunnel =
    Tunnel { device: "", outer: Outer::V4, keys: "", port: "a", then: "", only_v4: false, is_tagged: false };

const TUNNELS: [Tunnel; 12] = [
    Tunnel {
        device: "vxlan id 5 local L remote R dstport 4789 udpcsum",
        keys: "kind = \"vxlan\"\nvni = 5",
        ..ETHERNET
    },
    Tunnel {
        device: "vxlan id 5 local L remote R dstport 4789",
        outer: Outer::V6,
        keys: "kind = \"vxlan\"\nvni = 5",
        ..ETHERNET
    },
    Tunnel { device: "geneve id 6 remote R dstport 6081 udpcsum", keys: "kind = \"geneve\"\nvni = 6", ..ETHERNET },
    Tunnel {
        device: "geneve id 6 remote R dstport 6081",
        outer: Outer::V6,
        keys: "kind = \"geneve\"\nvni = 6",
        ..ETHERNET
    },
    Tunnel { device: "gretap local L remote R", keys: "kind = \"gre\"", ..ETHERNET },
    Tunnel {
        device: "gretap local L remote R key 7 csum oseq",
        keys: "kind = \"gre\"\nkey = 7\nchecksum = true",
        ..ETHERNET
    },
    Tunnel {
        device: "ip6gretap local L remote R encaplimit none",
        outer: Outer::V6,
        keys: "kind = \"gre\"",
        ..ETHERNET
    },
    Tunnel {
        device: "ip6gretap local L remote R key 8 csum encaplimit none",
        outer: Outer::V6,
        keys: "kind = \"gre\"\nkey = 8\nchecksum = true",
        ..ETHERNET
    },
    Tunnel {
        device: "vxlan id 9 local L remote R dstport 4789",
        keys: "kind = \"vxlan\"\nvni = 9",
        is_tagged: true,
        ..ETHERNET
    },
    Tunnel {
        device: "gre local L remote R key 10",
        keys: "kind = \"gre\"\nkey = 10\nip = true",
        port: "b",
        ..ETHERNET
    },
    Tunnel {
        device: "vxlan external gpe dstport 4790",
        keys: "kind = \"vxlan-gpe\"\nvni = 11\nip = true",
        port: "c",
        then: "iproute2 route add N/32 encap ip id 11 dst R dev D",
        only_v4: true,
        ..ETHERNET
    },
    Tunnel {
        device: "gtp role ggsn",
        keys: "kind = \"gtpu\"\nteid = 12",
        port: "d",
        then: "gtp_tunnel D 12 12 R N",
        only_v4: true,
        ..ETHERNET
    },
];

/// Returns the configuration: the near guest's ports `a` to `d`, and the ports `u` and `v` of the
/// far guest, which are underlays.
fn configuration(lab: &Lab, mtu: u32) -> Result<String> {
    let near = NEAR.map(|name| Port { mtu, ..Port::new(name) });
    let far = ["u", "v"].map(|name| Port { mtu: mtu + SPACE, ..Port::new(name) });
    let mut text = Switch::port_sections(lab, &[&near[..], &far[..]].concat())?;
    text += &underlay("wan", "u", "");
    text += "\n[underlay.tagged]\nport = \"v\"\naddress = [\"198.51.100.1/24\"]\nvlan = 100\n";
    let mut bridge = vec!["a".to_owned()];
    for (number, tunnel) in (1..).zip(&TUNNELS) {
        let underlay = if tunnel.is_tagged { "tagged" } else { "wan" };
        let remote = tunnel.address(FAR);
        write!(text, "\n[port.t{number}]\n{}\nmtu = {mtu}\n", tunnel.keys)?;
        write!(text, "underlay = {underlay:?}\nremote = {remote:?}\n")?;
        if tunnel.port == "a" {
            bridge.push(format!("t{number}"));
        } else {
            write!(text, "\n[patch.p{number}]\nports = [\"{}\", \"t{number}\"]\n", tunnel.port)?;
        }
    }
    write!(text, "\n[bridge.lan]\nports = {bridge:?}\n")?;
    Ok(text)
}

/// Without tunnels of the switch: both guests have the devices, and the switch patches their ports.
fn between_guests(lab: &Lab) -> Result<()> {
    const MTU: u32 = 1500;
    let ports = ["a", "u", "b", "v"].map(|name| Port { mtu: MTU + SPACE, ..Port::new(name) });
    let switch = Switch::start(lab, &ports, Join::Patch)?;
    let mut near = LinuxGuest::start_uml(lab, 1, &["a", "b"])?;
    let mut far = LinuxGuest::start_uml(lab, 2, &["u", "v"])?;
    join_underlay(&mut near, 1, MTU)?;
    join_underlay(&mut far, FAR, MTU)?;
    for (number, tunnel) in (1..).zip(&TUNNELS) {
        let inner = Inner(number);
        tunnel.make(&mut near, inner, 1, MTU)?;
        tunnel.make(&mut far, inner, FAR, MTU)?;
        inner.echo(&mut near, MTU, tunnel.only_v4).with_context(|| format!("t{number}: {}", tunnel.device))?;
    }
    switch.stop()
}

fn with_linux(lab: &Lab, mtu: u32) -> Result<()> {
    let mut switch = Switch::spawn_with(lab, &[], &configuration(lab, mtu)?)?;
    switch.wait_ready()?;
    let mut near = LinuxGuest::start_uml(lab, 1, &NEAR)?;
    let mut far = LinuxGuest::start_uml(lab, 2, &["u", "v"])?;
    near.boot()?;
    near.load_ip6()?;
    join_underlay(&mut far, FAR, mtu)?;
    for (number, tunnel) in (1..).zip(&TUNNELS) {
        if !tunnel.is_tried(mtu) {
            continue;
        }
        let inner = Inner(number);
        let unit = NEAR.iter().position(|port| *port == tunnel.port).context("no such port")?;
        inner.join(&mut near, &format!("eth{unit}"), 1, mtu)?;
        tunnel.make(&mut far, inner, FAR, mtu)?;
        let both = inner.exchange_by(&mut near, &mut far, mtu, tunnel.only_v4);
        both.with_context(|| format!("t{number}: {}", tunnel.device))?;
    }
    let tried = (1..).zip(&TUNNELS).filter(|(_, tunnel)| tunnel.is_tried(mtu));
    let names: Vec<String> = tried.map(|(number, _): (u8, _)| format!("t{number}")).collect();
    carried_by(&switch, names.iter().map(String::as_str))?;
    switch.stop()
}

/// Waits until a guest has booted, and makes it a host of the underlay's network by `eth0`, and of
/// that with a VLAN by `eth1`.
fn join_underlay(guest: &mut LinuxGuest, host: u8, mtu: u32) -> Result<()> {
    guest.boot()?;
    guest.load_tunnels()?;
    let mtu = mtu + SPACE;
    let vlan = "iproute2 link add link eth1 name eth1.100 type vlan id 100";
    guest.sh(&format!(
        "sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv6.conf.eth0.accept_dad=0; ip link set eth0 mtu {mtu} up; \
         ip link set eth1 mtu {mtu} up; {vlan}; ip link set eth1.100 up; ip addr add 198.51.100.{host}/24 dev eth1.100; \
         {}; {}",
        Outer::V4.add(host, "eth0"),
        Outer::V6.add(host, "eth0")
    ))?;
    Ok(())
}

impl Tunnel {
    /// Returns whether the tunnel is tried with this MTU: with long packets each kind, but not each
    /// set of keys.
    fn is_tried(&self, mtu: u32) -> bool {
        mtu <= 1500 || self.outer == Outer::V6 || self.is_tagged || self.port != "a"
    }

    /// Makes the device at one host of the underlay's network, which is the same host inside.
    fn make(&self, guest: &mut LinuxGuest, inner: Inner, host: u8, mtu: u32) -> Result<()> {
        let device = format!("t{}", inner.0);
        let other = 3 - host;
        let fill = |text: &str| {
            let words = text.split(' ').map(|word| match word {
                "L" => self.address(host),
                "R" => self.address(other),
                "D" => device.clone(),
                "N" => inner.v4(other),
                "N/32" => format!("{}/32", inner.v4(other)),
                word => word.to_owned(),
            });
            words.collect::<Vec<_>>().join(" ")
        };
        say!("  guest {}: {device} {}", guest.number, fill(self.device));
        guest.sh(&format!("iproute2 link add {device} type {}", fill(self.device)))?;
        inner.join(guest, &device, host, mtu)?;
        if !self.then.is_empty() {
            guest.sh(&fill(self.then))?;
        }
        Ok(())
    }

    fn address(&self, host: u8) -> String {
        if self.is_tagged { format!("198.51.100.{host}") } else { self.outer.address(host) }
    }
}

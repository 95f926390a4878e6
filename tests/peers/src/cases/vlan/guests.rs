//! Two guests with VLAN devices: on trunks, on an access port and on customer ports.
//!
//! | network | guest 1 | guest 2 |
//! |---|---|---|
//! | 1 | VLAN 10 of a trunk | an access port |
//! | 2 | VLAN 20 of a trunk, with priority 5 | VLAN 20 of a trunk |
//! | 3 | VLAN 30 inside VLAN 20 | VLAN 30 inside VLAN 20 |
//! | 4 | VLAN 7 on a customer port | VLAN 7 on a customer port |

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::model::Tag;
use super::ours::vhost_user;
use super::tags;
use super::topology::CUSTOMER;
use crate::cases::tunnel::Inner;
use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::proc::{self, Proc};
use crate::say::say;
use crate::switch::Switch;
use crate::traffic;

const MTU: u32 = 1500;

/// The ports and their VLANs.
const PORTS: [(&str, &str); 5] = [
    ("t1", "trunk = [10, 20]"),
    ("c1", "qinq = 100"),
    ("t2", "trunk = [20]"),
    ("a2", "vlan = 10"),
    ("c2", "qinq = 100"),
];

/// The device of each network in guest 1 and in guest 2, and the commands that make it.
const DEVICES: [[(&str, &str); 2]; 4] = [
    [("v10", "iproute2 link add link eth0 name v10 type vlan id 10"), ("eth1", "true")],
    [
        ("v20", "iproute2 link add link eth0 name v20 type vlan id 20 egress-qos-map 0:5"),
        ("v20", "iproute2 link add link eth0 name v20 type vlan id 20"),
    ],
    [
        ("v30", "ip link set v20 mtu 1500 up; iproute2 link add link v20 name v30 type vlan id 30"),
        ("v30", "ip link set v20 mtu 1500 up; iproute2 link add link v20 name v30 type vlan id 30"),
    ],
    [
        ("v7", "iproute2 link add link eth1 name v7 type vlan id 7"),
        ("v7", "iproute2 link add link eth2 name v7 type vlan id 7"),
    ],
];

pub(super) fn exchange(lab: &Lab) -> Result<()> {
    let mut text = Switch::port_sections(lab, &[])?;
    for (name, keys) in PORTS {
        text += &format!("\n[port.{name}]\n{}\nmtu = {MTU}\n{keys}\n", vhost_user(lab, name));
    }
    text += &format!("\n[bridge.lan]\nports = {:?}\n", PORTS.map(|(name, _)| name));
    let mut switch = Switch::spawn_with(lab, &[], &text)?;
    switch.wait_ready()?;
    let mut one = LinuxGuest::start_uml(lab, 1, &["t1", "c1"])?;
    let mut two = LinuxGuest::start_uml(lab, 2, &["t2", "a2", "c2"])?;
    for guest in [&mut one, &mut two] {
        guest.boot()?;
        guest.load_tunnels()?;
        // VLAN devices take the address of their device.
        guest.sh(&format!("ip link set eth0 address {}", guest.mac()))?;
        guest.sh("for device in /sys/class/net/eth*; do ip link set ${device##*/} mtu 1500 up; done")?;
    }
    for (number, [near, far]) in (1..).zip(DEVICES) {
        let network = Inner(number);
        for (guest, (device, make), host) in [(&mut one, near, 1), (&mut two, far, 2)] {
            guest.sh(make)?;
            network.join(guest, device, host, MTU)?;
        }
        let only_v4 = number % 2 == 0;
        network.exchange_by(&mut one, &mut two, MTU, only_v4).with_context(|| format!("{near:?} with {far:?}"))?;
    }
    tags_on_trunks(lab, &mut one)?;
    learned(&switch, [&one, &two])?;
    switch.stop()
}

/// A trunk's capture shows the tags of its frames. The priority of guest 1 arrives at the other trunk.
fn tags_on_trunks(lab: &Lab, one: &mut LinuxGuest) -> Result<()> {
    for (port, network, vid, priority) in [("t1", 1, 10, 0), ("t2", 2, 20, 5)] {
        let file = lab.log(&format!("{port}.pcap"));
        let mut command = Command::new(&lab.machine.switch);
        command.args(["capture", port, "--count", "20", "--write"]).arg(&file);
        command.arg("--api").arg(lab.socket("api"));
        let mut capture = Proc::start("capture", command, &lab.log(&format!("capture-{port}")))?;
        let begun = || Ok(capture.texts().1.contains("end with Ctrl-C").then_some(()));
        proc::until("the capture begins", begun)?;
        traffic::ping(one, &Inner(network).v4(2), 10, MTU - 28)?;
        let status = capture.wait_end()?;
        ensure!(status.success(), "the capture ended with {status}");
        let requests = tags::read(&file, "icmp.type == 8")?;
        let right =
            |tags: &Vec<_>| matches!(tags[..], [tag] if tag == (Tag { tpid: CUSTOMER, vid, priority, dei: false }));
        ensure!(requests.len() > 5 && requests.iter().all(right), "port {port}: tshark read the tags {requests:?}");
        say!("  port {port}: tshark read VLAN {vid} and priority {priority} in {} requests", requests.len());
        std::fs::remove_file(file)?;
    }
    Ok(())
}

/// The bridge has learned the guests in the VLANs of their networks.
fn learned(switch: &Switch, guests: [&LinuxGuest; 2]) -> Result<()> {
    let table = switch.fdb()?;
    let [one, two] = guests.map(LinuxGuest::mac);
    for (mac, vlan, port) in [(&one, 10, "t1"), (&one, 20, "t1"), (&two, 20, "t2")] {
        let known = table.iter().any(|entry| entry.mac == *mac && entry.vlan == vlan && entry.port == port);
        ensure!(known, "{mac} should be in VLAN {vlan} at port {port}: {table:?}");
    }
    Ok(())
}
